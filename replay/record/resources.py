"""Which resources are recorded, and where an API server has them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """One resource, such as pods; `api_version` is that of its objects."""

    name: str
    kind: str
    api_version: str

    @property
    def path(self) -> str:
        """Return the path of the resource in all namespaces."""
        root = "apis" if "/" in self.api_version else "api"
        return f"/{root}/{self.api_version}/{self.name}"


def _resource(name: str, kind: str, api_version: str) -> Resource:
    return Resource(name=name, kind=kind, api_version=api_version)


PODS = _resource("pods", "Pod", "v1")
NODES = _resource("nodes", "Node", "v1")
RESOURCES = (
    NODES,
    PODS,
    _resource("namespaces", "Namespace", "v1"),
    _resource("priorityclasses", "PriorityClass", "scheduling.k8s.io/v1"),
    _resource("poddisruptionbudgets", "PodDisruptionBudget", "policy/v1"),
    _resource("deployments", "Deployment", "apps/v1"),
    _resource("replicasets", "ReplicaSet", "apps/v1"),
    _resource("statefulsets", "StatefulSet", "apps/v1"),
    _resource("daemonsets", "DaemonSet", "apps/v1"),
    _resource("replicationcontrollers", "ReplicationController", "v1"),
    _resource("jobs", "Job", "batch/v1"),
    _resource("cronjobs", "CronJob", "batch/v1"),
    _resource("services", "Service", "v1"),
    _resource("persistentvolumes", "PersistentVolume", "v1"),
    _resource("persistentvolumeclaims", "PersistentVolumeClaim", "v1"),
    _resource("storageclasses", "StorageClass", "storage.k8s.io/v1"),
    _resource("csinodes", "CSINode", "storage.k8s.io/v1"),
    _resource("csidrivers", "CSIDriver", "storage.k8s.io/v1"),
    _resource("csistoragecapacities", "CSIStorageCapacity", "storage.k8s.io/v1"),
    _resource("volumeattachments", "VolumeAttachment", "storage.k8s.io/v1"),
)
"""What is recorded: all that the importer of watches reads."""
