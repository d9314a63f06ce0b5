"""What the scheduler sends to its queue, event by event, in both of the queue's vocabularies."""

from __future__ import annotations

from dataclasses import replace

import pytest

from services.framework.snapshot.snapshot import Snapshot
from services.kube.pod import Pod, PodPhase
from services.scheduler.core.queueing import events
from services.scheduler.core.queueing.events import (
    EventHandlers,
    PodEffects,
    SnapshotChange,
    on_node_added,
    on_node_deleted,
    on_node_updated,
    on_pod,
)
from services.scheduler.core.queueing.mirror import QUEUE_TRAITS, QueueMirror
from services.scheduler.core.queueing.steps import (
    AssignedPodAdd,
    AssignedPodUpdate,
    EventLabel,
    Move,
    QueueAdd,
    QueueDelete,
    QueueUpdate,
)
from tests.builders import NodeBuilder, PodBuilder, make_node, make_pod

NEW, OLD = events.V1_34, events.V1_20
BOTH = pytest.mark.parametrize("handlers", [NEW, OLD], ids=["v1.34", "v1.20"])


def pod(version: str = "1") -> PodBuilder:
    """Start the pod that things happen to."""
    return make_pod("p").priority(7).resource_version(version)


def happened(
    handlers: EventHandlers,
    old: PodBuilder | None,
    new: PodBuilder | None,
    *,
    assumed: Pod | None = None,
    waits_on_permit: bool = False,
) -> PodEffects:
    """Let a pod's event happen to the default scheduler."""
    return on_pod(
        None if old is None else old.obj(),
        None if new is None else new.obj(),
        handlers=handlers,
        scheduler_names=("default-scheduler",),
        assumed=assumed,
        waits_on_permit=waits_on_permit,
    )


@BOTH
def test_a_new_pod_goes_to_the_queue(handlers: EventHandlers) -> None:
    """The snapshot does not know it."""
    came = pod().obj()
    effects = on_pod(None, came, handlers=handlers, scheduler_names=("default-scheduler",))
    assert effects.snapshot is SnapshotChange.NONE
    assert effects.operations == (QueueAdd(pod=came),)


@BOTH
def test_a_pod_of_another_scheduler_is_never_queued(handlers: EventHandlers) -> None:
    """It still takes its node's room once it is there."""
    theirs, bound = pod().scheduler("other"), pod("2").scheduler("other").node("n")
    assert happened(handlers, None, theirs).operations == ()
    assert happened(handlers, theirs, None).operations == ()
    effects = happened(handlers, theirs, bound)
    assert effects.snapshot is SnapshotChange.ADD
    assert len(effects.operations) == 1


def test_an_assigned_pod_moves_pods_or_lets_an_older_queue_choose() -> None:
    """The same event in two vocabularies."""
    bound = pod().node("n")
    new, old = happened(NEW, None, bound), happened(OLD, None, bound)
    assert new.operations == (Move(event=EventLabel.ASSIGNED_POD_ADD, new=bound.obj()),)
    assert old.operations == (AssignedPodAdd(pod=bound.obj()),)
    assert new.snapshot is old.snapshot is SnapshotChange.ADD


@BOTH
def test_a_bound_pod_leaves_the_queue_after_the_snapshot_has_it(handlers: EventHandlers) -> None:
    """The handler of assigned pods comes first."""
    waiting, bound = pod(), pod("2").node("n")
    effects = happened(handlers, waiting, bound)
    assert effects.snapshot is SnapshotChange.ADD
    assert effects.operations[1:] == (QueueDelete(pod=waiting.obj()),)


def test_binding_a_nominated_pod_wakes_pods_of_at_most_its_priority_in_v1_34() -> None:
    """Its nomination ends there too."""
    waiting, bound = pod().nominated("n"), pod("2").nominated("n").node("n")
    woken = Move(event=EventLabel.ASSIGNED_POD_DELETE, old=waiting.obj(), priority_at_most=7)
    assert happened(NEW, waiting, bound).operations[2:] == (woken,)
    assert happened(OLD, waiting, bound).operations[2:] == ()
    assert happened(events.V1_36, waiting, bound).operations[2:] == ()
    assert happened(events.V1_36, waiting, None).operations[1:] == (woken,)


@BOTH
def test_an_assigned_pod_that_goes_moves_all(handlers: EventHandlers) -> None:
    """Its room is free."""
    bound = pod().node("n")
    effects = happened(handlers, bound, None)
    assert effects.snapshot is SnapshotChange.DELETE
    assert effects.operations == (Move(event=EventLabel.ASSIGNED_POD_DELETE, old=bound.obj()),)


