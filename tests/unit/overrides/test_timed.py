"""Changes of a trace's objects at a later time: objects are updated, deleted or created."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from replay.overrides.errors import OverrideError
from replay.overrides.overrides import Overrides
from reprieve.kube.v1beta1 import meta_pb2, object_pb2, pod_pb2
from reprieve.trace.v1beta1 import trace_pb2
from services.kube.time import SECOND_NS
from tests.unit.overrides.traces import pod, trace, with_controllers

AT_NS = 14
"""When pod on-n1 is created; the trace begins at 1."""


def added(**options: object) -> list[trace_pb2.Record]:
    """Return what is added at the time, after checking that the records before are as they were."""
    records = list(Overrides(**options).records(trace, 0))  # type: ignore[arg-type] # by name
    before = [record for record in trace() if record.time_ns <= AT_NS]
    assert records[: len(before)] == before
    assert [record.sequence for record in records] == list(range(1, len(records) + 1))
    return [record for record in records[len(before) :] if record.time_ns == AT_NS]


def later(**options: object) -> list[trace_pb2.Record]:
    """Return the records after the time."""
    records = Overrides(**options).records(trace, 0)  # type: ignore[arg-type] # by name
    return [record for record in records if record.time_ns > AT_NS]


def test_a_class_can_change_at_a_later_time() -> None:
    """Existing pods keep their priority; later pods of the class get the new one."""
    (record,) = added(sets=("priorityClass.batch.value=50,at=13ns",))
    assert record.update.priority_class.value == 50
    (pod,) = later(sets=("priorityClass.web.value=70,at=13ns",))
    assert pod.pod_create.pod.spec.priority == 70


def test_a_class_that_does_not_exist_is_created_at_the_time() -> None:
    """Pods name it, and the trace does not create it."""
    (record,) = added(sets=("priorityClass.web.value=70,at=13ns",))
    assert record.create.priority_class.metadata.name == "web"


def test_a_budget_changes_at_a_time() -> None:
    """One that exists is updated."""
    (record,) = added(sets=("pdb.web.minAvailable=2,at=13ns",))
    assert record.update.pod_disruption_budget.spec.min_available.int_value == 2


def test_nodes_can_be_removed_and_added_at_a_later_time() -> None:
    """Deleted and created; a pod that the trace binds to a removed node later is pending."""
    (gone,) = added(drop_nodes="n1,at=13ns")
    assert (gone.delete.object.kind, gone.delete.object.name) == ("Node", "n1")
    gone_nodes = added(scale_nodes=("zone=a:=1,at=13ns",))
    assert len(gone_nodes) == 4
    (clone,) = added(scale_nodes=("+1,at=13ns",))
    assert clone.create.node.metadata.name.startswith("n")
    selected = added(drop_nodes="zone in (a),at=13ns")
    assert {record.delete.object.name for record in selected} == {"n0", "n2", "n4", "n6", "n8"}


def test_several_times_are_one_after_the_other() -> None:
    """Each change keeps its own time."""
    sets = ("priorityClass.batch.value=50", "priorityClass.batch.value=60,at=13ns")
    records = list(Overrides(sets=sets).records(trace, 0))
    values = [
        (record.time_ns, getattr(record, case).priority_class.value)
        for record in records
        if (case := record.WhichOneof("record")) in {"create", "update"}
        and getattr(record, case).HasField("priority_class")
    ]
    assert values == [(2, 50), (AT_NS, 60)]


def test_copies_of_a_template_at_several_times_have_numbers_of_their_own() -> None:
    """Each pod has the class, and the requests, of its own time; the first pod keeps its own."""
    owner = object_pb2.KubernetesObject()
    owner.replica_set.metadata.CopyFrom(meta_pb2.ObjectMeta(name="web", namespace="prod", uid="u"))

    def with_pods() -> Iterator[trace_pb2.Record]:
        yield from trace()
        yield trace_pb2.Record(time_ns=20, sequence=16, create=owner)
        template = trace_pb2.Template(id=1, pod=pod("", tier="back"))
        yield trace_pb2.Record(time_ns=20, sequence=17, template=template)
        for number in range(3):
            create = trace_pb2.PodCreate(template_id=1)
            create.pod.metadata.name, create.pod.metadata.uid = f"web-{number}", f"web-{number}"
            create.pod.metadata.owner_references.add(
                kind="ReplicaSet", name="web", uid="u", controller=True
            )
            yield trace_pb2.Record(
                time_ns=21 + 10 * number, sequence=18 + number, pod_create=create
            )

    changed = [
        f"{option},at={at_ns}ns"
        for at_ns, name in ((25, "system-node-critical"), (35, "system-cluster-critical"))
        for option in (f"replicaset.web.priorityClassName={name}", "pods(tier=back).requests*=2")
    ]
    templates, pods = dict[int, pod_pb2.Pod](), list[tuple[str, str]]()
    for record in Overrides(sets=tuple(changed)).records(with_pods, 0):
        if record.HasField("template"):
            assert record.template.id not in templates
            templates[record.template.id] = record.template.pod
        elif record.pod_create.template_id:
            spec = templates[record.pod_create.template_id].spec
            pods.append((spec.priority_class_name, spec.containers[0].resources.requests["cpu"]))
    assert pods == [("batch", "1"), ("system-node-critical", "2"), ("system-cluster-critical", "4")]


def test_a_time_after_the_last_record_is_reached() -> None:
    """The change is then the last record."""
    records = list(
        Overrides(sets=("statefulset.db.replicas=7,at=98ns",)).records(with_controllers, 0)
    )
    assert records[-1].time_ns == 99
    assert records[-1].update.stateful_set.spec.replicas == 7


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"sets": ("podMaxBackoffSeconds=60,at=1s",)}, "a configuration is that of the whole"),
        ({"sets": ("priorityClass.batch.value=50,at=soon",)}, "at=soon is not a duration"),
        ({"sets": ("priorityClass.batch.value=50,at=1h",)}, "after the end of the recorded window"),
        ({"drop_nodes": "n1,at=1h"}, "--drop-nodes n1,at=1h is after the end"),
        ({"drop_nodes": "n1,at=x"}, "at=x is not a duration"),
        (
            {"sets": ("priorityClass.batch.value=5,at=2ns", "priorityClass.batch.value=6,at=2ns")},
            "set the same field",
        ),
    ],
)
def test_what_cannot_begin_at_a_time_is_refused(options: dict[str, object], problem: str) -> None:
    """With the option."""
    with pytest.raises(OverrideError) as refused:
        list(Overrides(**options).records(trace, 0))  # type: ignore[arg-type] # by name
    assert problem in str(refused.value)


@pytest.mark.parametrize(
    ("former", "more", "begins_ns"),
    [
        ({}, {"fail": ("n1,at=10m",), "drain": ("n2,at=7m",)}, 420 * SECOND_NS),
        ({"fail": ("n1,at=10m",)}, {"fail": ("n1,at=10m", "n2,at=20m")}, 1200 * SECOND_NS),
        ({}, {"sets": ("priorityClass.batch.value=5,at=3s",)}, 3 * SECOND_NS),
        ({}, {"sets": ("priorityClass.batch.value=5",)}, 0),
        ({}, {"drop_nodes": "n1,at=2s", "scale_nodes": ("+1,at=3s",)}, 2 * SECOND_NS),
        ({"fail": ("n1,at=10m",)}, {}, None),
        ({"drop_nodes": "n1"}, {"drop_nodes": "n2,at=2s"}, None),
        ({}, {"arrivals": "cpu=1"}, None),
        ({}, {}, 0),
    ],
)
def test_the_beginning_of_added_overrides_is_found(
    former: dict[str, object], more: dict[str, object], begins_ns: int | None
) -> None:
    """None if they differ by more than options with a time."""
    overrides = Overrides(**more)  # type: ignore[arg-type] # by name
    assert overrides.added_at_ns(Overrides(**former)) == begins_ns  # type: ignore[arg-type] # the same
