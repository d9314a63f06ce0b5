"""The order of a recording's bindings, and the victims of its preemptions, from further files.

The scheduler writes each binding from a separate goroutine, so resourceVersions do not give the
order of decisions. A file `decisions.jsonl` (or .gz, .zst) in the recording's folder gives it: one
line for each binding, in order, with `pod` ("NAMESPACE/NAME") and optionally `feasible`, `top`,
`tied_nodes`. The condition of a preempted pod does not name the preemptor; the scheduler's Event
about the pod does.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from replay.compare.recorded import DecisionKind, LoggedScores, RecordedDecision
from replay.kube.changes import Raw, kind, part
from replay.kube.documents import json_values
from replay.trace.files import head, open_plain
from reprieve.kube.v1beta1.meta_pb2 import ObjectReference

_PREEMPTED = re.compile(r"Preempted by pod (\S+) on node")
_IS_EVENTS = re.compile(rb'"kind"\s*:\s*"Event"')
NEAR_NS = 2_000_000_000
"""The longest time between a victim's condition and the nomination of its preemptor."""
_STEM = "decisions.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkedVictim:
    """A preempted pod on `node`; the event at `position` set its condition, at `at_ns`."""

    uid: str
    name: str
    node: str
    position: int
    at_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PodAppearance:
    """A pod, and the position of its first event."""

    ref: ObjectReference
    position: int


def recorded_preemptors(paths: Sequence[Path]) -> Mapping[str, frozenset[str]]:
    """Return the UIDs of each victim's preemptors, by the victim's UID, from Events in `paths`."""
    names_by_victim: dict[str, set[str]] = defaultdict(set)
    for path in _files(paths):
        for event in _events(path):
            match = _PREEMPTED.match(str(event.get("message") or event.get("note") or ""))
            about = part(event, "involvedObject") or part(event, "regarding")
            if event.get("reason") == "Preempted" and match:
                names_by_victim[str(about.get("uid"))].add(match[1])
    return {uid: frozenset(names) for uid, names in names_by_victim.items()}


def with_victims(
    decisions: Sequence[RecordedDecision],
    marked: Iterable[MarkedVictim],
    preemptors: Mapping[str, frozenset[str]],
    pods: Mapping[str, PodAppearance],
) -> list[RecordedDecision]:
    """Return the decisions with each preemption's victims; `pods` has all pods by UID.

    A victim is assigned to the nearest nomination of its preemptor for the victim's node; without
    Events, to the nearest nomination of any pod for that node. A preemption that keeps an existing
    nomination writes no nomination; it is added here as a decision without a message. If there are
    Events, a nomination without victims had no victim to delete.
    """
    taken: dict[int, list[MarkedVictim]] = defaultdict(list)
    again: dict[str, list[MarkedVictim]] = defaultdict(list)
    places = _nominations(decisions)
    for victim in marked:
        for by in sorted(preemptors.get(victim.uid, ("",))):
            place = _nearest(decisions, places[victim.node], victim, by)
            if place is not None:
                taken[place].append(victim)
            elif by in pods:
                again[by].append(victim)
    return [
        *(
            _with_own_victims(decision, taken[place], pods, is_complete=bool(preemptors))
            for place, decision in enumerate(decisions)
        ),
        *(_repeated(pods[uid].ref, group) for uid in again for group in _groups(again[uid])),
    ]


def _nominations(decisions: Sequence[RecordedDecision]) -> dict[str, list[int]]:
    places: dict[str, list[int]] = defaultdict(list)
    for place, decision in enumerate(decisions):
        if decision.kind is DecisionKind.PREEMPTION:
            places[decision.node].append(place)
    return places


def _nearest(
    decisions: Sequence[RecordedDecision], places: Sequence[int], victim: MarkedVictim, by: str
) -> int | None:
    """Return the index of the nomination to which a victim is assigned; `by` "": any preemptor."""
    near = [
        place
        for place in places
        if by in {"", decisions[place].pod.uid}
        and abs(decisions[place].at_ns - victim.at_ns) <= NEAR_NS
    ]
    return min(near, key=lambda p: abs(decisions[p].written - victim.position), default=None)


def _with_own_victims(
    decision: RecordedDecision,
    victims: Sequence[MarkedVictim],
    pods: Mapping[str, PodAppearance],
    *,
    is_complete: bool,
) -> RecordedDecision:
    """Add the victims of a preemption, except those marked before its pod was created.

    `is_complete`: Events name all victims, so a preemption without one deleted no pod.
    """
    if decision.kind is not DecisionKind.PREEMPTION or not (victims or is_complete):
        return decision
    came = pods[decision.pod.uid].position
    marks = [victim.position for victim in victims if victim.position > came]
    return replace(
        decision,
        position=min([decision.position, *marks]),
        victims=tuple(sorted(victim.name for victim in victims)),
    )


