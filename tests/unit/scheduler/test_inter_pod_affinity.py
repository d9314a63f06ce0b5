"""Pods that want others near or away."""

from __future__ import annotations

from dataclasses import replace

import pytest

from services.framework.plugins.inter_pod_affinity.arguments import InterPodAffinityArgs
from services.framework.runtime.framework import Framework
from services.framework.status import Code
from services.kube.node import LABEL_HOSTNAME, LABEL_ZONE
from services.kube.selector import LabelSelector, PodAffinity, PodAffinityTerm
from services.kube.workloads import Namespace
from tests.builders import make_node, requirement
from tests.cycles import dry_run_on, filter_verdicts
from tests.unit.scheduler.constraints import (
    DB,
    EVERYBODY,
    WEB,
    ZONES,
    by_name,
    judged,
    placed,
    pod,
    scores,
    term,
    two_zones,
    wish,
)

PLUGIN = "InterPodAffinity"
NOT_NEAR = "node(s) didn't match pod affinity rules"
NOT_AWAY = "node(s) didn't match pod anti-affinity rules"
KEPT_AWAY = "node(s) didn't satisfy existing pods anti-affinity rules"


def near(*terms: PodAffinityTerm) -> PodAffinity:
    """Return required terms."""
    return PodAffinity(required=terms)


def test_affinity_admits_the_domains_of_those_that_are_wanted() -> None:
    """The others cannot be cured by deleting pods."""
    snapshot = two_zones()
    placed(snapshot, pod("w", "web"), "a1")
    verdicts = judged(snapshot, pod("p", near=near(term())))
    assert verdicts.feasible == ("a1", "a2")
    assert by_name(verdicts) == {"b1": NOT_NEAR, "b2": NOT_NEAR}
    assert verdicts.refusals["b1"].code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE


def test_one_pod_must_meet_all_terms_of_an_affinity() -> None:
    """Two pods that meet one each do not count."""
    snapshot = two_zones()
    tier = LabelSelector(requirements=(requirement("tier", "Exists"),))
    placed(snapshot, pod("w", "web"), "a1")
    placed(snapshot, pod("t", labels={"tier": "x"}), "a2")
    assert not judged(snapshot, pod("p", near=near(term(), term(tier)))).feasible
    placed(snapshot, pod("both", "web", labels={"tier": "x"}), "b1")
    assert judged(snapshot, pod("p", near=near(term(), term(tier)))).feasible == ("b1", "b2")


def test_the_first_pod_of_a_self_affinity_needs_a_node_with_all_labels() -> None:
    """It has nobody to be near to; a node without the label is refused all the same."""
    snapshot = two_zones()
    snapshot.set_node(make_node("bare").capacity(cpu="8", memory="8Gi").obj())
    verdicts = judged(snapshot, pod("p", "web", near=near(term())))
    assert verdicts.feasible == tuple(ZONES)
    assert by_name(verdicts) == {"bare": NOT_NEAR}
    assert not judged(snapshot, pod("p", "db", near=near(term()))).feasible


def test_a_match_on_a_node_without_the_label_does_not_count_in_the_cluster() -> None:
    """So that the first pod of its kind is still let in."""
    snapshot = two_zones()
    snapshot.set_node(make_node("bare").capacity(cpu="8", memory="8Gi").obj())
    placed(snapshot, pod("w", "web"), "bare")
    assert judged(snapshot, pod("p", "web", near=near(term()))).feasible == tuple(ZONES)


def test_anti_affinity_counts_each_term_alone() -> None:
    """One met term is enough to be kept away; preemption may cure it."""
    snapshot = two_zones()
    placed(snapshot, pod("w", "web"), "a1")
    placed(snapshot, pod("d", "db"), "b2")
    away = near(term(), term(DB, LABEL_HOSTNAME))
    verdicts = judged(snapshot, pod("p", away=away))
    assert by_name(verdicts) == {"a1": NOT_AWAY, "a2": NOT_AWAY, "b2": NOT_AWAY}
    assert verdicts.refusals["b2"].code is Code.UNSCHEDULABLE


def test_pods_on_nodes_keep_away_pods_by_anti_affinity() -> None:
    """Symmetric, and skipped by pods that nobody minds."""
    snapshot = two_zones()
    placed(snapshot, pod("hermit", away=near(term())), "a1")
    verdicts = judged(snapshot, pod("p", "web"))
    assert by_name(verdicts) == {"a1": KEPT_AWAY, "a2": KEPT_AWAY}
    assert PLUGIN in judged(snapshot, pod("q", "db")).skipped_filters


def test_terminating_pods_still_count() -> None:
    """Until they are gone."""
    snapshot = two_zones()
    placed(snapshot, replace(pod("w", "web"), deletion_ns=1), "a1")
    assert judged(snapshot, pod("p", away=near(term()))).feasible == ("b1", "b2")


