"""Rows of pods, nodes and their usage, from a run's rounds in one pass.

Held are the objects of the cluster as they stand, and of pods that have not ended what they take.

Of what is free on a node, each waiting pod counts one part, and each part goes to what refuses that
pod there: so the figures are those of the average waiting pod. Judged are the node's taints, node
affinity and requests, in upstream's order of filters; a node that passes these may still refuse for
spreading, pod affinity, ports or volumes, or the pod's turn has not come.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from replay.results.run.history import Change, ClusterHistory, Verb
from reprieve.kube.v1beta1 import node_pb2, pod_pb2
from reprieve.scheduler.v1beta1 import scheduler_pb2
from services.kube.node import Node
from services.kube.pod import PodSpec
from services.kube.requests import CPU, MEMORY, PODS, pod_requests
from services.kube.taints import Taint, TaintEffect, tolerated
from services.rpc.kube.codec import node_from_message
from services.rpc.kube.fields import time_ns
from services.rpc.kube.spec import PodSpecInterner

Write = Callable[[str, Mapping[str, Any]], None]
"""Appends a row, its columns by name, to the draft of a table."""
_TERMINAL = frozenset({"Succeeded", "Failed"})
SHAPES_MAX = 16
"""Shapes of waiting pods that are judged: those of most pods."""
CORDONED = "node is unschedulable"
TAINTED = "untolerated taint"
UNSELECTED = "node affinity or selector"
FITS = "fits: other rules, or not its turn"
_CORDON = Taint(key="node.kubernetes.io/unschedulable", effect=TaintEffect.NO_SCHEDULE)
_HARD = frozenset({TaintEffect.NO_SCHEDULE, TaintEffect.NO_EXECUTE})
_Marks = tuple[bool, tuple[Taint, ...]]


@dataclass(slots=True, kw_only=True)
class _Pod:
    spec: PodSpec
    amounts: Mapping[str, int]
    node_name: str = ""


class HistoryRows:
    """Takes a run's rounds in order and writes rows of what they tell.

    Free capacity is looked at every `sample_ns` of simulated time. `start_ns` is None where no
    round was told.
    """

    def __init__(self, write: Write, *, sample_ns: int) -> None:
        self.start_ns: int | None = None
        self.end_ns = 0
        self._write = write
        self._sample_ns = sample_ns
        self._next_sample_ns = 0
        self._history = ClusterHistory()
        self._interner = PodSpecInterner()
        self._nodes: dict[str, NodeState] = {}
        self._pods: dict[str, _Pod] = {}
        self._waiting: dict[str, _Pod] = {}
        self._changed: dict[str, None] = {}

    def take(self, rounds: Iterable[scheduler_pb2.Round]) -> None:
        """Take all rounds, and what stands at their end."""
        for round_ in rounds:
            for event in round_.events:
                self._reach(event.at_ns)
                change = self._history.take(event)
                if change is not None:
                    self._change(change, patched=event.HasField("patch"))
            self._reach(round_.at_ns)
        self._write_usage(self.end_ns)
        if self.start_ns is not None:
            self._sample(self.end_ns)

    def _reach(self, at_ns: int) -> None:
        """Write what stood until a later moment."""
        if self.start_ns is None:
            self.start_ns = self._next_sample_ns = self.end_ns = at_ns
        if at_ns <= self.end_ns:
            return
        self._write_usage(self.end_ns)
        if self._next_sample_ns < at_ns:
            self._sample(max(self._next_sample_ns, self.end_ns))
            missed = (at_ns - self._next_sample_ns + self._sample_ns - 1) // self._sample_ns
            self._next_sample_ns += missed * self._sample_ns
        self.end_ns = at_ns

    def _change(self, change: Change, *, patched: bool) -> None:
        message, gone = change.message, change.verb is Verb.DELETED
        if isinstance(message, node_pb2.Node):
            if gone:
                self._drop_node(change.at_ns, message.metadata.name)
            else:
                self._put_node(change.at_ns, message)
        elif isinstance(message, pod_pb2.Pod):
            if gone:
                self._drop_pod(message.metadata.uid)
            elif patched:
                self._patched_pod(message)
            else:
                self._put_pod(change.at_ns, message, is_new=change.verb is Verb.ADDED)

    # Pods

    def _put_pod(self, at_ns: int, message: pod_pb2.Pod, *, is_new: bool) -> None:
        uid = message.metadata.uid
        is_known = uid in self._pods
        if not is_known and not is_new:
            return
        self._drop_pod(uid)
        spec = self._interner.spec(message.spec)
        pod = _Pod(spec=spec, amounts=_taken(spec))
        if not is_known:
            self._write("pods", _pod_row(at_ns, message, pod.amounts))
        if message.status.phase in _TERMINAL:
            return
        self._pods[uid] = pod
        if message.spec.node_name:
            self._place(pod, message.spec.node_name)
        elif not spec.scheduling_gates:
            self._waiting[uid] = pod

    def _patched_pod(self, message: pod_pb2.Pod) -> None:
        """Take a pod whose spec is what it was, but for the node."""
        uid, node_name = message.metadata.uid, message.spec.node_name
        pod = self._pods.get(uid)
        if pod is None:
            return
        if node_name and not pod.node_name:
            self._waiting.pop(uid, None)
            self._place(pod, node_name)
        if message.status.phase in _TERMINAL:
            self._drop_pod(uid)

    def _place(self, pod: _Pod, node_name: str) -> None:
        pod.node_name = node_name
        self._account(pod, 1)

    def _drop_pod(self, uid: str) -> None:
        self._waiting.pop(uid, None)
        pod = self._pods.pop(uid, None)
        if pod is not None and pod.node_name:
            self._account(pod, -1)

    def _account(self, pod: _Pod, sign: int) -> None:
        state = self._nodes.get(pod.node_name)
        if state is None:
            return
        for name, amount in pod.amounts.items():
            state.requested[name] = state.requested.get(name, 0) + sign * amount
        self._changed[pod.node_name] = None

    # Nodes

    def _put_node(self, at_ns: int, message: node_pb2.Node) -> None:
        node = node_from_message(message)
        state = self._nodes.get(node.name)
        if state is not None:
            if state.node.allocatable != node.allocatable:
                self._changed[node.name] = None
            state.node = node
            return
        self._nodes[node.name] = NodeState(node=node)
        self._changed[node.name] = None
        for pod in self._pods.values():
            if pod.node_name == node.name:
                self._account(pod, 1)
        row = {
            "node_name": node.name,
            "added_ns": at_ns,
            "cpu_milli": node.allocatable.get(CPU, 0),
            "memory_bytes": node.allocatable.get(MEMORY, 0),
            "allocatable": dict(sorted(node.allocatable.items())),
            "labels": dict(sorted(node.labels.items())),
        }
        self._write("nodes", row)

    def _drop_node(self, at_ns: int, name: str) -> None:
        state = self._nodes.pop(name, None)
        if state is None:
            return
        self._changed.pop(name, None)
        for resource in state.node.allocatable:
            row = {"at_ns": at_ns, "node_name": name, "resource": resource}
            self._write("node_usage", {**row, "requested": 0, "allocatable": 0})
        self._write("nodes", {"node_name": name, "removed_ns": at_ns})

    def _write_usage(self, at_ns: int) -> None:
        for name in self._changed:
            state = self._nodes[name]
            have, used = state.node.allocatable, state.requested
            for resource in (*have, *(each for each in used if each not in have)):
                row = {"at_ns": at_ns, "node_name": name, "resource": resource}
                row["requested"] = used.get(resource, 0)
                row["allocatable"] = have.get(resource, 0)
                self._write("node_usage", row)
        self._changed.clear()

    def _sample(self, at_ns: int) -> None:
        waiting = Counter(pod.spec for pod in self._waiting.values())
        amounts = {pod.spec: pod.amounts for pod in self._waiting.values()}
        nodes = list(self._nodes.values())
        for each in free_capacity(nodes, waiting, amounts):
            row = {"at_ns": at_ns, **asdict(each), "waiting_pods": len(self._waiting)}
            self._write("free_capacity", row)


def _taken(spec: PodSpec) -> dict[str, int]:
    """Return what a pod takes of its node, one of its pods too, without zeros."""
    return {name: amount for name, amount in pod_requests(spec).items() if amount} | {PODS: 1}


def _pod_row(at_ns: int, message: pod_pb2.Pod, amounts: Mapping[str, int]) -> dict[str, Any]:
    meta, spec, status = message.metadata, message.spec, message.status
    owner = next((each for each in meta.owner_references if each.controller), None)
    runs = status.phase == "Running"
    return {
        "namespace": meta.namespace,
        "name": meta.name,
        "uid": meta.uid,
        "owner_kind": owner.kind if owner else None,
        "owner_name": owner.name if owner else None,
        "priority": spec.priority,
        "priority_class": spec.priority_class_name or None,
        "cpu_milli": amounts.get(CPU, 0),
        "memory_bytes": amounts.get(MEMORY, 0),
        "requests": dict(sorted(amounts.items())),
        "created_ns": at_ns,
        "node_name": spec.node_name or None,
        "started_ns": (time_ns(status.start_time) or at_ns) if runs else None,
        "phase": status.phase if status.phase in _TERMINAL else None,
    }


@dataclass(slots=True, kw_only=True)
class NodeState:
    """A node and what its bound pods request of it, by resource."""

    node: Node
    requested: dict[str, int] = field(default_factory=dict)

    def free(self, resource: str) -> int:
        """Return what is left of a resource, 0 where more is requested than there is."""
        have = self.node.allocatable.get(resource, 0)
        return max(0, have - self.requested.get(resource, 0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Free:
    """What is free of a resource on nodes that refuse for `reason`; "" where no pod waits."""

    resource: str
    reason: str
    free: int
    allocatable: int


def free_capacity(
    nodes: Sequence[NodeState],
    waiting: Counter[PodSpec],
    requests: Mapping[PodSpec, Mapping[str, int]],
) -> Iterator[Free]:
    """Yield what is free of each resource by reason.

    `waiting` counts the waiting pods by shape; `requests` are those shapes' amounts. Resources are
    cpu, memory and what else nodes have under a name with a domain, such as devices.
    """
    names = _resources(nodes)
    judged = waiting.most_common(SHAPES_MAX)
    asked = {name for spec, _ in judged for name in requests[spec]}
    moment = _Moment(nodes, [*names, *sorted(asked.difference(names))])
    pods = sum(count for _, count in judged)
    parts: dict[tuple[str, str], float] = {}
    for spec, count in judged:
        reasons, index = moment.refusals(spec, requests[spec])
        for column, name in enumerate(names):
            weights = moment.free[:, column]
            amounts = np.bincount(index, weights=weights, minlength=len(reasons))
            for reason, amount in zip(reasons, amounts.tolist(), strict=True):
                key = name, reason
                parts[key] = parts.get(key, 0.0) + amount * count / pods
    if not judged:
        parts = {(name, ""): float(moment.free[:, i].sum()) for i, name in enumerate(names)}
    total = {name: sum(each.node.allocatable.get(name, 0) for each in nodes) for name in names}
    for (name, reason), amount in parts.items():
        if amount or not judged:
            yield Free(resource=name, reason=reason, free=round(amount), allocatable=total[name])


def _resources(nodes: Sequence[NodeState]) -> list[str]:
    named = {name for each in nodes for name in each.node.allocatable if "/" in name}
    return [CPU, MEMORY, *sorted(named)]


class _Moment:
    """The nodes as they stand: `free` is int64[nodes, resources].

    Nodes of equal marks (cordon and taints) are judged for these once.
    """

    def __init__(self, nodes: Sequence[NodeState], names: Sequence[str]) -> None:
        self._nodes = nodes
        self._columns = {name: column for column, name in enumerate(names)}
        free = np.array([[each.free(name) for name in names] for each in nodes], dtype=np.int64)
        self.free = free.reshape(len(nodes), len(names))
        self._marks: dict[_Marks, int] = {}
        self._mark_of = np.array([self._mark(each.node) for each in nodes], dtype=np.int64)

    def _mark(self, node: Node) -> int:
        return self._marks.setdefault((node.unschedulable, node.taints), len(self._marks))

    def refusals(
        self, spec: PodSpec, amounts: Mapping[str, int]
    ) -> tuple[list[str], NDArray[np.int64]]:
        """Return reasons, and for each node the index of the one that refuses `spec` there."""
        reasons = [FITS, CORDONED, TAINTED, UNSELECTED]
        by_mark = [_refused_for_marks(marks, spec) for marks in self._marks]
        index = np.array(by_mark, dtype=np.int64)[self._mark_of]
        if spec.node_selector or spec.node_affinity is not None:
            for row in np.flatnonzero(index == 0).tolist():
                index[row] = 0 if _is_selected(self._nodes[row].node, spec) else 3
        names = sorted(amounts)
        wanted = np.array([amounts[name] for name in names], dtype=np.int64)
        short = self.free[:, [self._columns[name] for name in names]] < wanted
        codes = short @ (1 << np.arange(len(names)))
        for code in np.unique(codes[(index == 0) & (codes > 0)]).tolist():
            index[(index == 0) & (codes == code)] = len(reasons)
            missing = [name for bit, name in enumerate(names) if code >> bit & 1]
            reasons.append(f"Insufficient {' and '.join(missing)}")
        return reasons, index


def _refused_for_marks(marks: _Marks, spec: PodSpec) -> int:
    """Return the index in a moment's reasons; 0 where the marks refuse nothing."""
    unschedulable, taints = marks
    if unschedulable and not tolerated(_CORDON, spec.tolerations):
        return 1
    repels = any(each.effect in _HARD and not tolerated(each, spec.tolerations) for each in taints)
    return 2 if repels else 0


def _is_selected(node: Node, spec: PodSpec) -> bool:
    if any(node.labels.get(key) != value for key, value in spec.node_selector.items()):
        return False
    required = spec.node_affinity.required if spec.node_affinity is not None else None
    return required is None or required.matches(node.labels, node.name)
