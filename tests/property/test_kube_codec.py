"""A value that is encoded and decoded again is equal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from services.kube import node, pod, selector, volumes, workloads
from services.kube.selector import (
    LabelSelector,
    NodeSelector,
    NodeSelectorTerm,
    Operator,
    Requirement,
)
from services.kube.taints import Taint, TaintEffect, Toleration
from services.rpc.kube.codec import budget_from_message, node_from_message, pod_from_message
from services.rpc.kube.messages import budget_to_message, node_to_message, pod_to_message
from services.rpc.kube.spec import PodSpecInterner

_NAMES = st.text("abc-", max_size=4)
_LABELS = st.dictionaries(_NAMES, _NAMES, max_size=3)
_AMOUNTS = st.dictionaries(
    st.sampled_from(["cpu", "memory", "pods", "example.com/gpu"]), st.integers(0, 2**50), max_size=3
)
_TIMES = st.integers(1, 2**62)
_CONDITIONS = st.builds(
    pod.Condition,
    type=_NAMES,
    status=st.sampled_from(["True", "False", "Unknown"]),
    reason=_NAMES,
    message=_NAMES,
    last_transition_ns=st.none() | _TIMES,
)


def _tuples(one: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(one, max_size=2).map(tuple)


def _requirements(operators: list[Operator], values: st.SearchStrategy[Any]) -> Any:
    return st.builds(Requirement, key=_NAMES, operator=st.sampled_from(operators), values=values)


_ONE_VALUE = st.tuples(st.integers(-9, 9).map(str))
_SOME_REQUIREMENT = _requirements([Operator.IN, Operator.NOT_IN], _ONE_VALUE) | _requirements(
    [Operator.EXISTS, Operator.DOES_NOT_EXIST], st.just(())
)
_TERMS = st.builds(
    NodeSelectorTerm,
    match_expressions=_tuples(
        _SOME_REQUIREMENT | _requirements([Operator.GT, Operator.LT], _ONE_VALUE)
    ),
    match_fields=_tuples(_requirements([Operator.IN, Operator.NOT_IN], _ONE_VALUE)),
)
_CONTAINERS = st.builds(
    pod.Container,
    name=_NAMES,
    image=_NAMES,
    requests=_AMOUNTS,
    limits=_AMOUNTS,
    ports=_tuples(
        st.builds(
            pod.ContainerPort,
            container_port=st.integers(0, 65535),
            host_port=st.integers(0, 65535),
            host_ip=_NAMES,
            protocol=st.sampled_from(["TCP", "UDP", "SCTP"]),
        )
    ),
    restart_policy=st.sampled_from(["", "Always"]),
)
_SELECTORS = st.none() | st.builds(LabelSelector, requirements=_tuples(_SOME_REQUIREMENT))
_AFFINITY_TERMS = st.builds(
    selector.PodAffinityTerm,
    topology_key=_NAMES,
    selector=_SELECTORS,
    namespaces=_tuples(_NAMES),
    namespace_selector=_SELECTORS,
    match_label_keys=_tuples(_NAMES),
    mismatch_label_keys=_tuples(_NAMES),
)
_AFFINITIES = st.none() | st.builds(
    selector.PodAffinity,
    required=_tuples(_AFFINITY_TERMS),
    preferred=_tuples(
        st.builds(
            selector.WeightedPodAffinityTerm, weight=st.integers(1, 100), term=_AFFINITY_TERMS
        )
    ),
)
_CONSTRAINTS = st.builds(
    selector.TopologySpreadConstraint,
    max_skew=st.integers(1, 9),
    topology_key=_NAMES,
    when_unsatisfiable=st.sampled_from(selector.UnsatisfiableAction),
    selector=_SELECTORS,
    min_domains=st.integers(1, 9),
    node_affinity_policy=st.sampled_from(selector.NodeInclusionPolicy),
    node_taints_policy=st.sampled_from(selector.NodeInclusionPolicy),
    match_label_keys=_tuples(_NAMES),
)
_SOURCES = st.one_of(
    st.builds(volumes.ClaimSource, claim_name=_NAMES, read_only=st.booleans()),
    st.builds(volumes.EphemeralSource, storage_class_name=st.none() | _NAMES),
    st.builds(volumes.CsiSource, driver=_NAMES, read_only=st.booleans()),
    st.builds(volumes.GcePersistentDisk, pd_name=_NAMES, partition=st.integers(0, 9)),
    st.builds(volumes.AwsElasticBlockStore, volume_id=_NAMES, read_only=st.booleans()),
    st.builds(volumes.IscsiDisk, target_portal=_NAMES, iqn=_NAMES, lun=st.integers(0, 9)),
    st.builds(volumes.RbdImage, monitors=_tuples(_NAMES), image=_NAMES, pool=_NAMES),
    st.builds(volumes.AzureDisk, disk_name=_NAMES, disk_uri=_NAMES, read_only=st.booleans()),
    st.builds(
        volumes.AzureFile,
        secret_name=_NAMES,
        share_name=_NAMES,
        secret_namespace=st.none() | _NAMES,
    ),
    st.builds(volumes.CinderDisk, volume_id=_NAMES, read_only=st.booleans()),
    st.builds(volumes.VsphereDisk, volume_path=_NAMES),
    st.builds(volumes.PortworxVolume, volume_id=_NAMES, read_only=st.booleans()),
)
_SPECS = st.builds(
    pod.PodSpec,
    pod_affinity=_AFFINITIES,
    pod_anti_affinity=_AFFINITIES,
    topology_spread_constraints=_tuples(_CONSTRAINTS),
    volumes=_tuples(st.builds(volumes.Volume, name=_NAMES, source=_SOURCES)),
    containers=_tuples(_CONTAINERS),
    init_containers=_tuples(_CONTAINERS),
    overhead=_AMOUNTS,
    resources=st.none() | _AMOUNTS,
    node_selector=_LABELS,
    node_affinity=st.none()
    | st.builds(
        pod.NodeAffinity,
        required=st.none() | st.builds(NodeSelector, terms=_tuples(_TERMS)),
        preferred=_tuples(
            st.builds(pod.PreferredSchedulingTerm, weight=st.integers(1, 100), term=_TERMS)
        ),
    ),
    tolerations=_tuples(
        st.builds(
            Toleration,
            key=_NAMES,
            operator=st.sampled_from(["", "Equal", "Exists"]),
            value=_NAMES,
            effect=st.none() | st.sampled_from(TaintEffect),
            seconds=st.none() | st.integers(0, 300),
        )
    ),
    priority=st.integers(-(2**31), 2**31 - 1),
    priority_class_name=_NAMES,
    preemption_policy=st.sampled_from(pod.PreemptionPolicy),
    scheduler_name=_NAMES.filter(bool),
    scheduling_gates=_tuples(_NAMES),
    termination_grace_period_s=st.none() | st.integers(0, 300),
    host_network=st.booleans(),
    host_users=st.none() | st.booleans(),
)
_SORTED_AMOUNTS = _AMOUNTS.map(lambda amounts: tuple(sorted(amounts.items())))
_PODS = st.builds(
    pod.Pod,
    uid=_NAMES,
    namespace=_NAMES,
    name=_NAMES,
    spec=_SPECS,
    labels=_LABELS,
    annotations=_LABELS,
    owners=_tuples(
        st.builds(
            pod.OwnerReference,
            api_version=_NAMES,
            kind=_NAMES,
            name=_NAMES,
            uid=_NAMES,
            controller=st.booleans(),
        )
    ),
    container_resources=_tuples(
        st.builds(
            pod.ContainerResources, name=_NAMES, actual=_SORTED_AMOUNTS, allocated=_SORTED_AMOUNTS
        )
    ),
    pod_resources=st.none()
    | st.builds(
        pod.ContainerResources, name=st.just(""), actual=_SORTED_AMOUNTS, allocated=_SORTED_AMOUNTS
    ),
    node_name=_NAMES,
    nominated_node_name=_NAMES,
    phase=st.sampled_from(pod.PodPhase),
    conditions=_tuples(_CONDITIONS),
    creation_ns=st.just(0) | _TIMES,
    start_time_ns=st.none() | _TIMES,
    deletion_ns=st.none() | _TIMES,
    resource_version=_NAMES,
)
_NODES = st.builds(
    node.Node,
    name=_NAMES,
    uid=_NAMES,
    labels=_LABELS,
    annotations=_LABELS,
    allocatable=_AMOUNTS.filter(bool),
    capacity=_AMOUNTS,
    taints=_tuples(
        st.builds(
            Taint,
            key=_NAMES,
            effect=st.sampled_from(TaintEffect),
            value=_NAMES,
            time_added_ns=st.none() | _TIMES,
        )
    ),
    unschedulable=st.booleans(),
    images=_tuples(
        st.builds(node.ContainerImage, names=_tuples(_NAMES), size_bytes=st.integers(0, 2**62))
    ),
    conditions=_tuples(_CONDITIONS),
    resource_version=_NAMES,
)
_BOUNDS = st.none() | st.builds(
    workloads.IntOrPercent, amount=st.integers(0, 1000), percent=st.booleans()
)
_COUNTS = st.integers(0, 1000)
_BUDGETS = st.builds(
    workloads.PodDisruptionBudget,
    namespace=_NAMES,
    name=_NAMES,
    uid=_NAMES,
    selector=st.none() | st.builds(LabelSelector, requirements=_tuples(_SOME_REQUIREMENT)),
    min_available=_BOUNDS,
    max_unavailable=_BOUNDS,
    disruptions_allowed=_COUNTS,
    current_healthy=_COUNTS,
    desired_healthy=_COUNTS,
    expected_pods=_COUNTS,
    observed_generation=_COUNTS,
    generation=_COUNTS,
    disrupted_pods=st.dictionaries(_NAMES, _TIMES, max_size=2),
)


def _fields(value: Any) -> Mapping[str, object]:
    return {name: getattr(value, name) for name in value.__slots__}


@settings(max_examples=60)
@given(_PODS)
def test_a_pod_comes_back_equal(value: pod.Pod) -> None:
    """Specs are compared field by field, since they have identity alone."""
    back = pod_from_message(pod_to_message(value), PodSpecInterner())
    assert _fields(back.spec) == _fields(value.spec)
    assert {**_fields(back), "spec": None} == {**_fields(value), "spec": None}


@settings(max_examples=60)
@given(_NODES)
def test_a_node_comes_back_equal(value: node.Node) -> None:
    """Its allocatable is spelt out."""
    assert node_from_message(node_to_message(value)) == value


@settings(max_examples=60)
@given(_BUDGETS)
def test_a_budget_comes_back_equal(value: workloads.PodDisruptionBudget) -> None:
    """Selectors come back as expressions."""
    assert budget_from_message(budget_to_message(value)) == value
