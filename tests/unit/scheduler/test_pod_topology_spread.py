"""Pods of a kind spread over domains."""

from __future__ import annotations

from dataclasses import replace

import pytest

from services.framework.plugins.pod_topology_spread.arguments import (
    DefaultingType,
    PodTopologySpreadArgs,
)
from services.framework.runtime.framework import Framework
from services.framework.status import Code
from services.kube.node import LABEL_HOSTNAME, LABEL_ZONE
from services.kube.pod import OwnerReference
from services.kube.selector import LabelSelector, NodeInclusionPolicy
from services.kube.workloads import Controller, ControllerKind, Service
from tests.builders import make_node, requirement
from tests.cycles import dry_run_on
from tests.unit.scheduler.constraints import (
    EVERYBODY,
    SOFT,
    WEB,
    ZONES,
    by_name,
    judged,
    placed,
    pod,
    rule,
    scores,
    two_zones,
)

PLUGIN = "PodTopologySpread"
SKEWED = "node(s) didn't match pod topology spread constraints"
UNLABELLED = f"{SKEWED} (missing required label)"


def test_a_domain_may_not_run_ahead_of_the_emptiest() -> None:
    """The pod itself counts where its constraint means it."""
    snapshot = two_zones()
    placed(snapshot, pod("w", "web"), "a1")
    verdicts = judged(snapshot, pod("p", "web", spread=(rule(),)))
    assert by_name(verdicts) == {"a1": SKEWED, "a2": SKEWED}
    assert verdicts.refusals["a1"].code is Code.UNSCHEDULABLE
    assert judged(snapshot, pod("p", "db", spread=(rule(),))).feasible == tuple(ZONES)
    assert judged(snapshot, pod("p", "web", spread=(rule(skew=2),))).feasible == tuple(ZONES)


def test_a_node_without_the_label_is_refused_for_good() -> None:
    """And its pods count nowhere."""
    snapshot = two_zones()
    snapshot.set_node(make_node("bare").capacity(cpu="8", memory="8Gi").obj())
    placed(snapshot, pod("w", "web"), "bare")
    verdicts = judged(snapshot, pod("p", "web", spread=(rule(),)))
    assert by_name(verdicts) == {"bare": UNLABELLED}
    assert verdicts.refusals["bare"].code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE


def test_a_node_that_lacks_one_label_counts_for_no_constraint() -> None:
    """Its zone is not the emptiest, and its pods are not seen."""
    snapshot = two_zones()
    snapshot.set_node(make_node("half").capacity(cpu="8", memory="8Gi").zone("zc").obj())
    placed(snapshot, pod("w", "web"), "a1")
    placed(snapshot, pod("v", "web"), "b1")
    both = (rule(), rule(5, LABEL_HOSTNAME))
    assert judged(snapshot, pod("p", "web", spread=both)).feasible == tuple(ZONES)
    alone = judged(snapshot, pod("p", "web", spread=(rule(),)))
    assert alone.feasible == ("half",)


@pytest.mark.parametrize(
    ("selector", "fits"), [(None, True), (EVERYBODY, True), (WEB, False)], ids=str
)
def test_an_empty_selector_counts_nobody(selector: LabelSelector | None, fits: bool) -> None:
    """Though it means the pod itself, whose skew is 1 then."""
    snapshot = two_zones()
    placed(snapshot, pod("w", "web"), "a1")
    placed(snapshot, pod("v", "web"), "a2")
    verdicts = judged(snapshot, pod("p", "web", spread=(rule(selector=selector),)))
    assert (verdicts.feasible == tuple(ZONES)) == fits


def test_pods_that_terminate_or_are_elsewhere_do_not_count() -> None:
    """Elsewhere is another namespace."""
    snapshot = two_zones()
    placed(snapshot, replace(pod("w", "web"), deletion_ns=1), "a1")
    placed(snapshot, pod("v", "web", namespace="other"), "a1")
    assert judged(snapshot, pod("p", "web", spread=(rule(),))).feasible == tuple(ZONES)


def test_with_too_few_domains_the_emptiest_counts_as_empty() -> None:
    """So that another domain has to come first."""
    snapshot = two_zones()
    for node in ("a1", "b1"):
        placed(snapshot, pod(f"w{node}", "web"), node)
    fits = judged(snapshot, pod("p", "web", spread=(rule(min_domains=2),)))
    assert fits.feasible == tuple(ZONES)
    assert not judged(snapshot, pod("p", "web", spread=(rule(min_domains=3),))).feasible