@BOTH
@pytest.mark.parametrize("phase", [PodPhase.SUCCEEDED, PodPhase.FAILED])
def test_a_finished_pod_frees_its_node(handlers: EventHandlers, phase: PodPhase) -> None:
    """What happens to it later is not seen."""
    running, finished = pod().node("n"), pod("2").node("n").phase(phase)
    effects = happened(handlers, running, finished)
    assert effects.snapshot is SnapshotChange.DELETE
    assert effects.operations == (Move(event=EventLabel.ASSIGNED_POD_DELETE, old=running.obj()),)
    for later in (happened(handlers, finished, None), happened(handlers, None, finished)):
        assert (later.snapshot, later.operations) == (SnapshotChange.NONE, ())


@BOTH
def test_a_waiting_pod_that_fails_leaves_the_queue(handlers: EventHandlers) -> None:
    """Such as one that an admission check failed."""
    waiting = pod()
    effects = happened(handlers, waiting, pod("2").phase(PodPhase.FAILED))
    assert effects.operations == (QueueDelete(pod=waiting.obj()),)


@BOTH
def test_a_changed_waiting_pod_updates_the_queue(handlers: EventHandlers) -> None:
    """The same resource version again is no change."""
    before, after = pod().obj(), pod("2").label("a", "b").obj()
    names = ("default-scheduler",)
    effects = on_pod(before, after, handlers=handlers, scheduler_names=names)
    assert effects.operations == (QueueUpdate(old=before, new=after),)
    again = on_pod(before, before, handlers=handlers, scheduler_names=names)
    assert again.operations == ()


def test_a_changed_nomination_frees_its_old_node_in_v1_34() -> None:
    """For pods of at most the priority of the pod that had it; a first nomination frees nothing."""
    before, after = pod().nominated("n").obj(), pod("2").nominated("m").obj()
    names = ("default-scheduler",)
    effects = on_pod(before, after, handlers=NEW, scheduler_names=names)
    assert effects.operations == (
        QueueUpdate(old=before, new=after),
        Move(event=EventLabel.ASSIGNED_POD_DELETE, old=before, priority_at_most=7),
    )
    assert len(on_pod(before, after, handlers=OLD, scheduler_names=names).operations) == 1
    same = replace(after, nominated_node_name="n")
    assert len(on_pod(before, same, handlers=NEW, scheduler_names=names).operations) == 1
    plain = replace(before, nominated_node_name="")
    assert len(on_pod(plain, after, handlers=NEW, scheduler_names=names).operations) == 1


def test_an_assumed_pods_update_is_dropped() -> None:
    """v1.20 drops it only where nothing but unimportant fields differ."""
    before = pod().obj()
    assumed = replace(before, node_name="n")
    status = replace(before, resource_version="2", annotations={"a": "b"})
    label = replace(before, resource_version="2", labels={"a": "b"})
    names = ("default-scheduler",)

    def update(handlers: EventHandlers, after: Pod) -> int:
        effects = on_pod(before, after, handlers=handlers, scheduler_names=names, assumed=assumed)
        return len(effects.operations)

    assert [update(NEW, status), update(NEW, label)] == [0, 0]
    assert [update(OLD, status), update(OLD, label)] == [0, 1]


def test_a_deleted_pod_that_permit_holds_moves_all_in_v1_34() -> None:
    """Its nomination adds nothing to that."""
    waiting = pod().nominated("n")
    effects = happened(NEW, waiting, None, waits_on_permit=True)
    assert effects.operations == (
        QueueDelete(pod=waiting.obj()),
        Move(event=EventLabel.ASSIGNED_POD_DELETE, old=waiting.obj()),
    )
    assert len(happened(OLD, waiting, None, waits_on_permit=True).operations) == 1


