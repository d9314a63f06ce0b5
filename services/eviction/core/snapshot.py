"""A manager's state as a value that does not depend on its configuration: for a checkpoint.

Thresholds are named by their text, which is unique among those of one configuration.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from services.eviction.core.results import Outcome
from services.eviction.core.state import State
from services.eviction.core.thresholds import Threshold


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """A step at `now_ns` that waits for its collection, with the outcome if that frees nothing."""

    now_ns: int
    outcome: Outcome
    changed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagerSnapshot:
    """A State whose thresholds stand beside it, and the step that waits."""

    state: State
    first_observed_ns: Mapping[str, int]
    thresholds_met: tuple[str, ...]
    pending: Pending | None


def snapshot_of(state: State, pending: Pending | None) -> ManagerSnapshot:
    """Return the value that stands for the state."""
    return ManagerSnapshot(
        state=replace(state, first_observed_ns={}, thresholds_met=()),
        first_observed_ns={str(each): at_ns for each, at_ns in state.first_observed_ns.items()},
        thresholds_met=tuple(str(each) for each in state.thresholds_met),
        pending=pending,
    )


def state_of(snapshot: ManagerSnapshot, watched: Sequence[Threshold]) -> State:
    """Return the state that `snapshot` stands for, without thresholds that are not `watched`."""
    since, met = snapshot.first_observed_ns, frozenset(snapshot.thresholds_met)
    return replace(
        snapshot.state,
        first_observed_ns={each: since[str(each)] for each in watched if str(each) in since},
        thresholds_met=tuple(each for each in watched if str(each) in met),
    )
