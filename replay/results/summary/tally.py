"""What a run comes to, counted while it goes: from rounds, outcomes and decisions to figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from replay.results.run.decision_log import Steps, pods_of
from replay.results.summary.histogram import Histogram
from replay.world.journal import FailedAttempt
from reprieve.kube.v1beta1 import pod_pb2
from reprieve.scheduler.v1beta1 import scheduler_pb2
from reprieve.trace.v1beta1 import trace_pb2

LOCAL_STORAGE = "local storage limit"
"""Stands for the signal of an eviction that no signal caused."""

QUEUE_EXCHANGE = "queueExchange"
"""The scheduler's own name for the step in which it asks its queue for pods."""
LEAST = 3
"""Evictions of one controller's pods by one signal, from which they count as a loop."""


@dataclass(slots=True, kw_only=True)
class Step:
    """What one step took on the wall clock, and how many pods went through it."""

    wall: Histogram = field(default_factory=Histogram)
    pods: int = 0


@dataclass(slots=True, kw_only=True)
class Waiting:
    """A pod without a node: its priority, and why its last attempt bound nothing.

    `message` is "" before the first attempt; `reasons` are the plugins' words.
    """

    priority: int
    message: str = ""
    reasons: tuple[str, ...] = ()


class Tally:
    """Figures of one run; its attributes are read once the run has ended.

    batches: exchanges with the queue that brought pods.
    failed_reasons: attempts by each of the plugins' words that refused at least one node.
    warnings: what the scheduler passed over, by text.
    waited_ns: by priority, from a pod's first entry into the queue to its binding, virtual time.
    preempted_by: victims by preemptor, (namespace/name, priority).
    preempted_priorities: victims by (preemptor's priority, victim's priority).
    waiting: the pods that have no node now, by UID.
    """

    def __init__(self) -> None:
        self.first_ns: int | None = None
        self.last_ns = 0
        self.rounds = 0
        self._last_round = (0, 0)
        self.instants = 0
        self.pods = 0
        self.namespaces: dict[str, None] = {}
        self.cycles = 0
        self.queue_exchanges = 0
        self.batches = 0
        self.failed_attempts = 0
        self.failed_reasons: Counter[str] = Counter()
        self.warnings: Counter[str] = Counter()
        self.decisions: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.nominated = 0
        self.preempted_by: Counter[tuple[str, int]] = Counter()
        self.preempted_priorities: Counter[tuple[int, int]] = Counter()
        self.budget_violations = 0
        self.evicted: Counter[str] = Counter()
        self.loops = Loops()
        self.ended: Counter[str] = Counter()
        self.waited_ns: dict[int, Histogram] = {}
        self.waiting: dict[str, Waiting] = {}
        self.steps: dict[str, Step] = {}
        self._priorities: dict[str, int] = {}

    def told(self, round_: scheduler_pb2.Round) -> None:
        """Count a message; several can tell one round."""
        self.instants += self.first_ns is None or round_.at_ns != self.last_ns
        self.rounds += self.first_ns is None or (round_.at_ns, round_.round) != self._last_round
        if self.first_ns is None:
            self.first_ns = round_.at_ns
        self.last_ns = round_.at_ns
        self._last_round = (round_.at_ns, round_.round)

    def pod_added(self, pod: pod_pb2.Pod) -> None:
        """Count a pod that has come into being."""
        uid, priority = pod.metadata.uid, pod.spec.priority
        self.pods += 1
        self.namespaces[pod.metadata.namespace] = None
        self._priorities[uid] = priority
        for owner in pod.metadata.owner_references:
            if owner.controller:
                key = f"{owner.kind} {pod.metadata.namespace}/{owner.name}"
                self.loops.pod_added(uid, key)
                break
        if not pod.spec.node_name:
            self.waiting[uid] = Waiting(priority=priority)

    def pod_gone(self, uid: str) -> None:
        """Forget a pod that has been removed."""
        self.waiting.pop(uid, None)
        self._priorities.pop(uid, None)
        self.loops.pod_gone(uid)

    def outcomes(self, outcomes: scheduler_pb2.RoundOutcomes, steps: Steps) -> None:
        """Count what the scheduler answered to a round, whose cycles' steps are `steps`."""
        self.cycles += pods_of(outcomes)
        self.queue_exchanges += outcomes.queue_exchanges
        for phase in outcomes.phases:
            self.step(phase.name, phase.wall_ns, phase.pods)
            self.batches += phase.name == QUEUE_EXCHANGE and phase.pods > 0
        for name, walls_ns in steps.items():
            step = self._step(name)
            step.wall.record(*walls_ns)
            step.pods += len(walls_ns)
        for outcome in outcomes.outcomes:
            if outcome.HasField("refusals"):
                refusals = outcome.refusals
                self._refused(refusals.uids, refusals.refused_by, refusals.verdicts)
                continue
            if outcome.warnings:
                self.warnings.update(outcome.warnings)
            if outcome.HasField("unschedulable"):
                self._refused((outcome.pop.uid,), (0,), (outcome.unschedulable,))

    def _refused(
        self,
        uids: Iterable[str],
        refused_by: Iterable[int],
        verdicts: Iterable[scheduler_pb2.Unschedulable],
    ) -> None:
        reasons = [tuple(each.reason for each in verdict.reasons) for verdict in verdicts]
        pods = [0] * len(reasons)
        waiting = self.waiting
        for uid, place in zip(uids, refused_by, strict=True):
            pods[place] += 1
            pod = waiting.get(uid)
            if pod is not None:
                pod.reasons = reasons[place]
        for why, count in zip(reasons, pods, strict=True):
            for reason in why:
                self.failed_reasons[reason] += count

    def step(self, name: str, wall_ns: int, pods: int = 0) -> None:
        """Count what a step took on the wall clock."""
        step = self._step(name)
        step.wall.record(wall_ns)
        step.pods += pods

    def _step(self, name: str) -> Step:
        step = self.steps.get(name)
        if step is None:
            step = self.steps[name] = Step()
        return step

    def decided(self, decision: trace_pb2.Decision) -> None:
        """Count a decision."""
        observed = decision.observed
        case = observed.WhichOneof("observed")
        if case is None:
            return
        if decision.refused:
            self.refused[case] += 1
            return
        self.decisions[case] += 1
        count = _COUNTED.get(case)
        if count is not None:
            count(self, observed)
        if case == "evicted":
            signal, node = observed.evicted.signal or LOCAL_STORAGE, observed.evicted.node_name
            self.loops.evicted(decision.at_ns, observed.object.uid, signal, node)

    def failed(self, attempts: Sequence[FailedAttempt]) -> None:
        """Count attempts that bound nothing."""
        self.decisions["failed_scheduling"] += len(attempts)
        self.failed_attempts += len(attempts)
        waiting = self.waiting
        for each in attempts:
            pod = waiting.get(each.pod.uid)
            if pod is not None:
                pod.message = each.message
                if each.reason != "Unschedulable":
                    pod.reasons = (each.reason,)

    def _scheduled(self, observed: trace_pb2.Observed) -> None:
        uid = observed.object.uid
        priority = self._priorities.get(uid, 0)
        self.waiting.pop(uid, None)
        histogram = self.waited_ns.get(priority)
        if histogram is None:
            histogram = self.waited_ns[priority] = Histogram()
        histogram.record(observed.scheduled.waited_ns)

    def _nominated(self, observed: trace_pb2.Observed) -> None:
        self.nominated += bool(observed.nominated.node_name)

    def _preempted(self, observed: trace_pb2.Observed) -> None:
        by = observed.preempted.by
        priority = self._priorities.get(by.uid, 0)
        self.preempted_by[f"{by.namespace}/{by.name}", priority] += 1
        victim = self._priorities.get(observed.object.uid, 0)
        self.preempted_priorities[priority, victim] += 1
        self.budget_violations += observed.preempted.violates_budget

    def _evicted(self, observed: trace_pb2.Observed) -> None:
        self.evicted[observed.evicted.signal or LOCAL_STORAGE] += 1

    def _finished(self, observed: trace_pb2.Observed) -> None:
        self.ended[observed.finished.phase] += 1


