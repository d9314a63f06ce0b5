"""A cluster in two zones, and short ways to write affinity and spread, for tests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from services.framework.plugins.in_tree import DEFAULT_PROFILE
from services.framework.runtime.framework import Framework
from services.framework.snapshot.snapshot import Snapshot
from services.kube.node import LABEL_HOSTNAME, LABEL_ZONE
from services.kube.pod import Pod
from services.kube.selector import (
    LabelSelector,
    PodAffinity,
    PodAffinityTerm,
    TopologySpreadConstraint,
    UnsatisfiableAction,
    WeightedPodAffinityTerm,
)
from services.scheduler.core.cycle.evaluate import NodeVerdicts
from tests.builders import make_node, make_pod, requirement
from tests.cycles import evaluate

HARD, SOFT = UnsatisfiableAction.DO_NOT_SCHEDULE, UnsatisfiableAction.SCHEDULE_ANYWAY
WEB = LabelSelector(requirements=(requirement("app", "In", "web"),))
DB = LabelSelector(requirements=(requirement("app", "In", "db"),))
EVERYBODY = LabelSelector()
ZONES = {"a1": "za", "a2": "za", "b1": "zb", "b2": "zb"}


def two_zones() -> Snapshot:
    """Return nodes a1 and a2 in zone za, b1 and b2 in zb."""
    snapshot = Snapshot()
    for name, zone in ZONES.items():
        node = make_node(name).capacity(cpu="8", memory="8Gi")
        snapshot.set_node(node.zone(zone).label(LABEL_HOSTNAME, name).obj())
    return snapshot


def term(
    selector: LabelSelector | None = WEB,
    key: str = LABEL_ZONE,
    *,
    namespaces: tuple[str, ...] = (),
    selected: LabelSelector | None = None,
) -> PodAffinityTerm:
    """Return a term, over zones where nothing else is said."""
    return PodAffinityTerm(
        topology_key=key, selector=selector, namespaces=namespaces, namespace_selector=selected
    )


def wish(weight: int, wanted: PodAffinityTerm) -> WeightedPodAffinityTerm:
    """Return a preference."""
    return WeightedPodAffinityTerm(weight=weight, term=wanted)


def pod(
    name: str,
    app: str = "",
    *,
    namespace: str = "default",
    near: PodAffinity | None = None,
    away: PodAffinity | None = None,
    spread: tuple[TopologySpreadConstraint, ...] = (),
    labels: Mapping[str, str] | None = None,
    priority: int = 0,
) -> Pod:
    """Return a pod labelled with its application."""
    made = make_pod(name, namespace).req(cpu="1").priority(priority).obj()
    spec = replace(
        made.spec, pod_affinity=near, pod_anti_affinity=away, topology_spread_constraints=spread
    )
    own = {"app": app} if app else {}
    return replace(made, spec=spec, labels={**own, **(labels or {})})


def placed(snapshot: Snapshot, pod: Pod, node: str) -> Pod:
    """Put a pod on a node, and return it."""
    on_node = replace(pod, node_name=node)
    snapshot.set_pod(on_node)
    return on_node


def by_name(verdicts: NodeVerdicts) -> dict[str, str]:
    """Return the first reason of each node that does not fit."""
    return {name: status.reasons[0] for name, status in verdicts.refusals.items()}


def scores(verdicts: NodeVerdicts, plugin: str) -> dict[str, int]:
    """Return a plugin's normalised scores."""
    return {name: score.normalized for name, score in verdicts.scores[plugin].items()}


def judged(snapshot: Snapshot, pod: Pod, args: Mapping[str, object] | None = None) -> NodeVerdicts:
    """Return every verdict about a pod under the default profile with these arguments."""
    return evaluate(Framework(snapshot, replace(DEFAULT_PROFILE, args=args or {})), pod)


def rule(
    skew: int = 1,
    key: str = LABEL_ZONE,
    selector: LabelSelector | None = WEB,
    action: UnsatisfiableAction = HARD,
    min_domains: int = 1,
    match_label_keys: tuple[str, ...] = (),
) -> TopologySpreadConstraint:
    """Return a constraint that counts web pods by zone where nothing else is said."""
    return TopologySpreadConstraint(
        max_skew=skew,
        topology_key=key,
        when_unsatisfiable=action,
        selector=selector,
        min_domains=min_domains,
        match_label_keys=match_label_keys,
    )
