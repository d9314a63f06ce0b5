"""Splits the time that pods waited for a node into parts, and names the cause of each part.

A wait begins when the pod is created or its last scheduling gate is removed. It ends with the pod's
binding, the pod's end, or the run's end. Before the first attempt, the pod waits for its turn;
after each failed attempt, it waits for whatever that attempt lacked, until an event moves it; then
for the end of its backoff, and in activeQ for its turn; once a node is chosen, for its binding,
which takes time with some models. So the parts of a wait follow each other without a gap, and their
sum is exactly the wait.

A pod that lacks the same for long is tried again after each event that may help. Such attempts are
one part, which says how much of it was backoff and which events moved the pod.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, groupby
from typing import Any, NamedTuple

from replay.compare.verdict import PREEMPTION_MARK, counted_reasons
from replay.errors import RunError
from replay.explain.near_nodes import NearNode, NodeChange, changes_before, near_nodes
from replay.explain.target import pods_named
from replay.results.run.directory import RunDirectory
from replay.results.tables.query import Row, RunTables

UNTRIED = "its first attempt"
ROOM = "the end of victims"
DELETIONS = "the deletion of victims"
UNDONE = "a binding that was refused"
BINDING = "its binding"
BACKOFF = "the end of its backoff"
TURN = "its next attempt"
_PARTS = """
WITH waits AS (
    SELECT uid, namespace, name, workload_kind, workload_name, waiting_since_ns AS since_ns,
        coalesce(scheduled_ns, ended_ns, removed_ns, $end) AS until_ns, scheduled_ns, node_name
    FROM pods WHERE waiting_since_ns IS NOT NULL AND {chosen}
),
tried AS (
    SELECT uid, at_ns, sequence, attempt, message, nominated_node, victims, refused
    FROM attempts WHERE (result <> 'Scheduled' OR refused IS NOT NULL)
        AND uid IN (SELECT uid FROM waits)
),
moved AS (
    SELECT uid, sequence, moved_by, active_ns,
        greatest(moved_ns, lag(at_ns) OVER (PARTITION BY uid ORDER BY sequence)) AS from_ns
    FROM attempts WHERE uid IN (SELECT uid FROM waits)
),
deleted AS (
    SELECT tried.uid, min(victim.at_ns) AS at_ns, min(victim.sequence) AS sequence, tried.attempt,
        tried.nominated_node, tried.victims, tried.sequence AS decided
    FROM preemptions AS victim ASOF JOIN tried
        ON victim.by_uid = tried.uid AND victim.sequence > tried.sequence
    WHERE victim.at_ns > tried.at_ns AND tried.nominated_node IS NOT NULL
    GROUP BY ALL
),
marks AS (
    SELECT 'untried' AS kind, uid, since_ns AS from_ns, 0 AS sequence FROM waits
    UNION ALL BY NAME
    SELECT 'backoff' AS kind, uid, from_ns, sequence, moved_by FROM moved
    WHERE moved_by IS NOT NULL
    UNION ALL BY NAME
    SELECT 'turn' AS kind, uid, greatest(active_ns, from_ns) AS from_ns, sequence FROM moved
    WHERE active_ns IS NOT NULL
    UNION ALL BY NAME
    SELECT CASE WHEN refused IS NOT NULL THEN 'undone'
            WHEN sequence IN (SELECT decided FROM deleted) THEN 'deletions'
            WHEN nominated_node IS NOT NULL THEN 'room' ELSE 'refused' END AS kind,
        * RENAME (at_ns AS from_ns)
    FROM tried
    UNION ALL BY NAME
    SELECT 'binding' AS kind, uid, at_ns - took_ns AS from_ns, sequence, attempt FROM attempts
    WHERE took_ns > 0 AND uid IN (SELECT uid FROM waits)
    UNION ALL BY NAME
    SELECT 'room' AS kind, * EXCLUDE (decided) RENAME (at_ns AS from_ns) FROM deleted
),
parts AS (
    SELECT *, list_position(['backoff', 'turn'], kind) AS step,
        lead(from_ns) OVER (PARTITION BY uid ORDER BY from_ns, sequence, step NULLS LAST) AS next_ns
    FROM marks
)
"""
_OF_PODS = (
    _PARTS
    + """
