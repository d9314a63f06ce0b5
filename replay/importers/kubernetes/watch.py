"""Recorded watches: of `kubectl get -w -o json --output-watch-events`, or of the API itself.

One file a resource, or one of several resources; events compact or pretty-printed, as they are or
within {"arrival": TIME, "event": ...}. Files are merged by resourceVersion, which orders all
objects of one API server's store. The time of an event is its arrival. Without an arrival it is the
latest time in the object, to the second: of its creation, of a condition's transition (for a
binding, that of PodScheduled), or of the deletion's request (deletionTimestamp minus the grace
period). Issues count these guesses.
"""

from __future__ import annotations

import heapq
import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from replay import bounds
from replay.importers.kubernetes.left_out import issue_of
from replay.importers.kubernetes.watch_coverage import (
    GAP,
    LIST_END,
    SINCE,
    RecordingCoverage,
    recording_coverage,
)
from replay.importers.recording.interpreter import recording_importer
from replay.importers.recording.survey import was_listed
from replay.importers.records import Issues, Recording
from replay.kube.changes import (
    ChangeType,
    RecordedChange,
    kind,
    latest_ns,
    meta,
    node_name,
    part,
    time_ns,
    version_number,
)
from replay.kube.documents import read_json
from replay.kube.kinds import is_carried, list_items
from replay.trace.files import open_plain

