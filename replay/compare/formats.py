"""What a trace's format keeps that a comparison can hold decisions to."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from pathlib import Path

from replay.importers.records import Issues
from replay.importers.registry import Importer, select
from replay.trace.errors import TraceError


class Kept(Enum):
    """STATES: each object after each change. OUTCOMES: what was decided, and not in which state."""

    STATES = "states"
    OUTCOMES = "outcomes"


_OUTCOMES = frozenset({"native", "google-2011", "google-2019", "alibaba-2017"})
_WITHOUT = {
    "simkube": "a SimKube trace holds what was applied and how long pods ran",
    "scheduler-perf": "a performance test holds what is to be created",
    "manifests": "manifests hold what is wanted",
    "openb": "OpenB's lists hold pods and nodes",
    "dlrm": "the DLRM trace holds instances without the nodes that they were on",
    "azure-packing": "Azure's packing trace holds virtual machines without their hosts",
}


def kept(paths: Sequence[Path], format_name: str | None) -> Kept:
    """Return what the format of `paths` keeps. Raises TraceError for one that keeps no outcomes."""
    importer, files = select(paths, format=format_name, issues=Issues())
    if importer.changes is not None:
        return Kept.STATES
    if importer.name in _OUTCOMES:
        return Kept.OUTCOMES
    raise TraceError(str(files[0]), _refusal(importer))


def without_outcomes(paths: Sequence[Path]) -> TraceError:
    """Return the refusal of a trace whose format may keep outcomes, and that has none."""
    problem = "holds no binding, preemption or eviction that was observed: there is nothing to"
    return TraceError(str(paths[0]), f"{problem} compare with")


def _refusal(importer: Importer) -> str:
    what = _WITHOUT.get(importer.name, "it holds no decisions")
    return (
        f"--compare-recorded: {what}, and nothing that a scheduler decided. Give a recording of "
        "a cluster: watches, an audit log, kube-scheduler-simulator's record or kwok's"
    )
