"""Messages are decoded to the cores' values; invalid fields are refused."""

from __future__ import annotations

from typing import Any

import pytest

from reprieve.kube.v1beta1.node_pb2 import Node as NodeMessage
from reprieve.kube.v1beta1.pod_pb2 import Pod as PodMessage
from reprieve.kube.v1beta1.policy_pb2 import PodDisruptionBudget as BudgetMessage
from reprieve.kube.v1beta1.scheduling_pb2 import PriorityClass as PriorityClassMessage
from services.kube.node import Node
from services.kube.pod import Pod, PodPhase, PreemptionPolicy
from services.kube.selector import LabelSelector, NodeSelectorTerm, Operator, Requirement
from services.kube.taints import TaintEffect
from services.kube.workloads import IntOrPercent, PodDisruptionBudget
from services.rpc.errors import FieldError
from services.rpc.kube.codec import (
    budget_from_message,
    node_from_message,
    pod_from_message,
    priority_class_from_message,
    spec_digest,
)
from services.rpc.kube.json_codec import parse
from services.rpc.kube.spec import PodSpecInterner

_NEW_YEAR_NS = 1_767_225_600_000_000_000
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def _pod(mapping: dict[str, Any], interner: PodSpecInterner | None = None) -> Pod:
    return pod_from_message(parse(PodMessage, mapping), interner or PodSpecInterner())


def _node(**status: object) -> Node:
    return node_from_message(parse(NodeMessage, {"metadata": {"name": "n"}, "status": status}))


def _budget(**spec: object) -> PodDisruptionBudget:
    return budget_from_message(parse(BudgetMessage, {"spec": spec}))


def _term(**term: object) -> NodeSelectorTerm:
    affinity = {"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": [term]}}}
    read = _pod({"spec": {"affinity": affinity}}).spec.node_affinity
    assert read is not None
    assert read.required is not None
    return read.required.terms[0]


def test_a_pod_without_anything_has_the_defaults() -> None:
    """Absent fields have the scheduler's defaults."""
    pod = _pod({})
    assert (pod.priority, pod.phase, pod.spec.scheduler_name) == (
        0,
        PodPhase.PENDING,
        "default-scheduler",
    )
    assert pod.spec.preemption_policy is PreemptionPolicy.PREEMPT_LOWER_PRIORITY
    assert pod.spec.termination_grace_period_s is None
    assert pod.spec.resources is None
    assert (pod.start_time_ns, pod.deletion_ns) == (None, None)


def test_a_pods_state_is_read() -> None:
    """Times are ns, conditions and owners keep their order."""
    pod = _pod(
        {
            "metadata": {
                "name": "p",
                "namespace": "ns",
                "uid": "u",
                "labels": {"a": "b"},
                "creationTimestamp": "2026-01-01T00:00:00Z",
                "deletionTimestamp": "2026-01-01T00:00:01Z",
                "ownerReferences": [
                    {"kind": "ReplicaSet", "name": "r", "uid": "o", "controller": True}
                ],
            },
            "spec": {"nodeName": "n", "priority": 7},
            "status": {
                "phase": "Running",
                "startTime": "2026-01-01T00:00:02Z",
                "nominatedNodeName": "m",
                "conditions": [{"type": "PodScheduled", "status": "True"}],
            },
        }
    )
    assert (pod.key, pod.node_name, pod.nominated_node_name) == ("ns/p", "n", "m")
    assert (pod.priority, pod.phase) == (7, PodPhase.RUNNING)
    assert pod.creation_ns == _NEW_YEAR_NS
    assert pod.deletion_ns == _NEW_YEAR_NS + 10**9
    assert pod.start_time_ns == _NEW_YEAR_NS + 2 * 10**9
    assert pod.owners[0].controller
    assert pod.condition("PodScheduled") is not None


def test_requests_round_up_and_zero_is_no_absence() -> None:
    """CPU counts in thousandths, everything else in whole units."""
    requests = {"cpu": "1.0001", "memory": "1.5", "nvidia.com/gpu": "0"}
    container = {"name": "c", "resources": {"requests": requests, "limits": {"cpu": "2"}}}
    read = _pod({"spec": {"containers": [container]}}).spec.containers[0]
    assert read.requests == {"cpu": 1001, "memory": 2, "nvidia.com/gpu": 0}
    assert read.limits == {"cpu": 2000}


