"""A run's rounds as requests that the author of a scheduler can send to their service again.

Each round of the history becomes one request, as for a scheduler without windows, and round N has
the sequence N. A scheduler's response to a round depends on the earlier rounds: one request shows
what was sent, and only the requests from the first on reproduce the response.

Anyone who knows a session's identifier can use the session. Therefore a run does not record it, and
requests have a placeholder.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from reprieve.scheduler.v1beta1 import scheduler_pb2
from reprieve.scheduler.v1beta1 import scheduler_service_pb2 as service_pb2

SESSION_ID = "SESSION_ID"
"""The placeholder for a session's identifier."""


class NumberedRound(NamedTuple):
    """A round and its number in the run, from 1."""

    number: int
    round: scheduler_pb2.Round


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundsQuery:
    """Selects the rounds of a run that meet every condition; None means no condition.

    numbers: rounds with these numbers. uids, times_ns: rounds with an event or an answer about one
    of these pods, or at one of these times. until_ns: of the rounds that meet the other conditions,
    those at the latest time up to this one. with_earlier: select every round up to the last one
    that meets the conditions.
    """

    numbers: range | None = None
    uids: Collection[str] | None = None
    times_ns: Collection[int] = ()
    until_ns: int | None = None
    with_earlier: bool = False


def select(
    rounds: Callable[[], Iterable[scheduler_pb2.Round]], query: RoundsQuery
) -> Iterator[NumberedRound]:
    """Yield the selected rounds, in order; `rounds` iterates over the run from its first round."""
    if not query.with_earlier:
        yield from _selected(rounds(), query)
        return
    last = max((numbered.number for numbered in _selected(rounds(), query)), default=0)
    for numbered in _numbered(rounds()):
        if numbered.number > last:
            return
        yield numbered


def request(numbered: NumberedRound, session_id: str = SESSION_ID) -> service_pb2.RunRoundRequest:
    """Return a round as a request; its sequence is the round's number."""
    made = service_pb2.RunRoundRequest(round=numbered.round)
    made.stamp.session_id = session_id
    made.stamp.sequence = numbered.number
    return made


def _numbered(rounds: Iterable[scheduler_pb2.Round]) -> Iterator[NumberedRound]:
    for number, round_ in enumerate(rounds, 1):
        yield NumberedRound(number, round_)


def _selected(rounds: Iterable[scheduler_pb2.Round], query: RoundsQuery) -> Iterator[NumberedRound]:
    matching = (numbered for numbered in _numbered(rounds) if _matches(numbered, query))
    if query.until_ns is None:
        yield from matching
        return
    last: list[NumberedRound] = []
    for numbered in matching:
        if numbered.round.time_ns > query.until_ns:
            break
        if last and last[0].round.time_ns != numbered.round.time_ns:
            last.clear()
        last.append(numbered)
    yield from last


def _matches(numbered: NumberedRound, query: RoundsQuery) -> bool:
    number, round_ = numbered
    if query.numbers is not None and number not in query.numbers:
        return False
    if query.uids is None or round_.time_ns in query.times_ns:
        return True
    return any(answer.pop.uid in query.uids for answer in round_.answers) or any(
        _uid(event) in query.uids for event in round_.events
    )


def _uid(event: scheduler_pb2.Event) -> str:
    """Return the UID of the pod in an event; "" for an event of another object."""
    match event.WhichOneof("event"):
        case "add":
            return event.add.pod.metadata.uid
        case "update":
            return event.update.pod.metadata.uid
        case "patch":
            return event.patch.pod.uid
        case "remove" if event.remove.kind == "Pod":
            return event.remove.uid
    return ""
