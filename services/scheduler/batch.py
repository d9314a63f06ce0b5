"""The decisions of one exchange: their operations for the queue, and their outcomes for the world.

Consecutive refusals change nothing but their pods' place in the queue: they share one operation and
one outcome, which hold each reason once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from reprieve.queue.v1beta1 import queue_pb2
from reprieve.scheduler.v1beta1 import scheduler_pb2
from services.framework.runtime.diagnosis import Refused
from services.rpc.kube.messages import put
from services.scheduler.codec import PHASES, StepEncoder, put_outcome, put_refused
from services.scheduler.core.decisions import Binding, Decision, Skipped, Verdict
from services.scheduler.core.queueing.steps import CommitUnschedulable, Head, WhyFailed

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


class QueueAnswer(NamedTuple):
    """What follows from a batch for the queue.

    `heads` are the pods that are next, in order, and `wakeup_ns` is when another one may be.
    `taken_back` are the batch's decisions that the queue did not accept. `exchange_ns` is the wall
    time of the exchange; None where the answer followed without one.
    """

    heads: Sequence[Head]
    wakeup_ns: int | None = None
    taken_back: Sequence[Decision] = ()
    exchange_ns: int | None = None


class Batch:
    """Operations for the queue in order: a round's input, or decisions that were made at `at_ns`.

    `size` is the approximate size of the decisions' outcomes, in bytes.
    """

    def __init__(
        self, encoder: StepEncoder, at_ns: int, operations: Iterable[queue_pb2.Operation] = ()
    ) -> None:
        self.operations = [*operations]
        self._encoder = encoder
        self._at_ns = at_ns
        self._entries: list[BatchEntry] = []
        self.size = 0
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
        return all(isinstance(entry.decision.verdict, Binding) for entry in self._entries)

    @property
    def last(self) -> Decision | None:
        """Return the last decision."""
        return self._entries[-1].decision if self._entries else None

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

    def take_back(self, operations: int, pods: int) -> list[Decision]:
        """Take out and return the decisions that the queue did not accept.

        It applied the first `operations`, and of the next one the first `pods`.
        """
        kept = [entry for entry in self._entries if entry.begin < (operations, pods)]
        taken_back = [entry.decision for entry in self._entries[len(kept) :]]
        self._entries = kept
        return taken_back

    def put_outcomes(self, out: scheduler_pb2.RoundOutcomes) -> int:
        """Write what was decided, and count the pods that were tried."""
        run: list[BatchEntry] = []
        tried = 0
        for entry in self._entries:
            if entry.is_plain_refusal:
                run.append(entry)
                tried += 1
                continue
            self._put_run(run, out)
            run = []
            if not isinstance(entry.decision.verdict, Skipped):
                tried += 1
                outcome = out.outcomes.add()
                put_outcome(entry.decision, self._at_ns, entry.wall_ns, outcome)
                outcome.extender_answers.extend(entry.answers)
        self._put_run(run, out)
        return tried

    def _put_run(self, run: Sequence[BatchEntry], out: scheduler_pb2.RoundOutcomes) -> None:
        if not run:
            return
        refusals = out.outcomes.add(at_ns=self._at_ns).refusals
        decisions = [entry.decision for entry in run]
        heads = [decision.head for decision in decisions]
        refusals.first_cycle = heads[0].pop.cycle
        refusals.uids.extend([head.pop.uid for head in heads])
        refusals.attempts.extend([head.attempts for head in heads])
        refusals.first_enqueued_ns.extend([head.first_enqueued_ns for head in heads])
        refusals.queued_ns.extend([head.queued_ns for head in heads])
        refusals.wall_ns.extend([entry.wall_ns for entry in run])
        _put_verdicts(decisions, refusals)
        _put_steps(decisions, refusals)


def _variable_size(decision: Decision, answers: Sequence[scheduler_pb2.ExtenderAnswer]) -> int:
    """Return about what an outcome has beside what each has, in bytes."""
    size = sum(answer.ByteSize() for answer in answers)
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
    refused_by: list[int] = []
    for decision in decisions:
        verdict = decision.verdict
        place = place_of.get(id(verdict))
        if place is None:
            assert isinstance(verdict, Refused)  # noqa: S101 - plain refusals are
            place = place_of[id(verdict)] = places.setdefault(verdict, len(places))
            if place == len(out.verdicts):
                put_refused(verdict, out.verdicts.add())
        refused_by.append(place)
    out.refused_by.extend(refused_by)


def _put_steps(decisions: Iterable[Decision], out: scheduler_pb2.Refusals) -> None:
    steps: dict[str, tuple[list[int], list[int]]] = {}
    for place, decision in enumerate(decisions):
        for name, taken_ns in decision.phases_ns.items():
            places, walls_ns = steps.setdefault(name, ([], []))
            places.append(place)
            walls_ns.append(taken_ns)
    for name, (places, walls_ns) in steps.items():
        out.steps.add(name=PHASES.get(name, name), places=places, wall_ns=walls_ns)
