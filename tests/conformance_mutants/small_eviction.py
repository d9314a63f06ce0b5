"""An eviction service that keeps every rule of docs/write-an-eviction-service.md, or all but one.

It knows memory.available and nodefs.available, which is what the checks use.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import grpc

from reprieve.eviction.v1beta1 import eviction_pb2 as ev
from reprieve.eviction.v1beta1 import eviction_service_pb2 as pb
from reprieve.eviction.v1beta1 import eviction_service_pb2_grpc
from reprieve.kube.v1beta1 import meta_pb2, pod_pb2
from tests.conformance_mutants.small_sessions import VERSION, RefusedError, SmallSessions, bad_field

SECOND_NS, GI = 10**9, 1 << 30
MEMORY, DISK = "memory.available", "nodefs.available"
CONDITIONS = {MEMORY: "MemoryPressure", DISK: "DiskPressure"}
CRITICAL = 2_000_000_000


class Breach(Enum):
    """A broken rule: its number, and what the service does in place of what it says."""

    NEVER_EVICTS = "1", "evicts no pod"
    EVICTS_ALL = "1", "evicts every pod in one step"
    EVICTS_ABOVE = "1", "evicts above the threshold"
    FORGETS_PODS = "1", "forgets the pods that are named by their uid"
    STEPS_ONE_NODE = "2", "takes all nodes of a batch as one"
    KEEPS_REMOVED = "2", "keeps the state of removed nodes"
    HAS_OTHER_WORDS = "3", "has a message of its own"
    NAMES_NO_THRESHOLD = "3", "does not name the threshold"
    HAS_NO_AMOUNTS = "3", "does not name what was available"
    RANKS_FROM_0 = "3", "counts ranks from 0"
    RANKS_BY_NAME = "4", "ranks pods by their names"
    IGNORES_REQUESTS = "4", "ranks pods without their requests"
    IGNORES_PRIORITY = "4", "ranks pods without their priorities"
    IGNORES_GRACE = "5", "evicts at soft thresholds at once"
    NEVER_AT_SOFT = "5", "evicts at no soft threshold"
    HAS_NO_OVERRIDE = "5", "does not bound the grace period of pods"
    ENDS_AT_ONCE = "6", "ends conditions without their transition period"
    NEVER_ENDS = "6", "ends no condition"
    NEVER_COLLECTS = "7", "evicts without a collection"
    COLLECTS_ALWAYS = "7", "evicts after a collection that was enough"
    STEPS_MEANWHILE = "7", "takes a step while it waits for a collection"
    RESUMES_ALWAYS = "7", "resumes a node that waits for nothing"
    ADMITS_ALL = "8", "admits every pod under pressure"
    ADMITS_NONE = "8", "admits no pod under pressure"
    REFUSES_CRITICAL = "8", "admits no critical pod without requests"
    HAS_NO_REASON = "8", "refuses pods without a reason"
    ADMITS_ANYWHERE = "8", "admits pods to unknown nodes"
    CONFIGURES_ALL = "9", "configures every node by one"
    CONFIGURES_NONE = "9", "does not read a node's own configuration"
    STATE_HAS_NO_TIME = "10", "does not show since when thresholds are met"
    STATE_HAS_NO_CONDITIONS = "10", "does not show conditions"
    STATE_HAS_NO_WAITS = "10", "does not show that a node waits for a collection"
    CALM_TOO_LOW = "11", "is calm below the threshold"
    QUIET_EVICTIONS = "12", "is quiet where it evicts"
    NOTIFIES_ELSEWHERE = "13", "requests notifications at another amount"

    @property
    def rule(self) -> str:
        """Return the number of the rule."""
        return self.value[0]

    @property
    def does(self) -> str:
        """Return what the service does."""
        return self.value[1]

    def __str__(self) -> str:
        return f"{self.rule} {self.does}"


@dataclass(slots=True)
class Node:
    """A node's configuration, pods, and what was observed of it."""

    config: ev.EvictionConfig
    pods: dict[str, pod_pb2.Pod] = field(default_factory=dict)
    time_ns: int = 0
    first_ns: dict[str, int] = field(default_factory=dict)
    last_ns: dict[str, int] = field(default_factory=dict)
    awaits: pb.Step | None = None
    is_quiet: bool = False


