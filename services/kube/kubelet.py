"""A kubelet's eviction settings as values.

Source: kubernetes v1.32 pkg/kubelet/eviction/types.go (Config).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType

from services.kube.time import MINUTE_NS

DEFAULT_PRESSURE_TRANSITION_NS = 5 * MINUTE_NS

Statements = Mapping[str, str]


class Mode(Enum):
    """The version of the kubelet whose behaviour is simulated."""

    V1_32 = "v1.32"
    V1_27 = "v1.27"


def default_hard(mode: Mode) -> Statements:
    """Return the hard thresholds of a Linux kubelet whose configuration has no hard threshold.

    Source: kubernetes pkg/kubelet/eviction/defaults_linux.go; v1.27 has none on image inodes.
    """
    return _DEFAULT_HARD if mode is Mode.V1_32 else _DEFAULT_HARD_V1_27


_DEFAULT_HARD_V1_27: Statements = MappingProxyType(
    {
        "memory.available": "100Mi",
        "nodefs.available": "10%",
        "nodefs.inodesFree": "5%",
        "imagefs.available": "15%",
    }
)
_DEFAULT_HARD: Statements = MappingProxyType({**_DEFAULT_HARD_V1_27, "imagefs.inodesFree": "5%"})


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionConfig:
    """The settings of one node's eviction manager.

    hard, soft, soft_grace, min_reclaim: map a signal to a text as on the kubelet's command line
    ("1Gi", "10%", "1m30s"). enforce_node_allocatable: contains "pods" if the cgroup of all pods has
    a limit; this adds a threshold on allocatable memory. pressure_transition_ns: how long a
    condition holds after its last observation. max_pod_grace_s: the longest grace period of a soft
    eviction. dedicated_imagefs: whether images have a separate file system. split_containerfs:
    whether writable layers are on another file system than images. local_storage_isolation: whether
    limits on ephemeral storage are enforced. allow_overwrite_tgps (a feature gate of v1.32):
    whether a soft eviction may exceed the pod's grace period. kernel_memcg_notification: whether
    the kernel notifies at once when memory crosses a threshold.
    """

    mode: Mode = Mode.V1_32
    hard: Statements = field(default_factory=dict)
    soft: Statements = field(default_factory=dict)
    soft_grace: Statements = field(default_factory=dict)
    min_reclaim: Statements = field(default_factory=dict)
    enforce_node_allocatable: tuple[str, ...] = ()
    pressure_transition_ns: int = DEFAULT_PRESSURE_TRANSITION_NS
    max_pod_grace_s: int = 0
    dedicated_imagefs: bool = False
    split_containerfs: bool = False
    local_storage_isolation: bool = True
    allow_overwrite_tgps: bool = False
    kernel_memcg_notification: bool = False
