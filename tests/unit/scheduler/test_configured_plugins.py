"""Profiles at work: points switched off, arguments, errors, and who reports first."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

import pytest

from reprieve.kube.v1beta1 import pod_pb2
from services.framework.columns.columns import Int64s
from services.framework.plugin import BindPlugin, QueueSortPlugin, Scope, ScoreError, ScorePlugin
from services.framework.plugins.in_tree import DEFAULT_PROFILE, SERVED
from services.framework.plugins.node_affinity.arguments import NodeAffinityArgs
from services.framework.plugins.node_resources.arguments import (
    NodeResourcesBalancedAllocationArgs,
    NodeResourcesFitArgs,
    ResourceWeight,
    ScoringType,
    ShapePoint,
)
from services.framework.profile import ALL, ExtensionPoint, PluginSet, PluginSetting, Profile
from services.framework.runtime.diagnosis import Unschedulable, fit_error_text
from services.framework.runtime.failed_cycle import FitError
from services.framework.runtime.framework import Framework
from services.framework.snapshot.snapshot import Snapshot
from services.framework.status import Code, Status
from services.kube.node import Node
from services.kube.pod import Pod, PreferredSchedulingTerm
from services.kube.selector import NodeSelector, NodeSelectorTerm
from services.scheduler.core.cycle.attempt import ProfileCycles
from services.scheduler.core.cycle.evaluate import NodeVerdicts
from services.scheduler.core.cycle.host_choice import KeyedChoice
from services.scheduler.core.decisions import Binding, Failed
from services.scheduler.core.queueing.mirror import QUEUE_TRAITS
from services.scheduler.core.queueing.steps import CommitUnschedulable, Head, PopId
from services.scheduler.core.session.options import RULES, SchedulerOptions
from services.scheduler.core.session.scheduler import Scheduler
from services.scheduler.step_encoder import StepEncoder
from tests.builders import make_node, make_pod, requirement
from tests.cycles import evaluate

FIT = "NodeResourcesFit"


def profile_with(
    at: Mapping[ExtensionPoint, PluginSet] | None = None, args: Mapping[str, object] | None = None
) -> Profile:
    """Return the default profile with more said of points and plugins."""
    return Profile(plugins=DEFAULT_PROFILE.plugins, at=at or {}, args=args or {})


def off(*names: str) -> PluginSet:
    """Return what switches plugins off."""
    return PluginSet(disabled=names)


def framework_of(profile: Profile, *nodes: Node, pods: tuple[Pod, ...] = ()) -> Framework:
    """Return a framework over nodes with pods."""
    snapshot = Snapshot()
    for node in nodes:
        snapshot.set_node(node)
    for pod in pods:
        snapshot.set_pod(pod)
    return Framework(snapshot, profile)


def judged(profile: Profile, pod: Pod, *nodes: Node, pods: tuple[Pod, ...] = ()) -> NodeVerdicts:
    """Return the verdicts under a profile."""
    return evaluate(framework_of(profile, *nodes, pods=pods), pod)


def roomy(name: str, **amounts: str) -> Node:
    """Return a node of 10 cores and 10 GiB."""
    return make_node(name).capacity({"cpu": "10", "memory": "10Gi", **amounts}).obj()


def test_a_filter_without_its_prefilter_ends_the_cycle() -> None:
    """NodeResourcesFit reads what PreFilter prepared, and says that it cannot."""
    profile = profile_with({ExtensionPoint.PRE_FILTER: off(FIT)})
    framework = framework_of(profile, roomy("a"))
    result = ProfileCycles(framework, KeyedChoice(seed=1)).schedule_pod(make_pod().obj(), 1)
    assert isinstance(result, Failed)
    assert result.message.startswith('running "NodeResourcesFit" filter plugin: ')
    assert judged(profile, make_pod().obj(), roomy("a")).error == result.message


def test_a_node_that_is_refused_before_hides_the_failure() -> None:
    """No node is left for the failing filter to look at, so the pod is unschedulable."""
    profile = profile_with({ExtensionPoint.PRE_FILTER: off(FIT)})
    framework = framework_of(profile, make_node("a").unschedulable().obj())
    result = ProfileCycles(framework, KeyedChoice(seed=1)).schedule_pod(make_pod().obj(), 1)
    assert isinstance(result, FitError)


def test_a_score_without_its_prescore_ends_the_cycle_where_nodes_are_scored() -> None:
    """One node alone is taken without a score."""
    profile = profile_with({ExtensionPoint.PRE_SCORE: off("TaintToleration")})
    both = framework_of(profile, roomy("a"), roomy("b"))
    result = ProfileCycles(both, KeyedChoice(seed=1)).schedule_pod(make_pod().obj(), 1)
    assert isinstance(result, Failed)
    assert 'plugin "TaintToleration" failed' in result.message
    alone = framework_of(profile, roomy("a"))
    assert isinstance(
        ProfileCycles(alone, KeyedChoice(seed=1)).schedule_pod(make_pod().obj(), 1), Binding
    )


def test_a_failed_cycle_is_reported_to_the_queue_as_an_error() -> None:
    """The pod waits for no plugin, and says what went wrong."""
    profile = profile_with({ExtensionPoint.PRE_FILTER: off(FIT)})
    options = SchedulerOptions(
        rules=RULES["v1.34"], queue=QUEUE_TRAITS["v1.34"], profiles=(profile,)
    )
    scheduler = Scheduler(options)
    scheduler.put_node(roomy("a"))
    pod = make_pod().obj()
    scheduler.put_pod(pod)
    head = Head(pop=PopId(pod.uid, 1), attempts=1, first_enqueued_ns=0, queued_ns=0)
    decision = scheduler.decide(head, 0)
    assert isinstance(decision.verdict, Failed)
    (step,) = [step for step in decision.steps if isinstance(step, CommitUnschedulable)]
    assert (step.why.is_error, step.why.plugins) == (True, ())


@pytest.mark.parametrize(
    ("plugin", "scored"), [(FIT, True), ("NodeResourcesBalancedAllocation", True)]
)
def test_a_resource_score_prepares_itself_without_prescore(plugin: str, scored: bool) -> None:
    """And is none of those that were skipped; a pod without requests is balanced nowhere."""
    profile = profile_with({ExtensionPoint.PRE_SCORE: off(plugin)})
    verdicts = judged(profile, make_pod().obj(), roomy("a"), roomy("b"))
    assert (plugin in verdicts.scores) is scored
    assert plugin not in verdicts.skipped_scores
    if plugin != FIT:
        assert {score.normalized for score in verdicts.scores[plugin].values()} == {0}


def test_a_plugin_that_only_prescores_is_named_where_it_skips() -> None:
    """Its score is off, its PreScore is not."""
    profile = profile_with({ExtensionPoint.SCORE: off("NodeAffinity")})
    verdicts = judged(profile, make_pod().obj(), roomy("a"), roomy("b"))
    assert "NodeAffinity" in verdicts.skipped_scores
    assert "NodeAffinity" not in verdicts.scores


def test_without_its_filter_node_affinity_still_narrows() -> None:
    """By the names in matchFields, in PreFilter; a nominated node is tried all the same."""
    term = NodeSelectorTerm(match_fields=(requirement("metadata.name", "In", "b"),))
    pod = make_pod().required_terms(term)
    profile = profile_with({ExtensionPoint.FILTER: off("NodeAffinity")})
    verdicts = judged(profile, pod.obj(), roomy("a"), roomy("b"))
    assert verdicts.feasible == ("b",)
    assert verdicts.refusals["a"].reasons == ("node(s) didn't satisfy plugin(s) [NodeAffinity]",)
    framework = framework_of(profile, roomy("a"), roomy("b"))
    nominated = pod.nominated("a").obj()
    taken = ProfileCycles(framework, KeyedChoice(seed=1)).schedule_pod(nominated, 1)
    assert isinstance(taken, Binding)
    assert taken.node_name == "a"
    assert evaluate(framework, nominated).feasible == ("a", "b")


def test_a_filter_that_fails_on_a_nominated_node_elsewhere_is_passed_over() -> None:
    """That node stays one of those that PreFilter left out, and the others are tried."""
    term = NodeSelectorTerm(match_fields=(requirement("metadata.name", "In", "b"),))
    pod = make_pod().required_terms(term).nominated("a").obj()
    switched_off = {ExtensionPoint.PRE_FILTER: off(FIT), ExtensionPoint.FILTER: off("NodeAffinity")}
    framework = framework_of(
        profile_with(switched_off), roomy("a"), make_node("b").unschedulable().obj()
    )
    result = ProfileCycles(framework, KeyedChoice(seed=1)).schedule_pod(pod, 1)
    assert isinstance(result, FitError)
    assert fit_error_text(result.diagnosis) == (
        "0/2 nodes are available: 1 node(s) didn't satisfy plugin(s) [NodeAffinity], "
        "1 node(s) were unschedulable."
    )
    verdicts = evaluate(framework, pod)
    assert verdicts.error == ""
    assert verdicts.pre_filtered == {"a"}


def test_without_its_prefilter_node_affinity_still_filters() -> None:
    """Node by node."""
    term = NodeSelectorTerm(match_fields=(requirement("metadata.name", "In", "b"),))
    pod = make_pod().required_terms(term).obj()
    profile = profile_with({ExtensionPoint.PRE_FILTER: off("NodeAffinity")})
    verdicts = judged(profile, pod, roomy("a"), roomy("b"))
    assert verdicts.refusals["a"].reasons == ("node(s) didn't match Pod's node affinity/selector",)


def test_a_filter_that_is_listed_comes_first_and_reports_first() -> None:
    """Before the others of multiPoint, in the order in which it is listed."""
    enabled = (PluginSetting(name=FIT), PluginSetting(name="NodeName"))
    profile = profile_with({ExtensionPoint.FILTER: PluginSet(enabled=enabled)})
    node = make_node("a").unschedulable().capacity(cpu="1", memory="1Gi").obj()
    framework = framework_of(profile, node)
    assert framework.filter_order[:3] == (FIT, "NodeName", "NodeUnschedulable")
    pod = make_pod().req(cpu="2").obj()
    assert evaluate(framework, pod).refusals["a"].plugin == FIT


def test_a_point_of_which_all_is_off_has_what_is_listed() -> None:
    """In the order in which it is listed."""
    enabled = (PluginSetting(name="NodeName"), PluginSetting(name="NodeUnschedulable"))
    profile = profile_with({ExtensionPoint.FILTER: PluginSet(enabled=enabled, disabled=(ALL,))})
    assert framework_of(profile).filter_order == ("NodeName", "NodeUnschedulable")


def test_a_weight_at_score_beats_that_of_all_points() -> None:
    """The others keep theirs."""
    enabled = (PluginSetting(name="TaintToleration", weight=7),)
    weights = framework_of(profile_with({ExtensionPoint.SCORE: PluginSet(enabled=enabled)})).weights
    assert (weights["TaintToleration"], weights["NodeAffinity"]) == (7, 2)


def test_an_added_affinity_holds_for_every_pod() -> None:
    """With a reason of its own, before the pod's; preferences add up."""
    term = NodeSelectorTerm(match_expressions=(requirement("tier", "In", "x"),))
    required = NodeAffinityArgs(added_required=NodeSelector(terms=(term,)))
    inside = make_node("in").label("tier", "x").obj()
    outside = make_node("out").obj()
    profile = profile_with(args={"NodeAffinity": required})
    verdicts = judged(profile, make_pod().obj(), inside, outside)
    reasons = verdicts.refusals["out"].reasons
    assert reasons == ("node(s) didn't match scheduler-enforced node affinity",)
    assert verdicts.pre_filtered == frozenset()
    preferred = NodeAffinityArgs(added_preferred=(PreferredSchedulingTerm(weight=5, term=term),))
    verdicts = judged(
        profile_with(args={"NodeAffinity": preferred}), make_pod().obj(), inside, outside
    )
    scores = {name: score.raw for name, score in verdicts.scores["NodeAffinity"].items()}
    assert scores == {"in": 5, "out": 0}


