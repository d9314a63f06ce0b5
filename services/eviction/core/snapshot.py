"""A manager's state as plain values: what a checkpoint holds.

Thresholds are written as their text, which is unique among those of one configuration.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypedDict, cast

from services.eviction.core.decisions import Eviction, Grounds, NodeEvent
from services.eviction.core.layout import Collection
from services.eviction.core.notifications import Notifications
from services.eviction.core.ranking import RankedPod
from services.eviction.core.results import Outcome
from services.eviction.core.signals import ConditionType, Signal
from services.eviction.core.state import State
from services.eviction.core.thresholds import Threshold


class GroundsPlain(TypedDict):
    """Grounds, field by field."""

    threshold: str
    available: int
    capacity: int
    rank: int
    ranked: int


class EvictionPlain(TypedDict):
    """An Eviction, field by field."""

    uid: str
    namespace: str
    name: str
    cause: str
    grace_period_s: int
    message: str
    annotations: dict[str, str]
    grounds: GroundsPlain | None


class RankedPodPlain(TypedDict):
    """A RankedPod, field by field."""

    uid: str
    namespace: str
    name: str
    priority: int
    usage: int | None
    request: int
    exceeds_request: bool
    above_request: int


class NodeEventPlain(TypedDict):
    """A NodeEvent, field by field."""

    type: str
    reason: str
    message: str


class CollectionPlain(TypedDict):
    """A Collection, field by field."""

    containers: bool
    images: bool


class PendingPlain(TypedDict):
    """A step that waits for its collection."""

    now_ns: int
    changed: bool
    evictions: list[EvictionPlain]
    ranking: list[RankedPodPlain]
    events: list[NodeEventPlain]
    collected: CollectionPlain
    signal: str | None
    stats_ages_ns: list[tuple[str, int]]


class ManagerPlain(TypedDict):
    """A State by its fields' names, keys as text, and the step that waits."""

    file_systems_detected: bool
    conditions: list[str]
    condition_last_observed_ns: dict[str, int]
    first_observed_ns: dict[str, int]
    thresholds_met: list[str]
    observation_times_ns: dict[str, int | None]
    notifications_updated_ns: int | None
    notify_at: list[tuple[str, int]]
    pending: PendingPlain | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """A step at `now_ns` that waits for its collection, with the outcome if that frees nothing."""

    now_ns: int
    outcome: Outcome
    changed: bool


def state_to_plain(state: State, pending: Pending | None) -> ManagerPlain:
    """Return dicts, lists, strings and integers that stand for the state."""
    return {
        "file_systems_detected": state.file_systems_detected,
        "conditions": [each.value for each in state.conditions],
        "condition_last_observed_ns": {
            each.value: at_ns for each, at_ns in state.condition_last_observed_ns.items()
        },
        "first_observed_ns": {str(each): at_ns for each, at_ns in state.first_observed_ns.items()},
        "thresholds_met": [str(each) for each in state.thresholds_met],
        "observation_times_ns": {
            each.value: at_ns for each, at_ns in state.observation_times_ns.items()
        },
        "notifications_updated_ns": state.notifications.updated_ns,
        "notify_at": _to_pairs(state.notifications.amounts),
        "pending": None if pending is None else _pending_to_plain(pending),
    }


def state_from_plain(
    plain: ManagerPlain, watched: Sequence[Threshold]
) -> tuple[State, Pending | None]:
    """Return the state that `plain` stands for, without thresholds that are not `watched`.

    Raises KeyError, TypeError or ValueError where `plain` is not what state_to_plain returns.
    """
    first_observed = plain["first_observed_ns"]
    met = frozenset(plain["thresholds_met"])
    condition_times = plain["condition_last_observed_ns"]
    state = State(
        file_systems_detected=plain["file_systems_detected"],
        conditions=tuple(ConditionType(each) for each in plain["conditions"]),
        condition_last_observed_ns={
            each: condition_times[each.value]
            for each in ConditionType
            if each.value in condition_times
        },
        first_observed_ns={
            each: first_observed[str(each)] for each in watched if str(each) in first_observed
        },
        thresholds_met=tuple(each for each in watched if str(each) in met),
        observation_times_ns={
            Signal(name): at_ns for name, at_ns in plain["observation_times_ns"].items()
        },
        notifications=Notifications(
            updated_ns=plain["notifications_updated_ns"], amounts=_from_pairs(plain["notify_at"])
        ),
    )
    pending = plain["pending"]
    return state, None if pending is None else _pending_from_plain(pending)


def _pending_to_plain(pending: Pending) -> PendingPlain:
    outcome = pending.outcome
    return {
        "now_ns": pending.now_ns,
        "changed": pending.changed,
        "evictions": [cast("EvictionPlain", asdict(each)) for each in outcome.evictions],
        "ranking": [cast("RankedPodPlain", asdict(each)) for each in outcome.ranking],
        "events": [cast("NodeEventPlain", asdict(each)) for each in outcome.events],
        "collected": cast("CollectionPlain", asdict(outcome.collected)),
        "signal": None if outcome.signal is None else outcome.signal.value,
        "stats_ages_ns": _to_pairs(outcome.stats_ages_ns),
    }


def _pending_from_plain(plain: PendingPlain) -> Pending:
    return Pending(
        now_ns=plain["now_ns"],
        changed=plain["changed"],
        outcome=Outcome(
            evictions=tuple(map(_eviction, plain["evictions"])),
            ranking=tuple(RankedPod(**each) for each in plain["ranking"]),
            events=tuple(NodeEvent(**each) for each in plain["events"]),
            collected=Collection(**plain["collected"]),
            signal=None if plain["signal"] is None else Signal(plain["signal"]),
            stats_ages_ns=_from_pairs(plain["stats_ages_ns"]),
        ),
    )


def _eviction(plain: EvictionPlain) -> Eviction:
    grounds = plain["grounds"]
    fields = {**plain, "grounds": None if grounds is None else Grounds(**grounds)}
    return Eviction(**cast("Any", fields))


def _to_pairs(amounts: Iterable[tuple[Signal, int]]) -> list[tuple[str, int]]:
    return [(signal.value, amount) for signal, amount in amounts]


def _from_pairs(plain: Iterable[tuple[str, int]]) -> tuple[tuple[Signal, int], ...]:
    return tuple((Signal(name), amount) for name, amount in plain)
