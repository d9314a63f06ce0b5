"""The replay: a series of instants, each a series of rounds, until the replay ends.

A round takes all that is due, runs the controllers on what has changed, sends the events to the
scheduler and carries out its outcomes, whose effects belong to the next round. When no events are
left to send, the controllers that wait for that act (`Controller.settle`): first the kubelets whose
step is due, then the cluster autoscaler's scan. Their effects make further rounds of the same
instant. Rounds that are not sent are numbered, too, so the numbers of those sent may have gaps.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from replay.world.api.cluster import Cluster
from replay.world.controller import Ending
from replay.world.controllers.autoscaling.cluster_autoscaler import AutoscalerBackend
from replay.world.controllers.autoscaling.node_groups import Autoscaling
from replay.world.controllers.controller_manager import ControllerManager, controllers_in_order
from replay.world.journal import DecisionSink, FailedAttemptSink, Journal, Mistake, ObjectSink
from replay.world.kubelet.annotations import UsageRule
from replay.world.kubelet.memory_limits import DEFAULT_KUBELET, KubeletMemory
from replay.world.kubelet.pod_lifecycle import PodLifecycle
from replay.world.kubelet.pressure import EvictionBackend
from replay.world.loop.inputs import RecordFeed
from replay.world.loop.outcomes import OutcomeExecutor
from replay.world.loop.records import RecordSource
from replay.world.loop.rounds import (
    EVENTS_PER_MESSAGE,
    MessageSaver,
    Observer,
    PlacementAudit,
    RestartedScheduler,
    RoundStream,
    SchedulerBackend,
)
from replay.world.loop.scheduling_costs import SchedulingCosts
from replay.world.models import Models
from replay.world.state import WorldState
from replay.world.timeline import Action, ActionKind
from reprieve.scheduler.v1beta1 import scheduler_pb2
from reprieve.trace.v1beta1 import trace_pb2
from services.kube.time import SECOND_NS

ROUNDS_MAX = 1000
PARTS_UNCOUNTED = 100
"""Parts of a round's outcomes in which it is not counted how often a pod is refused."""
PATIENCE_NS = 600 * SECOND_NS
"""How long pending pods are retried on an unchanged snapshot: twice the longest time that upstream
keeps one among the unschedulable (kubernetes v1.34, podMaxInUnschedulablePodsDuration)."""

RETRIES_SKIPPED = (
    "after 10 minutes in which the cluster did not change, pending pods were not retried until the "
    "next planned change; use --until to replay every retry"
)
_NO_NODES = "the cluster has no node at the end; --made-nodes 10 or --nodes-from FILE adds some"


class LoopError(RuntimeError):
    """Rounds at one instant that never end; the text names the pods in their events."""


