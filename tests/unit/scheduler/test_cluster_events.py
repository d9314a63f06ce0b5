"""Objects of other kinds reach the scheduler as values."""

from __future__ import annotations

import pytest

from replay.kube.kinds import to_object
from reprieve.kube.v1beta1 import object_pb2
from services.rpc.errors import FieldError
from services.rpc.kube.spec import PodSpecInterner
from services.scheduler.cluster_events import ClusterChange, PutObject, UnreadObject, decode_object

KINDS = {
    "Namespace": "v1",
    "Service": "v1",
    "ReplicationController": "v1",
    "ReplicaSet": "apps/v1",
    "StatefulSet": "apps/v1",
    "PersistentVolume": "v1",
    "PersistentVolumeClaim": "v1",
    "StorageClass": "storage.k8s.io/v1",
    "CSINode": "storage.k8s.io/v1",
    "VolumeAttachment": "storage.k8s.io/v1",
    "CSIDriver": "storage.k8s.io/v1",
    "CSIStorageCapacity": "storage.k8s.io/v1",
}


def decoded(kind: str, version: str, **fields: object) -> ClusterChange:
    """Return the change that an object of Kubernetes JSON makes."""
    whole = {"apiVersion": version, "kind": kind, "metadata": {"name": "x"}, **fields}
    message = to_object(whole)
    return decode_object(message, PodSpecInterner(), "object")


@pytest.mark.parametrize("kind", KINDS)
def test_decoded_values_are_kept_with_their_message(kind: str) -> None:
    """By its name, and as it came."""
    change = decoded(kind, KINDS[kind])
    assert isinstance(change, PutObject)
    assert change.value.name == "x"
    assert change.message.WhichOneof("object") is not None


def test_what_no_plugin_reads_is_not_kept() -> None:
    """A deployment, for instance."""
    assert isinstance(decoded("Deployment", "apps/v1"), UnreadObject)


def test_an_object_without_meaning_is_refused_with_its_path() -> None:
    """As every other."""
    selector = {"matchExpressions": [{"key": "a", "operator": "Like"}]}
    with pytest.raises(FieldError, match=r"Like") as refused:
        decoded("ReplicaSet", "apps/v1", spec={"selector": selector})
    assert refused.value.field.startswith("object.replica_set.spec.selector")
    with pytest.raises(FieldError):
        decode_object(object_pb2.KubernetesObject(), PodSpecInterner(), "object")