class SmallEviction:
    """One session's nodes; `broken` is the rule that it breaks."""

    def __init__(self, config: ev.EvictionConfig, broken: Breach | None) -> None:
        self.config = config
        self._broken = broken
        self._nodes: dict[str, Node] = {}

    def breaks(self, *breaches: Breach) -> bool:
        """Return whether one of these rules is broken."""
        return self._broken in breaches

    def apply(self, request: pb.ApplyRequest) -> pb.ApplyResponse:
        """Apply a batch."""
        for index, operation in enumerate(request.operations):
            if (path := _malformed(operation)) is not None:
                raise bad_field(f"operations[{index}]{path}")
        answer = pb.ApplyResponse(applied=len(request.operations))
        for operation in request.operations:
            kind = str(operation.WhichOneof("operation"))
            requested = getattr(operation, kind)
            if kind == "remove_node":
                if not self.breaks(Breach.KEEPS_REMOVED):
                    self._nodes.pop(requested, None)
                continue
            result = answer.results.add(node_name=requested.node_name)
            name = "n" if self.breaks(Breach.STEPS_ONE_NODE) else requested.node_name
            getattr(self, f"_{kind}")(name, requested, result)
        return answer

    def _node(self, name: str) -> Node:
        return self._nodes.setdefault(name, Node(self.config))

    def _configure(self, name: str, configure: pb.Configure, result: pb.OperationResult) -> None:
        if not self.breaks(Breach.CONFIGURES_NONE):
            self._node(name).config = configure.config
        if self.breaks(Breach.CONFIGURES_ALL):
            self.config = configure.config
        result.configured.thresholds.extend(thresholds(self._node(name).config))

    def _admit(self, name: str, admit: pb.Admit, result: pb.OperationResult) -> None:
        if name not in self._nodes and not self.breaks(Breach.ADMITS_ANYWHERE):
            raise RefusedError(grpc.StatusCode.NOT_FOUND, "NOT_FOUND")
        has_request = any(it.resources.requests for it in admit.pod.spec.containers)
        is_critical = admit.pod.spec.priority >= CRITICAL
        is_admitted = has_request or (is_critical and not self.breaks(Breach.REFUSES_CRITICAL))
        if self.breaks(Breach.ADMITS_ALL, Breach.ADMITS_NONE):
            is_admitted = self.breaks(Breach.ADMITS_ALL)
        result.admission.admit = is_admitted
        if not is_admitted and not self.breaks(Breach.HAS_NO_REASON):
            result.admission.reason = "Evicted"

    def _step(self, name: str, step: pb.Step, result: pb.OperationResult) -> None:
        node = self._node(name)
        if step.time_ns < node.time_ns:
            raise RefusedError(grpc.StatusCode.FAILED_PRECONDITION, "TIME_GOES_BACKWARDS")
        if node.awaits is not None and not self.breaks(Breach.STEPS_MEANWHILE):
            raise RefusedError(grpc.StatusCode.FAILED_PRECONDITION, "PRECONDITION")
        known = {} if self.breaks(Breach.FORGETS_PODS) else node.pods
        active = [known[uid] for uid in step.active_uids if uid in known]
        node.pods = {pod.metadata.uid: pod for pod in (*step.pods, *active)}
        node.time_ns = step.time_ns
        met = self._met(node, step.observations)
        if any(it.signal == DISK for it in met) and not self.breaks(Breach.NEVER_COLLECTS):
            node.awaits = step
            result.need_reclaim.images = True
            return
        self._decide(node, step.observations, met, result.step)

    def _resume(self, name: str, resume: pb.Resume, result: pb.OperationResult) -> None:
        node = self._node(name)
        if node.awaits is None and not self.breaks(Breach.RESUMES_ALWAYS):
            raise RefusedError(grpc.StatusCode.FAILED_PRECONDITION, "PRECONDITION")
        before = node.awaits.observations if node.awaits is not None else resume.observations
        observed = before if self.breaks(Breach.COLLECTS_ALWAYS) else resume.observations
        node.awaits = None
        self._decide(node, observed, self._met(node, observed), result.step)

    def _met(self, node: Node, observed: ev.Observations) -> list[ev.Threshold]:
        """Return the thresholds that are met, and for as long as their grace period."""
        met: list[ev.Threshold] = []
        for threshold in thresholds(node.config):
            limit = _bytes(threshold.quantity)
            is_below = available(observed, threshold.signal) < limit
            if self.breaks(Breach.EVICTS_ABOVE) and threshold.signal == MEMORY:
                is_below = is_below or available(observed, MEMORY) > limit
            if not is_below:
                node.first_ns.pop(threshold.text, None)
                continue
            first_ns = node.first_ns.setdefault(threshold.text, node.time_ns)
            is_soft = threshold.grace_period_duration_ns > 0
            if is_soft and self.breaks(Breach.NEVER_AT_SOFT):
                continue
            grace_ns = (
                0 if self.breaks(Breach.IGNORES_GRACE) else threshold.grace_period_duration_ns
            )
            if node.time_ns - first_ns >= grace_ns:
                met.append(threshold)
                node.last_ns[threshold.signal] = node.time_ns
        return met

    def _decide(
        self, node: Node, observed: ev.Observations, met: list[ev.Threshold], result: ev.StepResult
    ) -> None:
        result.next_step_time_ns = node.time_ns + 10 * SECOND_NS
        result.thresholds_met.extend(met)
        if met:
            result.ranking.extend(self._ranking(node, observed))
        if met and not self.breaks(Breach.NEVER_EVICTS):
            places = enumerate(result.ranking, 0 if self.breaks(Breach.RANKS_FROM_0) else 1)
            evicted = list(places) if self.breaks(Breach.EVICTS_ALL) else list(places)[:1]
            for rank, ranked in evicted:
                self._evict(observed, met[0], ranked, rank, len(result.ranking), result, node)
        holds = {signal: self._holds(node, signal) for signal in CONDITIONS}
        is_calm = not met and not any(holds.values())
        was_calm, node.is_quiet = node.is_quiet, is_calm
        result.quiet = (is_calm and was_calm) or self.breaks(Breach.QUIET_EVICTIONS)
        if not (is_calm and was_calm):
            for signal, condition in CONDITIONS.items():
                status = "True" if holds[signal] else "False"
                result.conditions.add(type=condition, status=status)
            result.conditions.add(type="PIDPressure", status="False")
        if is_calm:
            amount = 1 if self.breaks(Breach.CALM_TOO_LOW) else self._largest(node)
            result.calm.min_available.add(signal=MEMORY, amount=amount)
        if node.config.kernel_memcg_notification:
            amount = GI * (2 if self.breaks(Breach.NOTIFIES_ELSEWHERE) else 1)
            result.notify_at.add(signal=MEMORY, amount=amount)

    def _largest(self, node: Node) -> int:
        limits = [_bytes(it.quantity) for it in thresholds(node.config) if it.signal == MEMORY]
        return max(limits, default=0)

    def _holds(self, node: Node, signal: str) -> bool:
        if signal not in node.last_ns:
            return False
        period_ns = node.config.pressure_transition_duration_ns
        if self.breaks(Breach.ENDS_AT_ONCE):
            period_ns = 0
        is_within = node.time_ns - node.last_ns[signal] < max(period_ns, 1)
        return is_within or self.breaks(Breach.NEVER_ENDS)

    def _ranking(self, node: Node, observed: ev.Observations) -> list[ev.RankedPod]:
        usage = {stats.pod.uid: stats.memory_working_set_bytes for stats in observed.pods}
        ranking = []
        for pod in node.pods.values():
            request = sum(
                _bytes(it.resources.requests.get("memory", "0")) for it in pod.spec.containers
            )
            used = usage.get(pod.metadata.uid, 0)
            ranked = ev.RankedPod(priority=pod.spec.priority, usage=used, request=request)
            ranked.pod.CopyFrom(_ref(pod))
            ranked.exceeds_request = used > request
            ranking.append(ranked)
        return sorted(ranking, key=self._place)

    def _place(self, ranked: ev.RankedPod) -> tuple[Any, ...]:
        if self.breaks(Breach.RANKS_BY_NAME):
            return (ranked.pod.name,)
        priority = 0 if self.breaks(Breach.IGNORES_PRIORITY) else ranked.priority
        exceeds = False if self.breaks(Breach.IGNORES_REQUESTS) else ranked.exceeds_request
        more = 0 if self.breaks(Breach.IGNORES_REQUESTS) else ranked.request
        return (not exceeds, priority, more - ranked.usage)

    def _evict(
        self,
        observed: ev.Observations,
        threshold: ev.Threshold,
        ranked: ev.RankedPod,
        rank: int,
        ranked_pods: int,
        result: ev.StepResult,
        node: Node,
    ) -> None:
        eviction = result.evictions.add(
            pod=ranked.pod,
            reason="Evicted",
            phase="Failed",
            signal=threshold.signal,
            threshold="" if self.breaks(Breach.NAMES_NO_THRESHOLD) else threshold.text,
            rank=rank,
            ranked_pods=ranked_pods,
        )
        resource = "memory" if threshold.signal == MEMORY else "ephemeral-storage"
        eviction.message = f"The node was low on resource: {resource}. "
        if self.breaks(Breach.HAS_OTHER_WORDS):
            eviction.message = "no room"
        if not self.breaks(Breach.HAS_NO_AMOUNTS):
            eviction.available = available(observed, threshold.signal)
            eviction.capacity = (
                observed.memory.available_bytes + observed.memory.working_set_bytes
                if threshold.signal == MEMORY
                else observed.node_fs.capacity_bytes
            )
        if threshold.grace_period_duration_ns and not self.breaks(Breach.HAS_NO_OVERRIDE):
            eviction.grace_period_override_duration_ns = (
                node.config.max_pod_grace_period_duration_ns
            )

    def state(self) -> pb.GetStateResponse:
        """Return the state of every node."""
        answer = pb.GetStateResponse()
        for name, node in self._nodes.items():
            state = answer.nodes.add(node_name=name, time_ns=node.time_ns)
            if not self.breaks(Breach.STATE_HAS_NO_WAITS):
                state.awaits_reclaim = node.awaits is not None
            for threshold in thresholds(node.config):
                if threshold.text not in node.first_ns:
                    continue
                first_ns = node.first_ns[threshold.text]
                if self.breaks(Breach.STATE_HAS_NO_TIME):
                    first_ns = 0
                state.thresholds_met.append(threshold)
                state.first_observed.add(name=threshold.signal, time_ns=first_ns)
            for signal, condition in CONDITIONS.items():
                if not self.breaks(Breach.STATE_HAS_NO_CONDITIONS):
                    status = "True" if self._holds(node, signal) else "False"
                    state.conditions.add(type=condition, status=status)
        return answer


