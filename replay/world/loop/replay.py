"""The replay itself: instants, each a series of rounds, until nothing is left to do.

A round takes all that is due, lets the controllers look at what has changed, tells the scheduler,
and carries out what it answers; what that causes belongs to the next round. When no round has
anything left to tell, the nodes whose step is due are stepped, and what they cause makes rounds of
the same instant.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from replay.world.api.admission import PriorityAdmission
from replay.world.api.cluster import Cluster
from replay.world.api.pod_record import PodRecord
from replay.world.controllers.controllers import Controllers
from replay.world.controllers.disruption import DisruptionController, Evictions
from replay.world.controllers.node_lifecycle import NODE_KINDS, NodeLives
from replay.world.controllers.taint_eviction import PodGarbageCollection, TaintEviction
from replay.world.journal import FailedSink, Journal, Sink
from replay.world.kubelet.annotations import UsageRule
from replay.world.kubelet.pod_lifecycle import Lives
from replay.world.kubelet.pressure import EvictionBackend, Pressure
from replay.world.loop.inputs import Inputs
from replay.world.loop.outcomes import Costs, Outcomes
from replay.world.loop.rounds import EVENTS_PER_MESSAGE, Observer, Rounds, SchedulerBackend
from replay.world.loop.windows import Windows
from replay.world.models import SECOND_NS, Models
from replay.world.timeline import Action, Kind, Timeline
from reprieve.scheduler.v1beta1 import scheduler_pb2
from reprieve.scheduler.v1beta1.scheduler_service_pb2 import Foreseen
from reprieve.trace.v1beta1 import trace_pb2

ROUNDS_MAX = 1000
PATIENCE_NS = 600 * SECOND_NS
"""How long pending pods are retried on an unchanged snapshot: twice the longest time that upstream
leaves one among the unschedulable (kubernetes v1.34, podMaxInUnschedulablePodsDuration)."""


FUTILE = (
    "after 10 minutes in which the cluster did not change, pending pods were not retried until the "
    "next planned change; give --until to play every retry"
)
_GROWING_AGAIN = (
    "pods in place of evicted ones use more and more, too, which is no reason for a replay to go "
    "on: give --until to play it"
)
_CRON_JOBS = "what CronJobs would start is no reason for a replay to go on: give --until to play it"


class LoopError(RuntimeError):
    """Rounds at one instant that never end; the text names who goes round."""


class End(Enum):
    """Why a replay ended."""

    SETTLED = "nothing is left to do"
    UNTIL = "the time that was asked for is reached"
    WINDOW = "the recorded window is over"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When to stop: `until_ns` after the first record, None for never."""

    until_ns: int | None = None
    progress: Callable[[int, Cluster], None] = field(default=lambda _now_ns, _cluster: None)