def test_a_term_on_a_node_without_the_label_keeps_no_pod_away() -> None:
    """Nor does it make the plugin look at all."""
    snapshot = two_zones()
    snapshot.set_node(make_node("bare").capacity(cpu="8", memory="8Gi").obj())
    placed(snapshot, pod("hermit", away=near(term())), "bare")
    assert PLUGIN in judged(snapshot, pod("p", "web")).skipped_filters


@pytest.mark.parametrize(
    ("selector", "admitted"), [(None, ()), (EVERYBODY, ("a1", "a2"))], ids=["absent", "empty"]
)
def test_an_absent_selector_matches_no_pod_and_an_empty_one_all(
    selector: LabelSelector | None, admitted: tuple[str, ...]
) -> None:
    """As everywhere in Kubernetes."""
    snapshot = two_zones()
    placed(snapshot, pod("w", "web"), "a1")
    assert judged(snapshot, pod("p", "web", near=near(term(selector)))).feasible == admitted


def test_namespaces_are_listed_or_selected_and_else_the_pods_own() -> None:
    """A list and a selector are united."""
    snapshot = two_zones()
    snapshot.catalog.put(Namespace(name="other", labels={"team": "x"}))
    placed(snapshot, pod("w", "web", namespace="other"), "a1")
    team = LabelSelector(requirements=(requirement("team", "Exists"),))
    for wanted, admitted in (
        (term(), ()),
        (term(namespaces=("other",)), ("a1", "a2")),
        (term(selected=team), ("a1", "a2")),
        (term(selected=EVERYBODY), ("a1", "a2")),
        (term(namespaces=("third",), selected=team), ("a1", "a2")),
        (term(namespaces=("third",)), ()),
    ):
        assert judged(snapshot, pod("p", near=near(wanted))).feasible == admitted


def test_a_negative_namespace_selector_is_evaluated() -> None:
    """Upstream v1.34 matches every namespace (kubernetes#141526); what is documented holds."""
    snapshot = two_zones()
    snapshot.catalog.put(Namespace(name="teamed", labels={"team": "x"}))
    snapshot.catalog.put(Namespace(name="plain"))
    teamless = LabelSelector(requirements=(requirement("team", "DoesNotExist"),))
    placed(snapshot, pod("w", "web", namespace="teamed"), "a1")
    placed(snapshot, pod("v", "web", namespace="plain"), "b1")
    verdicts = judged(snapshot, pod("p", away=near(term(selected=teamless))))
    assert verdicts.feasible == ("a1", "a2")


def test_a_namespace_that_changes_changes_verdicts() -> None:
    """What was resolved is resolved again."""
    snapshot = two_zones()
    framework = Framework(snapshot)
    team = LabelSelector(requirements=(requirement("team", "Exists"),))
    placed(snapshot, pod("w", "web", namespace="other"), "a1")
    pending = pod("p", away=near(term(selected=team)))
    assert not filter_verdicts(framework, pending).refuser[:4].any()
    snapshot.catalog.put(Namespace(name="other", labels={"team": "x"}))
    assert filter_verdicts(framework, pending).refuser[:4].any()
    snapshot.catalog.remove("Namespace", "", "other")
    assert not filter_verdicts(framework, pending).refuser[:4].any()


def test_label_keys_are_merged_into_the_selector() -> None:
    """As an API server does on admission; twice is as good as once."""
    wanted = PodAffinityTerm(
        topology_key=LABEL_ZONE,
        selector=EVERYBODY,
        match_label_keys=("app", "lacking"),
        mismatch_label_keys=("tier",),
    )
    labels = {"app": "web", "tier": "x"}
    merged = wanted.keyed(labels)
    assert merged.selector is not None
    assert merged.selector.matches({"app": "web", "tier": "y"})
    assert not merged.selector.matches({"app": "web", "tier": "x"})
    assert not merged.selector.matches({"app": "db"})
    assert merged.keyed(labels) == merged


def test_preferences_weigh_domains_and_are_stretched() -> None:
    """The least becomes 0 and the highest 100; anti-affinity counts against."""
    snapshot = two_zones()
    placed(snapshot, pod("w", "web"), "a1")
    placed(snapshot, pod("d", "db"), "b1")
    wants = PodAffinity(preferred=(wish(10, term()),))
    avoids = PodAffinity(preferred=(wish(5, term(DB, LABEL_HOSTNAME)),))
    verdicts = judged(snapshot, pod("p", near=wants, away=avoids))
    assert scores(verdicts, PLUGIN) == {"a1": 100, "a2": 100, "b1": 0, "b2": 33}


def test_preferences_that_are_equal_everywhere_score_nothing() -> None:
    """And none that matches anything skips the plugin."""
    snapshot = two_zones()
    wants = pod("p", near=PodAffinity(preferred=(wish(10, term()),)))
    assert PLUGIN in judged(snapshot, wants).skipped_scores
    for node in ("a1", "b1"):
        placed(snapshot, pod(f"w{node}", "web"), node)
    assert set(scores(judged(snapshot, wants), PLUGIN).values()) == {0}


