"""The decisions of one exchange: their operations for the queue, and their outcomes for the world.

Consecutive refusals change nothing but their pods' place in the queue: they share one operation and
one outcome, which hold each reason once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from reprieve.queue.v1beta1 import queue_pb2, queue_service_pb2
from reprieve.scheduler.v1beta1 import scheduler_pb2
from services.framework.runtime.diagnosis import Refused
from services.rpc.kube.messages import put
from services.scheduler.codec import PHASES, StepEncoder, put_outcome, put_refused
from services.scheduler.core.decisions import Binding, Decision, Skipped, Verdict
from services.scheduler.core.queueing.steps import CommitUnschedulable, WhyFailed

_OUTCOME_BYTES = 256
_POD_BYTES = 24
"""What an outcome has, and what a pod that it names has beside its names, at most."""

Place = tuple[int, int]
"""Where in a batch a decision begins: the place of its operation, and of its pod within that."""


class BatchEntry(NamedTuple):
    """A decision, its place in the batch and its wall time; `answers` are the extenders'."""

    decision: Decision
    begin: Place
    wall_ns: int
    answers: Sequence[scheduler_pb2.ExtenderAnswer]

    @property
    def is_plain_refusal(self) -> bool:
        """Return whether the outcome has only a reason, a time and an attempt number."""
        verdict = self.decision.verdict
        return (
            type(verdict) is Refused
            and verdict.nomination is None
            and not self.answers
            and not self.decision.warnings
        )


class Batch:
    """Decisions in order, all made at `at_ns`; `operations` commit them.

    `size` is the approximate size of their outcomes, in bytes. `awaited` is the decision whose
    effects the next attempt must see, if there is one; it is the last.
    """

    def __init__(self, encoder: StepEncoder, at_ns: int) -> None:
        self.operations: list[queue_pb2.Operation] = []
        self._encoder = encoder
        self._at_ns = at_ns
        self._entries: list[BatchEntry] = []
        self.size = 0
        self.awaited: Decision | None = None
        self._run: queue_pb2.CommitUnschedulable | None = None
        self._run_pods = 0
        self._reasons: dict[WhyFailed, int] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[BatchEntry]:
        return iter(self._entries)

    @property
    def all_bound(self) -> bool:
        """Return whether every decision binds its pod."""
        return all(isinstance(each.decision.verdict, Binding) for each in self._entries)

    @property
    def awaits_effects(self) -> bool:
        """Return whether `awaited` was made and was not taken back."""
        return bool(self._entries) and self._entries[-1].decision is self.awaited

    @property
    def last_cycle(self) -> int:
        """Return the cycle of the last decision's pop."""
        return self._entries[-1].decision.head.pop.cycle

    def add(
        self, decision: Decision, wall_ns: int, answers: Sequence[scheduler_pb2.ExtenderAnswer]
    ) -> None:
        """Append a decision."""
        steps = decision.steps
        first = steps[0]
        if type(first) is CommitUnschedulable:
            begin, steps = self._add_unschedulable(first), steps[1:]
        else:
            begin = (len(self.operations), 0)
        for step in steps:
            self.operations.append(self._encoder.operation(step, self._at_ns))
            self._run = None
        self._entries.append(BatchEntry(decision, begin, wall_ns, answers))
        self.size += _OUTCOME_BYTES
        if answers or type(decision.verdict) is Refused:
            self.size += _variable_size(decision, answers)

    def _add_unschedulable(self, step: CommitUnschedulable) -> Place:
        run = self._run
        if run is None:
            operation = queue_pb2.Operation(at_ns=self._at_ns)
            self.operations.append(operation)
            run = self._run = operation.commit_unschedulable
            run.first_cycle, self._run_pods = step.pop.cycle, 0
            self._reasons.clear()
        reason = self._reasons.get(step.why)
        if reason is None:
            reason = self._reasons[step.why] = len(self._reasons)
            _put_why(step.why, run.failures.add())
        run.uids.append(step.pop.uid)
        run.failed_by.append(reason)
        self._run_pods += 1
        return (len(self.operations) - 1, self._run_pods - 1)

    def take_back(self, answer: queue_service_pb2.ApplyResponse) -> list[Decision]:
        """Take out and return the decisions that the queue did not go along with."""
        last = answer.results[-1].pods if answer.results else 0
        end = (answer.applied, last)
        kept = [each for each in self._entries if each.begin < end]
        left = [each.decision for each in self._entries[len(kept) :]]
        self._entries = kept
        return left

    def put_outcomes(self, out: scheduler_pb2.RoundOutcomes) -> int:
        """Write what was decided, and count the pods that were tried."""
        run: list[BatchEntry] = []
        tried = 0
        for taken in self._entries:
            if taken.is_plain_refusal:
                run.append(taken)
                tried += 1
                continue
            self._put_run(run, out)
            run = []
            if not isinstance(taken.decision.verdict, Skipped):
                tried += 1
                outcome = out.outcomes.add()
                put_outcome(taken.decision, self._at_ns, taken.wall_ns, outcome)
                outcome.extender_answers.extend(taken.answers)
        self._put_run(run, out)
        return tried

    def _put_run(self, run: Sequence[BatchEntry], out: scheduler_pb2.RoundOutcomes) -> None:
        if not run:
            return
        refusals = out.outcomes.add(at_ns=self._at_ns).refusals
        decisions = [each.decision for each in run]
        heads = [decision.head for decision in decisions]
        refusals.first_cycle = heads[0].pop.cycle
        refusals.uids.extend([head.pop.uid for head in heads])
        refusals.attempts.extend([head.attempts for head in heads])
        refusals.first_enqueued_ns.extend([head.first_enqueued_ns for head in heads])
        refusals.queued_ns.extend([head.queued_ns for head in heads])
        refusals.wall_ns.extend([each.wall_ns for each in run])
        _put_verdicts(decisions, refusals)
        _put_steps(decisions, refusals)