def _repeated(pod: ObjectReference, victims: Sequence[MarkedVictim]) -> RecordedDecision:
    first = victims[0]
    return RecordedDecision(
        kind=DecisionKind.PREEMPTION,
        pod=pod,
        written=first.position,
        position=first.position,
        at_ns=first.at_ns,
        version="",
        node=first.node,
        victims=tuple(sorted(victim.name for victim in victims)),
    )


def _groups(victims: Sequence[MarkedVictim]) -> Iterator[Sequence[MarkedVictim]]:
    """Group the victims of one preemptor by preemption: the same node, within NEAR_NS."""
    group: list[MarkedVictim] = []
    for victim in victims:
        last = group[-1] if group else victim
        if last.node != victim.node or victim.at_ns - last.at_ns > NEAR_NS:
            yield group
            group = []
        group.append(victim)
    if group:
        yield group


def _files(paths: Sequence[Path]) -> Iterator[Path]:
    for path in paths:
        files = sorted(path.iterdir()) if path.is_dir() else [path]
        yield from (file for file in files if file.is_file() and _IS_EVENTS.search(head(file)))


def _events(path: Path) -> Iterator[Raw]:
    with open_plain(path) as file:
        for _, value in json_values(file, str(path)):
            event = value.get("event", value) if isinstance(value, dict) else {}
            raw = event.get("object", event) if isinstance(event, dict) else {}
            if isinstance(raw, dict) and kind(raw) == "Event":
                yield raw


LoggedBinding = tuple[str, str, LoggedScores]
"""A line of the log: the pod as NAMESPACE/NAME, its node, and the logged scores."""


def decision_log(paths: Sequence[Path]) -> list[LoggedBinding] | None:
    """Return the log's bindings in order; None if no folder of `paths` has a log."""
    files = [file for path in paths if path.is_dir() for file in path.glob(f"{_STEM}*")]
    return _read(sorted(files)[0]) if files else None


def in_decided_order(
    decisions: Sequence[RecordedDecision], log: Sequence[LoggedBinding] | None
) -> list[RecordedDecision]:
    """Return the decisions in the order in which they were made, with updated positions.

    A decision is made before every later decision is written, so the position of a binding is the
    lowest position among itself and the bindings after it in the log. Decisions that are not in the
    log stay where they were written.
    """
    binds = sorted(
        (decision for decision in decisions if decision.kind is DecisionKind.BIND),
        key=lambda decision: decision.written,
    )
    rest = [decision for decision in decisions if decision.kind is not DecisionKind.BIND]
    ranked = [bind for bind in _ranked(binds, log or ()) if bind.scored is not None]
    logged = {bind.written for bind in ranked}
    ranked.sort(key=lambda bind: bind.scored.rank if bind.scored else 0)
    earliest = max((bind.written for bind in binds), default=0)
    for place in range(len(ranked) - 1, -1, -1):
        earliest = min(earliest, ranked[place].position)
        ranked[place] = replace(ranked[place], position=earliest)
    unlogged = [bind for bind in binds if bind.written not in logged]
    # The sort is stable: bindings at one position stay in the log's order.
    return sorted([*ranked, *unlogged, *rest], key=lambda decision: decision.position)


def _ranked(
    binds: Sequence[RecordedDecision], log: Sequence[LoggedBinding]
) -> list[RecordedDecision]:
    """Add the log's line to each binding; successive pods of one name get successive lines."""
    lines: dict[tuple[str, str], deque[LoggedScores]] = defaultdict(deque)
    for pod, node, scored in log:
        lines[pod, node].append(scored)
    result: list[RecordedDecision] = []
    for bind in binds:
        logged = lines[f"{bind.pod.namespace}/{bind.pod.name}", bind.node]
        result.append(replace(bind, scored=logged.popleft()) if logged else bind)
    return result


def _read(path: Path) -> list[LoggedBinding]:
    result: list[LoggedBinding] = []
    with open_plain(path) as file:
        for _, line in json_values(file, str(path)):
            if isinstance(line, dict) and isinstance(line.get("pod"), str):
                scored = LoggedScores(
                    rank=len(result),
                    feasible=int(line.get("feasible", -1)),
                    top=int(line.get("top", -1)),
                    tied_nodes=tuple(sorted(line.get("tied_nodes") or ())),
                )
                result.append((line["pod"], str(line.get("node") or ""), scored))
    return result
