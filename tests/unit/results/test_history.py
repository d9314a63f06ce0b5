"""The cluster rebuilt from a run's history."""

from __future__ import annotations

from google.protobuf.empty_pb2 import Empty

from replay.results.run.cluster import ChangeType, ClusterObjects, ClusterState, ObjectChange
from reprieve.kube.v1beta1 import node_pb2, pod_pb2
from reprieve.scheduler.v1beta1 import scheduler_pb2
from services.kube.time import SECOND_NS
from tests.builders import make_node
from tests.unit.results import messages

_POD_KEY = ("Pod", "default", "a")


def _pod_after(*events: scheduler_pb2.Event) -> pod_pb2.Pod:
    history = ClusterObjects()
    for event in events:
        history.take(event)
    pod = history.objects[_POD_KEY]
    assert isinstance(pod, pod_pb2.Pod)
    return pod


def _changes_of(*events: scheduler_pb2.Event) -> list[ObjectChange]:
    history = ClusterObjects()
    return [change for event in events if (change := history.take(event)) is not None]


def test_an_added_object_is_stored_unchanged() -> None:
    """Every field of it is kept."""
    pod = messages.pod_message("a", priority=7)
    assert _pod_after(messages.added(pod)) == pod


def test_a_patch_changes_only_what_it_holds() -> None:
    """A binding leaves the status, a status leaves the node."""
    pod = _pod_after(
        messages.added(messages.pod_message("a")),
        messages.patched("a", node_name="n"),
        messages.patched("a", status=pod_pb2.PodStatus(phase="Running")),
    )
    assert (pod.spec.node_name, pod.status.phase) == ("n", "Running")


def test_a_status_is_replaced_as_a_whole() -> None:
    """Fields that the new version does not set are absent."""
    pod = messages.pod_message("a")
    pod.status.nominated_node_name = "n"
    status = pod_pb2.PodStatus(phase="Pending")
    assert _pod_after(messages.added(pod), messages.patched("a", status=status)).status == status


def test_a_requested_deletion_sets_the_timestamp() -> None:
    """The pod terminates, and is still there."""
    pod = _pod_after(
        messages.added(messages.pod_message("a")), messages.patched("a", deletion_s=30)
    )
    assert pod.metadata.deletion_timestamp.seconds == messages.START_NS // 10**9 + 30


def test_changes_come_in_order_with_their_verbs() -> None:
    """As in a watch; a deletion has the last state."""
    changes = _changes_of(
        messages.added(messages.pod_message("a")),
        messages.patched("a", 5, node_name="n"),
        messages.deleted("a", 9),
    )
    seen = [(change.at_ns - messages.START_NS, change.type, change.key) for change in changes]
    assert seen == [
        (0, ChangeType.ADDED, _POD_KEY),
        (5 * SECOND_NS, ChangeType.MODIFIED, _POD_KEY),
        (9 * SECOND_NS, ChangeType.DELETED, _POD_KEY),
    ]


def test_an_object_that_is_added_again_is_modified() -> None:
    """An object may be sent a second time."""
    node = make_node("n").message()
    changes = _changes_of(messages.added(node), messages.added(node))
    assert [change.type for change in changes] == [ChangeType.ADDED, ChangeType.MODIFIED]


def test_a_name_that_is_used_again_is_another_pod() -> None:
    """Patches go by UID, so that one for the former pod changes nothing."""
    history = ClusterObjects()
    again = messages.pod_message("a")
    again.metadata.uid = "uid-again"
    events = (
        messages.added(messages.pod_message("a")),
        messages.deleted("a"),
        messages.added(again),
    )
    for event in events:
        history.take(event)
    assert history.take(messages.patched("a", node_name="n")) is None
    assert history.objects[_POD_KEY] == again


def test_what_changes_no_object_is_passed_over() -> None:
    """Ticks, patches of unknown pods and deletions of unknown objects tell nothing."""
    tick = scheduler_pb2.Event(tick=Empty())
    events = (tick, messages.patched("b"), messages.deleted("b"), scheduler_pb2.Event())
    assert _changes_of(*events) == []


def test_the_state_has_what_nodes_pods_request_until_they_end() -> None:
    """A pod waits, is bound by a patch, and ends with another."""
    node, pod = node_pb2.Node(), messages.pod_message("a")
    node.metadata.name = "n"
    node.status.allocatable.update({"cpu": "4", "pods": "10"})
    pod.spec.containers[0].resources.requests["cpu"] = "1"
    state = ClusterState()
    state.take(messages.added(node))
    state.take(messages.added(pod))
    assert list(state.waiting) == ["uid-a"]
    state.take(messages.patched("a", node_name="n"))
    assert not state.waiting
    assert state.nodes["n"].requested == {"cpu": 1000, "pods": 1}
    assert state.nodes["n"].free("cpu") == 3000
    state.take(messages.patched("a", status=pod_pb2.PodStatus(phase="Succeeded")))
    assert not state.pods
    assert state.nodes["n"].requested == {"cpu": 0, "pods": 0}
