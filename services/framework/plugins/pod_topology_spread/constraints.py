"""The topology spread constraints that apply to a pod, and which nodes count for each.

Source: kubernetes v1.34 plugins/podtopologyspread/common.go (matchNodeInclusionPolicies,
nodeLabelsMatchSpreadConstraints among it), plugin.go, and plugins/helper/spread.go,
DefaultSelector.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from services.framework.columns.columns import Bools
from services.framework.plugins.taint_toleration.plugin import Tolerance
from services.framework.snapshot.catalog import Catalog
from services.framework.snapshot.node_indexes import Domains
from services.framework.snapshot.pod_classes import PodClass
from services.framework.snapshot.snapshot import Snapshot
from services.kube.node import LABEL_HOSTNAME, LABEL_ZONE
from services.kube.pod import Pod
from services.kube.selector import (
    LabelSelector,
    NodeInclusionPolicy,
    NodeSelector,
    Operator,
    Requirement,
    TopologySpreadConstraint,
    UnsatisfiableAction,
)
from services.kube.taints import Toleration
from services.kube.workloads import ControllerKind

SYSTEM_DEFAULTS = tuple(
    TopologySpreadConstraint(
        max_skew=skew, topology_key=key, when_unsatisfiable=UnsatisfiableAction.SCHEDULE_ANYWAY
    )
    for skew, key in ((3, LABEL_HOSTNAME), (5, LABEL_ZONE))
)
"""What upstream spreads pods of services and controllers by."""

_OWNERS = {
    ("v1", "ReplicationController"): ControllerKind.REPLICATION_CONTROLLER,
    ("apps/v1", "ReplicaSet"): ControllerKind.REPLICA_SET,
    ("apps/v1", "StatefulSet"): ControllerKind.STATEFUL_SET,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SpreadRule:
    """One constraint; `selector` None counts no pod.

    `honors_affinity` and `honors_taints` leave out nodes that the pod's node affinity or its
    tolerations rule out. `self_match` says that the pod is one of those counted.
    """

    max_skew: int
    topology_key: str
    selector: LabelSelector | None
    min_domains: int
    honors_affinity: bool
    honors_taints: bool
    self_match: bool

    @property
    def is_by_host(self) -> bool:
        """Return whether the domains are the nodes themselves."""
        return self.topology_key == LABEL_HOSTNAME

    def sees(self, other: PodClass, namespace: str) -> bool:
        """Return whether the selector picks a pod for a pod of `namespace`, in whatever state."""
        return (
            self.selector is not None
            and other.namespace == namespace
            and self.selector.matches(other.labels)
        )

    def counts(self, other: PodClass, namespace: str) -> bool:
        """Return whether a pod on a node is counted: not while it terminates.

        An empty selector counts no pod, although it matches every pod.
        Source: kubernetes v1.34 plugins/podtopologyspread/common.go, countPodsMatchSelector.
        """
        if other.terminating or self.selector is None or not self.selector.requirements:
            return False
        return self.sees(other, namespace)


RequiredNodes = tuple[tuple[tuple[str, str], ...], NodeSelector | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """The rules of one action for pods of `namespace`, with what the nodes are judged by.

    `needs_all` leaves nodes out that lack one of the rules' labels. `required` is the pod's
    nodeSelector and required node affinity, and `tolerations` its tolerations; each is empty where
    no rule honors it.
    """

    namespace: str
    rules: tuple[SpreadRule, ...]
    needs_all: bool
    required: RequiredNodes
    tolerations: tuple[Toleration, ...]


def spread_of(
    pod: Pod,
    action: UnsatisfiableAction,
    constraints: Iterable[TopologySpreadConstraint],
    *,
    default: LabelSelector | None = None,
    needs_all: bool = True,
) -> Spread | None:
    """Return the rules of `action` among `constraints`, None where there is none.

    `default` takes the place of every selector.
    """
    rules = tuple(
        _rule(constraint, pod.labels, default)
        for constraint in constraints
        if constraint.when_unsatisfiable is action
    )
    if not rules:
        return None
    affinity = pod.spec.node_affinity
    honors_affinity = any(rule.honors_affinity for rule in rules)
    honors_taints = any(rule.honors_taints for rule in rules)
    return Spread(
        namespace=pod.namespace,
        rules=rules,
        needs_all=needs_all,
        required=(
            (
                tuple(sorted(pod.spec.node_selector.items())),
                affinity.required if affinity is not None else None,
            )
            if honors_affinity
            else ((), None)
        ),
        tolerations=pod.spec.tolerations if honors_taints else (),
    )


def _rule(
    constraint: TopologySpreadConstraint, labels: Mapping[str, str], default: LabelSelector | None
) -> SpreadRule:
    selector = default if default is not None else constraint.selector_for(labels)
    return SpreadRule(
        max_skew=constraint.max_skew,
        topology_key=constraint.topology_key,
        selector=selector,
        min_domains=constraint.min_domains,
        honors_affinity=constraint.node_affinity_policy is NodeInclusionPolicy.HONOR,
        honors_taints=constraint.node_taints_policy is NodeInclusionPolicy.HONOR,
        self_match=selector is not None and selector.matches(labels),
    )


def default_selector(pod: Pod, catalog: Catalog) -> LabelSelector | None:
    """Return the selector of the pod's services and its controller, None without any."""
    labels: dict[str, str] = {}
    for service in catalog.services_in(pod.namespace):
        if service.selector and all(
            pod.labels.get(key) == value for key, value in service.selector.items()
        ):
            labels |= service.selector
    requirements = (*_equal(labels), *_controllers(pod, catalog))
    return LabelSelector(requirements=requirements) if requirements else None


