"""NodeResourcesFit: what a pod asks for must be free; how much is used is scored.

A shortage that no pod's leaving could cure, a request above what the node has at all, makes the
refusal unresolvable. A request of 0 always fits. What a configuration ignores is left out of the
filter and not of the score.

Source: kubernetes v1.34 plugins/noderesources/fit.go; the scores are in usage_scoring.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from services.kube.pod import Pod
from services.kube.requests import CPU, EPHEMERAL_STORAGE, MEMORY
from services.scheduler.core import kernels
from services.scheduler.core.columns import Int64s
from services.scheduler.core.node_view import NodeView
from services.scheduler.core.plugin import FilterPlugin, PreFiltered, Scope, ScorePlugin
from services.scheduler.core.plugin_args import NodeResourcesFitArgs
from services.scheduler.core.plugins.scored_resources import (
    ScoredResources,
    ScoredShares,
    usage_score,
)
from services.scheduler.core.snapshot import Snapshot
from services.scheduler.core.status import Code, Status

_DEFAULTS = NodeResourcesFitArgs()
_NATIVE = "kubernetes.io/"
_REQUESTED_MAX = 60
_FIRST = {CPU: 0, MEMORY: 1, EPHEMERAL_STORAGE: 2}


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a pod asks for: names in reporting order, and (column, amount) of each."""

    names: tuple[str, ...]
    pairs: tuple[tuple[int, int], ...]
    columns: Int64s
    amounts: Int64s


def fit_code(
    wanted: Sequence[tuple[int, int]],
    allocatable: Sequence[int],
    requested: Sequence[int],
    pod_count: int,
    pods_max: int,
) -> int:
    """Return the fit code of one node for a pod that asks `wanted` (column, amount).

    On a hypothetical node, calling the kernel would cost more than it computes.
    Source: kubernetes v1.34 plugins/noderesources/fit.go, fitsRequest.
    """
    code = kernels.TOO_MANY_PODS if pod_count + 1 > pods_max else 0
    bit = 2
    for column, amount in wanted:
        capacity = allocatable[column]
        if amount > capacity - requested[column]:
            code |= bit
            if amount > capacity:
                code |= kernels.UNRESOLVABLE
        bit <<= 1
    return code


class NodeResourcesFit(FilterPlugin[Wanted], ScorePlugin[ScoredShares]):
    """Filters by free resources, scores by what is used, LeastAllocated where nothing is said."""

    name = "NodeResourcesFit"
    scope = Scope.PODS
    needs_pre_filter = True

    def __init__(self, args: NodeResourcesFitArgs = _DEFAULTS) -> None:
        self._args = args
        self._scored = ScoredResources(args.resources)
        self._score = usage_score(args)

    def filter_key(self, pod: Pod, snapshot: Snapshot) -> Hashable | None:
        """Return the requests as they are counted on a node."""
        return snapshot.load(pod.spec).taken

    def pre_filter(self, pod: Pod, snapshot: Snapshot) -> PreFiltered[Wanted]:
        """Return the requests that are not 0."""
        amounts = snapshot.load(pod.spec).requests.amounts
        asked = (name for name in amounts if amounts[name] > 0 and not self._ignores(name))
        names = sorted(asked, key=_reported)
        assert len(names) <= _REQUESTED_MAX, "more resources than a fit code has bits"
        pairs = tuple((snapshot.columns.resource(name), amounts[name]) for name in names)
        columns = np.array([column for column, _ in pairs], dtype=np.int64)
        wanted = np.array([amount for _, amount in pairs], dtype=np.int64)
        return PreFiltered(data=Wanted(tuple(names), pairs, columns, wanted))

    def filter_node(self, data: Wanted, view: NodeView) -> int:
        """Return the shortages of one node as bits."""
        return fit_code(data.pairs, view.allocatable, view.requested, view.pod_count, view.pods_max)

    def filter(self, data: Wanted, snapshot: Snapshot, rows: Int64s, codes: Int64s) -> None:
        """Write the shortages of each row as bits."""
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

    def filter_status(self, data: Wanted, code: int) -> Status:
        """Name all shortages."""
        unresolvable = code & kernels.UNRESOLVABLE
        short = ["Too many pods"] if code & kernels.TOO_MANY_PODS else []
        short += [f"Insufficient {name}" for i, name in enumerate(data.names) if code & (2 << i)]
        return Status(
            code=Code.UNSCHEDULABLE_AND_UNRESOLVABLE if unresolvable else Code.UNSCHEDULABLE,
            plugin=self.name,
            reasons=tuple(short),
        )

    def score_key(self, pod: Pod, snapshot: Snapshot) -> Hashable | None:
        """Return the requests that the score takes the pod for; never skipped."""
        return self._scored.key(snapshot.load(pod.spec).requests.scored)

    def pre_score(self, pod: Pod, snapshot: Snapshot) -> ScoredShares:
        """Return the requests that the score takes the pod for."""
        return self._scored.shares(snapshot, snapshot.load(pod.spec).requests.scored)

    def score(self, data: ScoredShares, snapshot: Snapshot, rows: Int64s, scores: Int64s) -> None:
        """Write the score of each row."""
        self._score(rows, data, snapshot.columns, scores)

    def _ignores(self, name: str) -> bool:
        """Tell whether the filter leaves out a resource, which must be an extended one."""
        group, slash, _ = name.partition("/")
        if not slash or _NATIVE in name:
            return False
        return name in self._args.ignored_resources or group in self._args.ignored_groups


def _reported(name: str) -> tuple[int, str]:
    return (_FIRST.get(name, len(_FIRST)), name)