def test_weights_that_cancel_out_are_not_skipped() -> None:
    """Something matched."""
    snapshot = two_zones()
    placed(snapshot, pod("w", "web"), "a1")
    both = PodAffinity(preferred=(wish(10, term()),))
    assert scores(judged(snapshot, pod("p", near=both, away=both)), PLUGIN) == dict.fromkeys(
        ZONES, 0
    )


@pytest.mark.parametrize(
    ("weight", "ignores", "expected"),
    [(1, False, 100), (50, False, 100), (0, False, None), (1, True, None)],
)
def test_others_required_affinity_scores_by_its_weight(
    weight: int, ignores: bool, expected: int | None
) -> None:
    """A weight of 0, or ignoring what others prefer, leaves it out."""
    snapshot = two_zones()
    placed(snapshot, pod("fan", near=near(term())), "a1")
    args = InterPodAffinityArgs(
        hard_pod_affinity_weight=weight, ignore_preferred_terms_of_existing_pods=ignores
    )
    verdicts = judged(snapshot, pod("p", "web"), {PLUGIN: args})
    if expected is None:
        assert PLUGIN in verdicts.skipped_scores
    else:
        assert scores(verdicts, PLUGIN) == {"a1": expected, "a2": expected, "b1": 0, "b2": 0}


def test_preferences_of_its_own_bring_others_terms_back() -> None:
    """What is to be ignored is ignored only for pods without preferences."""
    snapshot = two_zones()
    placed(snapshot, pod("fan", near=near(term())), "a1")
    placed(snapshot, pod("d", "db"), "b1")
    args = InterPodAffinityArgs(ignore_preferred_terms_of_existing_pods=True)
    wants = PodAffinity(preferred=(wish(1, term(DB)),))
    verdicts = judged(snapshot, pod("p", "web", near=wants), {PLUGIN: args})
    assert set(scores(verdicts, PLUGIN).values()) == {0}


def test_pods_that_meet_the_same_terms_share_their_verdicts() -> None:
    """Labels that no term selects make no new verdicts."""
    snapshot = two_zones()
    placed(snapshot, pod("hermit", away=near(term())), "a1")
    framework = Framework(snapshot)
    first = pod("p0", "web", labels={"index": "0"})
    second = replace(pod("p1", "web", labels={"index": "1"}), spec=first.spec)
    third = replace(pod("p2", "db"), spec=first.spec)
    assert filter_verdicts(framework, first) is filter_verdicts(framework, second)
    assert filter_verdicts(framework, first) is not filter_verdicts(framework, third)


def test_a_dry_run_takes_counts_along_and_back() -> None:
    """Affinity, both anti-affinities, and what the node was refused for."""
    snapshot = two_zones()
    web = placed(snapshot, pod("w", "web"), "a1")
    hermit = placed(snapshot, pod("hermit", "db", away=near(term())), "b1")
    framework = Framework(snapshot)
    row = {name: snapshot.row(name) or 0 for name in ZONES}
    away = dry_run_on(framework, pod("p", "web", away=near(term())), row["a1"])
    assert (status := away.refusal()) is not None
    assert status.reasons == (NOT_AWAY,)
    away.remove(web)
    assert away.refusal() is None
    away.add(web)
    assert away.refusal() is not None
    kept = dry_run_on(framework, pod("p", "web"), row["b1"])
    assert (status := kept.refusal()) is not None
    assert status.reasons == (KEPT_AWAY,)
    kept.remove(hermit)
    assert kept.refusal() is None
    beside = dry_run_on(framework, pod("p", near=near(term())), row["a1"])
    assert beside.refusal() is None
    beside.remove(web)
    assert (status := beside.refusal()) is not None
    assert status.reasons == (NOT_NEAR,)


def test_the_last_of_a_kind_that_leaves_lets_the_first_in() -> None:
    """In a dry run too: a pod that meets its own affinity needs nobody then."""
    snapshot = two_zones()
    web = placed(snapshot, pod("w", "web"), "a1")
    framework = Framework(snapshot)
    dry_run = dry_run_on(framework, pod("p", "web", near=near(term())), snapshot.row("a1") or 0)
    dry_run.remove(web)
    assert dry_run.refusal() is None


def test_a_nominated_pods_anti_affinity_counts_only_where_the_plugin_runs() -> None:
    """Its anti-affinity is unknown to a pod that no pod on a node minds: the plugin is skipped."""
    snapshot = two_zones()
    hermit = pod("hermit", away=near(term()), priority=9)
    snapshot.nominations.put(hermit, "a1")
    assert judged(snapshot, pod("p", "web")).feasible == tuple(ZONES)
    placed(snapshot, pod("other", away=near(term(WEB, LABEL_HOSTNAME))), "b1")
    assert by_name(judged(snapshot, pod("p", "web"))) == {"a1": KEPT_AWAY, "b1": KEPT_AWAY}