_COUNTED = {
    "scheduled": Tally._scheduled,
    "nominated": Tally._nominated,
    "preempted": Tally._preempted,
    "evicted": Tally._evicted,
    "finished": Tally._finished,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """A loop: whose pods, by which signal, how many of them, on which nodes, and how often.

    `every_ns` is the mean simulated time from one eviction to the next.
    """

    owner: str
    signal: str
    evictions: int
    nodes: tuple[str, ...]
    every_ns: int


@dataclass(slots=True, kw_only=True)
class _Series:
    first_ns: int
    last_ns: int
    evictions: int = 0
    nodes: dict[str, None] = field(default_factory=dict)


class Loops:
    """Evict-reschedule loops: a controller's pods evicted one after the other, for one reason.

    A kubelet evicts a pod, its controller makes another, that one comes to a node that will be
    short of the same thing, and so on, for as long as nothing changes. Users have met it since
    kubernetes/kubernetes#31778.
    """

    def __init__(self) -> None:
        self._owners: dict[str, str] = {}
        self._series: dict[tuple[str, str], _Series] = {}

    def pod_added(self, uid: str, owner: str) -> None:
        """Note a pod's controller, as "Kind namespace/name"."""
        self._owners[uid] = owner

    def pod_gone(self, uid: str) -> None:
        """Forget a pod."""
        self._owners.pop(uid, None)

    def evicted(self, at_ns: int, uid: str, signal: str, node_name: str) -> None:
        """Count an eviction, if the pod has a controller."""
        owner = self._owners.get(uid)
        if owner is None:
            return
        series = self._series.get((owner, signal))
        if series is None:
            series = self._series[owner, signal] = _Series(first_ns=at_ns, last_ns=at_ns)
        series.evictions += 1
        series.last_ns = at_ns
        series.nodes[node_name] = None

    def found(self) -> tuple[Loop, ...]:
        """Return the loops, those with most evictions first."""
        loops = [
            Loop(
                owner=owner,
                signal=signal,
                evictions=series.evictions,
                nodes=tuple(series.nodes),
                every_ns=(series.last_ns - series.first_ns) // (series.evictions - 1),
            )
            for (owner, signal), series in self._series.items()
            if series.evictions >= LEAST
        ]
        return tuple(sorted(loops, key=lambda each: (-each.evictions, each.owner, each.signal)))
