"""The API objects as the autoscaler reads them: what the scheduler reads, and what it does not.

The filters take the values of services/kube. What only the autoscaler asks of an object stands
beside them here.

Source: kubernetes/autoscaler 1.36 utils/pod/pod.go; utils/drain/drain.go, ControllerRef and
isLocalVolume; utils/kubernetes/listers.go.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from services.kube.node import Node
from services.kube.pod import EMPTY, OwnerReference, Pod, PodSpec

DAEMON_SET_POD = "cluster-autoscaler.kubernetes.io/daemonset-pod"
MIRROR_POD = "kubernetes.io/config.mirror"
CONFIG_SOURCE = "kubernetes.io/config.source"
_FROM_API_SERVER = "api"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterNode:
    """A node of the cluster, or one that a group's template describes.

    `provider_id` names its instance; "" on a template.
    """

    node: Node
    provider_id: str = ""
    creation_ns: int = 0

    @property
    def name(self) -> str:
        """Return the node's name."""
        return self.node.name


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPod:
    """A pod of the cluster.

    `local_volumes` are the names of its volumes of type hostPath, or emptyDir on disk;
    `has_priority` is whether its spec has one at all (one without is never expendable).
    """

    pod: Pod
    local_volumes: tuple[str, ...] = ()
    restart_policy: str = ""
    has_priority: bool = False

    @property
    def key(self) -> str:
        """Return namespace/name."""
        return self.pod.key

    @property
    def controller(self) -> OwnerReference | None:
        """Return the owner that manages the pod, or None."""
        for owner in self.pod.owners:
            if owner.controller:
                return owner
        return None

    @property
    def is_daemon(self) -> bool:
        """Return whether a DaemonSet made the pod, or its annotation says so."""
        controller = self.controller
        if controller is not None and controller.kind == "DaemonSet":
            return True
        return self.pod.annotations.get(DAEMON_SET_POD) == "true"

    @property
    def is_mirror(self) -> bool:
        """Return whether the pod mirrors a static pod of its node."""
        return MIRROR_POD in self.pod.annotations

    @property
    def is_static(self) -> bool:
        """Return whether the pod did not come from the API server."""
        return self.pod.annotations.get(CONFIG_SOURCE, _FROM_API_SERVER) != _FROM_API_SERVER

    @property
    def is_recreatable(self) -> bool:
        """Return whether its controller would make another one, anywhere."""
        return not (self.is_static or self.is_mirror or self.is_daemon)


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonSet:
    """A daemon set: the pod that every fitting node gets."""

    namespace: str
    name: str
    uid: str = ""
    labels: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    annotations: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    spec: PodSpec = field(default_factory=PodSpec)

    @property
    def key(self) -> str:
        """Return namespace/name."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaController:
    """A controller that recreates pods: a ReplicaSet, ReplicationController, StatefulSet or Job.

    `desired` are its replicas, or a Job's parallelism.
    """

    kind: str
    namespace: str
    name: str
    uid: str = ""
    desired: int = 1
