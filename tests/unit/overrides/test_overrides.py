"""Overrides of a trace's records: changes and refusals."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from replay.overrides.errors import NoEffectError, OverrideError
from replay.overrides.overrides import Overrides
from replay.trace.reader import OrderCheck
from replay.trace.validate import CONTROLLERS, pod_template
from reprieve.trace.v1beta1 import trace_pb2
from tests.unit.overrides.traces import pod, trace, with_controllers


def changed(
    *sets: str, drop: str = "", scale: str = "", arrivals: str = "", usage: str = "", seed: int = 0
) -> list[trace_pb2.Record]:
    """Return the small trace with overrides."""
    asked = (usage,) if usage else ()
    overrides = Overrides(
        sets=sets,
        drop_nodes=drop,
        scale_nodes=(scale,) if scale else (),
        arrivals=arrivals,
        usage=asked,
    )
    return list(overrides.records(trace, seed))


def refusal(
    *sets: str, drop: str = "", scale: str = "", arrivals: str = "", usage: str = ""
) -> str:
    """Return why overrides are refused."""
    with pytest.raises(OverrideError) as found:
        changed(*sets, drop=drop, scale=scale, arrivals=arrivals, usage=usage)
    return str(found.value)


def nodes(records: list[trace_pb2.Record]) -> list[str]:
    """Return the names of the nodes that are created."""
    created = (record.create for record in records if record.HasField("create"))
    return [entry.node.metadata.name for entry in created if entry.HasField("node")]


def pods(records: list[trace_pb2.Record]) -> list[trace_pb2.PodCreate]:
    """Return the pods that are created."""
    return [record.pod_create for record in records if record.HasField("pod_create")]


def test_without_overrides_a_trace_is_read_once_and_unchanged() -> None:
    """Nothing is surveyed, nothing copied."""
    assert changed() == list(trace())


def test_the_pods_of_a_class_follow_its_new_value() -> None:
    """As admission does; pods of another class keep theirs."""
    records = changed("priorityClass.batch.value=50")
    values = [r.create.priority_class.value for r in records if r.create.HasField("priority_class")]
    assert values == [50]
    assert [pod.pod.spec.priority for pod in pods(records)] == [50, 10]


@pytest.mark.parametrize("kind", CONTROLLERS)
def test_a_class_s_new_value_reaches_the_template_of_any_controller(kind: str) -> None:
    """Where a template names the value that its class gave when it was written."""
    record = trace_pb2.Record(sequence=99)
    getattr(record.create, kind).metadata.name = "c"
    template = pod_template(record.create)
    assert template is not None
    template.spec.priority_class_name, template.spec.priority = "gold", 1
    overrides = Overrides(sets=("priorityClass.gold.value=50",))
    last = list(overrides.records(lambda: iter([*trace(), record]), 0))[-1]
    changed_template = pod_template(last.create)
    assert changed_template is not None
    assert changed_template.spec.priority == 50


def test_the_admitted_pods_of_a_class_follow_its_new_preemption_policy() -> None:
    """A recorded pod may have its priority and leave the policy out."""
    records = changed("priorityClass.batch.preemptionPolicy=Never")
    policies = [pod.pod.spec.preemption_policy for pod in pods(records)]
    assert policies == ["Never", ""]


def test_a_class_that_pods_only_name_is_created_with_its_value() -> None:
    """So that pods which controllers make are admitted with it, too."""
    records = changed("priorityClass.web.value=5", "priorityClass.web.preemptionPolicy=Never")
    classes = [r.create.priority_class for r in records if r.create.HasField("priority_class")]
    assert [(class_.metadata.name, class_.value) for class_ in classes] == [
        ("web", 5),
        ("batch", 10),
    ]
    assert classes[0].preemption_policy == "Never"
    assert pods(records)[1].pod.spec.priority == 5
    check = OrderCheck()
    assert [check.problem(record) for record in records] == [""] * len(records)
    problem = refusal("priorityClass.web.preemptionPolicy=Never")
    assert "named by pods" in problem
    assert "--set priorityClass.web.value=NUMBER" in problem


def test_kubelet_settings_are_refused_for_a_trace_without_usage() -> None:
    """Without usage, evictions cannot be simulated; with usage, the settings are accepted."""
    assert "the trace has no usage" in refusal("evictionHard.memory.available=1Gi")
    profile = trace_pb2.Record(usage=trace_pb2.UsageProfile(id=1))
    annotated = trace_pb2.Record()
    template = annotated.create.deployment.spec.template
    template.metadata.annotations["reprieve/usage-memory"] = "+1Mi/m"
    for record in (profile, annotated):
        chosen = Overrides(sets=("evictionHard.memory.available=1Gi",))
        assert list(chosen.records(lambda told=record: iter([told]), 0)) == [record]  # type: ignore[misc] # bound at once
    taken = changed("evictionHard.memory.available=1Gi", usage="* memory 1Gi")
    assert taken == list(trace())


def test_min_available_replaces_max_unavailable() -> None:
    """They exclude each other in a PodDisruptionBudget."""
    for key in ("pdb.web.minAvailable=2", "pdb.prod/web.minAvailable=2"):
        specs = [r.create.pod_disruption_budget.spec for r in changed(key) if "budget" in str(r)]
        spec = next(spec for spec in specs if spec.HasField("min_available"))
        assert spec.min_available.int_value == 2
        assert not spec.HasField("max_unavailable")


@pytest.mark.parametrize(
    ("key", "told"),
    [
        (
            "priorityClass.gold.value=5",
            "the trace has no PriorityClass gold; its PriorityClasses are batch, web",
        ),
        (
            "pdb.db.minAvailable=1",
            "no budget and no workload has this name; budgets: prod/web; workloads: none",
        ),
        ("priorityClass.batch.colour=5", "fields of priorityClass: globalDefault,"),
        ("priorityClass.batch.value=x", "write a whole number"),
        ("priorityClass.batch.value=[", "write a whole number"),
        ("priorityClass.batch.value=2000000000", "a priority lies between"),
        ("pdb.web.minAvailable=few", "minAvailable"),
        ("colour=5", "is not one of priorityClass.NAME.FIELD"),
        ("colour", "write KEY=VALUE"),
    ],
)
def test_an_override_without_a_target_names_what_exists(key: str, told: str) -> None:
    """In a sentence that names the option."""
    assert told in refusal(key)
    assert refusal(key).startswith(f"--set {key}")


def test_a_field_that_is_set_twice_is_refused() -> None:
    """Otherwise it would be unclear which one applies."""
    with pytest.raises(OverrideError, match="set the same field"):
        changed("priorityClass.batch.value=1", "priorityClass.batch.value=2")


def test_pods_of_dropped_nodes_become_pending() -> None:
    """By a label selector."""
    records = changed(drop="zone in (b), !gpu")
    assert nodes(records) == ["n0", "n2", "n4", "n6", "n8"]
    assert [pod.pod.spec.node_name for pod in pods(records)] == ["", ""]


def test_pods_that_terminate_or_have_ended_go_with_their_dropped_node() -> None:
    """Nothing is left to stop them there; they would wait for a node that they do not need."""
    terminating, ended = pod("old", "n1"), pod("done", "n1")
    terminating.metadata.deletion_timestamp.GetCurrentTime()
    ended.status.phase = "Succeeded"

    def records() -> Iterator[trace_pb2.Record]:
        yield from trace()
        for number, message in enumerate((terminating, ended), 80):
            create = trace_pb2.PodCreate(pod=message)
            yield trace_pb2.Record(time_ns=number, sequence=number, pod_create=create)

    left = list(Overrides(drop_nodes="n1").records(records, 0))
    assert [pod.pod.metadata.name for pod in pods(left)] == ["on-n1", "web-0"]


def test_a_selector_that_matches_no_node_names_the_labels_that_there_are() -> None:
    """And one that would match all leaves none."""
    assert "the nodes have zone=a, zone=b" in refusal(drop="zone=c")
    assert "removes all 10 nodes" in refusal(drop="zone")
    assert "is not a label selector" in refusal(drop="zone = (")


def test_a_smaller_cluster_is_part_of_a_larger_one() -> None:
    """Which nodes go follows from their names alone."""
    fewer, more = set(nodes(changed(scale="0.5"))), set(nodes(changed(scale="0.8")))
    assert (len(fewer), len(more)) == (5, 8)
    assert fewer < more
    assert nodes(changed(scale="-2")) == nodes(changed(scale="0.8"))
    assert nodes(changed(scale="=8")) == nodes(changed(scale="0.8"))


def test_cloned_nodes_follow_their_originals_under_new_names() -> None:
    """The same names each time, with a hostname label to match, in a trace that is in order."""
    records = changed(scale="+15")
    names = nodes(records)
    assert len(names) == len(set(names)) == 25
    assert names == nodes(changed(scale="2.5"))
    for node in (r.create.node for r in records if r.create.HasField("node")):
        assert node.metadata.labels["kubernetes.io/hostname"] == node.metadata.name
    check = OrderCheck()
    assert [check.problem(record) for record in records] == [""] * len(records)


def test_a_scale_that_changes_nothing_is_refused() -> None:
    """A scale that leaves no node, and an invalid text, are refused, too."""
    assert "has no effect: there are already 10 nodes" in refusal(scale="1.0")
    assert "removes all" in refusal(scale="-10")
    assert "write 0.8, 1.5, +10, -10 or =5" in refusal(scale="many")


def test_arrivals_request_the_target_and_never_end() -> None:
    """Pods are drawn repeatedly, each with a new name; all are created at the beginning."""
    records = changed(arrivals="cpu=0.5", seed=3)
    made = pods(records)
    assert len(made) == 20
    assert len({create.pod.metadata.uid for create in made}) == 20
    assert {record.time_ns for record in records} == {1}
    assert not any(create.HasField("life") or create.pod.spec.node_name for create in made)
    assert records == changed(arrivals="cpu=0.5", seed=3)
    assert records != changed(arrivals="cpu=0.5", seed=4)


def test_fewer_arrivals_leave_pods_out() -> None:
    """Where the trace requests more than is wanted."""
    assert len(pods(changed(arrivals="cpu=0.025"))) == 1


def test_arrivals_count_the_requests_of_whole_pods() -> None:
    """Pod-level requests stand for those of the containers, as the scheduler has it."""

    def larger() -> Iterator[trace_pb2.Record]:
        for record in trace():
            if record.HasField("pod_create"):
                record.pod_create.pod.spec.resources.requests["cpu"] = "4"
            yield record

    records = Overrides(arrivals="cpu=0.5").records(larger, 3)
    assert len(pods(list(records))) == 5


def test_arrivals_of_a_resource_that_no_node_has_are_refused() -> None:
    """With those that they have."""
    assert "the nodes have no gpu; they have cpu" in refusal(arrivals="gpu=1.3")
    assert "write RESOURCE=RATIO" in refusal(arrivals="cpu")


def test_usage_leaves_the_records_as_they_are() -> None:
    """It is the world that matches pods, when their containers run."""
    assert changed(usage="* memory 1Gi") == list(trace())
    overrides = Overrides(usage=("prod/web-0 memory 1Gi", "tier memory +1Mi/s"))
    assert [rule.name for rule in overrides.usage_rules.values()] == ["web-0", ""]
    assert overrides.to_mapping() == {"usage": ["prod/web-0 memory 1Gi", "tier memory +1Mi/s"]}


def test_unselected_pods_use_nothing_if_the_trace_has_no_usage() -> None:
    """Without statistics kubelets would evict them before the pod that leaks; a note says it."""
    overrides = Overrides(usage=("tier memory 1Gi", "tier ephemeral-storage 2Gi"))
    first, second, *given = overrides.plan(trace).usage
    assert given == list(overrides.usage_rules.values())
    assert [(change.resource, change.selects_all) for change in (first, second)] == [
        ("ephemeral-storage", True),
        ("memory", True),
    ]
    assert first.growth.at(10**9) == 0
    header, note, *others = overrides.records(trace, 0)
    assert header.HasField("header")
    assert (note.issue.kind, note.sequence) == ("usage", 2)
    assert len(others) == len(list(trace())) - 1
    all_pods = Overrides(usage=("tier memory 1Gi", "prod/on-n1 memory 1Gi"))
    assert list(all_pods.records(trace, 0)) == list(trace())


def test_usage_of_the_trace_is_not_added_to() -> None:
    """A recording may lack a pod's usage; a rule for all pods leaves none without."""
    usage = trace_pb2.Record(time_ns=50, sequence=50, usage=trace_pb2.UsageProfile(id=1))
    overrides = Overrides(usage=("tier memory 1Gi",))
    plan = overrides.plan(lambda: iter([*trace(), usage]))
    assert plan.usage == tuple(overrides.usage_rules.values())
    assert not plan.assumes_no_usage
    assert len(Overrides(usage=("* memory 1Gi",)).plan(trace).usage) == 1


