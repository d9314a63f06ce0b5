"""Which devices of a node a pod takes.

Source: hkust-adsl/kubernetes-scheduler-simulator pkg/simulator/plugin/open_gpu_share.go,
allocateGpuIdBasedOn*; pkg/type/resource.go, AllocateExclusiveGpuId.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b

from reprieve_gpu_sharing.asked import Asked

Choose = Callable[[Sequence[int], Asked, str], int]
"""From what is free of each device, what is asked for, and the pod's UID: a device, -1 for none."""


def best(free: Sequence[int], asked: Asked, uid: str) -> int:  # noqa: ARG001 - not keyed
    """Return the fitting device that has the least left."""
    fitting = [(left, device) for device, left in enumerate(free) if left >= asked.gpu_milli]
    return min(fitting)[1] if fitting else -1


def worst(free: Sequence[int], asked: Asked, uid: str) -> int:  # noqa: ARG001 - not keyed
    """Return the fitting device that has the most left, the first of those."""
    fitting = [(-left, device) for device, left in enumerate(free) if left >= asked.gpu_milli]
    return min(fitting)[1] if fitting else -1


def keyed(free: Sequence[int], asked: Asked, uid: str) -> int:
    """Return a fitting device by a hash of the pod and the device: any, and always the same."""
    fitting = [device for device, left in enumerate(free) if left >= asked.gpu_milli]
    return min(fitting, key=lambda device: _hash(uid, device)) if fitting else -1


SELECTIONS: Mapping[str, Choose] = {"best": best, "worst": worst, "random": keyed}


def devices_for(
    free: Sequence[int], asked: Asked, uid: str, share: Choose
) -> tuple[int, ...] | None:
    """Return the devices that a pod takes, None where it does not fit.

    `share` chooses for a part of one GPU; several whole ones are the first that are idle.
    """
    if asked.is_share:
        device = share(free, asked, uid)
        return (device,) if device >= 0 else None
    fitting = [device for device, left in enumerate(free) if left >= asked.gpu_milli]
    return tuple(fitting[: asked.gpus]) if len(fitting) >= asked.gpus else None


def _hash(uid: str, device: int) -> bytes:
    return blake2b(f"{uid}\0{device}".encode(), digest_size=8).digest()
