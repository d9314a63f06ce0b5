"""What a pod asks of GPUs: how many devices, and thousandths of each.

OpenB's importer makes extended resources of it: the number of devices, and the thousandths of all
of them together.
"""

from __future__ import annotations

from typing import NamedTuple

from services.scheduler.core.plugin_api import Pod, Snapshot

COUNT, MILLI = "alibabacloud.com/gpu-count", "alibabacloud.com/gpu-milli"
MODEL = "alibabacloud.com/gpu-card-model"
WHOLE_MILLI = 1000


class Asked(NamedTuple):
    """CPU in thousandths of a core, a number of GPUs, and thousandths of each."""

    cpu_milli: int
    gpus: int
    gpu_milli: int

    @property
    def is_share(self) -> bool:
        """Tell whether a part of one GPU is asked for."""
        return self.gpus == 1 and self.gpu_milli < WHOLE_MILLI


def asked(pod: Pod, snapshot: Snapshot) -> Asked:
    """Return what a pod asks for."""
    amounts = snapshot.load(pod.spec).requests.amounts
    gpus = amounts.get(COUNT, 0)
    total = amounts.get(MILLI, 0)
    return Asked(amounts.get("cpu", 0), gpus, total // gpus if gpus else 0)
