"""The nodes of one session: their managers, the pods they were told of, and their times.

What a request asks of a node is checked here against what is known of the node. A batch is done
whole or not at all: what is refused half-way is undone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from services.eviction.core.local_storage import may_be_evicted
from services.eviction.core.manager import Manager, Memento
from services.eviction.core.observations import NodeSummary, PodUsage, observe
from services.eviction.core.pod import EvictionPod
from services.eviction.core.results import Admission, NeedReclaim, StepResult
from services.eviction.core.signals import Signal
from services.eviction.core.thresholds import Threshold
from services.kube.kubelet import EvictionConfig
from services.rpc.errors import (
    FieldError,
    NotFoundError,
    PreconditionError,
    RefusalError,
    TimeGoesBackwardsError,
)

BEFORE_ALL_NS = -(2**63)
_NO_DISK_INFO = "the file systems could not be looked at"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadConfig:
    """A configuration, its thresholds as parsed, and what of it is known but not served."""

    config: EvictionConfig
    thresholds: tuple[Threshold, ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A node's statistics; `usage` reads what its pods use, once a step turns out to need it."""

    summary: NodeSummary
    usage: Callable[[], Mapping[str, PodUsage]]

    def whole(self) -> NodeSummary:
        """Return the summary with the pods' statistics."""
        return replace(self.summary, pods=self.usage())


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A step at `now_ns`: over new `pods`, then those known by `active_uids`, in the node's order.

    `field` is the step's path in its request, for refusals; `seen` is None where the kubelet
    could not read its summary.
    """

    field: str
    node_name: str
    now_ns: int
    seen: Seen | None
    pods: tuple[EvictionPod, ...] = ()
    active_uids: tuple[str, ...] = ()
    disk_info_failed: bool = False
    kill_fails: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume:
    """What a node sees after its collection; None where its summary could not be read.

    `field` is its path in its request.
    """

    field: str
    node_name: str
    seen: Seen | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveNode:
    """A node that has gone."""

    node_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Configure:
    """A node's own configuration."""

    node_name: str
    read: ReadConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Admit:
    """A pod that a node is asked to take; `field` is the question's path in its request."""

    field: str
    node_name: str
    pod: EvictionPod


Operation = Step | Resume | RemoveNode | Configure | Admit


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What an operation answers; `kill_failed` holds for all evictions of a step.

    `calm` is how much of each signal makes steps change nothing, None where no amount does.
    """

    node_name: str
    outcome: StepResult | NeedReclaim | ReadConfig | Admission
    kill_failed: bool = False
    calm: Mapping[Signal, int] | None = None


@dataclass(frozen=True, slots=True)
class KnownPod:
    """An active pod; `limited` says that a limit on local storage could evict it."""

    pod: EvictionPod
    limited: bool


@dataclass(slots=True, kw_only=True)
class Node:
    """A node: `own` is its configuration where it has one, `at_ns` the time of its last step."""

    manager: Manager
    own: EvictionConfig | None = None
    pods: Mapping[str, KnownPod] = field(default_factory=dict)
    at_ns: int = BEFORE_ALL_NS
    kill_fails: bool = False


_Before = tuple[Node, Manager, EvictionConfig | None, Memento, Mapping[str, KnownPod], int, bool]


class Fleet:
    """All nodes of a session; those that are stepped unasked have the session's configuration."""

    __slots__ = ("_before", "_nodes", "config", "live")

    def __init__(self, config: EvictionConfig, *, live: bool = False) -> None:
        self.config = config
        self.live = live
        self._nodes: dict[str, Node] = {}
        self._before: dict[str, _Before | None] = {}

    def __iter__(self) -> Iterator[tuple[str, Node]]:
        """Yield names and nodes in the names' order."""
        return iter(sorted(self._nodes.items()))

    def put(self, name: str, node: Node) -> None:
        """Take over a node as a checkpoint holds it."""
        self._nodes[name] = node

    def apply(self, operations: Sequence[Operation]) -> list[Answer]:
        """Do all operations in order and return the answers of those that have one.

        Raises a RefusalError where one cannot be done; then none of them was.
        """
        self._before = {}
        answers = []
        try:
            for operation in operations:
                self._remember(operation.node_name)
                answer = self._do(operation)
                if answer is not None:
                    answers.append(answer)
        except RefusalError:
            self.take_back()
            raise
        return answers

    def _do(self, operation: Operation) -> Answer | None:
        match operation:
            case Step():
                return self._step(operation)
            case Resume():
                return self._resume(operation)
            case RemoveNode():
                self._nodes.pop(operation.node_name, None)
                return None
            case Configure():
                self._configure(operation.node_name, operation.read.config)
                return Answer(node_name=operation.node_name, outcome=operation.read)
            case Admit():
                node = self._known(operation)
                outcome = node.manager.admit(operation.pod)
                return Answer(node_name=operation.node_name, outcome=outcome)

    def _configure(self, name: str, config: EvictionConfig) -> None:
        """Add a node, or change its thresholds; what it remembers of those that stay is kept."""
        manager = Manager(config)
        known = self._nodes.get(name)
        if known is None:
            self._nodes[name] = Node(manager=manager, own=config)
            return
        manager.restore(known.manager.snapshot())
        known.manager, known.own = manager, config

    def _known(self, operation: Resume | Admit) -> Node:
        node = self._nodes.get(operation.node_name)
        if node is None:
            raise NotFoundError(
                f"{operation.field}.node_name: node {operation.node_name!r} was neither configured "
                "nor stepped"
            )
        return node

    def _step(self, step: Step) -> Answer:
        name = step.node_name
        node = self._nodes.get(name) or Node(manager=Manager(self.config))
        if node.manager.is_waiting:
            raise PreconditionError(
                f"{step.field}: node {name!r} waits for Resume: its last step needs a collection"
            )
        if step.now_ns < node.at_ns:
            raise TimeGoesBackwardsError(
                f"{step.field}.at_ns: {step.now_ns} ns lies before the last step of node {name!r} "
                f"at {node.at_ns} ns",
                earliest_ns=node.at_ns,
            )
        node.pods = _active_pods(node, step)
        node.at_ns, node.kill_fails = step.now_ns, step.kill_fails
        self._nodes[name] = node
        outcome = _stepped(node, step)
        return _answer(name, node, outcome, _calm(node, step, outcome))

    def _resume(self, resume: Resume) -> Answer:
        name = resume.node_name
        node = self._known(resume)
        if not node.manager.is_waiting:
            raise PreconditionError(f"{resume.field}: no step of node {name!r} waits for Resume")
        result = node.manager.resume(_whole(resume.seen))
        return _answer(name, node, result, None)

    def _remember(self, name: str) -> None:
        before = self._before
        if name in before:
            return
        node = self._nodes.get(name)
        before[name] = None
        if node is not None:
            manager = node.manager
            memento = manager.memento()
            before[name] = (
                *(node, manager, node.own, memento),
                *(node.pods, node.at_ns, node.kill_fails),
            )

    def take_back(self) -> None:
        """Make the nodes what they were before the last apply."""
        for name, kept in self._before.items():
            if kept is None:
                self._nodes.pop(name, None)
                continue
            node, manager, own, memento, pods, at_ns, kill_fails = kept
            manager.go_back(memento)
            node.manager, node.own = manager, own
            node.pods, node.at_ns, node.kill_fails = pods, at_ns, kill_fails
            self._nodes[name] = node


