"""KubeSchedulerConfiguration files: parsed values, and refusals."""

from __future__ import annotations

import pytest

from services.framework.plugins.in_tree import SERVED
from services.framework.plugins.inter_pod_affinity.arguments import InterPodAffinityArgs
from services.framework.plugins.node_resources.arguments import (
    NodeResourcesFitArgs,
    ResourceWeight,
    ScoringType,
    ShapePoint,
)
from services.framework.plugins.pod_topology_spread.arguments import (
    DefaultingType,
    PodTopologySpreadArgs,
)
from services.framework.profile import ExtensionPoint
from services.scheduler.config.file import SchedulerConfiguration, read_scheduler_configuration
from services.typed import DataError

HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


def read(body: str = "") -> SchedulerConfiguration:
    """Read a file of that body."""
    return read_scheduler_configuration(HEAD + body, SERVED)


def refusal(body: str) -> tuple[str, str]:
    """Return the path and the text of a refusal."""
    with pytest.raises(DataError) as caught:
        read(body)
    return caught.value.field, str(caught.value)


def profile_with(plugins: str) -> str:
    """Return a file's body with one profile's plugins, given in YAML's flow style."""
    return f"profiles: [{{plugins: {plugins}}}]"


def args(name: str, text: str) -> str:
    """Return a file's body with the arguments of one plugin."""
    return f"profiles: [{{pluginConfig: [{{name: {name}, args: {text}}}]}}]"


def test_an_empty_file_is_the_default_profile() -> None:
    """Upstream's defaults hold, and the queue's own backoff."""
    configuration = read()
    (profile,) = configuration.profiles
    assert profile.scheduler_name == "default-scheduler"
    assert (profile.at, profile.args) == ({}, {})
    assert (
        configuration.initial_backoff_ns,
        configuration.max_backoff_ns,
        configuration.warnings,
    ) == (None, None, ())


def test_json_is_read_as_yaml_is() -> None:
    """A file may be written in either."""
    text = (
        '{"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",'
        ' "podInitialBackoffSeconds": 2, "podMaxBackoffSeconds": 20}'
    )
    configuration = read_scheduler_configuration(text, SERVED)
    assert (configuration.initial_backoff_ns, configuration.max_backoff_ns) == (
        2 * 10**9,
        20 * 10**9,
    )


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ("surprise: 1", "surprise"),
        ("profiles: [{plugin: {}}]", "profiles[0].plugin"),
        (profile_with("{scores: {}}"), "profiles[0].plugins.scores"),
        (
            profile_with("{score: {enabled: [{nam: X}]}}"),
            "profiles[0].plugins.score.enabled[0].nam",
        ),
        (
            args("NodeResourcesFit", "{scoringStrategy: {type: LeastAllocated, typ: X}}"),
            "profiles[0].pluginConfig[0].args.scoringStrategy.typ",
        ),
        ("parallelism: 4\nparallelism: 5", "parallelism"),
        ("profiles: [{schedulerName: a, schedulerName: b}]", "profiles[0].schedulerName"),
        ("extenders: [{urlPrefix: x, verb: y}]", "extenders[0].verb"),
        ("leaderElection: {leaderElects: false}", "leaderElection.leaderElects"),
    ],
)
def test_an_unknown_or_repeated_field_is_refused_with_its_path(body: str, field: str) -> None:
    """Decoding is strict at every depth."""
    found, text = refusal(body)
    assert found == field
    assert text == "is not a known field" or text.endswith("comes twice")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ("parallelism: 0", "parallelism"),
        ("parallelism: many", "parallelism"),
        ("percentageOfNodesToScore: 101", "percentageOfNodesToScore"),
        ("podInitialBackoffSeconds: 0", "podInitialBackoffSeconds"),
        ("podInitialBackoffSeconds: 11", "podMaxBackoffSeconds"),
        ("profiles: [{schedulerName: a}, {}]", "profiles[1].schedulerName"),
        ("profiles: [{schedulerName: a}, {schedulerName: a}]", "profiles[1].schedulerName"),
        ("profiles: [{percentageOfNodesToScore: -1}]", "profiles[0].percentageOfNodesToScore"),
        (
            profile_with("{filter: {enabled: [{name: Nobody}]}}"),
            "profiles[0].plugins.filter.enabled[0].name",
        ),
        (
            profile_with("{score: {enabled: [{name: EBSLimits}]}}"),
            "profiles[0].plugins.score.enabled[0]",
        ),
        (profile_with("{score: {enabled: [{name: NodePorts}]}}"), "profiles[0].plugins.score"),
        (
            profile_with("{preFilter: {enabled: [{name: NodeName}]}}"),
            "profiles[0].plugins.preFilter",
        ),
        (
            profile_with("{score: {enabled: [{name: NodeAffinity}, {name: NodeAffinity}]}}"),
            "profiles[0].plugins.score",
        ),
        (
            profile_with("{multiPoint: {disabled: [{name: PrioritySort}]}}"),
            "profiles[0].plugins.queueSort",
        ),
        (profile_with("{bind: {disabled: [{name: '*'}]}}"), "profiles[0].plugins.bind"),
        ("profiles: [{pluginConfig: [{name: Nobody}]}]", "profiles[0].pluginConfig[0].name"),
        (args("NodeName", "{}"), "profiles[0].pluginConfig[0].args"),
        (
            "profiles: [{pluginConfig: [{name: NodeAffinity}, {name: NodeAffinity}]}]",
            "profiles[0].pluginConfig[1]",
        ),
        ("leaderElection: {resourceLock: endpoints}", "leaderElection.resourceLock"),
        ("extenders: [{prioritizeVerb: p}]", "extenders[0].weight"),
        ("extenders: [{bindVerb: a}, {bindVerb: b}]", "extenders"),
        ("extenders: [{managedResources: [{name: cpu}]}]", "extenders[0].managedResources[0].name"),
    ],
)
def test_a_value_that_upstream_refuses_is_refused_with_its_path(body: str, field: str) -> None:
    """Validation names the field."""
    assert refusal(body)[0] == field