def test_label_keys_narrow_the_pods_that_count() -> None:
    """A key that the pod lacks is passed over; keys stand in for an absent selector."""
    snapshot = two_zones()
    placed(snapshot, pod("w", "web", labels={"hash": "1"}), "a1")
    for wanted, fits in (
        (rule(match_label_keys=("hash",)), True),
        (rule(match_label_keys=("lacking",)), False),
        (rule(selector=None, match_label_keys=("app",)), False),
    ):
        pending = pod("p", "web", labels={"hash": "2"}, spread=(wanted,))
        assert (judged(snapshot, pending).feasible == tuple(ZONES)) == fits


def test_affinity_and_taints_leave_nodes_out_by_policy() -> None:
    """The emptiest zone does not count where the pod could not go anyway."""
    snapshot = two_zones()
    snapshot.set_node(
        make_node("c1").capacity(cpu="8", memory="8Gi").zone("zc").taint("dedicated").obj()
    )
    for node in ("a1", "b1"):
        placed(snapshot, pod(f"w{node}", "web"), node)
    honors = replace(rule(), node_taints_policy=NodeInclusionPolicy.HONOR)
    assert not judged(snapshot, pod("p", "web", spread=(rule(),))).feasible
    assert judged(snapshot, pod("p", "web", spread=(honors,))).feasible == tuple(ZONES)
    picky = pod("p", "web", spread=(honors,))
    picky = replace(picky, spec=replace(picky.spec, node_selector={LABEL_ZONE: "za"}))
    assert judged(snapshot, picky).feasible == ("a1", "a2")
    ignores = replace(honors, node_affinity_policy=NodeInclusionPolicy.IGNORE)
    placed(snapshot, pod("more", "web"), "a2")
    other = replace(picky, spec=replace(picky.spec, topology_spread_constraints=(ignores,)))
    assert judged(snapshot, picky).feasible == ("a1", "a2")
    assert not judged(snapshot, other).feasible


def test_the_first_constraint_that_is_broken_gives_the_reason() -> None:
    """In the order in which the pod has them."""
    snapshot = two_zones()
    snapshot.set_node(
        make_node("c1").capacity(cpu="8", memory="8Gi").label(LABEL_HOSTNAME, "c1").obj()
    )
    placed(snapshot, pod("w", "web"), "a1")
    both = (rule(), rule(key=LABEL_HOSTNAME))
    assert by_name(judged(snapshot, pod("p", "web", spread=both)))["c1"] == UNLABELLED


def test_scores_prefer_the_emptier_domains() -> None:
    """By zone: 2 and 0 pods; the best is 100, and what is scored is turned round."""
    snapshot = two_zones()
    for node in ("a1", "a2"):
        placed(snapshot, pod(f"w{node}", "web"), node)
    verdicts = judged(snapshot, pod("p", "web", spread=(rule(action=SOFT),)))
    assert scores(verdicts, PLUGIN) == {"a1": 0, "a2": 0, "b1": 100, "b2": 100}
    skewed = judged(snapshot, pod("p", "web", spread=(rule(3, action=SOFT),)))
    assert scores(skewed, PLUGIN) == {"a1": 40, "a2": 40, "b1": 100, "b2": 100}


def test_nodes_without_the_label_score_nothing() -> None:
    """They do not lower the others either."""
    snapshot = two_zones()
    snapshot.set_node(make_node("bare").capacity(cpu="8", memory="8Gi").obj())
    verdicts = judged(snapshot, pod("p", "web", spread=(rule(action=SOFT),)))
    assert scores(verdicts, PLUGIN) == {**dict.fromkeys(ZONES, 100), "bare": 0}


def test_a_host_rule_weighs_by_the_nodes_that_fit() -> None:
    """log(4 + 2) a pod for four nodes that fit: 1.79 rounds to 2, against 0."""
    snapshot = two_zones()
    placed(snapshot, pod("w", "web"), "a1")
    verdicts = judged(snapshot, pod("p", "web", spread=(rule(1, LABEL_HOSTNAME, action=SOFT),)))
    assert verdicts.scores[PLUGIN]["a1"].raw == 2
    assert scores(verdicts, PLUGIN) == {"a1": 0, "a2": 100, "b1": 100, "b2": 100}


def owned(kind: str, name: str, version: str = "apps/v1") -> tuple[OwnerReference, ...]:
    """Return a controlling owner."""
    return (OwnerReference(api_version=version, kind=kind, name=name, uid=name, controller=True),)


def test_pods_of_services_and_controllers_are_spread_by_default() -> None:
    """By host and zone; pods of nobody are not."""
    snapshot = two_zones()
    placed(snapshot, pod("w", "web"), "a1")
    assert PLUGIN in judged(snapshot, pod("p", "web")).skipped_scores
    snapshot.catalog.put(Service(namespace="default", name="s", selector={"app": "web"}))
    verdicts = judged(snapshot, pod("p", "web"))
    assert verdicts.scores[PLUGIN]["a1"].raw > verdicts.scores[PLUGIN]["a2"].raw
    assert PLUGIN in judged(snapshot, pod("p", "db")).skipped_scores
    snapshot.catalog.remove("Service", "default", "s")
    assert PLUGIN in judged(snapshot, pod("p", "web")).skipped_scores