class ReplayEnd(Enum):
    """The reason for which a replay ended."""

    FINISHED = "finished"
    UNTIL = "the time of --until is reached"
    WINDOW = "the end of the recorded window is reached"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of a replay: it stops `until_ns` after the first record; None: without a limit.

    `restarts_ns`: when the scheduler restarts, in order (ns since the Unix epoch). `progress` is
    called after each instant, with its time (ns) and the cluster.
    """

    until_ns: int | None = None
    restarts_ns: Sequence[int] = ()
    progress: Callable[[int, Cluster], None] = field(default=lambda _now_ns, _cluster: None)


class Replay:
    """One run of one trace against a scheduler and, where there is usage, an eviction service.

    With `autoscaling` an autoscaler makes and removes nodes of its groups.

    `stop_ns` is the latest time of the run, None if it ends when nothing is left to happen.
    `restart_ns` is the time of the scheduler's next restart, None without one; `restarts` counts
    those that have been. `restarted` replaces the scheduler's session by one that has been sent all
    objects; it receives the time, and the number of restarts.
    """

    _wakeup_ns: int | None
    _version: tuple[int, int]
    _unchanged_since_ns: int
    stop_ns: int | None
    now_ns: int
    instants: int
    restarts: int

    def __init__(
        self,
        scheduler: SchedulerBackend,
        eviction: EvictionBackend | None,
        *,
        models: Models,
        sink: DecisionSink,
        failed: FailedAttemptSink | None = None,
        objects: ObjectSink | None = None,
        observer: Observer,
        cluster: Cluster | None = None,
        usage: Sequence[UsageRule] = (),
        kubelet: KubeletMemory = DEFAULT_KUBELET,
        audit: PlacementAudit | None = None,
        autoscaler: AutoscalerBackend | None = None,
        autoscaling: Autoscaling | None = None,
    ) -> None:
        state = WorldState(
            journal=Journal(sink, failed, objects), models=models, cluster=cluster or Cluster()
        )
        self.cluster, self.timeline, self.journal = state.cluster, state.timeline, state.journal
        self.admission, self.models = state.admission, models
        self._costs = SchedulingCosts(state)
        self.lifecycle = PodLifecycle(state)
        self.controllers = ControllerManager(
            self.cluster,
            controllers_in_order(
                state,
                self.lifecycle,
                eviction,
                usage=usage,
                kubelet=kubelet,
                autoscaler=autoscaler,
                autoscaling=autoscaling,
            ),
        )
        self._outcomes = OutcomeExecutor(state, self.lifecycle, self._costs)
        self.stream = RoundStream(
            scheduler,
            observer,
            self.cluster,
            one_by_one=self._costs.one_by_one,
            audit=audit,
            found_invalid=self._outcomes.keep_violations,
        )
        self.inputs = RecordFeed(state, self.lifecycle, self.controllers)
        self._wakeup_ns = None
        self._version = (0, 0)
        self._unchanged_since_ns = 0
        self.stop_ns = None
        self.source = RecordSource()
        self.now_ns = 0
        self.instants = 0
        self.restarts = 0
        self._restarts_ns: Sequence[int] = ()
        self.restarted: Callable[[int, int], RestartedScheduler] = _no_restart

    def send_through(self, scheduler: MessageSaver) -> None:
        """Send rounds to a scheduler that stands before the first one, and sees all events."""
        self.stream.send_through(scheduler)
        self.cluster.watch = scheduler.watch

    @property
    def rounds(self) -> int:
        """Return the number of rounds so far."""
        return self.stream.count

    @property
    def ungiven_tick_ns(self) -> int | None:
        """Return when the tick is due that the scheduler has requested and not received yet.

        None where no pod is pending: a tick brings nothing but another try.
        """
        return self._wakeup_ns if self.cluster.pending else None

    def run(self, records: Iterable[trace_pb2.Record], limits: Limits) -> ReplayEnd:
        """Replay the trace and return why the replay ended.

        `records` are those of the whole trace, also where the replay continues from a checkpoint.
        Raises LoopError and ContractError.
        """
        source = self.source
        source.read(records)
        if limits.until_ns is not None:
            limits = replace(limits, until_ns=limits.until_ns + source.first_ns)
        self._restarts_ns = limits.restarts_ns
        while True:
            at_ns, end = self._next_instant(source, limits)
            if at_ns is None:
                self.stream.finish(self.cluster.take_events())
                ending = Ending(
                    at_ns=self.now_ns,
                    start_ns=source.first_ns,
                    is_finished=end is ReplayEnd.FINISHED,
                    is_cut=end is ReplayEnd.WINDOW,
                )
                self.controllers.conclude(ending)
                if self.cluster.pending and not self.cluster.nodes:
                    self.journal.note("no-nodes", _NO_NODES)
                return end
            self.now_ns = at_ns
            self._instant(at_ns, source)
            limits.progress(at_ns, self.cluster)

    def _next_instant(self, source: RecordSource, limits: Limits) -> tuple[int | None, ReplayEnd]:
        wakeup_ns = self._costs.next_ns(self._wakeup_ns)
        stop_ns, end = _stop(limits.until_ns, source.window_end_ns)
        self.stop_ns = stop_ns
        record_ns = source.next_ns()
        if stop_ns is None and record_ns is None and self.restart_ns is None:
            if self._is_finished():
                return None, ReplayEnd.FINISHED
            if wakeup_ns is not None and self._is_out_of_patience():
                wakeup_ns = None
                self.journal.notes["retries", RETRIES_SKIPPED] = 1
        times = (record_ns, self.timeline.next_ns(), wakeup_ns, self.restart_ns)
        due = [at_ns for at_ns in times if at_ns is not None]
        if not due:
            return None, ReplayEnd.FINISHED
        at_ns = max(min(due), self.now_ns)
        if stop_ns is not None and at_ns > stop_ns:
            return None, end
        return at_ns, ReplayEnd.FINISHED

    def _is_finished(self) -> bool:
        """Return whether only retries and idle actions remain, which would change nothing."""
        if not self.timeline.is_idle:
            return False
        return self._wakeup_ns is None or self.cluster.all_tried() or self._is_out_of_patience()

    def _is_out_of_patience(self) -> bool:
        """Return whether every pending pod has had time to be tried on the current snapshot.

        Some are never tried, such as a pod that another implementation of a scheduler ignores.
        """
        return self.now_ns - self._unchanged_since_ns >= PATIENCE_NS

    def _instant(self, now_ns: int, source: RecordSource) -> None:
        """Play one instant: rounds, each with the due inputs and the effects of the one before.

        A round without news for the scheduler lets a node be stepped, or ends the instant.
        """
        self.instants += 1
        without_progress = 0
        for number in itertools.count(self._restart_if_due(now_ns)):
            if without_progress >= ROUNDS_MAX:
                raise LoopError(self._loop_text(now_ns))
            is_busy = self._costs.is_busy(now_ns)
            self.stream.begin(now_ns, number)
            if self._wakeup_ns is not None and self._wakeup_ns <= now_ns and not is_busy:
                self.cluster.tick(now_ns)
            self._take_due(now_ns, source)
            self.controllers.reconcile(now_ns)
            if not is_busy and self.stream.must_send(self.cluster.events):
                self._carry_out(now_ns)
                without_progress += not self.stream.awaits_effects
                continue
            without_progress += 1
            if not self.controllers.settle(now_ns) and self.timeline.next_ns() != now_ns:
                break
        version = (self.cluster.snapshot_version, self.cluster.enlisted)
        if self._version != version:
            self._version, self._unchanged_since_ns = version, now_ns

    @property
    def restart_ns(self) -> int | None:
        """Return the time of the scheduler's next restart, None without any."""
        return next(iter(self._restarts_ns[self.restarts :]), None)

    def _restart_if_due(self, now_ns: int) -> int:
        """Restart the scheduler if that is due; return the number of the instant's next round.

        The former scheduler receives what has not been sent yet as round 0. It loses what it alone
        has: back-off, attempts, why each pod was refused, bindings and deletions of victims that
        have not reached the API server. The next one lists all objects.

        Source: kubernetes v1.36 pkg/scheduler/scheduler.go, New, Run; eventhandlers.go,
        addAllEventHandlers (a pod without a node is added to the queue).
        """
        if self.restart_ns is None or self.restart_ns > now_ns:
            return 0
        self.stream.begin(now_ns, 0)
        self.stream.finish(self.cluster.take_events())
        while self.restart_ns is not None and self.restart_ns <= now_ns:
            self.restarts += 1
        self._costs.forget(now_ns)
        self._outcomes.preemptions.forget()
        self._outcomes.devices.forget()
        self._wakeup_ns = None
        scheduler = self.restarted(now_ns, self.restarts)
        self.cluster.scheduler_restarted(scheduler.names)
        self.stream.restarted(scheduler.audit)
        return 1

    def _carry_out(self, now_ns: int) -> None:
        """Send the round and carry out its outcomes, whose effects belong to the next one.

        The loop body runs while the scheduler decides the round's next part. Raises LoopError where
        the parts have no end: a pod is refused in them again and again.
        """
        refused = Counter[str]()
        for part, outcomes in enumerate(self.stream.outcomes(self.cluster.take_events())):
            if part >= PARTS_UNCOUNTED:
                for uid in _refused_uids(outcomes):
                    refused[uid] += 1
                    if refused[uid] > ROUNDS_MAX:
                        raise LoopError(self._endless_text(now_ns, uid))
            ready = self._costs.ready(now_ns, outcomes.outcomes, self._outcomes.mistake_of)
            self._apply(now_ns, ready)
            self._outcomes.expect(now_ns, outcomes.expectations)
            self._wakeup_ns = (
                outcomes.next_wakeup_time_ns if outcomes.HasField("next_wakeup_time_ns") else None
            )

    def _apply(
        self, now_ns: int, outcomes: Iterable[scheduler_pb2.Outcome], mistake: Mistake | None = None
    ) -> None:
        """Carry out outcomes; the next round answers them, before its first event."""
        self._answer(now_ns, self._outcomes.apply(now_ns, outcomes, mistake))

    def _answer(self, now_ns: int, answers: Sequence[scheduler_pb2.Answer]) -> None:
        """Answer at the time of the next round's first event, which is not later.

        Nothing depends on when the scheduler learns that it did as it wanted. From a refusal on
        the pod backs off: what happened before it is sent before it.
        """
        refused = any(answer.refused for answer in answers)
        if refused and not self._costs.is_busy(now_ns):
            earlier = self.cluster.take_events(before_ns=now_ns)
            if earlier:
                self.stream.send_part(earlier)
        waiting = self.cluster.events[:1]
        self.stream.add_answers(waiting[0].time_ns if waiting else now_ns, answers)

    def _take_due(self, now_ns: int, source: RecordSource) -> None:
        """Take the due inputs: records, then actions."""
        for record in source.take_due(now_ns):
            self.inputs.feed(now_ns, record)
            self._send_part(now_ns)
        for action in self.timeline.take_due(now_ns):
            self._act(now_ns, action)
            self._send_part(now_ns)

    def _send_part(self, now_ns: int) -> None:
        """Send a part of a long round's events, so that the scheduler can begin with them."""
        if len(self.cluster.events) >= EVENTS_PER_MESSAGE and not self._costs.is_busy(now_ns):
            self.stream.send_part(self.cluster.take_events())

    def _act(self, now_ns: int, action: Action) -> None:
        if action.kind is ActionKind.CYCLE:
            self._apply(now_ns, *self._costs.due(action.key))
        elif action.kind is ActionKind.PREEMPTION:
            self._answer(now_ns, self._outcomes.preemption_due(now_ns, action.key))
        elif action.kind is ActionKind.DEVICE_READY:
            self._outcomes.devices.report(now_ns, action.key)
        elif action.kind is ActionKind.DEVICE_WAIT:
            self._answer(now_ns, self._outcomes.device_wait_ended(now_ns, action.key))
        else:
            self.controllers.act(now_ns, action)

    def _endless_text(self, now_ns: int, uid: str) -> str:
        pod = self.cluster.pods.get(uid)
        return (
            f"a round at {now_ns} ns without an end: the scheduler has refused pod "
            f"{uid if pod is None else pod.key} more than {ROUNDS_MAX:,} times in it, and goes on"
        )

    def _loop_text(self, now_ns: int) -> str:
        events = self.stream.last_events
        pods = dict.fromkeys(name for event in events if (name := _pod_name(event)))
        names = ", ".join(itertools.islice(pods, 5))
        return (
            f"{ROUNDS_MAX} rounds at {now_ns} ns without an end; the events of these pods repeat: "
            f"{names or 'none'}{self._outcomes.last_refusal}"
        )


