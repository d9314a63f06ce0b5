"""Replays a run's rounds to a scheduler, up to one decision.

Many pods can be scheduled at one moment, and each attempt depends on the earlier ones. So each
round of the decision's moment is sent without popping a pod. Then the scheduler pops the pods whose
attempts the log has before the target's, then one pod at a time. Right before the target's attempt,
the scheduler evaluates the pod.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, groupby, islice

import grpc

from replay.backends.services import SchedulerService
from replay.backends.stream import describe
from replay.errors import BackendError, RunError
from replay.explain.target import ExplainTarget
from replay.results.run.checkpoints import Checkpoint
from replay.results.run.decision_log import one_by_one
from replay.results.run.listing import is_before_restart, listed
from reprieve.queue.v1beta1 import queue_pb2
from reprieve.scheduler.v1beta1 import scheduler_pb2
from reprieve.scheduler.v1beta1 import scheduler_service_pb2 as service_pb2
from services.rpc.access import PLAIN, ClientTls

_AHEAD = 32
"""Rounds that are sent before the first response is read."""

DIVERGED = (
    "replaying the run's history does not lead to that decision: was the run made by another "
    "version, or by another scheduler?"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RerunResult:
    """The result of a replay up to a decision.

    evaluation: every verdict right before the attempt; for a pod that was not tried, at the end of
    the replay. outcome: the outcome of the attempt, None without an attempt. waiting: the pod's
    entry in the queue at `at_ns`, None if it is not pending. fits_now: the number of nodes that fit
    at `at_ns`.
    """

    evaluation: scheduler_pb2.Evaluation
    outcome: scheduler_pb2.Outcome | None
    at_ns: int
    waiting: queue_pb2.Entry | None = None
    fits_now: int = 0


class Rerun:
    """A session with a scheduler that receives a run's history. Methods raise BackendError.

    queue: the configuration of its queue, with defaults. implementation: the scheduler's name and
    version.
    """

    def __init__(
        self, address: str, config: scheduler_pb2.SchedulerConfig, tls: ClientTls = PLAIN
    ) -> None:
        self._address = address
        self._scheduler = SchedulerService(address, config, tls)
        self.queue = self._scheduler.opened.config.queue
        self.implementation = self._scheduler.implementation
        self._at_ns = 0

    def find(
        self,
        rounds: Iterable[scheduler_pb2.Round],
        target: ExplainTarget,
        checkpoint: Checkpoint | None = None,
        restarted_ns: int | None = None,
    ) -> RerunResult:
        """Send `rounds` up to the target, from the `checkpoint` on if the scheduler accepts it.

        restarted_ns: when the run's scheduler was restarted last before the target; without a
        checkpoint the rerun begins there. Raises RunError if the replay does not reach the target's
        attempt.
        """
        rounds = self._resumed(iter(rounds), checkpoint, restarted_ns)
        instants = (list(instant) for _, instant in groupby(rounds, lambda round_: round_.time_ns))
        evaluation: scheduler_pb2.Evaluation | None = None
        outcome: scheduler_pb2.Outcome | None = None
        entry, remaining = target.entry, deque[scheduler_pb2.Round]()
        if entry is not None:
            remaining = self._send_until(instants, target.from_ns)
            evaluation, outcome = self._attempt(remaining, target)
            if outcome.HasField("bind") and not entry.refused:
                return RerunResult(evaluation=evaluation, outcome=outcome, at_ns=self._at_ns)
        if target.until_ns is not None:
            self._send_all([*remaining, *_until(instants, target.until_ns)])
        shown = 1 if evaluation is not None else None
        later = self._evaluate(target.life.uid, target.attempt + 1, top_k=shown)
        if later is None:
            if evaluation is None:
                raise RunError(f"pod {target.life.key} is not pending at that moment")
            return RerunResult(evaluation=evaluation, outcome=outcome, at_ns=self._at_ns)
        return RerunResult(
            evaluation=evaluation or later.evaluation,
            outcome=outcome,
            waiting=later.entry if later.HasField("entry") else None,
            fits_now=later.evaluation.feasible_nodes,
            at_ns=target.until_ns or self._at_ns,
        )

    def close(self) -> None:
        """Close the session."""
        self._scheduler.close()

    def _resumed(
        self,
        rounds: Iterator[scheduler_pb2.Round],
        checkpoint: Checkpoint | None,
        restarted_ns: int | None,
    ) -> Iterator[scheduler_pb2.Round]:
        """Return the rounds after the checkpoint.

        Without a checkpoint, or if the scheduler refuses it, these are all rounds since the
        scheduler started.
        """
        if checkpoint is None:
            return self._restarted(rounds, restarted_ns)
        try:
            self._scheduler.restore(checkpoint.scheduler())
        except (BackendError, RunError):  # Another version wrote it; its bytes were verified.
            return self._restarted(rounds, restarted_ns)
        self._at_ns = checkpoint.at_ns
        return islice(rounds, checkpoint.rounds, None)

    def _restarted(
        self, rounds: Iterator[scheduler_pb2.Round], restarted_ns: int | None
    ) -> Iterator[scheduler_pb2.Round]:
        """Send the objects that the scheduler listed at its restart; return the rounds since."""
        if restarted_ns is None:
            return rounds
        later = deque[scheduler_pb2.Round]()

        def before() -> Iterator[scheduler_pb2.Round]:
            for round_ in rounds:
                if not is_before_restart(round_, restarted_ns):
                    later.append(round_)
                    return
                yield round_

        self._scheduler.list_objects(listed(before(), restarted_ns), restarted_ns)
        self._at_ns = restarted_ns
        return chain(later, rounds)

    def _send_until(
        self, instants: Iterator[list[scheduler_pb2.Round]], at_ns: int
    ) -> deque[scheduler_pb2.Round]:
        """Send the rounds before a moment; return the rounds at the moment."""
        of_moment: deque[scheduler_pb2.Round] = deque()

        def before() -> Iterator[scheduler_pb2.Round]:
            for instant in instants:
                if instant[0].time_ns >= at_ns:
                    of_moment.extend(instant)
                    return
                yield from instant

        self._send_all(before())
        return of_moment

    def _attempt(
        self, rounds: deque[scheduler_pb2.Round], target: ExplainTarget
    ) -> tuple[scheduler_pb2.Evaluation, scheduler_pb2.Outcome]:
        """Replay a moment's rounds up to the target's attempt; return evaluation and outcome.

        Later rounds stay in `rounds`. Raises RunError if the scheduler does not make the attempt.
        """
        ahead = target.ahead
        while rounds:
            listed = scheduler_pb2.Round()
            listed.CopyFrom(rounds.popleft())
            is_part, pods_left = listed.events_only, listed.max_pods or 2**31
            listed.events_only = True
            self._send(listed)
            more = not is_part
            while more and pods_left > 0:
                evaluated = None if ahead else self._evaluate(target.life.uid, target.attempt)
                taken = self._take(min(ahead, pods_left) or 1)
                made = list(one_by_one(taken))
                more = taken.more and not taken.awaits_effects
                ahead -= min(ahead, len(made))
                pods_left -= len(made)
                for outcome in made:
                    named = (outcome.pop.uid, outcome.attempts)
                    if evaluated is not None and named == (target.life.uid, target.attempt):
                        if more and pods_left > 0:
                            self._take(0)
                        return evaluated.evaluation, outcome
        raise RunError(DIVERGED)

    def _take(self, pods: int) -> scheduler_pb2.RoundOutcomes:
        """Let the scheduler pop that many pods at the current moment; 0: all."""
        return self._send(scheduler_pb2.Round(time_ns=self._at_ns, max_pods=pods or None))

    def _send(self, round_: scheduler_pb2.Round) -> scheduler_pb2.RoundOutcomes:
        self._at_ns = round_.time_ns
        self._scheduler.send_round(round_)
        return self._scheduler.receive_outcomes()

    def _send_all(self, rounds: Iterable[scheduler_pb2.Round]) -> None:
        """Send rounds, up to _AHEAD of them before their responses are read."""
        unanswered = 0
        for round_ in rounds:
            self._at_ns = round_.time_ns
            self._scheduler.send_round(round_)
            unanswered += 1
            if unanswered >= _AHEAD:
                self._scheduler.receive_outcomes()
                unanswered -= 1
        for _ in range(unanswered):
            self._scheduler.receive_outcomes()

    def _evaluate(
        self, uid: str, attempt: int, *, top_k: int | None = None
    ) -> service_pb2.EvaluatePodResponse | None:
        """Return every verdict about a pending pod; None if the pod is not pending."""
        request = service_pb2.EvaluatePodRequest(attempt=attempt, top_k=top_k)
        request.pod.uid = uid
        try:
            return self._scheduler.evaluate(request)
        except grpc.RpcError as error:
            code = error.code() if isinstance(error, grpc.Call) else None
            if code is grpc.StatusCode.NOT_FOUND:
                return None
            if code is grpc.StatusCode.INVALID_ARGUMENT:
                raise RunError(
                    f"the run's scheduler does not evaluate the pod: {describe(error)}"
                ) from error
            if code is grpc.StatusCode.UNIMPLEMENTED:
                raise RunError(
                    f"the scheduler at {self._address} does not serve EvaluatePod, which "
                    "explain needs"
                ) from error
            text = f"the scheduler at {self._address} answers {describe(error)}"
            raise BackendError(text) from error


def _until(
    instants: Iterator[list[scheduler_pb2.Round]], until_ns: int
) -> Iterator[scheduler_pb2.Round]:
    for instant in instants:
        if instant[0].time_ns > until_ns:
            return
        yield from instant
