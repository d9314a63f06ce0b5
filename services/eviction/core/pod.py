"""The pod as the eviction manager sees it.

Resources are exact quantities with the format they were written in, since messages print them.

Source: kubernetes v1.32 pkg/kubelet/types/pod_update.go (IsCriticalPod and what it asks),
pkg/volume/util/util.go (IsLocalEphemeralVolume), pkg/kubelet/eviction/helpers.go
(localVolumeNames).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from services.kube.quantity import Quantity
from services.kube.taints import Toleration

SYSTEM_CRITICAL_PRIORITY = 2_000_000_000
SOURCE_ANNOTATION = "kubernetes.io/config.source"
MIRROR_ANNOTATION = "kubernetes.io/config.mirror"
_API_SOURCE = "api"
_EMPTY_DIR = "emptyDir"
_LOCAL_KINDS = frozenset({"hostPath", "gitRepo", "configMap"})

Resources = Mapping[str, Quantity]


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionContainer:
    """A container's requests and limits by resource name.

    `restart_policy` "Always" on an init container makes it a sidecar.
    """

    name: str
    requests: Resources = field(default_factory=dict)
    limits: Resources = field(default_factory=dict)
    restart_policy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    """A volume; `kind` is its source's field name in a pod's spec ("emptyDir", "hostPath").

    `medium` ("" for disk) and `size_limit` (None for none) are an emptyDir's.
    """

    name: str
    kind: str
    medium: str = ""
    size_limit: Quantity | None = None

    @property
    def is_empty_dir(self) -> bool:
        """Tell whether the volume is an emptyDir, on disk or in memory."""
        return self.kind == _EMPTY_DIR

    @property
    def is_local(self) -> bool:
        """Tell whether the volume takes space on the node's own disk."""
        return self.kind in _LOCAL_KINDS or (self.is_empty_dir and self.medium == "")


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionPod:
    """What eviction needs of a pod; `priority` is spec.priority, 0 where absent.

    `termination_grace_s` is spec.terminationGracePeriodSeconds, None where absent; `qos_class` is
    status.qosClass, "" where absent.
    """

    uid: str
    namespace: str
    name: str
    priority: int = 0
    containers: tuple[EvictionContainer, ...] = ()
    init_containers: tuple[EvictionContainer, ...] = ()
    overhead: Resources = field(default_factory=dict)
    volumes: tuple[Volume, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)
    termination_grace_s: int | None = None
    qos_class: str = ""
    tolerations: tuple[Toleration, ...] = ()

    @property
    def is_static(self) -> bool:
        """Tell whether the pod came from a file or a URL and not from the API server."""
        return self.annotations.get(SOURCE_ANNOTATION, _API_SOURCE) != _API_SOURCE

    @property
    def is_mirror(self) -> bool:
        """Tell whether the pod mirrors a static pod in the API server."""
        return MIRROR_ANNOTATION in self.annotations

    @property
    def is_critical(self) -> bool:
        """Tell whether the pod is never evicted and always admitted."""
        return self.is_static or self.is_mirror or self.priority >= SYSTEM_CRITICAL_PRIORITY
