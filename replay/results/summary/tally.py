"""The counts of a run, updated with every round, outcome and decision."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from replay.results.durations import DurationHistogram
from replay.results.run.decision_log import Steps, pods_of
from replay.results.summary.drains import DrainedNodes
from replay.results.summary.eviction_loops import EvictionLoops
from replay.results.summary.figures import LOCAL_STORAGE, DecisionCounts
from replay.results.summary.scaling import ScalingTally
from replay.results.workloads.tally import WorkloadTally
from replay.world.journal import FailedAttempt
from reprieve.kube.v1beta1 import pod_pb2
from reprieve.scheduler.v1beta1 import scheduler_pb2
from reprieve.trace.v1beta1 import trace_pb2

QUEUE_EXCHANGE = "queueExchange"
"""The scheduler's name for the step in which it pops pods from its queue."""


@dataclass(slots=True, kw_only=True)
class StepTime:
    """Wall time of one step, and the number of pods that it handled."""

    wall: DurationHistogram = field(default_factory=DurationHistogram)
    pods: int = 0


@dataclass(slots=True, kw_only=True)
class UnboundPod:
    """A pod without a node: its priority, and why its last attempt failed.

    gated: whether it has a scheduling gate, and so does not wait for a node yet. message: of the
    last attempt, "" before the first. reasons: the plugins' messages in it.
    """

    priority: int
    gated: bool = False
    message: str = ""
    reasons: tuple[str, ...] = ()