NAME = "watch"
PARTIAL = "partial-recording"
"""The kind of the issue of a recording that has only some namespaces."""
_HEAD = re.compile(rb'^\s*\{\s*"(arrival|event|type|object)"\s*:')
RECORDED_NAMESPACE = "reprieve/recorded-namespace"
"""The annotation of a file's first bookmark with the only namespace that the file is of."""
# Owners come before their dependents, and what pods need comes before pods.
_RANKS = {"PriorityClass": 0, "Namespace": 0, "Deployment": 2, "ReplicaSet": 3, "Pod": 4}
_TYPES = {type_.value: type_ for type_ in ChangeType}
_SortKey = tuple[int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Event:
    """A change, or the end of the first list (`type` None)."""

    where: str
    at_ns: int
    has_arrival: bool
    type: ChangeType | None
    raw: Any


def sniff(path: Path, start: bytes) -> bool:
    """Return whether a file whose content begins with `start` has watch events."""
    return path.suffix != ".ktr" and _HEAD.match(start) is not None and b'"object"' in start


def open_recording(paths: Sequence[Path]) -> Recording:
    """Return the recording of the files. Raises TraceError if a file cannot be read."""
    left_out = Issues()
    selected = _selected(paths, left_out)
    coverage = recording_coverage(selected)
    coverage.add_issues(left_out)

    def changes(issues: Issues) -> Iterator[RecordedChange]:
        for note in left_out:
            issues.add(note.kind, note.where, note.message, note.count)
        yield from _merged(selected, issues, coverage)

    complete_until_ns = coverage.complete_until_ns
    return Recording(paths=selected, changes=changes, complete_until_ns=complete_until_ns)


def _selected(paths: Sequence[Path], issues: Issues) -> list[Path]:
    """Leave out files of kinds that a trace does not carry, and second recordings of a kind."""
    by_kind: dict[str, list[Path]] = {}
    namespaces: set[str] = set()
    for path in paths:
        first = next((event.raw for event in _events(path, Issues(), every_kind=True)), None)
        if first is None:
            issues.add("ignored-file", str(path), "no watch event")
        elif not is_carried(first):
            issues.add("ignored-file", str(path), issue_of(first)[1])
        else:
            by_kind.setdefault(kind(first), []).append(path)
            namespaces.update(filter(None, [recorded_namespace(first)]))
    if namespaces:
        issues.add(PARTIAL, "recording", partial_text(sorted(namespaces)))
    result = []
    for kind_, files in by_kind.items():
        raw = [path for path in files if len(files) > 1 and _has_bookmarks(path)]
        for path in files:
            if raw and path not in raw:
                message = f"{kind_}: recorded by {raw[0].name} too, which marks the first list"
                issues.add("duplicate-source", str(path), message)
        result += raw or files
    return result


def recorded_namespace(first: Any) -> str:
    """Return the namespace that a file's first object names as its only one; "" without it."""
    return str(part(meta(first), "annotations").get(RECORDED_NAMESPACE) or "")


def partial_text(namespaces: Sequence[str]) -> str:
    """Return what a recording of some namespaces has, and what a replay lacks."""
    return (
        f"only these namespaces are recorded: {', '.join(namespaces)}; pods of others are missing, "
        "so nodes look emptier than they were, and a replay may schedule what the cluster could not"
    )


def _has_bookmarks(path: Path) -> bool:
    with open_plain(path) as file:
        return any(b'"BOOKMARK"' in line for line in bounds.lines(file, str(path)))


def _merged(
    paths: Sequence[Path], issues: Issues, coverage: RecordingCoverage
) -> Iterator[RecordedChange]:
    """Yield the changes of all files: first the first lists, then by resourceVersion."""
    files = [_ordered(path, issues) for path in paths]
    last_ns, gaps = 0, coverage.gaps_by_version()
    for (is_later, version, _), change in heapq.merge(*files, key=lambda item: item[0]):
        if gaps and is_later:
            names = {name: None for since, last, name in gaps if since < version <= last}
            change = replace(change, unknown=", ".join(names))  # noqa: PLW2901 - the same change
        if change.initial or change.at_ns >= last_ns:
            last_ns = last_ns if change.initial else change.at_ns
            yield change
        else:
            yield replace(change, at_ns=last_ns)


def _ordered(path: Path, issues: Issues) -> Iterator[tuple[_SortKey, RecordedChange]]:
    """Yield a file's changes with their keys in the merge."""
    first_list, rest = _first_list(_events(path, issues))
    ranked = sorted(first_list, key=lambda event: _rank(event.raw))
    for event in ranked:
        yield (0, _rank(event.raw), 0), _change(event, initial=True)
    highest = 0
    for event in rest:
        number = version_number(event.raw)
        highest = max(highest, number or 0)
        if event.type is not None:
            yield (1, highest, 0), _change(event, initial=False)


def _first_list(events: Iterator[_Event]) -> tuple[list[_Event], Iterator[_Event]]:
    """Split the events into the first list and the rest.

    A watch of the API marks the end of its first list. Otherwise the first list is those of the
    leading ADDED events whose object is older than its arrival, or has a status.
    """
    leading: list[_Event] = []
    for event in events:
        if event.type is None:
            return leading, events
        if event.type is not ChangeType.ADDED:
            initial = [event for event in leading if _is_old(event)]
            live = [event for event in leading if not _is_old(event)]
            return initial, itertools.chain([*live, event], events)
        leading.append(event)
    initial = [event for event in leading if _is_old(event)]
    return initial, iter([event for event in leading if not _is_old(event)])


def _is_old(event: _Event) -> bool:
    raw = event.raw
    if event.has_arrival and was_listed(raw, event.at_ns):
        return True
    if kind(raw) == "Pod":
        status = part(raw, "status")
        return bool(status.get("conditions")) and bool(node_name(raw))
    if kind(raw) in {"Deployment", "ReplicaSet"}:
        return bool(part(raw, "status").get("observedGeneration"))
    return not event.has_arrival


def _rank(raw: Any) -> int:
    return _RANKS.get(kind(raw), 1)


def _change(event: _Event, *, initial: bool) -> RecordedChange:
    type_ = event.type or ChangeType.ADDED
    return RecordedChange(
        at_ns=event.at_ns, type=type_, raw=event.raw, initial=initial, where=event.where
    )


def _events(path: Path, issues: Issues, *, every_kind: bool = False) -> Iterator[_Event]:
    """Yield the changes of one file, and the end of its first list.

    With `every_kind`, also bookmarks and the kinds that a trace does not carry.
    """
    for where, value in read_json(path):
        arrival = time_ns(value.get("arrival")) if isinstance(value, dict) else None
        event = value.get("event", value) if isinstance(value, dict) else {}
        event = event if isinstance(event, dict) else {}
        raw, type_ = event.get("object"), str(event.get("type") or "")
        if not type_ and (items := list_items(event)) is not None:
            for item in items:
                if arrival is None:
                    _count_guess(where, item, issues)
                yield _event(where, arrival, ChangeType.ADDED, item)
            yield _Event(where=where, at_ns=0, has_arrival=False, type=None, raw=event)
        elif not isinstance(raw, dict):
            issues.add("unknown-line", where, "no watch event: left out")
        elif type_ in _TYPES and (every_kind or is_carried(raw)):
            if arrival is None:
                _count_guess(where, raw, issues)
            yield _event(where, arrival, _TYPES[type_], raw)
        elif type_ == "BOOKMARK" and (every_kind or LIST_END in part(meta(raw), "annotations")):
            yield _Event(where=where, at_ns=0, has_arrival=False, type=None, raw=raw)
        elif type_ in _TYPES:
            issue_kind, message = issue_of(raw)
            issues.add(issue_kind, where, message)
        elif type_ != "BOOKMARK" and not (type_ == GAP and SINCE in raw):
            # Gaps with their times are in the recording's coverage.
            message = f"{type_}: {raw.get('message', 'the watch was interrupted')}"
            issues.add("watch-error", where, message)


def _count_guess(where: str, raw: Any, issues: Issues) -> None:
    """Count an event without an arrival; its time is that of its object or of the event before."""
    if latest_ns(raw):
        message = "no arrival: the latest time in the object is taken"
    else:
        message = "no arrival, and the object has no time: that of the event before it is taken"
    issues.add("guessed-time", where, f"{kind(raw)}: {message}")


def _event(where: str, arrival: int | None, type_: ChangeType, raw: Any) -> _Event:
    at_ns = latest_ns(raw) if arrival is None else arrival
    metadata = raw.get("metadata")
    if isinstance(metadata, dict):
        metadata.pop("managedFields", None)
    return _Event(where=where, at_ns=at_ns, has_arrival=arrival is not None, type=type_, raw=raw)


IMPORTER = recording_importer(
    NAME,
    'watch events: JSON objects with "type" and "object", or "arrival" and "event"',
    sniff,
    open_recording,
)