def _controllers(pod: Pod, catalog: Catalog) -> tuple[Requirement, ...]:
    owner = next((owner for owner in pod.owners if owner.controller), None)
    if owner is None:
        return ()
    versions = [owner.api_version] if owner.api_version else ["v1", "apps/v1"]
    kinds = [
        _OWNERS[version, owner.kind] for version in versions if (version, owner.kind) in _OWNERS
    ]
    controllers = [catalog.controller(kind, pod.namespace, owner.name) for kind in kinds]
    selectors = [constraint.selector for constraint in controllers if constraint is not None]
    return tuple(
        need for selector in selectors if selector is not None for need in selector.requirements
    )


def _equal(labels: Mapping[str, str]) -> tuple[Requirement, ...]:
    return tuple(
        Requirement(key=key, operator=Operator.IN, values=(value,))
        for key, value in sorted(labels.items())
    )


class CountedNodes:
    """The nodes that count for each rule of a spread, right after `sync`.

    domains: those of each rule's label. by_rule: bool[nodes] for each rule.
    """

    __slots__ = (
        "_matching",
        "_position",
        "_snapshot",
        "_spread",
        "_tolerance",
        "by_rule",
        "domains",
    )

    def __init__(self, spread: Spread, snapshot: Snapshot) -> None:
        self._spread = spread
        self._snapshot = snapshot
        self.domains: Sequence[Domains] = [
            snapshot.topologies.domains(rule.topology_key) for rule in spread.rules
        ]
        self.by_rule: Sequence[Bools] = []
        self._tolerance = Tolerance(spread.tolerations)
        self._matching: Bools = np.zeros(0, dtype=np.bool_)
        self._position = -1

    def sync(self) -> None:
        """Judge the nodes again that changed."""
        for domains in self.domains:
            domains.sync()
        end = self._snapshot.node_log.end
        if self._position == end:
            return
        if _asks(self._spread.required):
            self._match_nodes()
        self._position = end
        labelled = self._snapshot.columns.alive
        if self._spread.needs_all:
            for domains in self.domains:
                labelled = labelled & (domains.of_row >= 0)
        self.by_rule = [self._counted(rule, labelled) for rule in self._spread.rules]

    def _counted(self, rule: SpreadRule, labelled: Bools) -> Bools:
        counted = labelled
        if rule.honors_affinity and _asks(self._spread.required):
            counted = counted & self._matching
        if rule.honors_taints:
            codes = self._tolerance.codes(self._snapshot)
            counted = counted & (codes[self._snapshot.columns.taint_class] == 0)
        return counted

    def _match_nodes(self) -> None:
        columns = self._snapshot.columns
        same = len(self._matching) == columns.capacity
        rows = self._snapshot.node_log.since(self._position) if same else None
        if rows is None:
            self._matching = np.zeros(columns.capacity, dtype=np.bool_)
            rows = columns.rows
        labels, required = self._spread.required
        for row in rows.tolist():
            node = self._snapshot.node(row) if columns.alive[row] else None
            self._matching[row] = node is not None and node.matches(labels, required)


def _asks(required: RequiredNodes) -> bool:
    return bool(required[0]) or required[1] is not None