def test_resources_that_are_ignored_are_not_filtered_by() -> None:
    """By name, or by what stands before the slash; never Kubernetes' own."""
    args = NodeResourcesFitArgs(
        ignored_resources=frozenset({"example.com/a", "cpu"}),
        ignored_groups=frozenset({"example.org"}),
    )
    profile = profile_with(args={FIT: args})
    ignored = make_pod().req({"example.com/a": "1", "example.org/b": "1"}).obj()
    assert judged(profile, ignored, roomy("a")).feasible == ("a",)
    for name in ("example.com/c", "cpu"):
        pod = make_pod().req({name: "99"}).obj()
        assert not judged(profile, pod, roomy("a")).feasible


@pytest.mark.parametrize(
    ("args", "score"),
    [
        (NodeResourcesFitArgs(), 65),
        (NodeResourcesFitArgs(scoring=ScoringType.MOST_ALLOCATED), 35),
        (
            NodeResourcesFitArgs(
                scoring=ScoringType.MOST_ALLOCATED,
                resources=(ResourceWeight(name="cpu", weight=3), ResourceWeight(name="memory")),
            ),
            27,
        ),
        (
            NodeResourcesFitArgs(
                scoring=ScoringType.REQUESTED_TO_CAPACITY_RATIO,
                shape=(ShapePoint(utilization=0, score=0), ShapePoint(utilization=100, score=10)),
            ),
            35,
        ),
        (
            NodeResourcesFitArgs(
                scoring=ScoringType.REQUESTED_TO_CAPACITY_RATIO,
                shape=(ShapePoint(utilization=20, score=0), ShapePoint(utilization=70, score=7)),
            ),
            42,
        ),
    ],
)
def test_a_strategy_scores_what_is_used(args: NodeResourcesFitArgs, score: int) -> None:
    """Of 10 cores 2 and of 10 GiB 5 are used; a share that scores 0 drops out of the ratio."""
    pod = make_pod().req(cpu="2", memory="5Gi").obj()
    verdicts = judged(profile_with(args={FIT: args}), pod, roomy("a"), roomy("b"))
    assert verdicts.scores[FIT]["a"].normalized == score