def test_a_controllers_selector_counts_by_group_and_version() -> None:
    """A ReplicaSet of another group is none."""
    snapshot = two_zones()
    snapshot.catalog.put(
        Controller(kind=ControllerKind.REPLICA_SET, namespace="default", name="rs", selector=WEB)
    )
    placed(snapshot, pod("w", "web"), "a1")
    mine = replace(pod("p", "web"), owners=owned("ReplicaSet", "rs"))
    assert PLUGIN in judged(snapshot, mine).scores
    for other in (
        replace(mine, owners=owned("ReplicaSet", "rs", "extensions/v1beta1")),
        replace(mine, owners=owned("ReplicaSet", "unknown")),
        replace(mine, owners=owned("Job", "rs", "batch/v1")),
    ):
        assert PLUGIN in judged(snapshot, other).skipped_scores


def test_default_scores_do_without_the_zone() -> None:
    """A system default scores a node by the labels that it has; a listed one ignores the node."""
    snapshot = two_zones()
    bare = make_node("bare").capacity(cpu="8", memory="8Gi").label(LABEL_HOSTNAME, "bare")
    snapshot.set_node(bare.obj())
    snapshot.catalog.put(Service(namespace="default", name="s", selector={"app": "web"}))
    placed(snapshot, pod("w", "web"), "a1")
    assert scores(judged(snapshot, pod("p", "web")), PLUGIN)["bare"] > 0
    listed = PodTopologySpreadArgs(
        defaulting_type=DefaultingType.LIST,
        default_constraints=(rule(3, LABEL_HOSTNAME, None, SOFT), rule(5, LABEL_ZONE, None, SOFT)),
    )
    verdicts = judged(snapshot, pod("p", "web"), {PLUGIN: listed})
    assert scores(verdicts, PLUGIN)["bare"] == 0


def test_listed_defaults_forbid_too() -> None:
    """An empty list takes all defaults away."""
    snapshot = two_zones()
    snapshot.catalog.put(Service(namespace="default", name="s", selector={"app": "web"}))
    placed(snapshot, pod("w", "web"), "a1")
    listed = PodTopologySpreadArgs(
        defaulting_type=DefaultingType.LIST, default_constraints=(rule(selector=None),)
    )
    verdicts = judged(snapshot, pod("p", "web"), {PLUGIN: listed})
    assert by_name(verdicts) == {"a1": SKEWED, "a2": SKEWED}
    none = PodTopologySpreadArgs(defaulting_type=DefaultingType.LIST)
    assert PLUGIN in judged(snapshot, pod("p", "web"), {PLUGIN: none}).skipped_scores


def test_a_dry_run_follows_the_emptiest_domain() -> None:
    """Where the node's own domain is the emptiest, leaving pods lower the bar for it alone."""
    snapshot = two_zones()
    first, second = (placed(snapshot, pod(f"w{i}", "web"), "a1") for i in range(2))
    placed(snapshot, pod("v", "web"), "b1")
    framework = Framework(snapshot)
    dry_run = dry_run_on(framework, pod("p", "web", spread=(rule(),)), snapshot.row("a1") or 0)
    assert dry_run.refusal() is not None
    dry_run.remove(first)
    assert dry_run.refusal() is None
    dry_run.remove(second)
    assert dry_run.refusal() is None
    dry_run.add(first)
    dry_run.add(second)
    assert dry_run.refusal() is not None


def test_a_dry_run_sees_more_than_the_count_does() -> None:
    """An empty selector and a terminating pod: taken off though never counted, as upstream."""
    snapshot = two_zones()
    going = placed(snapshot, replace(pod("w", "web"), deletion_ns=1), "a1")
    placed(snapshot, pod("v", "web"), "a2")
    framework = Framework(snapshot)
    dry_run = dry_run_on(framework, pod("p", "web", spread=(rule(),)), snapshot.row("a1") or 0)
    assert dry_run.refusal() is not None
    dry_run.remove(going)
    assert dry_run.refusal() is None


def test_a_selector_without_an_equality_is_counted_as_well() -> None:
    """Which classes of pods it picks is not known beforehand."""
    snapshot = two_zones()
    labelled = LabelSelector(requirements=(requirement("app", "Exists"),))
    placed(snapshot, pod("w", "db"), "a1")
    verdicts = judged(snapshot, pod("p", "web", spread=(rule(selector=labelled),)))
    assert verdicts.feasible == ("b1", "b2")
