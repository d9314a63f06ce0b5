"""What a restored scheduler needs beside its objects: rows, and what plugins reserved."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from services.framework.plugins.volume_binding.plugin import VolumeBinding
from services.framework.snapshot.snapshot import Snapshot
from services.framework.volumes.claims import SELECTED_NODE
from services.kube.pod import Pod
from services.kube.storage import BindingMode, PersistentVolumeClaim, StorageClass
from services.kube.volumes import ClaimSource, Volume
from tests.builders import make_node, make_pod


def with_holes() -> Snapshot:
    """Return a snapshot of 20 nodes of which three went, two of their rows being free."""
    snapshot = Snapshot()
    for number in range(20):
        snapshot.set_node(make_node(f"n{number}").capacity({"cpu": "4", "pods": "9"}).obj())
    pod = make_pod("stays").req({"cpu": "1", "example.com/card": "1"}).node("n3").obj()
    snapshot.set_pod(pod)
    for name in ("n3", "n5", "n17"):
        snapshot.remove_node(name)
    return snapshot


def test_a_snapshot_laid_out_like_another_gives_new_nodes_the_same_rows() -> None:
    """Also where rows are free, and where a node has gone whose pods are still there."""
    first, second = with_holes(), Snapshot()
    second.lay_out(first.layout())
    for row in first.listed_rows():
        second.set_node(first.node(row))
    second.set_pod(first.pods_on(first.layout().rows[3][1])[0])
    assert second.layout() == first.layout()
    assert second.columns.requested.tolist() == first.columns.requested.tolist()
    for name in ("n3", "new", "newer", "newest"):
        for snapshot in (first, second):
            snapshot.set_node(make_node(name).obj())
        assert second.row(name) == first.row(name)


def test_rows_that_are_not_a_snapshots_are_refused() -> None:
    """A row cannot be free and taken, nor missing."""
    layout = with_holes().layout()
    broken = type(layout)(
        capacity=layout.capacity,
        used=layout.used,
        resources=layout.resources,
        rows=layout.rows[1:],
        free=layout.free,
    )
    with pytest.raises(ValueError, match="not those of a snapshot"):
        Snapshot().lay_out(broken)


def claiming_pod() -> Pod:
    """Return a pod that uses the claim."""
    pod = make_pod("p").obj()
    volume = Volume(name="v", source=ClaimSource(claim_name="c"))
    return replace(pod, spec=replace(pod.spec, volumes=(volume,)))


def claiming() -> tuple[Snapshot, PersistentVolumeClaim]:
    """Return a node, a class that waits for a consumer, and a claim of it."""
    snapshot = Snapshot()
    snapshot.set_node(make_node("n").capacity({"cpu": "4", "pods": "9"}).obj())
    claim = PersistentVolumeClaim(namespace="default", name="c", storage_class_name="late")
    late = StorageClass(
        name="late", provisioner="p", binding_mode=BindingMode.WAIT_FOR_FIRST_CONSUMER
    )
    for obj in (late, claim):
        snapshot.catalog.put(obj)
    return snapshot, claim


def test_restored_reservations_can_be_unreserved() -> None:
    """Through JSON, as a checkpoint does; the restored catalog holds the claim as it was sent."""
    snapshot, claim = claiming()
    pod = claiming_pod()
    plugin = VolumeBinding()
    row = snapshot.row("n")
    assert row is not None
    assert plugin.reserve(pod, row, snapshot) is None
    assert snapshot.catalog.claims[claim.key].annotations == {SELECTED_NODE: "n"}
    saved = json.loads(json.dumps(plugin.saved_state(snapshot)))
    restored, _ = claiming()
    other = VolumeBinding()
    other.restore_state(saved, restored)
    assert restored.catalog.claims == snapshot.catalog.claims
    other.unreserve(pod, row, restored)
    assert restored.catalog.claims[claim.key] == claim


def test_what_was_sent_again_is_not_released_after_a_restore() -> None:
    """The claim that the cluster told since is nobody's to change."""
    snapshot, _ = claiming()
    plugin, pod = VolumeBinding(), claiming_pod()
    row = snapshot.row("n")
    assert row is not None
    plugin.reserve(pod, row, snapshot)
    snapshot.catalog.put(PersistentVolumeClaim(namespace="default", name="c", volume_name="v"))
    assert plugin.saved_state(snapshot) == [[pod.uid, []]]