@pytest.mark.parametrize(
    "selector",
    ["tier=back", "app=ticker", "app=db,statefulset.kubernetes.io/pod-name=db-0", "prod/db-0"],
)
def test_usage_of_pods_of_templates_and_controllers_is_foreseen(selector: str) -> None:
    """Also by the labels and names that controllers give."""
    overrides = Overrides(usage=("* memory 1Gi", f"{selector} memory 1Gi"))
    assert list(overrides.records(with_controllers, 0)) == list(with_controllers())


@pytest.mark.parametrize(
    ("usage", "told"),
    [
        ("tier=gold memory 1Gi", "has no effect: the pods have tier=front"),
        ("app=web memory 1Gi", "has no effect: the pods have the labels tier"),
        ("prod/web-1 memory 1Gi", "has no effect: there are prod/on-n1, prod/web-0"),
        ("tier=front gpu 1Gi", "'gpu' does not cause node pressure"),
        ("tier=front memory 1Gi/m", "'1Gi/m' is not a usage; write 200Mi, +50Mi/m or 200Mi+50Mi/m"),
        ("tier=front memory 1Xi", "unknown suffix"),
        ("tier== = memory 1Gi", "is not a label selector"),
        ("memory 1Gi", "write a selector, a resource and a value"),
    ],
)
def test_a_usage_rule_without_a_pod_names_what_exists(usage: str, told: str) -> None:
    """In a sentence that names the option."""
    assert told in refusal(usage=usage)
    assert refusal(usage=usage).startswith(f"--usage {usage!r}")


