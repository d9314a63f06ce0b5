"""The distribution of tasks that fragmentation is measured by.

Args: `workload` is a list of {cpuMilli, gpus, gpuMilli, models, share}: what a kind of task asks
for, the GPU models that will do (none: any), and how often it comes. `python -m
reprieve_gpu_sharing.configure TRACE...` makes it from a trace.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from reprieve_gpu_sharing.asked import MODEL
from services.scheduler.core.plugin_api import Bools, Int64s, Snapshot

_FIELDS = frozenset({"cpuMilli", "gpus", "gpuMilli", "models", "share"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Kinds of tasks, as columns.

    cpu_milli, gpus, gpu_milli: int64[kinds]. share: float64[kinds], 1 in all. models: numbers of
    the models that some kind asks for, from 1. admits: bool[kinds, models + 1], by a node's model;
    0 is any other.
    """

    cpu_milli: Int64s
    gpus: Int64s
    gpu_milli: Int64s
    share: np.ndarray[tuple[int, ...], np.dtype[np.float64]]
    models: Mapping[str, int]
    admits: Bools

    @classmethod
    def of(cls, args: Mapping[str, object]) -> Workload:
        """Return the workload of a plugin's arguments. Raises ValueError for what is none."""
        given = args.get("workload")
        if not isinstance(given, list) or not given:
            raise ValueError("workload: write a list of {cpuMilli, gpus, gpuMilli, models, share}")
        for index, kind in enumerate(given):
            if not isinstance(kind, dict) or not _FIELDS.issuperset(kind) or "share" not in kind:
                raise ValueError(f"workload[{index}]: write {', '.join(sorted(_FIELDS))}")
        names = sorted({model for kind in given for model in kind.get("models", ())})
        models = {name: number for number, name in enumerate(names, 1)}
        admits = np.ones((len(given), len(models) + 1), dtype=np.bool_)
        for index, kind in enumerate(given):
            if kind.get("models"):
                admits[index] = False
                admits[index, [models[name] for name in kind["models"]]] = True
        share = np.array([float(kind["share"]) for kind in given])
        if share.min() <= 0:
            raise ValueError("workload: every share must be above 0")
        return cls(
            cpu_milli=_column(given, "cpuMilli"),
            gpus=_column(given, "gpus"),
            gpu_milli=_column(given, "gpuMilli"),
            share=share / share.sum(),
            models=models,
            admits=admits,
        )

    def model_numbers(self, snapshot: Snapshot, rows: Int64s) -> Int64s:
        """Return the number of each row's GPU model, int64[rows]; 0 for one that nobody names."""
        alive, models = snapshot.columns.alive, self.models
        if not models:
            return np.zeros(len(rows), dtype=np.int64)
        numbers = [
            models.get(snapshot.node(row).labels.get(MODEL, ""), 0) if alive[row] else 0
            for row in rows.tolist()
        ]
        return np.array(numbers, dtype=np.int64)


def _column(kinds: list[dict[str, object]], name: str) -> Int64s:
    return np.array([int(str(kind.get(name, 0))) for kind in kinds], dtype=np.int64)
