"""What the steps of one scheduling cycle took, read once for all who count it."""

from __future__ import annotations

from collections.abc import Sequence

from reprieve.scheduler.v1alpha1 import scheduler_pb2

Phases = Sequence[tuple[str, int]]
"""The steps' names, and what each took on the wall clock, ns."""


def phases_of(outcome: scheduler_pb2.Outcome) -> Phases:
    """Return the steps of an outcome's cycle, none where they were not measured."""
    return [(phase.name, phase.wall_ns) for phase in outcome.phases]