def _active_pods(node: Node, step: Step) -> Mapping[str, KnownPod]:
    if not step.pods and step.active_uids == tuple(node.pods):
        return node.pods
    active = {pod.uid: KnownPod(pod, may_be_evicted(pod)) for pod in step.pods}
    for index, uid in enumerate(step.active_uids):
        if uid in active:
            raise FieldError(f"{step.field}.active_uids[{index}]", f"pod {uid!r} comes twice")
        if uid not in node.pods:
            raise FieldError(
                f"{step.field}.active_uids[{index}]",
                f"pod {uid!r} was not active in the last step of node {step.node_name!r}: "
                "send it whole",
            )
        active[uid] = node.pods[uid]
    if len(active) != len(step.pods) + len(step.active_uids):
        raise FieldError(f"{step.field}.pods", "holds a metadata.uid twice")
    return active


def _stepped(node: Node, step: Step) -> StepResult | NeedReclaim:
    manager, seen = node.manager, step.seen
    if seen is not None:
        observations = observe(seen.summary)
        limited = _is_limited(node)
        if manager.may_skip(observations, now_ns=step.now_ns, limited=limited):
            return manager.skip(observations, now_ns=step.now_ns)
    return manager.synchronize(
        now_ns=step.now_ns,
        summary=_whole(seen),
        pods=[each.pod for each in node.pods.values()],
        disk_info_error=_NO_DISK_INFO if step.disk_info_failed else "",
    )


def _calm(node: Node, step: Step, outcome: StepResult | NeedReclaim) -> Mapping[Signal, int] | None:
    if step.seen is None or isinstance(outcome, NeedReclaim):
        return None
    observations = observe(step.seen.summary)
    return node.manager.calm(observations, now_ns=step.now_ns, limited=_is_limited(node))


def _is_limited(node: Node) -> bool:
    return any(each.limited for each in node.pods.values())


def _whole(seen: Seen | None) -> NodeSummary | None:
    return None if seen is None else seen.whole()


def _answer(
    name: str,
    node: Node,
    outcome: StepResult | NeedReclaim,
    calm: Mapping[Signal, int] | None,
) -> Answer:
    return Answer(node_name=name, outcome=outcome, kill_failed=node.kill_fails, calm=calm)
