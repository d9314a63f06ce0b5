"""PodTopologySpread: spreads matching pods evenly over topology domains.

A pod without constraints of its own has the profile's defaults, where a service or a controller
selects it.

Source: kubernetes v1.34 plugins/podtopologyspread/plugin.go, filtering.go, scoring.go.
"""

from __future__ import annotations

from collections.abc import Hashable

from services.framework.columns.columns import Int64s
from services.framework.plugin import (
    ClusterFilterPlugin,
    ClusterScorePlugin,
    Normalization,
    Normalized,
    PreFiltered,
    Scope,
)
from services.framework.plugins.pod_topology_spread.arguments import (
    ARGUMENTS,
    DefaultingType,
    PodTopologySpreadArgs,
)
from services.framework.plugins.pod_topology_spread.constraints import (
    SYSTEM_DEFAULTS,
    Spread,
    default_selector,
    spread_of,
)
from services.framework.plugins.pod_topology_spread.counts import (
    MISSING_LABEL,
    SpreadCounts,
    SpreadTrial,
)
from services.framework.plugins.pod_topology_spread.scores import SpreadScores
from services.framework.preemption.batch_dry_run import Bounds
from services.framework.snapshot.snapshot import Snapshot
from services.framework.status import Code, Status
from services.kube.pod import Pod
from services.kube.selector import LabelSelector, UnsatisfiableAction

_DEFAULTS = PodTopologySpreadArgs()
_KEPT_MAX = 16_384
CONSTRAINTS_NOT_MATCH = "node(s) didn't match pod topology spread constraints"


class _SpreadIdentity:
    """A spread by identity, which is cheap to compare; equal ones are one object."""

    __slots__ = ("spread",)

    def __init__(self, spread: Spread) -> None:
        self.spread = spread