def _refused_uids(outcomes: scheduler_pb2.RoundOutcomes) -> Iterator[str]:
    """Yield the UIDs of the pods that a part of a round's outcomes does not bind."""
    for outcome in outcomes.outcomes:
        if outcome.HasField("refusals"):
            yield from outcome.refusals.uids
        elif not outcome.HasField("bind"):
            yield outcome.pop.uid


def _pod_name(event: scheduler_pb2.Event) -> str:
    """Return the namespace/name of an event's pod, "" for an event of another object."""
    match event.WhichOneof("event"):
        case "patch":
            return f"{event.patch.pod.namespace}/{event.patch.pod.name}"
        case "remove" if event.remove.kind == "Pod":
            return f"{event.remove.namespace}/{event.remove.name}"
        case "add" | "update":
            sent = event.add if event.HasField("add") else event.update
            meta = sent.pod.metadata
            return f"{meta.namespace}/{meta.name}" if sent.HasField("pod") else ""
    return ""


def _no_restart(_now_ns: int, _restarts: int) -> RestartedScheduler:
    raise AssertionError("a replay without restarts")


def _stop(until_ns: int | None, window_end_ns: int) -> tuple[int | None, ReplayEnd]:
    """Return the latest time of a replay, ns, None if none, and why it ends then."""
    if until_ns is not None and (not window_end_ns or until_ns <= window_end_ns):
        return until_ns, ReplayEnd.UNTIL
    return window_end_ns or None, ReplayEnd.WINDOW
