"""Workloads by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from replay.generate.openb_like import openb_like
from replay.generate.options import GenerateOptions
from replay.generate.workload import generate
from reprieve.trace.v1alpha1.trace_pb2 import Record


def _four_tiers(seed: int) -> Iterator[Record]:
    return generate(GenerateOptions(seed=seed))


PRESETS: Mapping[str, Callable[[int], Iterator[Record]]] = {
    "four-tiers": _four_tiers,
    "openb-like": openb_like,
}
"""By name: a function of the seed. "four-tiers" is the bundled demo trace, "openb-like" the
benchmark's."""