class PodTopologySpread(ClusterFilterPlugin[SpreadCounts], ClusterScorePlugin[SpreadScores]):
    """Filters by DoNotSchedule constraints, scores by ScheduleAnyway ones."""

    name = "PodTopologySpread"
    arguments = ARGUMENTS
    scope = Scope.CLUSTER
    keys_follow_pod = True
    needs_pre_filter = True
    needs_pre_score = True
    normalization = Normalization.OWN

    def __init__(self, args: PodTopologySpreadArgs = _DEFAULTS) -> None:
        self._is_system = args.defaulting_type is DefaultingType.SYSTEM
        self._defaults = SYSTEM_DEFAULTS if self._is_system else args.default_constraints
        self._by_pod: dict[Hashable, tuple[_SpreadIdentity | None, _SpreadIdentity | None]] = {}
        self._interned: dict[Spread, _SpreadIdentity] = {}
        self._latest: tuple[Pod | None, tuple[_SpreadIdentity | None, _SpreadIdentity | None]] = (
            None,
            (None, None),
        )
        self._workload_epoch = -1

    def filter_key(self, pod: Pod, snapshot: Snapshot) -> Hashable | None:
        """Return the DoNotSchedule constraints, None without any."""
        if not pod.spec.topology_spread_constraints and not snapshot.catalog.has_workloads:
            return None
        return self._spreads(pod, snapshot)[0]

    def pre_filter(self, pod: Pod, snapshot: Snapshot) -> PreFiltered[SpreadCounts]:
        identity = self._spreads(pod, snapshot)[0]
        assert identity is not None, "a pod without such constraints is skipped"
        return PreFiltered(data=SpreadCounts(identity.spread, snapshot))

    def selector_for_hints(self, pod: Pod, snapshot: Snapshot) -> LabelSelector | None:
        """Return the default constraints' selector; None for a pod with constraints of its own."""
        constraints = pod.spec.topology_spread_constraints
        return None if constraints else default_selector(pod, snapshot.catalog)

    def filter_version(self, data: SpreadCounts, snapshot: Snapshot) -> Hashable:  # noqa: ARG002 - the data knows it
        return data.version()

    def filter(self, data: SpreadCounts, snapshot: Snapshot, rows: Int64s, codes: Int64s) -> None:  # noqa: ARG002 - all rows
        data.write(codes)

    def trial(self, data: SpreadCounts, snapshot: Snapshot, row: int) -> SpreadTrial:  # noqa: ARG002 - the data knows it
        return SpreadTrial(data, row)

    def bounds(self, data: SpreadCounts, snapshot: Snapshot, rows: Int64s) -> Bounds | None:  # noqa: ARG002 - the data knows it
        """Return how many more matching pods each row's domains admit."""
        return data.bounds(rows) if data.has_labels(rows) else None

    def filter_status(self, data: SpreadCounts, code: int) -> Status:  # noqa: ARG002 - two statuses only
        """Return the refusal; removing pods cannot resolve a missing label."""
        if code == MISSING_LABEL:
            return Status(
                code=Code.UNSCHEDULABLE_AND_UNRESOLVABLE,
                plugin=self.name,
                reasons=(f"{CONSTRAINTS_NOT_MATCH} (missing required label)",),
            )
        return Status(code=Code.UNSCHEDULABLE, plugin=self.name, reasons=(CONSTRAINTS_NOT_MATCH,))

    def score_key(self, pod: Pod, snapshot: Snapshot) -> Hashable | None:
        """Return the ScheduleAnyway constraints, None without any."""
        if not pod.spec.topology_spread_constraints and not snapshot.catalog.has_workloads:
            return None
        return self._spreads(pod, snapshot)[1]

    def pre_score(self, pod: Pod, snapshot: Snapshot) -> SpreadScores:
        identity = self._spreads(pod, snapshot)[1]
        assert identity is not None, "a pod without such constraints is skipped"
        return SpreadScores(identity.spread, snapshot)

    def score_version(self, data: SpreadScores, snapshot: Snapshot) -> Hashable:  # noqa: ARG002 - as below
        """Return a constant: `normalize` computes the scores, from the nodes that fit."""
        return 0

    def score(self, data: SpreadScores, snapshot: Snapshot, rows: Int64s, scores: Int64s) -> None:
        """Leave the scores to `normalize`."""

    def normalize(
        self,
        data: SpreadScores,
        snapshot: Snapshot,  # noqa: ARG002 - the data knows it
        rows: Int64s,
        raw: Int64s,  # noqa: ARG002 - nothing is scored before
    ) -> Normalized:
        return data.of(rows)

    def _spreads(
        self, pod: Pod, snapshot: Snapshot
    ) -> tuple[_SpreadIdentity | None, _SpreadIdentity | None]:
        """Return the DoNotSchedule and the ScheduleAnyway constraints."""
        catalog = snapshot.catalog
        constraints = pod.spec.topology_spread_constraints
        if not constraints and not self._defaults:
            return (None, None)
        if self._workload_epoch != catalog.workload_epoch or len(self._by_pod) >= _KEPT_MAX:
            self._workload_epoch = catalog.workload_epoch
            self._by_pod.clear()
            self._latest = (None, (None, None))
        if pod is self._latest[0]:
            return self._latest[1]
        owners = () if constraints else pod.owners
        key = (pod.spec, pod.namespace, frozenset(pod.labels.items()), owners)
        spreads = self._by_pod.get(key)
        if spreads is None:
            spreads = self._by_pod[key] = self._compiled(pod, snapshot)
        self._latest = (pod, spreads)
        return spreads

    def _compiled(
        self, pod: Pod, snapshot: Snapshot
    ) -> tuple[_SpreadIdentity | None, _SpreadIdentity | None]:
        constraints, selector, needs_all = pod.spec.topology_spread_constraints, None, True
        if not constraints:
            selector = default_selector(pod, snapshot.catalog)
            if selector is None:
                return (None, None)
            constraints, needs_all = self._defaults, not self._is_system
        forbidding = spread_of(
            pod, UnsatisfiableAction.DO_NOT_SCHEDULE, constraints, default=selector
        )
        scoring = spread_of(
            pod,
            UnsatisfiableAction.SCHEDULE_ANYWAY,
            constraints,
            default=selector,
            needs_all=needs_all,
        )
        return (self._intern(forbidding), self._intern(scoring))

    def _intern(self, spread: Spread | None) -> _SpreadIdentity | None:
        if spread is None:
            return None
        if len(self._interned) >= _KEPT_MAX:
            self._interned.clear()
        return self._interned.setdefault(spread, _SpreadIdentity(spread))
