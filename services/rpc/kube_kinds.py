"""The Kubernetes kinds that are carried: objects of any of them as JSON, and patched.

An object's JSON has apiVersion and kind, which its message's type stands for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from google.protobuf.message import Message

from reprieve.kube.v1beta1.object_pb2 import KubernetesObject
from reprieve.kube.v1beta1.pod_pb2 import Pod
from reprieve.scheduler.v1beta1.scheduler_pb2 import PodPatch
from services.rpc import kube_json
from services.rpc.kube_fields import set_time

_GROUP_VERSIONS = {
    "v1": (
        "Pod Node Namespace Service ReplicationController PersistentVolume PersistentVolumeClaim"
    ),
    "apps/v1": "ReplicaSet Deployment StatefulSet DaemonSet",
    "batch/v1": "Job CronJob",
    "policy/v1": "PodDisruptionBudget",
    "scheduling.k8s.io/v1": "PriorityClass",
    "storage.k8s.io/v1": "StorageClass CSINode VolumeAttachment CSIDriver CSIStorageCapacity",
}
API_VERSIONS: Mapping[str, str] = {
    kind: version for version, kinds in _GROUP_VERSIONS.items() for kind in kinds.split()
}


def apply_patch(pod: Pod, patch: PodPatch) -> None:
    """Change a pod as a patch says, in place: what it leaves out stays."""
    if patch.resource_version:
        pod.metadata.resource_version = patch.resource_version
    if patch.HasField("node_name"):
        pod.spec.node_name = patch.node_name
    if patch.HasField("status"):
        pod.status.CopyFrom(patch.status)
    if patch.HasField("deletion_ns"):
        set_time(pod.metadata.deletion_timestamp, patch.deletion_ns)


def object_to_json(message: Message) -> dict[str, Any]:
    """Return an object, or the one in a KubernetesObject, as JSON with apiVersion and kind first.

    Raises ValueError for an empty KubernetesObject and for a message that is no kind.
    """
    if isinstance(message, KubernetesObject):
        case = message.WhichOneof("object")
        if case is None:
            raise ValueError("a KubernetesObject holds no object")
        message = getattr(message, case)
    kind = message.DESCRIPTOR.name
    if kind not in API_VERSIONS:
        raise ValueError(f"{kind} is no kind of object")
    return {"apiVersion": API_VERSIONS[kind], "kind": kind, **kube_json.to_json(message)}