SELECT waits.namespace || '/' || waits.name, uid, since_ns, until_ns, scheduled_ns IS NOT NULL,
    node_name, greatest(from_ns, since_ns) AS began_ns,
    least(coalesce(next_ns, until_ns), until_ns) AS ended_ns, kind, attempt, message,
    nominated_node, victims, refused, moved_by
FROM waits JOIN parts USING (uid)
ORDER BY since_ns, uid, began_ns, sequence, step NULLS LAST
"""
)
_OF_WORKLOADS = (
    _PARTS.rstrip()  # noqa: S608 - made of this module's own constants
    + """,
lengths AS (
    SELECT *, greatest(0, least(coalesce(next_ns, until_ns), until_ns)
        - greatest(from_ns, since_ns)) AS length_ns
    FROM waits JOIN parts USING (uid)
),
ranked AS (
    SELECT workload_kind, namespace, workload_name, sum(length_ns) AS total_ns
    FROM lengths WHERE workload_kind IS NOT NULL
    GROUP BY ALL HAVING total_ns > 0
    ORDER BY total_ns DESC, workload_kind, namespace, workload_name LIMIT $limit
)
SELECT workload_kind || ' ' || namespace || '/' || workload_name AS key, total_ns, kind,
    CASE WHEN kind = 'refused' THEN message END AS message, sum(length_ns), list(DISTINCT uid)
