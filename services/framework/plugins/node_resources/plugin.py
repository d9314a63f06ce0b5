"""NodeResourcesFit and NodeResourcesBalancedAllocation: room on a node, and scores by its use.

NodeResourcesFit requires that the pod's requests are free, and scores by how much is used. The
refusal is unresolvable where a request exceeds what the node has at all, since no pod's deletion
could help. A request of 0 always fits. Resources that a configuration ignores are left out of the
filter and not of the score.

NodeResourcesBalancedAllocation prefers nodes whose resources are used evenly; from v1.36 on, nodes
whose balance the pod improves. Both scores leave out an extended resource that the pod does not
request.

Source: kubernetes v1.34 plugins/noderesources/fit.go; resource_allocation.go,
calculateResourceAllocatableRequest; least_allocated.go, most_allocated.go,
requested_to_capacity_ratio.go; balanced_allocation.go.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from services.framework.columns import kernels, usage_kernels
from services.framework.columns.columns import Int64s
from services.framework.plugin import FilterPlugin, PreFiltered, Scope, ScorePlugin
from services.framework.plugins.node_resources.arguments import (
    BALANCED_ALLOCATION_ARGUMENTS,
    FIT_ARGUMENTS,
    NodeResourcesBalancedAllocationArgs,
    NodeResourcesFitArgs,
    ResourceWeight,
    ScoringType,
    ShapePoint,
)
from services.framework.snapshot.node_view import NodeView
from services.framework.snapshot.snapshot import Snapshot
from services.framework.status import Code, Status
from services.kube.pod import Pod
from services.kube.requests import CPU, EPHEMERAL_STORAGE, MEMORY, is_scalar

_SCORE_SCALE = 10
"""A shape point's scores end at 10, a node's at 100."""


@dataclass(frozen=True, slots=True)
class ScoredShares:
    """Columns, the pod's amounts of them, and their weights: int64[resources]."""

    columns: Int64s
    amounts: Int64s
    weights: Int64s


@dataclass(frozen=True, slots=True)
class ScoredResources:
    """Resources with weights, in the order of the configuration."""

    resources: tuple[ResourceWeight, ...]

    def key(self, amounts: Mapping[str, int]) -> tuple[int, ...]:
        """Return a pod's amounts of these resources, on which its scores depend."""
        return tuple(amounts.get(resource.name, 0) for resource in self.resources)

    def shares(self, snapshot: Snapshot, amounts: Mapping[str, int]) -> ScoredShares:
        """Return a pod's shares of the resources that count for it."""
        counted = [
            resource
            for resource in self.resources
            if amounts.get(resource.name, 0) != 0 or not is_scalar(resource.name)
        ]
        places = snapshot.columns.places(resource.name for resource in counted)
        rows = [
            (place, amounts.get(resource.name, 0), resource.weight)
            for place, resource in zip(places, counted, strict=True)
        ]
        table = np.array(rows, dtype=np.int64).reshape(-1, 3)
        columns, wanted, weights = (np.ascontiguousarray(table[:, i]) for i in range(3))
        return ScoredShares(columns, wanted, weights)


class Amounts(Protocol):
    """The allocatable and the requested amounts of nodes: int64[nodes, resources] each."""

    @property
    def allocatable(self) -> Int64s: ...
    @property
    def requested(self) -> Int64s: ...
    @property
    def non_zero_requested(self) -> Int64s: ...


UsageScore = Callable[[Int64s, ScoredShares, Amounts, Int64s], None]


def usage_score(args: NodeResourcesFitArgs) -> UsageScore:
    """Return a function that writes the scores of rows for a pod's shares."""
    match args.scoring:
        case ScoringType.LEAST_ALLOCATED:
            return _weighed_by(usage_kernels.least_allocated)
        case ScoringType.MOST_ALLOCATED:
            return _weighed_by(usage_kernels.most_allocated)
        case ScoringType.REQUESTED_TO_CAPACITY_RATIO:
            return _requested_to_capacity(args.shape)


