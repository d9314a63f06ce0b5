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

from replay.results.tables.requests import CPU, MEMORY
from services.kube.node import Node
from services.kube.pod import PodSpec
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
    free = np.array([[each.free(name) for name in names] for each in nodes], dtype=np.int64)
    free = free.reshape(len(nodes), len(names))
    judged = waiting.most_common(SHAPES_MAX)
    pods = sum(count for _, count in judged)
    parts: dict[tuple[str, str], float] = {}
    for spec, count in judged:
        reasons, index = _refusals(nodes, spec, requests[spec])
        for column, name in enumerate(names):
            amounts = np.bincount(index, weights=free[:, column], minlength=len(reasons))
            for reason, amount in zip(reasons, amounts.tolist(), strict=True):
                key = name, reason
                parts[key] = parts.get(key, 0.0) + amount * count / pods
    if not judged:
        parts = {(name, ""): float(free[:, i].sum()) for i, name in enumerate(names)}
    total = {name: sum(each.node.allocatable.get(name, 0) for each in nodes) for name in names}
    for (name, reason), amount in parts.items():
        if amount or not judged:
            yield Free(resource=name, reason=reason, free=round(amount), allocatable=total[name])


def _resources(nodes: Sequence[NodeState]) -> list[str]:
    named = {name for each in nodes for name in each.node.allocatable if "/" in name}
    return [CPU, MEMORY, *sorted(named)]


def _refusals(
    nodes: Sequence[NodeState], spec: PodSpec, amounts: Mapping[str, int]
) -> tuple[list[str], NDArray[np.int64]]:
    """Return reasons, and for each node the index of the one that refuses `spec` there."""
    known: dict[str, int] = {}
    index = np.empty(len(nodes), dtype=np.int64)
    tainted: dict[tuple[Taint, ...], bool] = {}
    for row, each in enumerate(nodes):
        reason = _refusal(each, spec, amounts, tainted)
        index[row] = known.setdefault(reason, len(known))
    return list(known), index


def _refusal(
    state: NodeState,
    spec: PodSpec,
    amounts: Mapping[str, int],
    tainted: dict[tuple[Taint, ...], bool],
) -> str:
    node = state.node
    if node.unschedulable and not tolerated(_CORDON, spec.tolerations):
        return CORDONED
    if node.taints:
        repels = tainted.get(node.taints)
        if repels is None:
            repels = tainted[node.taints] = _repels(node.taints, spec)
        if repels:
            return TAINTED
    if not _is_selected(node, spec):
        return UNSELECTED
    short = sorted(name for name, amount in amounts.items() if amount > state.free(name))
    return f"Insufficient {' and '.join(short)}" if short else FITS


def _repels(taints: Sequence[Taint], spec: PodSpec) -> bool:
    return any(each.effect in _HARD and not tolerated(each, spec.tolerations) for each in taints)


def _is_selected(node: Node, spec: PodSpec) -> bool:
    if any(node.labels.get(key) != value for key, value in spec.node_selector.items()):
        return False
    required = spec.node_affinity.required if spec.node_affinity is not None else None
    return required is None or required.matches(node.labels, node.name)