def test_pods_of_one_template_share_their_spec() -> None:
    """The node and projected volumes' made-up names do not part them; a priority does."""
    interner = PodSpecInterner()
    shapes = [
        {"priority": 1, "volumes": [{"name": "kube-api-access-abcde", "projected": {}}]},
        {"priority": 1, "volumes": [{"name": "kube-api-access-vwxyz", "projected": {}}]},
        {"priority": 1, "nodeName": "n"},
        {"priority": 2},
    ]
    specs = [_pod({"spec": shape}, interner).spec for shape in shapes]
    assert specs[0] is specs[1] is specs[2]
    assert specs[3] is not specs[0]
    assert interner.size == 2


def test_an_interner_keeps_at_most_its_limit_of_specs() -> None:
    """The oldest is forgotten first."""
    interner = PodSpecInterner(limit=2)
    first = _pod({"spec": {"priority": 1}}, interner).spec
    for priority in (2, 3):
        _pod({"spec": {"priority": priority}}, interner)
    assert interner.size == 2
    assert _pod({"spec": {"priority": 1}}, interner).spec is not first
    with pytest.raises(ValueError, match="limit"):
        PodSpecInterner(limit=0)


def test_decoding_leaves_the_message_alone() -> None:
    """An interner's key is made from a copy."""
    message = parse(PodMessage, {"spec": {"nodeName": "n", "volumes": [{"name": "v"}]}})
    before = message.SerializeToString(deterministic=True)
    pod_from_message(message, PodSpecInterner())
    assert message.SerializeToString(deterministic=True) == before


@pytest.mark.parametrize(
    ("pod", "message"),
    [
        (
            {"spec": {"containers": [{"resources": {"requests": {"cpu": "x"}}}]}},
            "pod.spec.containers[0].resources.requests[cpu]: 'x' is not a quantity",
        ),
        (
            {"spec": {"initContainers": [{"resources": {"requests": {"memory": "-1"}}}]}},
            "pod.spec.initContainers[0].resources.requests[memory]: '-1' is negative",
        ),
        ({"spec": {"overhead": {"cpu": ""}}}, "pod.spec.overhead[cpu]: '' is not a quantity"),
        (
            {"spec": {"preemptionPolicy": "Sometimes"}},
            'pod.spec.preemptionPolicy: unknown value "Sometimes": use one of "Preempt',
        ),
        (
            {"spec": {"tolerations": [{"effect": "NoWay"}]}},
            'pod.spec.tolerations[0].effect: unknown value "NoWay"',
        ),
        (
            {"spec": {"tolerations": [{"operator": "Like"}]}},
            'pod.spec.tolerations[0].operator: unknown value "Like"',
        ),
        (
            {"spec": {"containers": [{"ports": [{"hostPort": 70000}]}]}},
            "pod.spec.containers[0].ports[0].hostPort: 70000 is not a port",
        ),
        ({"status": {"phase": "Gone"}}, 'pod.status.phase: unknown value "Gone"'),
        (
            {
                "spec": {
                    "affinity": {
                        "nodeAffinity": {
                            _REQUIRED: {
                                "nodeSelectorTerms": [{"matchExpressions": [{"operator": "Like"}]}]
                            }
                        }
                    }
                }
            },
            f"pod.spec.affinity.nodeAffinity.{_REQUIRED}.nodeSelectorTerms[0].matchExpressions[0]",
        ),
    ],
)
def test_a_field_without_meaning_is_refused_by_its_path(pod: dict[str, Any], message: str) -> None:
    """The path starts at the request's own field."""
    with pytest.raises(FieldError) as refused:
        _pod(pod)
    assert str(refused.value).startswith(message)


@pytest.mark.parametrize(
    "term",
    [
        {},
        {"matchExpressions": [{"key": "a", "operator": "NotIn"}]},
        {"matchExpressions": [{"key": "a", "operator": "DoesNotExist", "values": ["b"]}]},
        {"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["x"]}]},
        {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["a", "b"]}]},
        {"matchFields": [{"key": "metadata.name", "operator": "DoesNotExist"}]},
    ],
)
def test_a_term_that_upstream_cannot_parse_matches_nothing(term: dict[str, object]) -> None:
    """It is no refusal, as it is none upstream."""
    assert not _term(**term).matches({"z": ""}, "n")


def test_a_preferred_term_keeps_its_weight() -> None:
    """Preferences are read in order."""
    expression = {"key": "zone", "operator": "In", "values": ["a"]}
    preferred = [{"weight": 5, "preference": {"matchExpressions": [expression]}}]
    name = "preferredDuringSchedulingIgnoredDuringExecution"
    affinity = _pod({"spec": {"affinity": {"nodeAffinity": {name: preferred}}}}).spec.node_affinity
    assert affinity is not None
    assert affinity.required is None
    assert affinity.preferred[0].weight == 5
    assert affinity.preferred[0].term.matches({"zone": "a"}, "n")


