"""What a pod asks of a node, as the scheduler counts it.

Three readings of the same pod are needed: what is taken from the node, the same with a default for
each container that asks for no CPU or memory (so that such pods spread), and what the resource
scores take a pending pod for.

Source: kubernetes v1.34 pkg/scheduler/framework/types.go, PodInfo.CalculateResource;
plugins/noderesources/resource_allocation.go, calculatePodResourceRequest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from services.kube.pod import PodSpec
from services.kube.requests import (
    CPU,
    EPHEMERAL_STORAGE,
    MEMORY,
    pod_level_requests,
    pod_requests,
)

DEFAULT_CPU_MILLI = 100
DEFAULT_MEMORY_BYTES = 200 * 1024 * 1024
_DEFAULTS: Mapping[str, int] = {CPU: DEFAULT_CPU_MILLI, MEMORY: DEFAULT_MEMORY_BYTES}
_NATIVE = "kubernetes.io/"
_NAMED = frozenset({CPU, MEMORY, EPHEMERAL_STORAGE})


@dataclass(frozen=True, slots=True, kw_only=True)
class PodRequests:
    """A pod's totals by resource name, "cpu" in thousandths of a core, else whole units.

    `amounts` is what the pod takes from a node. `non_zero_cpu_milli` and
    `non_zero_memory_bytes` are that with defaults for what containers leave out.
    `scored` is what LeastAllocated takes a pending pod for: defaults, and no pod-level requests.
    """

    amounts: Mapping[str, int]
    non_zero_cpu_milli: int
    non_zero_memory_bytes: int
    scored: Mapping[str, int]

    @classmethod
    def of(cls, spec: PodSpec) -> Self:
        """Return the totals of `spec`, overhead included."""
        amounts, pod_level = pod_requests(spec), pod_level_requests(spec)
        missing = {
            name: amount
            for name, amount in _DEFAULTS.items()
            if not pod_level or name not in amounts
        }
        non_zero = pod_requests(spec, missing)
        return cls(
            amounts={name: amount for name, amount in amounts.items() if is_counted(name)},
            non_zero_cpu_milli=non_zero.get(CPU, 0),
            non_zero_memory_bytes=non_zero.get(MEMORY, 0),
            scored=pod_requests(spec, _DEFAULTS, pod_level=False),
        )


def is_counted(name: str) -> bool:
    """Tell whether the scheduler keeps account of the resource."""
    return name in _NAMED or is_scalar(name)


def is_scalar(name: str) -> bool:
    """Tell whether the resource is extended, of huge pages, or an attachable volume's.

    Source: kubernetes v1.34 pkg/scheduler/util/utils.go, IsScalarResourceName.
    """
    if name.startswith(("hugepages-", "attachable-volumes-")) or _NATIVE in name:
        return True
    return "/" in name and not name.startswith("requests.")
