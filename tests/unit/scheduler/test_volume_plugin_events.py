"""What moves pods that wait for volumes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from services.kube.storage import (
    BindingMode,
    CsiNode,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from services.kube.workloads import Namespace
from services.scheduler.core.queueing.changes import V1_20, V1_34, CatalogEvents, on_object
from services.scheduler.core.queueing.mirror import QUEUE_TRAITS
from services.scheduler.core.queueing.steps import Move
from services.scheduler.core.session.options import RULES, SchedulerOptions
from services.scheduler.core.session.scheduler import Scheduler

CLAIM = PersistentVolumeClaim(namespace="default", name="c")
IMMEDIATE = StorageClass(name="s")
WAITING = replace(IMMEDIATE, binding_mode=BindingMode.WAIT_FOR_FIRST_CONSUMER)
ATTACHMENT = VolumeAttachment(name="a")


def label(events: CatalogEvents, *, old: object = None, new: object = None) -> str:
    """Return the label of the move that a change causes, "" if none."""
    moves = on_object(old, new, events)  # type: ignore[arg-type]  # any kept value
    return moves[0].label if moves else ""


@pytest.mark.parametrize(
    ("old", "new", "v1_34", "v1_20"),
    [
        (None, CLAIM, "PersistentVolumeClaimAdd", "PvcAdd"),
        (CLAIM, replace(CLAIM, volume_name="pv"), "PersistentVolumeClaimUpdate", "PvcUpdate"),
        (CLAIM, None, "", ""),
        (None, IMMEDIATE, "StorageClassAdd", ""),
        (None, WAITING, "StorageClassAdd", "StorageClassAdd"),
        (WAITING, WAITING, "StorageClassUpdate", ""),
        (None, CsiNode(name="n"), "CSINodeAdd", "CSINodeAdd"),
        (None, ATTACHMENT, "", ""),
        (ATTACHMENT, None, "VolumeAttachmentDelete", ""),
        (None, Namespace(name="n"), "", ""),
    ],
)
def test_a_change_of_an_object_moves_pods_as_the_queues_version_does(
    old: object, new: object, v1_34: str, v1_20: str
) -> None:
    """By the events that its plugins register."""
    assert (label(V1_34, old=old, new=new), label(V1_20, old=old, new=new)) == (v1_34, v1_20)


def test_the_scheduler_sends_the_old_version_of_an_object() -> None:
    """An unknown one that goes is passed over."""
    scheduler = Scheduler(SchedulerOptions(rules=RULES["v1.34"], queue=QUEUE_TRAITS["v1.34"]))
    later = replace(CLAIM, volume_name="pv")
    steps = [*scheduler.put_object(CLAIM), *scheduler.put_object(later)]
    assert [(step.old, step.new) for step in steps if isinstance(step, Move)] == [
        (None, CLAIM),
        (CLAIM, later),
    ]
    assert scheduler.remove_object("PersistentVolumeClaim", "default", "unknown") == []
    scheduler.remove_object("PersistentVolumeClaim", "default", "c")
    assert scheduler.snapshot.catalog.claims == {}