class Replay:
    """One run of one trace against a scheduler and, where there is usage, an eviction service."""

    def __init__(
        self,
        scheduler: SchedulerBackend,
        eviction: EvictionBackend | None,
        *,
        models: Models,
        sink: Sink,
        failed: FailedSink | None = None,
        observer: Observer,
        cluster: Cluster | None = None,
        usage: Sequence[UsageRule] = (),
    ) -> None:
        self.cluster = cluster or Cluster()
        self.timeline = Timeline()
        self._costs = Costs(self.timeline, models)
        self.told = Rounds(scheduler, observer, self.cluster, one_by_one=self._costs.one_by_one)
        self.journal = Journal(sink, failed)
        self.admission = PriorityAdmission()
        self._lives = Lives(self.cluster, self.timeline, self.admission, models, self.journal)
        self._controllers = Controllers(self.cluster, self._lives, self.journal, self.timeline)
        self._budgets = DisruptionController(
            self.cluster, self.timeline, recorded_status=models.recorded_budget_status
        )
        self._outcomes = Outcomes(self.cluster, self._lives, self.journal)
        backend = eviction if models.eviction else None
        self.pressure = Pressure(
            self.cluster, self.timeline, self._lives, self.journal, backend, usage
        )
        self._evictions = Evictions(self.cluster, self._lives, self._budgets)
        self._taints = TaintEviction(self.cluster, self._lives, self.timeline, models.toleration_s)
        self._nodes = NodeLives(
            self.cluster,
            self.timeline,
            self._lives,
            self._controllers,
            self.pressure,
            self._evictions,
            models=models,
            journal=self.journal,
        )
        self._pod_gc = PodGarbageCollection(
            self.cluster, self._lives, self.timeline, models.ended_pods_max
        )
        self._inputs = Inputs(
            self.cluster,
            self._lives,
            self._controllers,
            self._budgets,
            self.admission,
            self.pressure,
            self.journal,
            nodes=self._nodes,
        )
        self.windows = Windows(
            self.cluster,
            self.timeline,
            self._lives,
            self._inputs,
            is_plain=self._is_plain,
            collects_ns=self._pod_gc.collects_ns,
        )
        self._foresees = not (models.image_pull_ns or models.bind_cost_ns or models.cycle_cost_ns)
        self._wakeup_ns: int | None = None
        self._seen = (0, 0)
        self._unchanged_since_ns = 0
        self._stop_ns: int | None = None
        self.now_ns = 0
        self.instants = 0

    @property
    def rounds(self) -> int:
        """Return how many rounds were told."""
        return self.told.count

    def run(self, records: Iterable[trace_pb2.Record], limits: Limits) -> End:
        """Play the trace to its end and say why it ended. Raises LoopError."""
        source = _Source(records)
        if limits.until_ns is not None:
            limits = replace(limits, until_ns=limits.until_ns + (source.next_ns() or 0))
        while True:
            at_ns, end = self._next_instant(source, limits)
            if at_ns is None:
                self.told.finish()
                if end is End.SETTLED and self._controllers.has_cron_jobs:
                    self.journal.note("cron-jobs", _CRON_JOBS)
                if end is End.SETTLED and self.pressure.goes_round:
                    self.journal.note("usage", _GROWING_AGAIN)
                return end
            self.now_ns = at_ns
            self._instant(at_ns, source)
            limits.progress(at_ns, self.cluster)

    def _next_instant(self, source: _Source, limits: Limits) -> tuple[int | None, End]:
        wakeup_ns = self._costs.next_ns(self._wakeup_ns)
        stop_ns, end = _stop(limits.until_ns, source.window_end_ns)
        self._stop_ns = stop_ns
        if stop_ns is None and source.next_ns() is None:
            if self._is_settled():
                return None, End.SETTLED
            if wakeup_ns is not None and self._retries_are_futile():
                wakeup_ns = None
                self.journal.notes["retries", FUTILE] = 1
        times = (source.next_ns(), self.timeline.next_ns(), wakeup_ns)
        due = [each for each in times if each is not None]
        if not due:
            return None, End.SETTLED
        at_ns = max(min(due), self.now_ns)
        if stop_ns is not None and at_ns > stop_ns:
            return None, end
        return at_ns, End.SETTLED

    def _is_settled(self) -> bool:
        """Tell whether what is still to come would change nothing: retries and idle actions."""
        if not self.timeline.is_idle:
            return False
        return self._wakeup_ns is None or self.cluster.all_tried() or self._retries_are_futile()

    def _retries_are_futile(self) -> bool:
        """Tell whether every pending pod has had time to be tried on the snapshot as it stands.

        Some never are, such as a pod that a scheduler of another make ignores.
        """
        return self.now_ns - self._unchanged_since_ns >= PATIENCE_NS

    def _instant(self, now_ns: int, source: _Source) -> None:
        self.instants += 1
        for number in itertools.count():
            if number >= ROUNDS_MAX:
                raise LoopError(self._loop_text(now_ns))
            is_busy = self._costs.is_busy(now_ns)
            wakeup_ns = self._wakeup_ns
            tick = wakeup_ns is not None and wakeup_ns <= now_ns and not is_busy
            self.told.begin(now_ns, number, tick=tick)
            self._take_due(now_ns, source)
            self._reconcile(now_ns)
            urgency = self.cluster.urgency
            if is_busy:
                self.told.hold(self.cluster.take_events(), urgency)
            elif self.told.must_be_told(urgency):
                self._carry_out(now_ns, source)
                continue
            else:
                self.told.wait(self.cluster.take_events())
            if self.pressure.has_due:
                self.pressure.step(now_ns)
            elif self.timeline.next_ns() != now_ns:
                break
        seen = (self.cluster.snapshot_version, self.cluster.enlisted)
        if self._seen != seen:
            self._seen, self._unchanged_since_ns = seen, now_ns

    def _take_due(self, now_ns: int, source: _Source) -> None:
        """Take what is due: records, then actions; steps wait until all else is over."""
        for record in source.take_due(now_ns):
            self._inputs.feed(now_ns, record)
            self._send_ahead()
        due = self.timeline.take_due(now_ns)
        for action in due:
            if action.kind is Kind.STEP and not self._nodes.is_silent(action.key):
                self.pressure.take_due(action.key)
        for action in due:
            self._act(now_ns, action)
            self._send_ahead()

    def _send_ahead(self) -> None:
        """Let the scheduler begin with a long round's events."""
        busy = self._costs.is_busy(self.now_ns)
        if len(self.cluster.events) >= EVENTS_PER_MESSAGE and not busy:
            self.told.send(self.cluster.take_events())

    def _act(self, now_ns: int, action: Action) -> None:
        match action.kind:
            case Kind.RECHECK:
                self._budgets.recheck(action.key)
            case Kind.USAGE:
                if not self._nodes.is_silent(action.key):
                    self.pressure.look(now_ns, action.key)
            case Kind.STEP:
                pass
            case Kind.CYCLE:
                answers = self._outcomes.apply(now_ns, self._costs.due(action.key))
                self.told.answer_late(now_ns, answers)
            case Kind.POD_GC:
                self._pod_gc.collect(now_ns)
            case Kind.LOOK:
                self._controllers.look(action.key)
            case kind if kind in NODE_KINDS:
                self._nodes.act(now_ns, kind, action.key)
            case _:
                self._act_for_pod(now_ns, action)

    def _act_for_pod(self, now_ns: int, action: Action) -> None:
        pod = self.cluster.pods.get(action.key)
        if pod is None or self._nodes.holds_back(action, pod):
            return
        if action.kind is Kind.TAINT:
            self._taints.act(now_ns, pod)
        else:
            self._lives.act(now_ns, action.kind, pod)

    def _reconcile(self, now_ns: int) -> None:
        """Let the controllers look at what has changed; budgets come last."""
        changed = self.cluster.take_changed()
        self._taints.reconcile(now_ns, changed)
        changed.add(self.cluster.take_changed())
        self._controllers.reconcile(now_ns, changed)
        made = self.cluster.take_changed()
        changed.pods.update(made.pods)
        self._budgets.reconcile(now_ns, changed)
        self.cluster.take_changed()
        self._nodes.reconcile()
        self._pod_gc.reconcile(now_ns)

    def _carry_out(self, now_ns: int, source: _Source) -> None:
        """End the round: carry out its outcomes, whose effects belong to the next one."""
        window = self._window(now_ns, source) if self.told.may_look_ahead else ()
        told = self.told.outcomes(
            self.cluster.take_events(),
            window,
            meanwhile=lambda: self.windows.read_on(source.ahead()),
        )
        for outcomes in told:
            if not self.told.is_ahead:
                self.windows.close(self.told.left)
            ready = self._costs.ready(now_ns, outcomes.outcomes)
            self.told.answer(now_ns, self._outcomes.apply(now_ns, ready))
            self._wakeup_ns = (
                outcomes.next_wakeup_ns if outcomes.HasField("next_wakeup_ns") else None
            )

    def _window(self, now_ns: int, source: _Source) -> Sequence[Foreseen]:
        """Return the rounds that will follow the one that is about to be told."""
        if not self._foresees or not (self._taints.is_idle and self._nodes.all_report):
            return ()
        return self.windows.foresee(now_ns, source.ahead(), self._stop_ns)

    def _is_plain(self, pod: PodRecord) -> bool:
        """Tell whether nothing looks at a pod but its kubelet."""
        return not (pod.owner_uid or self._budgets.covering(pod) or self.pressure.may_concern(pod))

    def _loop_text(self, now_ns: int) -> str:
        told = dict.fromkeys(name for event in self.told.last_events if (name := _pod_name(event)))
        names = ", ".join(itertools.islice(told, 5))
        return (
            f"{ROUNDS_MAX} rounds at {now_ns} ns without an end; the world and the scheduler go "
            f"round over these pods: {names or 'none'}{self._outcomes.last_refusal}"
        )


