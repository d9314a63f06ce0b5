"""A run's rounds as requests, with which a scheduler's author sends them to their service again.

Each round of the history is a request of its own, as a scheduler without windows received it, and
requests are numbered as such a scheduler would have seen them: round N has the sequence N. A
scheduler answers a round from what the rounds before it have left, so that one round alone says
what was sent, and all rounds up to it repeat what happened.

A session's identifier is the right to use the session. So no run has it, and requests have a
placeholder in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from reprieve.scheduler.v1beta1 import scheduler_pb2
from reprieve.scheduler.v1beta1 import scheduler_service_pb2 as service_pb2

SESSION_ID = "SESSION_ID"
"""The placeholder of a session's identifier."""


class NumberedRound(NamedTuple):
    """A round with its place in the run, from 1."""

    number: int
    round: scheduler_pb2.Round


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundsQuery:
    """A selection of a run's rounds: those that meet each condition.

    numbers: rounds with these numbers. uids, times_ns: rounds with an event or an answer about one
    of these pods, or at one of these times. until_ns: of those, the rounds of the last time that is
    not after this one. None: no such condition. with_earlier: also all rounds before them.
    """

    numbers: range | None = None
    uids: Collection[str] | None = None
    times_ns: Collection[int] = ()
    until_ns: int | None = None
    with_earlier: bool = False


def select(
    rounds: Callable[[], Iterable[scheduler_pb2.Round]], query: RoundsQuery
) -> Iterator[NumberedRound]:
    """Yield the selected rounds, in order; `rounds` returns those of the run from the first on."""
    if not query.with_earlier:
        yield from _selected(rounds(), query)
        return
    last = max((numbered.number for numbered in _selected(rounds(), query)), default=0)
    for numbered in _numbered(rounds()):
        if numbered.number > last:
            return
        yield numbered


def request(numbered: NumberedRound, session_id: str = SESSION_ID) -> service_pb2.RunRoundRequest:
    """Return a round as a request of its own."""
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
    """Return the uid of the pod that an event is about, "" for other objects."""
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
