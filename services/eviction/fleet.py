"""The nodes of one session: their managers, active pods and times.

An operation is checked against its node's state. A batch is applied completely or not at all: if an
operation is refused, the changes of the operations before it are undone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from services.eviction.core.local_storage import may_be_evicted
from services.eviction.core.manager import Manager, Memento
from services.eviction.core.observations import NodeSummary, PodUsage, observe
from services.eviction.core.pod import EvictionPod
from services.eviction.core.results import NeedReclaim, PodAdmitResult, StepResult
from services.eviction.core.signals import Signal
from services.eviction.core.thresholds import Threshold
from services.kube.kubelet import EvictionConfig
from services.rpc.errors import FieldError, NotFoundError, PreconditionError, TimeGoesBackwardsError

BEFORE_ALL_NS = -(2**63)
_NO_DISK_INFO = "the file systems could not be inspected"


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedConfig:
    """A configuration, its thresholds as parsed, and warnings about settings without effect."""

    config: EvictionConfig
    thresholds: tuple[Threshold, ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStatistics:
    """A node's statistics; `usage` decodes the pods' statistics when a step needs them."""

    summary: NodeSummary
    usage: Callable[[], Mapping[str, PodUsage]]

    def whole(self) -> NodeSummary:
        """Return the summary with the pods' statistics."""
        return replace(self.summary, pods=self.usage())


@dataclass(frozen=True, slots=True, kw_only=True)
class StepNode:
    """A step at `now_ns`; the active pods are the new `pods`, then the pods of `active_uids`.

    Both are in the node's order; `active_uids` were active in the node's last step. `field` is the
    operation's path in its request, for errors. `statistics` is None if the kubelet could not read
    its summary.
    """

    field: str
    node_name: str
    now_ns: int
    statistics: NodeStatistics | None
    pods: tuple[EvictionPod, ...] = ()
    active_uids: tuple[str, ...] = ()
    disk_info_failed: bool = False
    kill_fails: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeNode:
    """The end of a waiting step, with the statistics after the garbage collection."""

    field: str
    node_name: str
    statistics: NodeStatistics | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveNode:
    """The removal of a node."""

    node_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigureNode:
    """The configuration of one node, in place of the session's."""

    node_name: str
    read: ParsedConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmitPod:
    """A pod for a node to admit or reject."""

    field: str
    node_name: str
    pod: EvictionPod


Operation = StepNode | ResumeNode | RemoveNode | ConfigureNode | AdmitPod


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationResult:
    """The result of an operation; `kill_failed` applies to all evictions of a step.

    `calm` has the result of Manager.calm: the available amounts with which steps change nothing.
    """

    node_name: str
    outcome: StepResult | NeedReclaim | ParsedConfig | PodAdmitResult
    kill_failed: bool = False
    calm: Mapping[Signal, int] | None = None


@dataclass(frozen=True, slots=True)
class ActivePod:
    """An active pod; `limited`: whether a limit on local storage could lead to its eviction."""

    pod: EvictionPod
    limited: bool


@dataclass(slots=True, kw_only=True)
class ManagedNode:
    """A node; `own` is the node's configuration, if any, `at_ns` the time of its last step."""

    manager: Manager
    own: EvictionConfig | None = None
    pods: Mapping[str, ActivePod] = field(default_factory=dict)
    at_ns: int = BEFORE_ALL_NS
    kill_fails: bool = False


class _NodeBefore(NamedTuple):
    """A node as it was before a batch."""

    node: ManagedNode
    manager: Manager
    memento: Memento
    own: EvictionConfig | None
    pods: Mapping[str, ActivePod]
    at_ns: int
    kill_fails: bool


