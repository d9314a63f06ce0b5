"""Trace records to changes of the cluster."""

from __future__ import annotations

import pytest

from reprieve.kube.v1beta1 import meta_pb2, object_pb2, storage_pb2
from reprieve.trace.v1beta1 import trace_pb2
from tests.unit.world.builders import (
    S,
    World,
    create,
    create_pod,
    delete,
    make_budget,
    make_class,
    make_deployment,
    make_node,
    make_pod,
    make_replica_set,
    update,
)


def template(id_: int = 1) -> trace_pb2.Record:
    """Return a template's record."""
    record = trace_pb2.Record(template=trace_pb2.Template(id=id_, pod=make_pod(labels={"a": "1"})))
    record.template.pod.metadata.ClearField("uid")
    record.template.pod.spec.priority = 7
    return record


def of_template(id_: int, name: str) -> trace_pb2.Record:
    """Return the creation of a pod from a template."""
    record = trace_pb2.Record()
    record.pod_create.template_id = id_
    record.pod_create.pod.metadata.name = name
    record.pod_create.pod.metadata.labels["b"] = "2"
    return record


def test_a_pod_of_a_template_has_its_own_metadata_over_the_templates() -> None:
    """Labels are united; namespace and UID are given where the trace has none."""
    world = World()
    world.feed(5 * S, template(), of_template(1, "q"))
    pod = world.pod("q")
    meta = pod.message.metadata
    assert dict(meta.labels) == {"a": "1", "b": "2"}
    assert (pod.priority, meta.namespace, len(pod.uid)) == (7, "default", 36)
    assert meta.creation_timestamp.ToNanoseconds() == 5 * S
    assert "q" in [pod.message.metadata.name for pod in world.cluster.pending.values()]


def test_pods_of_a_template_have_the_usage_that_is_recorded_for_it() -> None:
    """Those of a template without a usage profile have none."""
    world = World()
    usage = trace_pb2.Record(usage=trace_pb2.UsageProfile(id=4, template_id=1))
    world.feed(0, template(), template(2), usage, of_template(1, "p"), of_template(2, "q"))
    assert (world.pod("p").life.usage_id, world.pod("q").life.usage_id) == (4, 0)


def test_a_template_that_is_missing_refuses_the_pod() -> None:
    """Nothing is guessed."""
    world = World()
    world.feed(0, of_template(9, "q"))
    assert world.refusals() == ["template 9 is not in the trace"]
    assert world.names() == []


@pytest.mark.parametrize(
    "record",
    [
        create(make_node()),
        create_pod(make_pod(priority=None)),
        create(make_budget(min_available=1)),
        create(make_class("c", 1)),
        create(make_replica_set()),
        create(make_deployment()),
        template(),
        of_template(1, "q"),
        trace_pb2.Record(observed=trace_pb2.Observed(resource_version="1")),
        trace_pb2.Record(marker=trace_pb2.Marker(name="m")),
        trace_pb2.Record(usage=trace_pb2.UsageProfile(id=1)),
    ],
    ids=lambda record: record.WhichOneof("record"),
)
def test_a_record_is_never_changed(record: trace_pb2.Record) -> None:
    """A trace may be fed twice, and its messages are shared."""
    world = World()
    world.feed(0, template())
    before = record.SerializeToString(deterministic=True)
    world.feed(S, record)
    for pod in list(world.cluster.pods.values()):
        world.lifecycle.delete(S, pod, None, "deleted")
    for node in world.cluster.nodes.values():
        node.spec.unschedulable = True
    assert record.SerializeToString(deterministic=True) == before


def test_other_objects_are_reported_and_not_read() -> None:
    """Added, updated, deleted."""
    world = World()
    service = object_pb2.KubernetesObject()
    service.service.metadata.name = "s"
    world.feed(0, trace_pb2.Record(create=service), trace_pb2.Record(update=service))
    world.feed(1, delete("Service", "s"))
    assert world.events() == ["add", "update", "remove"]


@pytest.mark.parametrize(
    "record",
    [
        create(make_class("system-x", 1)),
        create(make_budget(min_available="many")),
        create_pod(make_pod("taken")),
        trace_pb2.Record(create=object_pb2.KubernetesObject()),
    ],
    ids=["class", "budget", "pod", "nothing"],
)
def test_a_refused_object_changes_nothing(record: trace_pb2.Record) -> None:
    """One note, no event."""
    world = World()
    world.feed(0, create_pod(make_pod("taken")))
    world.events()
    world.feed(1, record)
    assert len(world.refusals()) == 1
    assert (world.events(), world.names(), world.cluster.budgets) == ([], ["taken"], {})


def test_issues_of_the_importer_are_counted() -> None:
    """0 stands for one."""
    world = World()
    for count in (0, 3):
        issue = trace_pb2.ImportIssue(kind="guess", message="m", count=count)
        world.feed(0, trace_pb2.Record(issue=issue))
    assert world.journal.notes["guess", "m"] == 4


def test_a_pod_can_be_a_plain_object_without_a_template() -> None:
    """It runs until it is deleted."""
    world = World()
    world.feed(0, create(make_pod()))
    assert world.names() == ["p"]