def _variable_size(decision: Decision, answers: Sequence[scheduler_pb2.ExtenderAnswer]) -> int:
    """Return about what an outcome has beside what each has, in bytes."""
    size = sum(each.ByteSize() for each in answers)
    verdict = decision.verdict
    if isinstance(verdict, Refused):
        size += len(verdict.message) + len(verdict.preemption_message)
        nomination = verdict.nomination
        named = (
            ()
            if nomination is None
            else (*nomination.victims, *nomination.reprieved, *nomination.cleared_nominations)
        )
        size += sum(len(pod.uid) + len(pod.namespace) + len(pod.name) for pod in named)
        size += len(named) * _POD_BYTES
    return size


def _put_why(why: WhyFailed, out: queue_pb2.Failure) -> None:
    out.unschedulable_plugins.extend(why.plugins)
    out.pending_plugins.extend(why.pending_plugins)
    out.error = why.is_error
    if why.spread_selector is not None:
        put(why.spread_selector, out.default_spread_selector)


def _put_verdicts(decisions: Iterable[Decision], out: scheduler_pb2.Refusals) -> None:
    """Write each verdict once, and for each decision the place of its own.

    A verdict that holds for several pods is mostly one object.
    """
    places: dict[Verdict, int] = {}
    place_of: dict[int, int] = {}
    found: list[int] = []
    for decision in decisions:
        verdict = decision.verdict
        place = place_of.get(id(verdict))
        if place is None:
            assert isinstance(verdict, Refused)  # noqa: S101 - plain refusals are
            place = place_of[id(verdict)] = places.setdefault(verdict, len(places))
            if place == len(out.verdicts):
                put_refused(verdict, out.verdicts.add())
        found.append(place)
    out.refused_by.extend(found)


def _put_steps(decisions: Iterable[Decision], out: scheduler_pb2.Refusals) -> None:
    steps: dict[str, tuple[list[int], list[int]]] = {}
    for place, decision in enumerate(decisions):
        for name, taken_ns in decision.phases_ns.items():
            places, walls_ns = steps.setdefault(name, ([], []))
            places.append(place)
            walls_ns.append(taken_ns)
    for name, (places, walls_ns) in steps.items():
        out.steps.add(name=PHASES.get(name, name), places=places, wall_ns=walls_ns)