@pytest.mark.parametrize(
    ("name", "text", "field"),
    [
        ("NodeResourcesFit", "{kind: NodeAffinityArgs}", "kind"),
        ("NodeResourcesFit", "{ignoredResourceGroups: [a/b]}", "ignoredResourceGroups[0]"),
        ("NodeResourcesFit", "{ignoredResources: ['-x']}", "ignoredResources[0]"),
        ("NodeResourcesFit", "{scoringStrategy: {type: Best}}", "scoringStrategy.type"),
        (
            "NodeResourcesFit",
            "{scoringStrategy: {type: RequestedToCapacityRatio}}",
            "scoringStrategy.requestedToCapacityRatio",
        ),
        (
            "NodeResourcesFit",
            "{scoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: 101}]}}",
            "scoringStrategy.resources[0].weight",
        ),
        (
            "NodeResourcesFit",
            (
                "{scoringStrategy: {type: RequestedToCapacityRatio, requestedToCapacityRatio: "
                "{shape: [{utilization: 50, score: 1}, {utilization: 50, score: 2}]}}}"
            ),
            "scoringStrategy.requestedToCapacityRatio.shape[1].utilization",
        ),
        (
            "NodeResourcesBalancedAllocation",
            "{resources: [{name: cpu, weight: 2}]}",
            "resources[0].weight",
        ),
        ("InterPodAffinity", "{hardPodAffinityWeight: 101}", "hardPodAffinityWeight"),
        (
            "PodTopologySpread",
            "{defaultConstraints: [{maxSkew: 1, topologyKey: a, whenUnsatisfiable: X}]}",
            "defaultConstraints[0].whenUnsatisfiable",
        ),
        (
            "PodTopologySpread",
            (
                "{defaultingType: List, defaultConstraints: [{maxSkew: 1, topologyKey: a, "
                "whenUnsatisfiable: DoNotSchedule, labelSelector: {}}]}"
            ),
            "defaultConstraints[0].labelSelector",
        ),
        (
            "NodeAffinity",
            (
                "{addedAffinity: {requiredDuringSchedulingIgnoredDuringExecution: "
                "{nodeSelectorTerms: [{matchExpressions: [{key: a, operator: In}]}]}}}"
            ),
            (
                "addedAffinity.requiredDuringSchedulingIgnoredDuringExecution"
                ".nodeSelectorTerms[0].matchExpressions[0].values"
            ),
        ),
        (
            "DefaultPreemption",
            "{minCandidateNodesPercentage: 0, minCandidateNodesAbsolute: 0}",
            "minCandidateNodesPercentage",
        ),
        ("VolumeBinding", "{bindTimeoutSeconds: -1}", "bindTimeoutSeconds"),
        ("VolumeBinding", "{shape: []}", "shape"),
    ],
)
def test_arguments_that_upstream_refuses_are_refused(name: str, text: str, field: str) -> None:
    """Validation names the argument."""
    assert refusal(args(name, text))[0] == f"profiles[0].pluginConfig[0].args.{field}"