def test_an_updated_pod_keeps_what_the_system_owns() -> None:
    """UID, times, node, priority and status; the rest is the user's."""
    world = World()
    pod = make_pod(node="n", priority=5, ready=True)
    world.feed(2 * S, create(make_node()), create_pod(pod))
    world.feed(3 * S, delete("Pod", "p"))
    changed = make_pod(labels={"new": "1"}, priority=None)
    changed.metadata.uid = "another"
    world.feed(4 * S, update(changed))
    message = world.pod("p").message
    assert (message.metadata.uid, message.spec.node_name, message.spec.priority) == (
        "uid-p",
        "n",
        5,
    )
    assert message.status.phase == "Running"
    assert message.metadata.deletion_timestamp.ToNanoseconds() == 33 * S
    assert message.metadata.deletion_grace_period_seconds == 30
    assert message.metadata.creation_timestamp.ToNanoseconds() == 2 * S
    assert message.metadata.labels["new"] == "1"


def test_an_update_of_a_pod_that_has_gone_is_passed_over() -> None:
    """In this run it may have been preempted."""
    world = World()
    world.feed(0, update(make_pod()))
    assert (world.names(), world.events(), world.refusals()) == ([], [], [])


def test_a_gated_pod_is_pending_only_after_its_gates_are_removed() -> None:
    """It is not pending before."""
    world = World()
    gated = make_pod()
    gated.spec.scheduling_gates.add(name="g")
    world.feed(0, create_pod(gated))
    assert world.cluster.pending == {}
    assert world.pod("p").message.status.conditions[0].reason == "SchedulingGated"
    world.feed(1, update(make_pod()))
    assert list(world.cluster.pending) == ["uid-p"]


def test_pods_of_other_schedulers_and_pods_that_have_ended_are_never_pending() -> None:
    """They are reported all the same."""
    world = World()
    other, ended, ending = make_pod("a"), make_pod("b"), make_pod("c")
    other.spec.scheduler_name = "other"
    ended.status.phase = "Failed"
    ending.metadata.deletion_timestamp.FromSeconds(1)
    world.feed(0, create_pod(other), create_pod(ended), create_pod(ending))
    assert (world.cluster.pending, world.events()) == ({}, ["add"] * 3)
    world.feed(1, update(make_pod("b")))
    assert world.cluster.pending == {}


def test_a_pod_counts_for_its_new_owner() -> None:
    """Orphaned, it is replaced."""
    world = World()
    world.feed(0, create_pod(make_pod(owner="web")), create(make_replica_set()))
    world.feed(1, update(make_pod()))
    assert len(world.names()) == 2
    assert "uid-p" not in world.cluster.pods_by_owner["uid-web"]


def test_a_node_is_added_once_and_then_updated() -> None:
    """And its deletion is reported once."""
    world = World()
    world.feed(0, create(make_node()), update(make_node(memory="8Gi")))
    world.feed(1, delete("Node", "n"), delete("Node", "n"))
    assert world.events() == ["add", "update", "remove"]
    assert world.cluster.nodes == {}


def test_an_object_without_a_namespace_is_of_the_default_one() -> None:
    """Creations and deletions alike."""
    world = World()
    pod, budget = make_pod(labels={"app": "web"}), make_budget(min_available=1)
    pod.metadata.namespace = budget.metadata.namespace = ""
    world.feed(0, create_pod(pod), create(budget))
    assert world.status().expected_pods == 1
    ref = meta_pb2.ObjectReference(kind="Pod", name="p")
    world.feed(1, trace_pb2.Record(delete=trace_pb2.Delete(object=ref)))
    assert world.names() == []


def test_an_objects_version_counts_its_own_changes() -> None:
    """From 1, whatever the trace says, and whatever happens to other objects."""
    world = World()
    claim = storage_pb2.PersistentVolumeClaim()
    claim.metadata.name, claim.metadata.resource_version = "c", "x7"
    budget, recorded = make_budget(min_available=1), make_pod()
    recorded.metadata.resource_version = "48213"
    world.feed(0, create(make_node()), create_pod(recorded), create(budget), create(claim))
    world.feed(1, update(recorded), update(make_node()), update(budget), update(claim))
    world.feed(2, update(recorded), create_pod(make_pod("q")))
    world.cluster.bind(2, world.pod("p"), "n")
    ref = meta_pb2.ObjectReference(kind="PersistentVolumeClaim", name="c")
    world.feed(3, trace_pb2.Record(delete=trace_pb2.Delete(object=ref)), create(claim))
    versions: dict[str, list[str]] = {}
    for event in world.cluster.take_events():
        if event.HasField("patch"):
            versions[event.patch.pod.name].append(event.patch.resource_version)
        elif not event.HasField("remove"):
            change = event.add if event.HasField("add") else event.update
            meta = getattr(change, change.WhichOneof("object") or "").metadata
            versions.setdefault(meta.name, []).append(meta.resource_version)
    assert versions == {
        "n": ["1", "2"],
        "p": ["1", "2", "3", "4"],
        "b": ["1", "2", "3"],
        "c": ["1", "2", "1"],
        "q": ["1"],
    }