def test_balance_may_look_at_other_resources() -> None:
    """Of those alone."""
    resources = (ResourceWeight(name="cpu"), ResourceWeight(name="example.com/a"))
    args = NodeResourcesBalancedAllocationArgs(resources=resources)
    profile = profile_with(args={"NodeResourcesBalancedAllocation": args})
    node = make_node("a").capacity({"cpu": "10", "memory": "10Gi", "example.com/a": "10"}).obj()
    pod = make_pod().req({"cpu": "2", "memory": "9Gi", "example.com/a": "2"}).obj()
    verdicts = judged(profile, pod, node, roomy("b"))
    assert verdicts.scores["NodeResourcesBalancedAllocation"]["a"].normalized == 100


class Moody(ScorePlugin[None]):
    """Fails while it is in the mood."""

    name = "Moody"
    scope = Scope.PODS
    mood = "bad"

    def score_key(self, pod: Pod, snapshot: Snapshot) -> Hashable | None:  # noqa: ARG002 - alike
        """Return that every pod is alike."""
        return ""

    def pre_score(self, pod: Pod, snapshot: Snapshot) -> None:
        """Prepare nothing."""

    def score(self, data: None, snapshot: Snapshot, rows: Int64s, scores: Int64s) -> None:  # noqa: ARG002 - alike
        """Fail, or score 7."""
        if Moody.mood == "bad":
            raise ScoreError("not today")
        scores[rows] = 7


