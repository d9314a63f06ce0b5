"""kube-scheduler-simulator's recorder: a JSON line for each event of its informers.

A line is {"time", "event": Add|Update|Delete, "resource"}. The recorder watches Namespaces,
PriorityClasses, StorageClasses, claims, Nodes, volumes and Pods. Of a deleted object it has only
the name, so that the last recorded state is used. An Add of an object that was created more than
two seconds before belongs to the informers' first list. The simulator's replayer applies one event
after another and ignores the times; this importer keeps them.

Source: kube-scheduler-simulator simulator/recorder/recorder.go.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from replay.errors import TraceError
from replay.importers.kubernetes.left_out import issue_of
from replay.importers.recording.interpreter import recording_importer
from replay.importers.recording.survey import was_listed
from replay.importers.records import Issues, Recording
from replay.kube.changes import ChangeType, Raw, RecordedChange, key, kind, meta, part, time_ns
from replay.kube.documents import read_json
from replay.kube.kinds import is_carried
from replay.trace.files import CutShortError

_HEAD = re.compile(rb'^\s*\{[^{}]{0,120}"event"\s*:\s*"(Add|Update|Delete)"')
_TYPES = {"Add": ChangeType.ADDED, "Update": ChangeType.MODIFIED, "Delete": ChangeType.DELETED}

_Event = tuple[str, int, ChangeType, Raw]


def sniff(path: Path, start: bytes) -> bool:
    """Return whether a file whose content begins with `start` is a record of the simulator."""
    return path.suffix != ".ktr" and _HEAD.match(start) is not None


def open_recording(paths: Sequence[Path]) -> Recording:
    """Return the recording of the files, which are read twice: first for the first list."""

    def changes(issues: Issues) -> Iterator[RecordedChange]:
        for where, at_ns, type_, raw in _events(paths, Issues()):
            if _is_initial(at_ns, type_, raw):
                yield RecordedChange(at_ns=at_ns, type=type_, raw=raw, initial=True, where=where)
        yield from _later_changes(paths, issues)

    return Recording(paths=paths, changes=changes)


def _later_changes(paths: Sequence[Path], issues: Issues) -> Iterator[RecordedChange]:
    last: dict[tuple[str, str, str], Raw] = {}
    for where, at_ns, type_, raw in _events(paths, issues):
        if type_ is ChangeType.DELETED:
            before = last.pop(key(raw), None)
            if before is None:
                message = f"Delete {kind(raw)}: of an object that the record has not shown"
                issues.add("unknown-object", where, message)
            else:
                yield RecordedChange(
                    at_ns=at_ns, type=type_, raw=before, initial=False, where=where
                )
            continue
        last[key(raw)] = raw
        if not _is_initial(at_ns, type_, raw):
            yield RecordedChange(at_ns=at_ns, type=type_, raw=raw, initial=False, where=where)


def _is_initial(at_ns: int, type_: ChangeType, raw: Raw) -> bool:
    return type_ is ChangeType.ADDED and was_listed(raw, at_ns)


def _events(paths: Sequence[Path], issues: Issues) -> Iterator[_Event]:
    latest_ns = 0
    for path in paths:
        try:
            for where, line in read_json(path):
                event = _event(where, line, issues)
                if event is not None:
                    latest_ns = max(latest_ns, event[1])
                    yield where, latest_ns, event[2], event[3]
        except CutShortError as error:
            issues.add("cut-line", error.where, "the last line is not whole: left out")


def _event(where: str, line: object, issues: Issues) -> _Event | None:
    raw = line.get("resource") if isinstance(line, dict) else None
    if not isinstance(line, dict) or not isinstance(raw, dict):
        issues.add("unknown-line", where, "no event of the recorder: left out")
        return None
    at_ns, type_ = time_ns(line.get("time")), _TYPES.get(str(line.get("event")))
    if at_ns is None or type_ is None:
        raise TraceError(where, "expected time (RFC 3339) and event (Add, Update or Delete)")
    if not is_carried(raw):
        issue_kind, message = issue_of(raw)
        issues.add(issue_kind, where, message)
        return None
    metadata = {name: value for name, value in meta(raw).items() if name != "managedFields"}
    if not metadata.get("namespace"):
        metadata.pop("namespace", None)
    return where, at_ns, type_, {**raw, "metadata": metadata, "spec": part(raw, "spec")}


IMPORTER = recording_importer(
    "recorder",
    'kube-scheduler-simulator\'s record: lines with "time", "event" and "resource"',
    sniff,
    open_recording,
)
