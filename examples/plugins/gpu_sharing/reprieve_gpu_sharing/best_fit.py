"""GpuBestFit: the node that would have the least CPU and GPU left.

Both count half, each as a share of the largest node's (128 cores, 8 GPUs).

Source: hkust-adsl/kubernetes-scheduler-simulator pkg/simulator/plugin/best_fit_score.go, which
stretches the scores of the feasible nodes to 0 to 100 then; that changes no order.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping

import numpy as np

from reprieve_gpu_sharing.asked import Asked, asked
from reprieve_gpu_sharing.devices import free_milli
from services.scheduler.core.plugin_api import CPU_COLUMN, Int64s, Pod, Scope, ScorePlugin, Snapshot

_LARGEST_CPU_MILLI, _LARGEST_GPU_MILLI = 128_000, 8_000


class GpuBestFit(ScorePlugin[Asked]):
    """Scores by what would be left, 100 for nothing."""

    name = "GpuBestFit"
    scope = Scope.PODS

    def __init__(self, args: Mapping[str, object]) -> None:
        if args:
            raise ValueError(f"{next(iter(args))}: is no argument of GpuBestFit")

    def score_key(self, pod: Pod, snapshot: Snapshot) -> Hashable | None:
        """Return what the pod asks for."""
        return asked(pod, snapshot)

    def pre_score(self, pod: Pod, snapshot: Snapshot) -> Asked:
        """Read what the pod asks for."""
        return asked(pod, snapshot)

    def score(self, data: Asked, snapshot: Snapshot, rows: Int64s, scores: Int64s) -> None:
        """Write the scores; rows on which the pod does not fit do not matter."""
        columns = snapshot.columns
        cpu = columns.allocatable[rows, CPU_COLUMN] - columns.requested[rows, CPU_COLUMN]
        gpu = np.maximum(free_milli(snapshot, rows), 0).sum(axis=1)
        left = (cpu - data.cpu_milli) / _LARGEST_CPU_MILLI / 2
        left += (gpu - data.gpus * data.gpu_milli) / _LARGEST_GPU_MILLI / 2
        scores[rows] = np.clip((1.0 - left) * 100, 0, 100).astype(np.int64)