def test_a_score_plugin_that_fails_ends_the_cycle_by_its_name() -> None:
    """And is asked again when something has changed."""
    snapshot = Snapshot()
    for name in "ab":
        snapshot.set_node(roomy(name))
    profile = Profile(plugins=(*DEFAULT_PROFILE.plugins, PluginSetting(name="Moody")))
    framework = Framework(snapshot, profile, {**SERVED, "Moody": Moody})
    cycles = ProfileCycles(framework, KeyedChoice(seed=1))
    text = 'running Score plugins: plugin "Moody" failed with: not today'
    Moody.mood = "bad"
    assert cycles.schedule_pod(make_pod().obj(), 1) == Failed(message=text)
    assert evaluate(framework, make_pod().obj()).error == text
    Moody.mood = "good"
    snapshot.set_node(roomy("c"))
    verdicts = evaluate(framework, make_pod().obj())
    assert verdicts.error == ""
    assert {score.raw for score in verdicts.scores["Moody"].values()} == {7}


class ByName(QueueSortPlugin):
    """Pods go by their names."""

    name = "ByName"

    def sort_key(self, pod: Pod) -> bytes:
        """Return the name."""
        return pod.name.encode()


def test_a_queue_sort_plugin_computes_the_keys_sent_to_the_queue() -> None:
    """In the operations that add a pod or change it."""
    plugins = tuple(plugin for plugin in DEFAULT_PROFILE.plugins if plugin.name != "PrioritySort")
    profile = Profile(plugins=(*plugins, PluginSetting(name="ByName")))
    options = SchedulerOptions(
        rules=RULES["v1.34"], queue=QUEUE_TRAITS["v1.34"], profiles=(profile,)
    )
    scheduler = Scheduler(options, registry={**SERVED, "ByName": ByName})
    pod = make_pod("zeta").obj()
    encoder = StepEncoder(
        {pod.uid: pod_pb2.Pod()},
        scheduler.sort_key,
        scheduler.snapshot.catalog.namespace_labels,
        scheduler.reads_objects,
    )
    (step,) = scheduler.put_pod(pod)
    assert encoder.operation(step, 0).add.sort_key == b"zeta"