def test_usage_without_eviction_touches_nothing() -> None:
    """As thresholds do not; but for memory, which has limits."""
    assert Overrides(usage=("tier memory 1Gi",)).kubelet("", evicts=False) == ""
    overrides = Overrides(usage=("tier ephemeral-storage 1Gi",))
    with pytest.raises(OverrideError, match="has no effect: --no-eviction is given"):
        overrides.kubelet("", evicts=False)


@pytest.mark.parametrize(
    "asked",
    [
        {"sets": ("priorityClass.none.value=1",)},
        {"sets": ("pdb.none.minAvailable=1",)},
        {"sets": ("deployment.none.replicas=1",)},
        {"drop_nodes": "zone=nowhere"},
        {"scale_nodes": ("1.0",)},
        {"drain": ("nowhere",)},
        {"fail": ("zone=nowhere",)},
    ],
)
def test_an_override_without_an_effect_may_be_allowed(asked: dict[str, Any]) -> None:
    """The trace stays as it is then; an override that is not valid is refused all the same."""
    with pytest.raises(NoEffectError):
        list(Overrides(**asked).records(trace, 0))
    allowed = Overrides(**asked, allows_no_effect=True)
    assert list(allowed.records(trace, 0)) == list(trace())
    broken = Overrides(sets=("priorityClass.batch.value=x",), allows_no_effect=True)
    with pytest.raises(OverrideError, match="write a whole number"):
        broken.records(trace, 0)