FROM lengths JOIN ranked USING (workload_kind, namespace, workload_name)
WHERE length_ns > 0
GROUP BY ALL
ORDER BY total_ns DESC, key, kind, message
"""
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Moves:
    """How often an event moved a pod to activeQ or a backoffQ, and when first and last."""

    event: str
    times: int
    first_ns: int
    last_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitPart:
    """A part of a wait: consecutive `attempts` with the same cause, and the time after them.

    cause: what the pod waited for, in a few words. details: all reasons of the first attempt, each
    with the number of nodes refused for it (0: for the pod as a whole); or the node where victims
    terminate or are to be deleted, with their number. backoff_ns, turn_ns: the time in it after an
    event had moved the pod, in a backoffQ and then in activeQ. moves: these events, the last one
    last.
    """

    from_ns: int
    until_ns: int
    cause: str
    details: tuple[tuple[str, int], ...] = ()
    attempts: tuple[int, ...] = ()
    backoff_ns: int = 0
    turn_ns: int = 0
    moves: tuple[Moves, ...] = ()

    @property
    def length_ns(self) -> int:
        """Return how long it took."""
        return self.until_ns - self.from_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class PodWait:
    """The wait of one pod, divided into consecutive `parts`.

    node: the node to which the pod was bound, "" if it was not. lasts: whether the pod still waits
    at the run's end. tried_ns: when the last attempt failed.
    """

    key: str
    uid: str
    from_ns: int
    until_ns: int
    node: str
    lasts: bool
    tried_ns: int
    parts: Sequence[WaitPart]

    @property
    def length_ns(self) -> int:
        """Return how long it took."""
        return self.until_ns - self.from_ns

    def totals(self) -> list[tuple[str, int]]:
        """Return the time by cause, ns, the longest first; it adds up to the wait."""
        return _ranked(_totals(self.parts))

    def moves(self) -> tuple[Moves, ...]:
        """Return the events that moved the pod while it waited, the last one last."""
        return _counted(moves for part in self.parts for moves in part.moves)


@dataclass(slots=True, kw_only=True)
class WorkloadWait:
    """The waits of a workload's pods together: their number and the time by cause, ns."""

    key: str
    pods: set[str] = field(default_factory=set)
    by_cause: Counter[str] = field(default_factory=Counter)

    @property
    def length_ns(self) -> int:
        """Return how long its pods waited in all."""
        return self.by_cause.total()

    def totals(self) -> list[tuple[str, int]]:
        """Return the time by cause, ns, the longest first."""
        return _ranked(self.by_cause)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodWaits:
    """Some pods' waits, in the order of their beginnings.

    near: for a single pod, the nodes on which it nearly fitted at `near_ns`, the beginning of the
    longest part of its wait that followed a refusal. changes: those on the pod's node between its
    last failed attempt and its binding, the latest first.
    """

    run: str
    start_ns: int
    named: str
    pods: Sequence[PodWait]
    near: Sequence[NearNode] = ()
    near_ns: int = 0
    changes: Sequence[NodeChange] = ()

    @property
    def length_ns(self) -> int:
        """Return how long they waited in all."""
        return sum(pod.length_ns for pod in self.pods)

    def totals(self) -> list[tuple[str, int]]:
        """Return the time by cause, ns, the longest first; it adds up to `length_ns`."""
        return _ranked(_totals(part for pod in self.pods for part in pod.parts))

    def to_mapping(self) -> dict[str, Any]:
        """Return everything as JSON has it."""
        return {
            "run": self.run,
            "startNs": self.start_ns,
            "waitedNs": self.length_ns,
            "byCause": [{"cause": cause, "ns": length} for cause, length in self.totals()],
            "pods": [
                {
                    "pod": pod.key,
                    "uid": pod.uid,
                    "fromNs": pod.from_ns,
                    "untilNs": pod.until_ns,
                    "waitedNs": pod.length_ns,
                    "node": pod.node,
                    "lasts": pod.lasts,
                    "byCause": [{"cause": cause, "ns": length} for cause, length in pod.totals()],
                    "parts": [
                        {
                            "fromNs": part.from_ns,
                            "untilNs": part.until_ns,
                            "cause": part.cause,
                            "details": [
                                {"reason": reason, "nodes": nodes} for reason, nodes in part.details
                            ],
                            "attempts": list(part.attempts),
                            "backoffNs": part.backoff_ns,
                            "turnNs": part.turn_ns,
                            "movedBy": [
                                {
                                    "event": moves.event,
                                    "times": moves.times,
                                    "firstNs": moves.first_ns,
                                    "lastNs": moves.last_ns,
                                }
                                for moves in part.moves
                            ],
                        }
                        for part in pod.parts
                    ],
                }
                for pod in self.pods
            ],
            "nearNodes": [
                {
                    "node": near.node,
                    "lacks": dict(near.lacks),
                    "heldBy": [
                        {"holder": holder, "requests": dict(amounts)}
                        for holder, amounts in near.holders
                    ],
                }
                for near in self.near
            ],
            "nearNs": self.near_ns,
            "changedBefore": [
                {"atNs": change.at_ns, "change": change.sentence} for change in self.changes
            ],
        }


def waits_of(run: RunDirectory, named: str, namespace: str = "", top: int = 5) -> PodWaits:
    """Return the waits of a pod by name, "namespace/name" or UID, or of the pods of KIND/NAME.

    A name with the kind of a workload before it, as in deployment/web, selects the pods of that
    workload. If several pods had the name one after the other, each has a wait. `namespace` "" is
    any. `top`: the number of nodes to list on which a single pod nearly fitted. Raises RunError if
    no pod of the run matches.
    """
    head, _, rest = named.partition("/")
    with RunTables(run) as tables:
        kinds = tables.select("SELECT DISTINCT lower(workload_kind) FROM pods").rows()
        if head.lower() in {kind for (kind,) in kinds}:
            prefix, _, name = rest.rpartition("/")
            values = {"kind": head, "name": name, "namespace": prefix or namespace}
            return _waits(run, tables, _OF_WORKLOAD, values, named)
        uids = [life.uid for life in pods_named(run, named, namespace)]
        waits = _waits(run, tables, "list_contains($uids, uid)", {"uids": uids}, named)
        return _with_nodes(run, tables, waits, top) if len(waits.pods) == 1 else waits