def _weighed_by(kernel: Callable[..., None]) -> UsageScore:
    def score(rows: Int64s, data: ScoredShares, held: Amounts, scores: Int64s) -> None:
        kernel(
            rows,
            data.columns,
            data.amounts,
            data.weights,
            held.allocatable,
            held.requested,
            held.non_zero_requested,
            scores,
        )

    return score


def _requested_to_capacity(shape: tuple[ShapePoint, ...]) -> UsageScore:
    bends = np.array([point.utilization for point in shape], dtype=np.int64)
    heights = np.array([point.score * _SCORE_SCALE for point in shape], dtype=np.int64)

    def score(rows: Int64s, data: ScoredShares, held: Amounts, scores: Int64s) -> None:
        usage_kernels.requested_to_capacity(
            rows,
            data.columns,
            data.amounts,
            data.weights,
            bends,
            heights,
            held.allocatable,
            held.requested,
            held.non_zero_requested,
            scores,
        )

    return score


_DEFAULTS = NodeResourcesFitArgs()
_NATIVE = "kubernetes.io/"
_REQUESTED_MAX = 60
_FIRST = {CPU: 0, MEMORY: 1, EPHEMERAL_STORAGE: 2}


@dataclass(frozen=True, slots=True)
class WantedResources:
    """The requests of a pod: names in reporting order, and (column, amount) of each."""

    names: tuple[str, ...]
    pairs: tuple[tuple[int, int], ...]
    columns: Int64s
    amounts: Int64s


def fit_code(
    amounts: Sequence[tuple[int, int]],
    allocatable: Sequence[int],
    requested: Sequence[int],
    pod_count: int,
    pods_max: int,
) -> int:
    """Return the fit code of one node for a pod that requests `amounts` (column, amount).

    For one node, calling the kernel would cost more than it computes.
    Source: kubernetes v1.34 plugins/noderesources/fit.go, fitsRequest.
    """
    code = kernels.TOO_MANY_PODS if pod_count + 1 > pods_max else 0
    bit = 2
    for column, amount in amounts:
        capacity = allocatable[column]
        if amount > capacity - requested[column]:
            code |= bit
            if amount > capacity:
                code |= kernels.UNRESOLVABLE
        bit <<= 1
    return code