def thresholds(config: ev.EvictionConfig) -> list[ev.Threshold]:
    """Return the thresholds of a configuration, hard ones first."""
    hard = [
        ev.Threshold(signal=signal, quantity=text, text=f"{signal}<{text}")
        for signal, text in sorted(config.hard.items())
    ]
    soft = [
        ev.Threshold(
            signal=signal,
            quantity=text,
            text=f"{signal}<{text} (soft)",
            grace_period_duration_ns=int(config.soft_grace[signal].removesuffix("s")) * SECOND_NS,
        )
        for signal, text in sorted(config.soft.items())
    ]
    return [*hard, *soft]


def available(observed: ev.Observations, signal: str) -> int:
    """Return the observed amount of a signal, bytes."""
    return observed.memory.available_bytes if signal == MEMORY else observed.node_fs.available_bytes


def _bytes(text: str) -> int:
    return int(text.removesuffix("Gi")) * (GI if text.endswith("Gi") else 1)


def _ref(pod: pod_pb2.Pod) -> meta_pb2.ObjectReference:
    meta = pod.metadata
    return meta_pb2.ObjectReference(namespace=meta.namespace, name=meta.name, uid=meta.uid)


def _malformed(operation: pb.Operation) -> str | None:
    """Return the path of a field that an operation lacks, None if none."""
    match operation.WhichOneof("operation"):
        case None:
            return ""
        case "remove_node" if not operation.remove_node:
            return ".remove_node"
        case "step":
            if not operation.step.node_name:
                return ".step.node_name"
            return _nameless(operation.step.pods)
    return None


def _nameless(pods: Iterable[pod_pb2.Pod]) -> str | None:
    for index, pod in enumerate(pods):
        if not pod.metadata.uid:
            return f".step.pods[{index}].metadata.uid"
    return None


class SmallEvictionService(SmallSessions, eviction_service_pb2_grpc.EvictionServiceServicer):
    """Serves every RPC; `broken` is the rule that it breaks."""

    service = "eviction"
    create_type, apply_type = pb.CreateSessionRequest, pb.ApplyRequest

    def __init__(self, broken: Breach | None = None) -> None:
        super().__init__()
        self._broken = broken

    def new_core(self, request: pb.CreateSessionRequest) -> SmallEviction:
        """Return the nodes of a new session."""
        return SmallEviction(request.config, self._broken)

    def opened(self, name: str, core: Any) -> pb.Session:
        """Return a session with its thresholds."""
        listed = thresholds(core.config)
        return pb.Session(session_id=name, version=VERSION, resumable=True, thresholds=listed)