class Nobody(BindPlugin):
    """Binds no pod."""

    name = "Nobody"

    def bind(self, pod: Pod, node_name: str) -> Status:  # noqa: ARG002 - none
        """Leave it to the next."""
        return Status(code=Code.SKIP, plugin=self.name)


class Refuser(Nobody):
    """Fails to bind."""

    name = "Refuser"

    def bind(self, pod: Pod, node_name: str) -> Status:  # noqa: ARG002 - none
        """Fail."""
        return Status(code=Code.ERROR, plugin=self.name, reasons=("no",))


@pytest.mark.parametrize(
    ("name", "message"),
    [("Nobody", "no Bind plugin took the pod"), ("Refuser", "running plugin 'Refuser': no")],
)
def test_a_pod_that_no_bind_plugin_takes_is_not_bound(name: str, message: str) -> None:
    """It is not assumed any more either."""
    enabled = PluginSet(enabled=(PluginSetting(name=name),), disabled=(ALL,))
    profile = profile_with({ExtensionPoint.BIND: enabled})
    options = SchedulerOptions(
        rules=RULES["v1.34"], queue=QUEUE_TRAITS["v1.34"], profiles=(profile,)
    )
    registry = {**SERVED, "Nobody": Nobody, "Refuser": Refuser}
    scheduler = Scheduler(options, registry=registry)
    scheduler.put_node(roomy("a"))
    pod = make_pod().obj()
    scheduler.put_pod(pod)
    head = Head(pop=PopId(pod.uid, 1), attempts=1, first_enqueued_ns=0, queued_ns=0)
    assert scheduler.decide(head, 0).verdict == Failed(message=message)
    assert scheduler.snapshot.pod(pod.uid) is None


def refused(profile: Profile, pod: Pod, *nodes: Node) -> Unschedulable:
    """Return how a pod is refused."""
    options = SchedulerOptions(
        rules=RULES["v1.34"], queue=QUEUE_TRAITS["v1.34"], profiles=(profile,)
    )
    scheduler = Scheduler(options)
    for node in nodes:
        scheduler.put_node(node)
    scheduler.put_pod(pod)
    head = Head(pop=PopId(pod.uid, 1), attempts=1, first_enqueued_ns=0, queued_ns=0)
    verdict = scheduler.decide(head, 0).verdict
    assert isinstance(verdict, Unschedulable)
    return verdict


def test_dynamic_resources_post_filter_runs_before_preemption_without_effect() -> None:
    """As v1.34 reports for a pod without claims; not where the plugin is off."""
    pod = make_pod().req(cpu="99").obj()
    message = refused(DEFAULT_PROFILE, pod, roomy("a")).preemption_message
    assert message.startswith("no new claims to deallocate, preemption: 0/1 nodes are available")
    without = profile_with({ExtensionPoint.POST_FILTER: off("DynamicResources")})
    assert refused(without, pod, roomy("a")).preemption_message.startswith("preemption: ")


def test_a_pod_that_prefilter_refused_before_devices_gets_no_preemption() -> None:
    """DynamicResources finds no state then, and its error ends PostFilter."""
    terms = [
        NodeSelectorTerm(
            match_fields=(
                requirement("metadata.name", "In", "a"),
                requirement("metadata.name", "In", "b"),
            )
        )
    ]
    pod = make_pod().required_terms(*terms).nominated("a").obj()
    found = refused(DEFAULT_PROFILE, pod, roomy("a"))
    assert (found.preemption_message, found.nominated_node_name) == ("not found", None)


def test_profiles_are_chosen_by_the_pods_scheduler_name() -> None:
    """Each with plugins of its own."""
    strict = Profile(plugins=DEFAULT_PROFILE.plugins)
    loose = Profile(
        plugins=DEFAULT_PROFILE.plugins,
        at={ExtensionPoint.FILTER: off("NodeUnschedulable", "TaintToleration")},
        scheduler_name="loose",
    )
    options = SchedulerOptions(
        rules=RULES["v1.34"], queue=QUEUE_TRAITS["v1.34"], profiles=(strict, loose)
    )
    scheduler = Scheduler(options)
    scheduler.put_node(make_node("a").unschedulable().obj())
    for name, feasible in (("default-scheduler", ()), ("loose", ("a",))):
        evaluation = scheduler.evaluate(make_pod().scheduler(name).obj(), 1, 0)
        assert (evaluation.profile, evaluation.verdicts.feasible) == (name, feasible)
