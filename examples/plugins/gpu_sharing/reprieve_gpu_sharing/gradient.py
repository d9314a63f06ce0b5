"""GpuFragmentation: fragmentation gradient descent (FGD).

The fragmentation of a node is how much of its idle GPUs a task drawn from the workload cannot use,
in expectation. To a task that fits nowhere on the node, for want of GPUs, of CPU or of its model,
or that asks for no GPU, all of the idle GPUs are a fragment; to one that fits, those devices are
that have less left than it asks of each. A node's score falls with the growth of its fragmentation
by the pod, and a part of a GPU goes to the device where it grows least.

Source: Weng et al., "Beware of Fragmentation", USENIX ATC 2023, sections 4 and 5; for the scale of
the scores hkust-adsl/kubernetes-scheduler-simulator pkg/simulator/plugin/fgd_score.go.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping

import numba
import numpy as np

from reprieve_gpu_sharing.asked import Asked, asked
from reprieve_gpu_sharing.devices import free_milli
from reprieve_gpu_sharing.workload import Workload
from services.scheduler.core.plugin_api import CPU_COLUMN, Int64s, Pod, Scope, ScorePlugin, Snapshot


class GpuFragmentation(ScorePlugin[Asked]):
    """Scores by the descent of fragmentation, 50 where it stays as it is. Args: `workload`."""

    name = "GpuFragmentation"
    scope = Scope.PODS

    def __init__(self, args: Mapping[str, object]) -> None:
        self._workload = Workload.of(args)

    def score_key(self, pod: Pod, snapshot: Snapshot) -> Hashable | None:
        """Return what the pod asks for."""
        return asked(pod, snapshot)

    def pre_score(self, pod: Pod, snapshot: Snapshot) -> Asked:
        """Read what the pod asks for."""
        return asked(pod, snapshot)

    def score(self, data: Asked, snapshot: Snapshot, rows: Int64s, scores: Int64s) -> None:
        """Write the scores; rows on which the pod does not fit do not matter."""
        changed = np.unique(rows)
        found, _ = _descents(self._workload, snapshot, changed, data, cpu_taken=0)
        scores[changed] = found


def steepest(
    workload: Workload, snapshot: Snapshot, row: int, wanted: Asked, *, is_assumed: bool
) -> int:
    """Return the device of a row that a part of a GPU goes to, -1 where it fits on none.

    `is_assumed` tells that the pod's CPU counts on the node already.
    """
    taken = wanted.cpu_milli if is_assumed else 0
    rows = np.array([row], dtype=np.int64)
    _, devices = _descents(workload, snapshot, rows, wanted, cpu_taken=taken)
    return int(devices[0])


def _descents(
    workload: Workload, snapshot: Snapshot, rows: Int64s, wanted: Asked, *, cpu_taken: int
) -> tuple[Int64s, Int64s]:
    columns = snapshot.columns
    cpu = columns.allocatable[rows, CPU_COLUMN] - columns.requested[rows, CPU_COLUMN] + cpu_taken
    return _score_rows(  # type: ignore[no-any-return] # numba has no types
        cpu,
        free_milli(snapshot, rows),
        workload.model_numbers(snapshot, rows),
        (wanted.cpu_milli, wanted.gpus, wanted.gpu_milli),
        (workload.cpu_milli, workload.gpus, workload.gpu_milli, workload.share, workload.admits),
    )


@numba.njit(cache=True)
def _score_rows(cpu, free, model, wanted, kinds):  # type: ignore[no-untyped-def] # numba
    """Return the score of each row, and the device that a part of a GPU goes to (-1: none)."""
    cpu_milli, gpus, gpu_milli = wanted
    scores = np.zeros(len(cpu), dtype=np.int64)
    devices = np.full(len(cpu), -1, dtype=np.int64)
    for row in range(len(cpu)):
        left = free[row].copy()
        before = _fragmentation(cpu[row], left, model[row], kinds)
        if gpus == 1 and gpu_milli < 1000:
            for device in range(len(left)):
                if left[device] < gpu_milli or _comes_before(left, device):
                    continue
                left[device] -= gpu_milli
                after = _fragmentation(cpu[row] - cpu_milli, left, model[row], kinds)
                left[device] += gpu_milli
                score = _scaled(before - after)
                if devices[row] < 0 or score > scores[row]:
                    scores[row], devices[row] = score, device
        else:
            _pack(left, gpus, gpu_milli)
            after = _fragmentation(cpu[row] - cpu_milli, left, model[row], kinds)
            scores[row] = _scaled(before - after)
    return scores, devices


@numba.njit(cache=True)
def _comes_before(left, device):  # type: ignore[no-untyped-def] # numba
    """Tell whether a device before this one has as much left, and so the same score."""
    return bool(np.any(left[:device] == left[device]))


@numba.njit(cache=True)
def _fragmentation(cpu, left, model, kinds):  # type: ignore[no-untyped-def] # numba
    """Return the thousandths of idle GPUs of one node that a task cannot use, in expectation."""
    cpu_milli, gpus, gpu_milli, share, admits = kinds
    idle = 0
    for each in left:
        idle += max(each, 0)
    if idle == 0:
        return 0.0
    total = 0.0
    for kind in range(len(share)):
        fitting, small = 0, 0
        for each in left:
            if each >= gpu_milli[kind]:
                fitting += 1
            elif each > 0:
                small += each
        fits = gpus[kind] > 0 and fitting >= gpus[kind] and cpu >= cpu_milli[kind]
        total += share[kind] * (small if fits and admits[kind, model] else idle)
    return total


@numba.njit(cache=True)
def _pack(left, gpus, gpu_milli):  # type: ignore[no-untyped-def] # numba
    """Take `gpu_milli` of each of `gpus` devices, those first that have the least left."""
    order = np.argsort(left, kind="mergesort")
    for device in order:
        if gpus > 0 and left[device] >= gpu_milli:
            left[device] -= gpu_milli
            gpus -= 1


@numba.njit(cache=True)
def _scaled(descent):  # type: ignore[no-untyped-def] # numba
    """Return 0 to 100 for a descent in thousandths of a GPU, 50 for none."""
    return int(100.0 / (1.0 + math.exp(-descent / 1000.0)))