def test_each_change_of_an_assigned_pod_is_an_event_in_v1_34() -> None:
    """A change of nothing that matters is a general update."""
    base = pod().node("n").req(cpu="2").gates("g")
    spec = base.obj().spec
    before = base.obj()
    after = replace(
        before,
        labels={"a": "b"},
        spec=pod().req(cpu="1").toleration("k").obj().spec,
        resource_version="2",
    )
    names = ("default-scheduler",)
    effects = on_pod(before, after, handlers=NEW, scheduler_names=names)
    assert [operation.event for operation in effects.operations if isinstance(operation, Move)] == [
        EventLabel.ASSIGNED_POD_LABEL_CHANGE,
        EventLabel.ASSIGNED_POD_SCALE_DOWN,
        EventLabel.ASSIGNED_POD_GATES_ELIMINATED,
        EventLabel.ASSIGNED_POD_TOLERATION_CHANGE,
    ]
    ungated = replace(before, spec=pod().req(cpu="2").obj().spec)
    same = on_pod(
        ungated, replace(ungated, resource_version="2"), handlers=NEW, scheduler_names=names
    )
    assert [operation.event for operation in same.operations if isinstance(operation, Move)] == [
        EventLabel.ASSIGNED_POD_UPDATE
    ]
    started = replace(before, start_time_ns=5, spec=spec)
    general = on_pod(before, started, handlers=NEW, scheduler_names=names)
    assert general.operations == (
        Move(event=EventLabel.ASSIGNED_POD_UPDATE, old=before, new=started),
    )
    older = on_pod(before, started, handlers=OLD, scheduler_names=names)
    assert older.operations == (AssignedPodUpdate(old=before, new=started),)
    assert older.snapshot is SnapshotChange.UPDATE


@BOTH
def test_a_pod_recreated_under_its_name_goes_and_comes(handlers: EventHandlers) -> None:
    """A merged delete and add is told by the UID."""
    before, after = pod().node("n").obj(), pod("2").uid("another").obj()
    effects = on_pod(before, after, handlers=handlers, scheduler_names=("default-scheduler",))
    assert effects.replaced == before
    assert effects.snapshot is SnapshotChange.NONE
    assert effects.operations == (
        Move(event=EventLabel.ASSIGNED_POD_DELETE, old=before),
        QueueAdd(pod=after),
    )


def changed_node() -> tuple[NodeBuilder, NodeBuilder]:
    """Start a node before and after it changed in every way."""
    before = make_node("n").capacity(cpu="1").unschedulable().taint("t").condition("Ready", "False")
    after = make_node("n").capacity(cpu="2").label("a", "b").condition("Ready")
    return before, after


def test_all_of_a_nodes_changes_are_reported_in_v1_34_and_the_first_in_v1_20() -> None:
    """Uncordoning is a change of taints in v1.34 and of its own in v1.20."""
    before, after = (builder.obj() for builder in changed_node())
    after = replace(after, annotations={"a": "b"})
    new = on_node_updated(before, after, handlers=NEW)
    assert [operation.label for operation in new if isinstance(operation, Move)] == [
        "NodeTaintChange",
        "NodeAllocatableChange",
        "NodeLabelChange",
        "NodeTaintChange",
        "NodeConditionChange",
        "NodeAnnotationChange",
    ]
    old = on_node_updated(before, after, handlers=OLD)
    assert [operation.label for operation in old if isinstance(operation, Move)] == [
        "NodeSpecUnschedulableChange"
    ]


@BOTH
def test_cordoning_and_heartbeats_move_nothing(handlers: EventHandlers) -> None:
    """Only a condition's status counts, and only uncordoning."""
    before = make_node("n").condition("Ready").obj()
    beat = replace(before.conditions[0], last_transition_ns=5, message="fine")
    assert not on_node_updated(before, replace(before, conditions=(beat,)), handlers=handlers)
    assert not on_node_updated(before, replace(before, unschedulable=True), handlers=handlers)


def test_an_annotation_of_a_node_counts_in_v1_34_only() -> None:
    """v1.20 does not look at it."""
    before = make_node("n").obj()
    after = replace(before, annotations={"a": "b"})
    assert len(on_node_updated(before, after, handlers=NEW)) == 1
    assert not on_node_updated(before, after, handlers=OLD)


def test_a_node_that_comes_moves_all_and_one_that_goes_does_in_v1_34_only() -> None:
    """Labels are upstream's."""
    node = make_node("n").obj()
    assert on_node_added(node) == (Move(event=EventLabel.NODE_ADD, new=node),)
    assert on_node_deleted(node, handlers=NEW) == (Move(event=EventLabel.NODE_DELETE, old=node),)
    assert on_node_deleted(node, handlers=OLD) == ()


def test_a_failed_binding_moves_all_but_its_pod() -> None:
    """The room that it was to take is free again, on the node that a hint requests."""
    pending = pod().obj()
    assumed = replace(pending, node_name="n")
    move = Move(event=EventLabel.ASSIGNED_POD_DELETE, old=assumed, all_but_uid=assumed.uid)
    for version, moves in (("v1.20", ()), ("v1.34", (move,))):
        mirror = QueueMirror(Snapshot().nominations, QUEUE_TRAITS[version], lambda _pod: "")
        assert mirror.after_failed_binding(pending, "n") == moves
