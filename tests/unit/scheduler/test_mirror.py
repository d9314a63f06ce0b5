"""The scheduler's mirror of its queue knows which pods an event may move."""

from __future__ import annotations

from services.framework.snapshot.snapshot import Snapshot
from services.kube.pod import Pod, PodSpec
from services.scheduler.core.queueing.mirror import QUEUE_TRAITS, QueueMirror
from services.scheduler.core.queueing.steps import EventLabel

POD = Pod(uid="uid-p", namespace="default", name="p", spec=PodSpec())


def test_a_gated_pod_is_not_moved_by_an_event_before_its_gate_opens() -> None:
    """Even one that was never tried: a pop may be undone while its gate closes."""
    gates = ["DynamicResources", ""]
    mirror = QueueMirror(Snapshot().nominations, QUEUE_TRAITS["v1.34"], lambda _pod: gates[0])

    def may_move(event: EventLabel) -> bool:
        return mirror.pending.may_move(event, in_flight=False)

    mirror.pending.put(POD.uid, waits_for_pods=False)
    assert not may_move(EventLabel.RESOURCE_CLAIM_ADD)
    mirror.gate_changed(POD)
    assert not may_move(EventLabel.RESOURCE_CLAIM_ADD)
    del gates[0]
    mirror.gate_changed(POD)
    assert may_move(EventLabel.RESOURCE_CLAIM_ADD)
    assert not may_move(EventLabel.ASSIGNED_POD_ADD)
    mirror.pending.bound(POD.uid)
    assert not may_move(EventLabel.RESOURCE_CLAIM_ADD)