def _pod_name(event: scheduler_pb2.Event) -> str:
    """Return the namespace/name of the pod that an event is about, "" for another object's."""
    match event.WhichOneof("event"):
        case "patch":
            return f"{event.patch.pod.namespace}/{event.patch.pod.name}"
        case "remove" if event.remove.kind == "Pod":
            return f"{event.remove.namespace}/{event.remove.name}"
        case "add" | "update":
            told = event.add if event.HasField("add") else event.update
            meta = told.pod.metadata
            return f"{meta.namespace}/{meta.name}" if told.HasField("pod") else ""
    return ""


def _stop(until_ns: int | None, window_end_ns: int) -> tuple[int | None, End]:
    """Return when a replay stops at the latest, None for never, and what that end is."""
    if until_ns is not None and (not window_end_ns or until_ns <= window_end_ns):
        return until_ns, End.UNTIL
    return window_end_ns or None, End.WINDOW


class _Source:
    """The trace's records, looked ahead at as far as somebody asks."""

    def __init__(self, records: Iterable[trace_pb2.Record]) -> None:
        self._records = iter(records)
        self._coming: deque[trace_pb2.Record] = deque()
        self.window_end_ns = 0

    def next_ns(self) -> int | None:
        if not self._coming:
            next(self.ahead(), None)
        return self._coming[0].at_ns if self._coming else None

    def ahead(self) -> Iterator[trace_pb2.Record]:
        """Yield the records to come, which are taken later; nothing may be taken meanwhile."""
        yield from self._coming
        for record in self._records:
            self._coming.append(record)
            yield record

    def take_due(self, now_ns: int) -> Iterator[trace_pb2.Record]:
        while (at_ns := self.next_ns()) is not None and at_ns <= now_ns:
            record = self._coming.popleft()
            if record.HasField("header"):
                self.window_end_ns = record.header.window_end_ns
            yield record
