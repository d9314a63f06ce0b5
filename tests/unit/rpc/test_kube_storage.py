"""Storage objects, services and controllers are decoded; invalid fields are refused."""

from __future__ import annotations

from typing import Any

import pytest

from reprieve.kube.v1beta1 import pod_pb2, storage_pb2, workloads_pb2
from reprieve.kube.v1beta1.affinity_pb2 import TopologySpreadConstraint
from services.kube import storage
from services.kube.selector import LabelSelector, Operator, Requirement
from services.kube.volumes import CsiSource, GcePersistentDisk
from services.kube.workloads import ControllerKind
from services.rpc.errors import FieldError
from services.rpc.kube import codec
from services.rpc.kube import spec as kube_affinity
from services.rpc.kube import storage as kube_storage
from services.rpc.kube import storage as kube_volumes
from services.rpc.kube.json_codec import parse

GIB = 1 << 30


def test_a_persistent_volume_is_read() -> None:
    """Its size in bytes, its claim, where it can be reached."""
    terms = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]
    message = parse(
        storage_pb2.PersistentVolume,
        {
            "metadata": {"name": "pv", "deletionTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {
                "capacity": {"storage": "2Gi"},
                "accessModes": ["ReadWriteOnce"],
                "claimRef": {"namespace": "ns", "name": "c", "uid": "u"},
                "csi": {"driver": "d", "volumeHandle": "h"},
                "volumeMode": "Block",
                "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
            },
            "status": {"phase": "Bound"},
        },
    )
    volume = kube_storage.persistent_volume_from_message(message)
    assert volume.capacity_bytes == 2 * GIB
    assert volume.claim_ref == storage.ClaimRef(namespace="ns", name="c", uid="u")
    assert volume.source == CsiSource(driver="d", volume_handle="h")
    assert (volume.volume_mode, volume.phase) == (
        storage.VolumeMode.BLOCK,
        storage.VolumePhase.BOUND,
    )
    assert volume.node_affinity is not None
    assert volume.node_affinity.matches({"zone": "a"}, "n")
    assert volume.deletion_ns == 1_767_225_600_000_000_000


def test_a_volume_with_few_fields_has_the_defaults() -> None:
    """Every node reaches it; a source that no plugin reads is none."""
    message = parse(storage_pb2.PersistentVolume, {"spec": {"hostPath": {"path": "/x"}}})
    volume = kube_storage.persistent_volume_from_message(message)
    assert (volume.source, volume.node_affinity, volume.claim_ref) == (None, None, None)
    assert volume.volume_mode is storage.VolumeMode.FILESYSTEM
    assert volume.phase is storage.VolumePhase.NONE


@pytest.mark.parametrize(
    ("annotations", "spec", "name"),
    [
        ({}, {}, ""),
        ({}, {"storageClassName": "fast"}, "fast"),
        ({storage.CLASS_ANNOTATION_BETA: "old"}, {"storageClassName": "fast"}, "old"),
    ],
)
def test_the_old_annotation_names_a_claims_class_first(
    annotations: dict[str, str], spec: dict[str, Any], name: str
) -> None:
    """An absent class is None, which differs from an empty one."""
    message = parse(
        storage_pb2.PersistentVolumeClaim, {"metadata": {"annotations": annotations}, "spec": spec}
    )
    claim = kube_storage.claim_from_message(message)
    assert claim.class_name == name
    assert claim.storage_class_name == spec.get("storageClassName")


def test_a_storage_class_binds_immediately_by_default() -> None:
    """Its topologies are terms of requirements."""
    plain = kube_storage.storage_class_from_message(parse(storage_pb2.StorageClass, {}))
    assert plain.binding_mode is storage.BindingMode.IMMEDIATE
    late = parse(
        storage_pb2.StorageClass,
        {
            "volumeBindingMode": "WaitForFirstConsumer",
            "allowedTopologies": [{"matchLabelExpressions": [{"key": "zone", "values": ["a"]}]}],
        },
    )
    read = kube_storage.storage_class_from_message(late)
    assert read.binding_mode is storage.BindingMode.WAIT_FOR_FIRST_CONSUMER
    assert read.allowed_topologies == ((storage.TopologyRequirement(key="zone", values=("a",)),),)
    with pytest.raises(FieldError, match="volumeBindingMode"):
        kube_storage.storage_class_from_message(
            parse(storage_pb2.StorageClass, {"volumeBindingMode": "Never"})
        )


def test_a_csi_driver_without_a_count_has_no_limit() -> None:
    """An absent count, an absent attachRequired, an absent topology."""
    drivers = [{"name": "d"}, {"name": "e", "allocatable": {"count": 0}}]
    node = parse(storage_pb2.CSINode, {"metadata": {"name": "n"}, "spec": {"drivers": drivers}})
    counts = [e.allocatable_count for e in kube_storage.csi_node_from_message(node).drivers]
    assert counts == [None, 0]
    assert kube_storage.csi_driver_from_message(parse(storage_pb2.CSIDriver, {})).attach_required
    capacity = kube_storage.csi_storage_capacity_from_message(
        parse(storage_pb2.CSIStorageCapacity, {"capacity": "1Gi"})
    )
    assert (capacity.capacity_bytes, capacity.node_topology) == (GIB, None)


def test_an_attachment_names_a_volume_or_holds_one() -> None:
    """Inline volumes are those of old."""
    inline = {"inlineVolumeSpec": {"gcePersistentDisk": {"pdName": "disk"}}}
    read = kube_storage.volume_attachment_from_message(
        parse(storage_pb2.VolumeAttachment, {"spec": {"attacher": "d", "source": inline}})
    )
    assert read.persistent_volume_name is None
    assert read.inline == GcePersistentDisk(pd_name="disk")


def test_controllers_are_found_by_their_selectors() -> None:
    """A replication controller's is plain."""
    plain = parse(workloads_pb2.ReplicationController, {"spec": {"selector": {"app": "x"}}})
    needed = Requirement(key="app", operator=Operator.IN, values=("x",))
    read = codec.replication_controller_from_message(plain)
    assert read.selector == LabelSelector(requirements=(needed,))
    stateful = codec.controller_from_message(parse(workloads_pb2.StatefulSet, {}))
    assert (stateful.kind, stateful.selector) == (ControllerKind.STATEFUL_SET, None)


def test_volumes_that_no_plugin_reads_are_left_out() -> None:
    """An empty directory is one."""
    spec = parse(pod_pb2.PodSpec, {"volumes": [{"name": "v", "emptyDir": {}}]})
    assert kube_volumes.pod_volumes(spec.volumes) == ()


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"maxSkew": 0}, "maxSkew"),
        ({"minDomains": 0}, "minDomains"),
        ({"whenUnsatisfiable": "Maybe"}, "whenUnsatisfiable"),
        ({"nodeTaintsPolicy": "Sometimes"}, "nodeTaintsPolicy"),
    ],
)
def test_a_spread_constraint_without_meaning_is_refused(
    change: dict[str, object], field: str
) -> None:
    """With its path."""
    whole = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", **change}
    with pytest.raises(FieldError, match=field):
        kube_affinity.spread_constraint(parse(TopologySpreadConstraint, whole), "constraint")