_OF_WORKLOAD = """
lower(workload_kind) = lower($kind) AND workload_name = $name AND $namespace IN ('', namespace)
"""


def _waits(
    run: RunDirectory, tables: RunTables, chosen: str, values: Mapping[str, object], named: str
) -> PodWaits:
    start_ns, end_ns = next(iter(tables.select("SELECT start_ns, end_ns FROM run").rows()))
    end_ns = max(end_ns, run.manifest().end_ns)
    rows = tables.select(_OF_PODS.format(chosen=chosen), {**values, "end": end_ns}).rows()
    pods = [_pod_wait(pod, parts, end_ns) for pod, parts in groupby(rows, key=lambda row: row[:6])]
    if not pods:
        raise RunError(f"{named} has no pod that waited for a node")
    return PodWaits(run=str(run.path), start_ns=start_ns, named=named, pods=pods)


def _with_nodes(run: RunDirectory, tables: RunTables, waits: PodWaits, top: int) -> PodWaits:
    (pod,) = waits.pods
    if pod.node:
        changes = changes_before(run, pod.node, pod.tried_ns, pod.until_ns, top)
        waits = replace(waits, changes=changes)
    refused = [part for part in pod.parts if part.cause not in _UNREFUSED]
    if not refused:
        return waits
    longest = max(refused, key=lambda part: part.length_ns)
    owners: dict[str, str] = dict(tables.select(_OWNERS).rows())
    near = near_nodes(run, pod.uid, longest.from_ns, owners, top)
    return replace(waits, near=near, near_ns=longest.from_ns)


_OWNERS = """
SELECT uid, coalesce(workload_kind || ' ' || namespace || '/' || workload_name,
    'Pod ' || namespace || '/' || name) FROM pods
"""


def _pod_wait(pod: tuple[Any, ...], rows: Iterable[tuple[Any, ...]], end_ns: int) -> PodWait:
    key, uid, since_ns, until_ns, is_bound, node = pod
    marks = [_Mark(*row[6:]) for row in rows]
    return PodWait(
        key=key,
        uid=uid,
        from_ns=since_ns,
        until_ns=until_ns,
        node=node if is_bound else "",
        lasts=not is_bound and until_ns == end_ns,
        tried_ns=next(mark.from_ns for mark in reversed(marks) if mark.kind not in _MOVED),
        parts=tuple(_merged(map(_part, marks))),
    )


_MOVED: Mapping[str, str] = {"backoff": BACKOFF, "turn": TURN}
"""The causes of the time after an event has moved the pod, by kind of mark."""
_CAUSES: Mapping[str, str] = {
    **_MOVED,
    "untried": UNTRIED,
    "room": ROOM,
    "deletions": DELETIONS,
    "undone": UNDONE,
    "binding": BINDING,
}


_UNREFUSED = frozenset(_CAUSES.values())
"""The causes that no refusal of nodes precedes."""


class _Mark(NamedTuple):
    """A moment at which what a pod waits for may change, and the end of the time after it."""

    from_ns: int
    until_ns: int
    kind: str
    attempt: int | None
    message: str | None
    nominated_node: str | None
    victims: int | None
    refused: str | None
    moved_by: str | None


def _part(mark: _Mark) -> WaitPart:
    cause, details = cause_of(mark.kind, mark.message)
    if cause in {ROOM, DELETIONS}:
        details = ((f"{mark.nominated_node}", mark.victims or 0),)
    elif cause == UNDONE:
        details = ((f"{mark.refused}", 0),)
    length_ns = mark.until_ns - mark.from_ns
    return WaitPart(
        from_ns=mark.from_ns,
        until_ns=mark.until_ns,
        cause=cause,
        details=details,
        attempts=() if mark.attempt is None else (mark.attempt,),
        backoff_ns=length_ns if cause == BACKOFF else 0,
        turn_ns=length_ns if cause == TURN else 0,
        moves=(Moves(event=mark.moved_by, times=1, first_ns=mark.from_ns, last_ns=mark.from_ns),)
        if mark.moved_by
        else (),
    )