def test_a_missing_allocatable_is_the_capacity() -> None:
    """As an API server defaults it: the map as a whole."""
    assert _node(capacity={"cpu": "4", "pods": "110"}).allocatable == {"cpu": 4000, "pods": 110}
    assert _node(capacity={"cpu": "4"}, allocatable={"pods": "1"}).allocatable == {"pods": 1}


def test_a_nodes_marks_and_images_are_read() -> None:
    """An unknown taint effect is refused."""
    taint = {"key": "k", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}
    mapping: dict[str, Any] = {
        "spec": {"unschedulable": True, "taints": [taint]},
        "status": {"images": [{"names": ["i:1"], "sizeBytes": 5}]},
    }
    node = node_from_message(parse(NodeMessage, mapping))
    assert node.unschedulable
    assert node.taints[0].effect is TaintEffect.NO_EXECUTE
    assert node.taints[0].time_added_ns == _NEW_YEAR_NS
    assert (node.images[0].names, node.images[0].size_bytes) == (("i:1",), 5)
    taint["effect"] = ""
    with pytest.raises(FieldError, match=r"nodes\[3\]\.spec\.taints\[0\]\.effect"):
        node_from_message(parse(NodeMessage, mapping), field="nodes[3]")


def test_a_budget_counts_in_numbers_or_percent() -> None:
    """An absent selector is None, an empty one is not."""
    budget = _budget(minAvailable=2, maxUnavailable="50%", selector={"matchLabels": {"a": "b"}})
    assert budget.min_available == IntOrPercent(amount=2)
    assert budget.max_unavailable == IntOrPercent(amount=50, percent=True)
    assert budget.selector == LabelSelector(
        requirements=(Requirement(key="a", operator=Operator.IN, values=("b",)),)
    )
    assert _budget().selector is None
    assert _budget(selector={}).selector == LabelSelector()


@pytest.mark.parametrize("bound", ["x", "-5%", "5", "9" * 5000 + "%", -1])
def test_a_budget_of_neither_number_nor_percent_is_refused(bound: object) -> None:
    """The refusal names the bound."""
    with pytest.raises(FieldError, match=r"pod_disruption_budget\.spec\.minAvailable"):
        _budget(minAvailable=bound)


@pytest.mark.parametrize(
    ("expression", "field"),
    [
        ({"key": "a", "operator": "In"}, "values"),
        ({"key": "a", "operator": "Exists", "values": ["b"]}, "values"),
        ({"key": "a", "operator": "Gt", "values": ["1"]}, "operator"),
        ({"key": "a", "operator": "Like"}, "operator"),
    ],
)
def test_an_invalid_label_selector_requirement_is_refused(
    expression: dict[str, object], field: str
) -> None:
    """Values belong to In and NotIn alone."""
    with pytest.raises(FieldError) as refused:
        _budget(selector={"matchExpressions": [expression]})
    path = "pod_disruption_budget.spec.selector.matchExpressions[0]"
    assert refused.value.field == f"{path}.{field}"


def test_a_priority_class_is_read() -> None:
    """An absent policy preempts."""
    mapping = {"metadata": {"name": "high"}, "value": 5, "globalDefault": True}
    read = priority_class_from_message(parse(PriorityClassMessage, mapping))
    assert (read.name, read.value, read.global_default) == ("high", 5, True)
    assert read.preemption_policy is PreemptionPolicy.PREEMPT_LOWER_PRIORITY
    never = parse(PriorityClassMessage, {**mapping, "preemptionPolicy": "Never"})
    assert priority_class_from_message(never).preemption_policy is PreemptionPolicy.NEVER


def test_a_digest_changes_with_fields_that_may_make_a_pod_schedulable() -> None:
    """Status, resourceVersion and generation do not count; labels and spec do."""
    base: dict[str, Any] = {"metadata": {"name": "p", "labels": {"a": "b", "c": "d"}}}
    digest = spec_digest(parse(PodMessage, base))
    meta = base["metadata"]
    for same in (
        {**base, "status": {"phase": "Running"}},
        {"metadata": {**meta, "resourceVersion": "5", "generation": 2, "managedFields": [{}]}},
        {"metadata": {"name": "p", "labels": {"c": "d", "a": "b"}}},
    ):
        assert spec_digest(parse(PodMessage, same)) == digest
    for other in (
        {"metadata": {**meta, "labels": {}}},
        {**base, "spec": {"priority": 1}},
        {"metadata": {**meta, "deletionTimestamp": "2026-01-01T00:00:00Z"}},
    ):
        assert spec_digest(parse(PodMessage, other)) != digest
