"""What is free and why the pods that wait cannot use it.

Of the free amount on a node, each waiting pod counts one part, and each part goes to what refuses
that pod there: so the figures are those of the average waiting pod. Judged are the node's taints,
node affinity and requests, in upstream's order of filters; a node that passes these may still
refuse for spreading, pod affinity, ports or volumes, or the pod's turn has not come.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from services.kube.node import Node
from services.kube.pod import PodSpec
from services.kube.requests import CPU, MEMORY
from services.kube.taints import Taint, TaintEffect, tolerated

SHAPES_MAX = 16
"""Shapes of waiting pods that are judged: those of most pods."""

CORDONED = "node is unschedulable"
TAINTED = "untolerated taint"
UNSELECTED = "node affinity or selector"
FITS = "fits: other rules, or not its turn"
_CORDON = Taint(key="node.kubernetes.io/unschedulable", effect=TaintEffect.NO_SCHEDULE)
_HARD = frozenset({TaintEffect.NO_SCHEDULE, TaintEffect.NO_EXECUTE})


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


_Marks = tuple[bool, tuple[Taint, ...]]


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