class NodeResourcesFit(FilterPlugin[WantedResources], ScorePlugin[ScoredShares]):
    """Filters by free resources, scores by requested ones (LeastAllocated by default)."""

    name = "NodeResourcesFit"
    arguments = FIT_ARGUMENTS
    scope = Scope.PODS
    keeps_rows = False
    needs_pre_filter = True
    is_resource_fit = True

    def __init__(self, args: NodeResourcesFitArgs = _DEFAULTS) -> None:
        self._args = args
        self._scored = ScoredResources(args.resources)
        self._score = usage_score(args)

    def filter_key(self, pod: Pod, snapshot: Snapshot) -> Hashable | None:
        """Return the requests as they are counted on a node."""
        return snapshot.load(pod.spec).taken

    def pre_filter(self, pod: Pod, snapshot: Snapshot) -> PreFiltered[WantedResources]:
        amounts = snapshot.load(pod.spec).requests.amounts
        requested = (name for name in amounts if amounts[name] > 0 and not self._ignores(name))
        names = sorted(requested, key=_reported)
        assert len(names) <= _REQUESTED_MAX, "more resources than a fit code has bits"
        places = snapshot.columns.places(names)
        pairs = tuple((place, amounts[name]) for place, name in zip(places, names, strict=True))
        columns = np.array([column for column, _ in pairs], dtype=np.int64)
        requested_amounts = np.array([amount for _, amount in pairs], dtype=np.int64)
        return PreFiltered(data=WantedResources(tuple(names), pairs, columns, requested_amounts))

    def filter_node(self, data: WantedResources, view: NodeView) -> int:
        """Return the shortages of one node as bits."""
        return fit_code(data.pairs, view.allocatable, view.requested, view.pod_count, view.pods_max)

    def filter(
        self, data: WantedResources, snapshot: Snapshot, rows: Int64s, codes: Int64s
    ) -> None:
        held = snapshot.columns
        kernels.fit(
            rows,
            data.columns,
            data.amounts,
            held.allocatable,
            held.requested,
            held.pod_count,
            held.pods_max,
            codes,
        )

    def filter_status(self, data: WantedResources, code: int) -> Status:
        unresolvable = code & kernels.UNRESOLVABLE
        short = ["Too many pods"] if code & kernels.TOO_MANY_PODS else []
        short += [f"Insufficient {name}" for i, name in enumerate(data.names) if code & (2 << i)]
        return Status(
            code=Code.UNSCHEDULABLE_AND_UNRESOLVABLE if unresolvable else Code.UNSCHEDULABLE,
            plugin=self.name,
            reasons=tuple(short),
        )

    def score_key(self, pod: Pod, snapshot: Snapshot) -> Hashable | None:
        """Return the requests that the score counts for the pod; it never returns Skip."""
        return self._scored.key(snapshot.load(pod.spec).requests.scored)

    def pre_score(self, pod: Pod, snapshot: Snapshot) -> ScoredShares:
        return self._scored.shares(snapshot, snapshot.load(pod.spec).requests.scored)

    def score(self, data: ScoredShares, snapshot: Snapshot, rows: Int64s, scores: Int64s) -> None:
        self._score(rows, data, snapshot.columns, scores)

    def _ignores(self, name: str) -> bool:
        """Return whether the filter leaves out a resource, which must be an extended one."""
        group, slash, _ = name.partition("/")
        if not slash or _NATIVE in name:
            return False
        return name in self._args.ignored_resources or group in self._args.ignored_groups


def _reported(name: str) -> tuple[int, str]:
    return (_FIRST.get(name, len(_FIRST)), name)


_BALANCED_DEFAULTS = NodeResourcesBalancedAllocationArgs()


class NodeResourcesBalancedAllocation(ScorePlugin[ScoredShares]):
    """Scores by the deviation of the used fractions of CPU and memory, or of what is named."""

    name = "NodeResourcesBalancedAllocation"
    arguments = BALANCED_ALLOCATION_ARGUMENTS
    scope = Scope.PODS
    keeps_rows = False
    _by_change = False

    def __init__(self, args: NodeResourcesBalancedAllocationArgs = _BALANCED_DEFAULTS) -> None:
        self._scored = ScoredResources(args.resources)

    def score_key(self, pod: Pod, snapshot: Snapshot) -> Hashable | None:
        """Return the scored requests, None for a pod that requests none of them."""
        key = self._scored.key(snapshot.load(pod.spec).requests.amounts)
        return key if any(key) else None

    def pre_score(self, pod: Pod, snapshot: Snapshot) -> ScoredShares:
        return self._scored.shares(snapshot, snapshot.load(pod.spec).requests.amounts)

    def score(self, data: ScoredShares, snapshot: Snapshot, rows: Int64s, scores: Int64s) -> None:
        self.score_amounts(rows, data, snapshot.columns, scores)

    def score_amounts(
        self, rows: Int64s, data: ScoredShares, held: Amounts, scores: Int64s
    ) -> None:
        """Write the score of each row of `held`."""
        kernels.balanced_allocation(
            rows,
            data.columns,
            data.amounts,
            held.allocatable,
            held.requested,
            self._by_change,
            scores,
        )


class NodeResourcesBalanceChange(NodeResourcesBalancedAllocation):
    """Scores by how much the deviation of the used fractions changes with the pod.

    75 where it does not change, down to 50 where it grows most, up to 100 where it shrinks most.
    Source: kubernetes v1.36 plugins/noderesources/balanced_allocation.go, balancedResourceScorer
    (kubernetes#135573).
    """

    _by_change = True