class Fleet:
    """All nodes of a session. A node without a configuration has the session's configuration."""

    __slots__ = ("_before", "_nodes", "_pods", "config", "live")

    def __init__(self, config: EvictionConfig, *, live: bool = False) -> None:
        self.config = config
        self.live = live
        self._nodes: dict[str, ManagedNode] = {}
        self._before: dict[str, _NodeBefore | None] = {}
        self._pods = 0

    def __iter__(self) -> Iterator[tuple[str, ManagedNode]]:
        """Yield (name, node), sorted by name."""
        return iter(sorted(self._nodes.items()))

    def put(self, name: str, node: ManagedNode) -> None:
        """Add a node from a checkpoint."""
        self._nodes[name] = node
        self._pods += len(node.pods)

    @property
    def object_count(self) -> int:
        """The number of nodes plus the number of their active pods."""
        return len(self._nodes) + self._pods

    def apply(self, operations: Sequence[Operation]) -> list[OperationResult]:
        """Apply all operations in order, and return the results of operations that have a result.

        Raises RefusalError if an operation is refused; `take_back` then undoes the earlier ones.
        """
        self._before = {}
        results = []
        for operation in operations:
            self._keep(operation.node_name)
            result = self._apply_one(operation)
            if result is not None:
                results.append(result)
        return results

    def _apply_one(self, operation: Operation) -> OperationResult | None:
        match operation:
            case StepNode():
                return self._step(operation)
            case ResumeNode():
                return self._resume(operation)
            case RemoveNode():
                removed = self._nodes.pop(operation.node_name, None)
                self._pods -= len(removed.pods) if removed is not None else 0
                return None
            case ConfigureNode():
                self._configure(operation.node_name, operation.read.config)
                return OperationResult(node_name=operation.node_name, outcome=operation.read)
            case AdmitPod():
                node = self._node(operation)
                outcome = node.manager.admit(operation.pod)
                return OperationResult(node_name=operation.node_name, outcome=outcome)

    def _configure(self, name: str, config: EvictionConfig) -> None:
        """Add a node, or change its thresholds; remaining thresholds keep their state."""
        manager = Manager(config)
        node = self._nodes.get(name)
        if node is None:
            self._nodes[name] = ManagedNode(manager=manager, own=config)
            return
        manager.restore(node.manager.snapshot())
        node.manager, node.own = manager, config

    def _node(self, operation: ResumeNode | AdmitPod) -> ManagedNode:
        node = self._nodes.get(operation.node_name)
        if node is None:
            raise NotFoundError(
                f"{operation.field}.node_name: node {operation.node_name!r} was neither "
                "configured nor stepped: do either first"
            )
        return node

    def _step(self, step: StepNode) -> OperationResult:
        name = step.node_name
        node = self._nodes.get(name) or ManagedNode(manager=Manager(self.config))
        if node.manager.is_waiting:
            raise PreconditionError(
                f"{step.field}: node {name!r} waits for Resume: its last step needs a collection"
            )
        if step.now_ns < node.at_ns:
            raise TimeGoesBackwardsError(
                f"{step.field}.time_ns: {step.now_ns} ns lies before the last step of node "
                f"{name!r} at {node.at_ns} ns",
                earliest_time_ns=node.at_ns,
            )
        pods = _active_pods(node, step)
        self._pods += len(pods) - len(node.pods)
        node.pods = pods
        node.at_ns, node.kill_fails = step.now_ns, step.kill_fails
        self._nodes[name] = node
        outcome = _stepped(node, step)
        return _result(name, node, outcome, _calm(node, step, outcome))

    def _resume(self, resume: ResumeNode) -> OperationResult:
        name = resume.node_name
        node = self._node(resume)
        if not node.manager.is_waiting:
            raise PreconditionError(f"{resume.field}: no step of node {name!r} waits for Resume")
        result = node.manager.resume(_whole(resume.statistics))
        return _result(name, node, result, None)

    def _keep(self, name: str) -> None:
        before = self._before
        if name in before:
            return
        node = self._nodes.get(name)
        before[name] = None
        if node is not None:
            before[name] = _NodeBefore(
                node=node,
                manager=node.manager,
                memento=node.manager.memento(),
                own=node.own,
                pods=node.pods,
                at_ns=node.at_ns,
                kill_fails=node.kill_fails,
            )

    def take_back(self) -> None:
        """Undo the last `apply`."""
        for name, before in self._before.items():
            if before is None:
                self._nodes.pop(name, None)
                continue
            node = before.node
            before.manager.go_back(before.memento)
            node.manager, node.own = before.manager, before.own
            node.pods, node.at_ns, node.kill_fails = before.pods, before.at_ns, before.kill_fails
            self._nodes[name] = node
        self._pods = sum(len(node.pods) for node in self._nodes.values())


def _active_pods(node: ManagedNode, step: StepNode) -> Mapping[str, ActivePod]:
    if not step.pods and step.active_uids == tuple(node.pods):
        return node.pods
    active = {pod.uid: ActivePod(pod, may_be_evicted(pod)) for pod in step.pods}
    for index, uid in enumerate(step.active_uids):
        if uid in active:
            raise FieldError(f"{step.field}.active_uids[{index}]", f"pod {uid!r} occurs twice")
        if uid not in node.pods:
            raise FieldError(
                f"{step.field}.active_uids[{index}]",
                f"pod {uid!r} was not active in the last step of node {step.node_name!r}: "
                "send it whole",
            )
        active[uid] = node.pods[uid]
    if len(active) != len(step.pods) + len(step.active_uids):
        raise FieldError(f"{step.field}.pods", "has two pods of one metadata.uid")
    return active


def _stepped(node: ManagedNode, step: StepNode) -> StepResult | NeedReclaim:
    manager, statistics = node.manager, step.statistics
    if statistics is not None:
        observations = observe(statistics.summary)
        limited = _is_limited(node)
        if manager.may_skip(observations, now_ns=step.now_ns, limited=limited):
            return manager.skip(observations, now_ns=step.now_ns)
    return manager.synchronize(
        now_ns=step.now_ns,
        summary=_whole(statistics),
        pods=[pod.pod for pod in node.pods.values()],
        disk_info_error=_NO_DISK_INFO if step.disk_info_failed else "",
    )


def _calm(
    node: ManagedNode, step: StepNode, outcome: StepResult | NeedReclaim
) -> Mapping[Signal, int] | None:
    if step.statistics is None or isinstance(outcome, NeedReclaim):
        return None
    observations = observe(step.statistics.summary)
    return node.manager.calm(observations, now_ns=step.now_ns, limited=_is_limited(node))


def _is_limited(node: ManagedNode) -> bool:
    return any(pod.limited for pod in node.pods.values())


def _whole(statistics: NodeStatistics | None) -> NodeSummary | None:
    return None if statistics is None else statistics.whole()


def _result(
    name: str,
    node: ManagedNode,
    outcome: StepResult | NeedReclaim,
    calm: Mapping[Signal, int] | None,
) -> OperationResult:
    return OperationResult(node_name=name, outcome=outcome, kill_failed=node.kill_fails, calm=calm)