def test_arguments_are_read_with_their_defaults() -> None:
    """A weight of 0 is 1, and what is left out is upstream's."""
    configuration = read(
        args(
            "NodeResourcesFit",
            "{ignoredResources: [example.com/a], ignoredResourceGroups: [example.org], "
            "scoringStrategy: {type: RequestedToCapacityRatio, resources: [{name: cpu}], "
            "requestedToCapacityRatio: {shape: [{utilization: 0, score: 10}, "
            "{utilization: 100, score: 0}]}}}",
        )
    )
    assert configuration.profiles[0].args == {
        "NodeResourcesFit": NodeResourcesFitArgs(
            ignored_resources=frozenset({"example.com/a"}),
            ignored_groups=frozenset({"example.org"}),
            scoring=ScoringType.REQUESTED_TO_CAPACITY_RATIO,
            resources=(ResourceWeight(name="cpu", weight=1),),
            shape=(ShapePoint(utilization=0, score=10), ShapePoint(utilization=100, score=0)),
        )
    }
    given = read(args("InterPodAffinity", "{hardPodAffinityWeight: 0}")).profiles[0].args
    assert given == {"InterPodAffinity": InterPodAffinityArgs(hard_pod_affinity_weight=0)}
    listed = read(args("PodTopologySpread", "{defaultingType: List}")).profiles[0].args
    expected = PodTopologySpreadArgs(defaulting_type=DefaultingType.LIST)
    assert listed == {"PodTopologySpread": expected}


def test_null_counts_as_absent_everywhere() -> None:
    """As Go decodes it: a field, an item of a list, a field of an enum."""
    configuration = read(
        "parallelism:\nprofiles: [{plugins: {score: {disabled: [null]}}, pluginConfig: [{name: "
        "PodTopologySpread, args: {defaultingType: List, defaultConstraints: [{maxSkew: 1, "
        "topologyKey: a, whenUnsatisfiable: DoNotSchedule, nodeAffinityPolicy: null}]}}]}]\n"
        "extenders: [null]"
    )
    assert (configuration.parallelism, len(configuration.extenders)) == (16, 1)
    assert configuration.profiles[0].at[ExtensionPoint.SCORE].disabled == ("",)


def test_a_default_plugin_that_is_listed_again_keeps_its_place_and_loses_its_weight() -> None:
    """Its setting is replaced as a whole; new plugins come last."""
    body = profile_with(
        "{multiPoint: {enabled: [{name: NodeResourcesFit}, {name: TaintToleration}]}}"
    )
    plugins = read(body).profiles[0].plugins
    weights = {setting.name: setting.weight for setting in plugins}
    assert (weights["TaintToleration"], weights["NodeAffinity"]) == (1, 2)
    names = [setting.name for setting in plugins]
    assert names.index("TaintToleration") < names.index("NodeResourcesFit")


def test_a_points_settings_are_kept_for_it() -> None:
    """By its name in the file."""
    body = profile_with("{score: {disabled: [{name: '*'}], enabled: [{name: NodeAffinity}]}}")
    said = read(body).profiles[0].at[ExtensionPoint.SCORE]
    assert said.disabled == ("*",)
    assert [setting.name for setting in said.enabled] == ["NodeAffinity"]


def test_known_fields_without_support_are_named() -> None:
    """In a sentence each."""
    configuration = read("parallelism: 8\nextenders: [{urlPrefix: http://x, filterVerb: f}]")
    assert configuration.parallelism == 8
    assert configuration.extenders[0].timeout_ns == 5 * 10**9
    assert [text.split()[0] for text in configuration.warnings] == ["parallelism"]


def test_a_file_of_another_kind_is_refused() -> None:
    """By apiVersion and kind, and before that by its syntax."""
    for text, field in (
        ("apiVersion: kubescheduler.config.k8s.io/v1beta3\nkind: X", "apiVersion"),
        ("apiVersion: kubescheduler.config.k8s.io/v1\nkind: Pod", "kind"),
        ("[1, 2]", ""),
        ("a: [", ""),
    ):
        with pytest.raises(DataError) as caught:
            read_scheduler_configuration(text, SERVED)
        assert caught.value.field == field