@dataclass(slots=True)
class Tally(DecisionCounts):
    """A run's decisions and other counts, updated while it runs; read after its end.

    batches: exchanges with the queue that popped pods.
    failed_reasons: the plugins' messages, each with the number of failed attempts in which it
        refused a node.
    warnings: the scheduler's warnings by text.
    refused: decisions that could not be carried out, by kind. refusals: of these, the decisions
        refused because of a mistake of the scheduler, by cause.
    waited_ns: by priority, the simulated time from when a pod could be scheduled to its binding.
    preempted_by: victims by preemptor, (namespace/name, priority).
    preempted_priorities: victims by (preemptor's priority, victim's priority).
    waiting: pods without a node now, including gated pods, by UID.
    refused_alone: pods without a controller that admission refused and that do not exist, by
        namespace/name.
    workloads: desired and ready pods of each workload. scaling: the node groups, if any.
    """

    first_ns: int | None = None
    last_ns: int = 0
    rounds: int = 0
    _last_round: tuple[int, int] = (0, 0)
    instants: int = 0
    pods: int = 0
    namespaces: dict[str, None] = field(default_factory=dict)
    cycles: int = 0
    queue_exchanges: int = 0
    batches: int = 0
    failed_reasons: Counter[str] = field(default_factory=Counter)
    warnings: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)
    preempted_by: Counter[tuple[str, int]] = field(default_factory=Counter)
    preempted_priorities: Counter[tuple[int, int]] = field(default_factory=Counter)
    loops: EvictionLoops = field(default_factory=EvictionLoops)
    drains: DrainedNodes = field(default_factory=DrainedNodes)
    workloads: WorkloadTally = field(default_factory=WorkloadTally)
    scaling: ScalingTally = field(default_factory=ScalingTally)
    waited_ns: dict[int, DurationHistogram] = field(default_factory=dict)
    waiting: dict[str, UnboundPod] = field(default_factory=dict)
    refused_alone: dict[str, None] = field(default_factory=dict)
    steps: dict[str, StepTime] = field(default_factory=dict)
    _priorities: dict[str, int] = field(default_factory=dict)

    def sent(self, round_: scheduler_pb2.Round) -> None:
        """Count a round."""
        self.instants += self.first_ns is None or round_.time_ns != self.last_ns
        self.rounds += self.first_ns is None or (round_.time_ns, round_.number) != self._last_round
        if self.first_ns is None:
            self.first_ns = round_.time_ns
        self.last_ns = round_.time_ns
        self._last_round = (round_.time_ns, round_.number)

    def pod_added(self, pod: pod_pb2.Pod) -> None:
        """Count a pod that was created."""
        uid, priority = pod.metadata.uid, pod.spec.priority
        self.pods += 1
        if self.refused_alone:
            self.refused_alone.pop(f"{pod.metadata.namespace}/{pod.metadata.name}", None)
        self.namespaces[pod.metadata.namespace] = None
        self._priorities[uid] = priority
        for owner in pod.metadata.owner_references:
            if owner.controller:
                key = f"{owner.kind} {pod.metadata.namespace}/{owner.name}"
                self.loops.pod_added(uid, key)
                break
        if not pod.spec.node_name:
            gated = bool(pod.spec.scheduling_gates)
            self.waiting[uid] = UnboundPod(priority=priority, gated=gated)

    def pod_updated(self, pod: pod_pb2.Pod) -> None:
        """Note whether a pod without a node still has a scheduling gate."""
        waiting = self.waiting.get(pod.metadata.uid)
        if waiting is not None:
            waiting.gated = bool(pod.spec.scheduling_gates)

    def pod_removed(self, uid: str) -> None:
        """Forget a pod that has been removed."""
        self.waiting.pop(uid, None)
        self._priorities.pop(uid, None)
        self.loops.pod_removed(uid)

    def outcomes(self, outcomes: scheduler_pb2.RoundOutcomes, steps: Steps) -> None:
        """Count the scheduler's outcomes of a round; `steps` are its cycles' steps."""
        self.cycles += pods_of(outcomes)
        self.queue_exchanges += outcomes.queue_exchanges
        for phase in outcomes.phases:
            self.step(phase.name, phase.wall_duration_ns, phase.pods)
            self.batches += phase.name == QUEUE_EXCHANGE and phase.pods > 0
        for name, walls_ns in steps.items():
            step = self._step(name)
            step.wall.record(*walls_ns)
            step.pods += len(walls_ns)
        for outcome in outcomes.outcomes:
            if outcome.HasField("refusals"):
                refusals = outcome.refusals
                self._refused(refusals.uids, refusals.verdict_indexes, refusals.verdicts)
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
        reasons = [tuple(reason.reason for reason in verdict.reasons) for verdict in verdicts]
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
        """Count the wall time of a step."""
        step = self._step(name)
        step.wall.record(wall_ns)
        step.pods += pods

    def latencies(self) -> dict[str, dict[str, Any]]:
        """Return the wall times of each step, as latencies.json has them."""
        return {
            name: {
                "pods": step.pods,
                **asdict(step.wall.quantiles()),
                "buckets": step.wall.buckets(),
            }
            for name, step in sorted(self.steps.items())
        }

    def _step(self, name: str) -> StepTime:
        step = self.steps.get(name)
        if step is None:
            step = self.steps[name] = StepTime()
        return step

    def decided(self, decision: trace_pb2.Decision) -> None:
        """Count a decision."""
        observed = decision.observed
        kind = observed.WhichOneof("observed")
        if kind is None:
            return
        if decision.refused:
            self.refused[kind] += 1
            if decision.refusal_cause:
                self.refusals[decision.refusal_cause] += 1
            return
        self.count(kind, observed)
        match kind:
            case "scheduled":
                self._scheduled(observed)
            case "preempted":
                self._preempted(observed)
            case "evicted":
                signal, node = observed.evicted.signal or LOCAL_STORAGE, observed.evicted.node_name
                self.loops.evicted(decision.time_ns, observed.object.uid, signal, node)
            case "node_drain":
                self.drains.take(decision)
            case "scaled_up" | "node_provisioned" | "node_removal":
                self.scaling.decided(observed)
            case "refused" if observed.refused.HasField("owner"):
                self.workloads.refused(observed.refused.owner.uid, observed.refused.pods)
            case "refused":
                named = observed.object
                self.refused_alone[f"{named.namespace}/{named.name}"] = None

    def failed(self, attempts: Sequence[FailedAttempt]) -> None:
        """Count failed scheduling attempts."""
        self.decisions["failed_scheduling"] += len(attempts)
        waiting = self.waiting
        for attempt in attempts:
            pod = waiting.get(attempt.pod.uid)
            if pod is not None:
                pod.message = attempt.failure.message
                if attempt.failure.reason != "Unschedulable":
                    pod.reasons = (attempt.failure.reason,)

    def _scheduled(self, observed: trace_pb2.Observed) -> None:
        uid = observed.object.uid
        priority = self._priorities.get(uid, 0)
        self.waiting.pop(uid, None)
        histogram = self.waited_ns.get(priority)
        if histogram is None:
            histogram = self.waited_ns[priority] = DurationHistogram()
        histogram.record(observed.scheduled.waited_duration_ns)

    def _preempted(self, observed: trace_pb2.Observed) -> None:
        by = observed.preempted.by
        priority = self._priorities.get(by.uid, 0)
        self.preempted_by[f"{by.namespace}/{by.name}", priority] += 1
        victim = self._priorities.get(observed.object.uid, 0)
        self.preempted_priorities[priority, victim] += 1