def cause_of(kind: str, message: str | None) -> tuple[str, tuple[tuple[str, int], ...]]:
    """Return what a pod waits for after a mark, and all reasons with their numbers of nodes.

    After a refusal, the pod waits for the reasons that refused at least half as many nodes as the
    first reason; `message` is kube-scheduler's.
    """
    if kind in _CAUSES:
        return _CAUSES[kind], ()
    reasons = sorted(
        counted_reasons((message or "").partition(PREEMPTION_MARK)[0]),
        key=lambda reason: (-reason[1], reason[0]),
    )
    if not reasons:
        return message or "an attempt that failed", ()
    named = sorted(reason for reason, nodes in reasons if 2 * nodes >= reasons[0][1])
    return ", ".join(dict.fromkeys(named)), tuple(reasons)


def _with_moves(parts: Iterable[WaitPart]) -> Iterator[list[WaitPart]]:
    """Yield each attempt's part with those that follow it once an event has moved the pod."""
    attempt: list[WaitPart] = []
    for part in parts:
        if attempt and part.cause not in _MOVED.values():
            yield attempt
            attempt = []
        attempt.append(part)
    if attempt:
        yield attempt


def _merged(parts: Iterable[WaitPart]) -> Iterator[WaitPart]:
    """Yield a part for consecutive attempts of equal causes, with the time after their moves.

    An attempt that another one followed at the same instant is left out.
    """
    lasting = (
        attempt for attempt in _with_moves(parts) if attempt[-1].until_ns > attempt[0].from_ns
    )
    for _, attempts in groupby(lasting, key=lambda attempt: attempt[0].cause):
        merged = [part for attempt in attempts for part in attempt]
        yield replace(
            merged[0],
            until_ns=merged[-1].until_ns,
            attempts=tuple(chain.from_iterable(part.attempts for part in merged)),
            backoff_ns=sum(part.backoff_ns for part in merged),
            turn_ns=sum(part.turn_ns for part in merged),
            moves=_counted(chain.from_iterable(part.moves for part in merged)),
        )


def _counted(moves: Iterable[Moves]) -> tuple[Moves, ...]:
    """Return one value for each event, the one that moved the pod last at the end."""
    by_event: dict[str, Moves] = {}
    for move in moves:
        before = by_event.pop(move.event, None)
        by_event[move.event] = (
            move
            if before is None
            else replace(before, times=before.times + move.times, last_ns=move.last_ns)
        )
    return tuple(by_event.values())


def workloads_that_waited(
    rows: Callable[[str, Mapping[str, object]], Iterable[Row]], end_ns: int, limit: int
) -> list[WorkloadWait]:
    """Return up to `limit` workloads with the longest total wait of their pods.

    `rows` runs a query on the run's tables; the run ends at `end_ns`.
    """
    waits: dict[str, WorkloadWait] = {}
    values = {"end": end_ns, "limit": limit}
    for row in rows(_OF_WORKLOADS.format(chosen="true"), values):
        key, _, kind, message, length_ns, uids = row
        cause, _ = cause_of(kind, message)
        workload = waits.setdefault(key, WorkloadWait(key=key))
        workload.by_cause[cause] += int(length_ns)
        workload.pods.update(uids)
    return list(waits.values())


def _totals(parts: Iterable[WaitPart]) -> Counter[str]:
    totals = Counter[str]()
    for part in parts:
        totals[BACKOFF] += part.backoff_ns
        totals[TURN] += part.turn_ns
        totals[part.cause] += part.length_ns - part.backoff_ns - part.turn_ns
    return +totals


def _ranked(totals: Counter[str]) -> list[tuple[str, int]]:
    return sorted(totals.items(), key=lambda total: (-total[1], total[0]))
