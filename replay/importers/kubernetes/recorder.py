"""kube-scheduler-simulator's recorder: a JSON line for each event of its informers.

A line is {"time", "event": Add|Update|Delete, "resource"}. The recorder follows Namespaces,
PriorityClasses, StorageClasses, claims, Nodes, volumes and Pods; of what is deleted it keeps the
name alone, so that the last state seen stands for it. What the informers list at their start comes
as Add: it is what was made more than two seconds before. The simulator's own replayer applies one
event after another and reads no times; here they are kept.

Source: kube-scheduler-simulator simulator/recorder/recorder.go.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from replay.errors import TraceError
from replay.importers.recording.survey import created_before
from replay.importers.records import Issues
from replay.kube.changes import SECOND_NS, Change, ChangeType, Raw, key, kind, meta, part, time_ns
from replay.kube.documents import CutShortError, json_values
from replay.kube.kinds import is_carried
from replay.trace.files import open_plain

NAME = "recorder"
LOOKED_FOR = 'kube-scheduler-simulator\'s record: lines with "time", "event" and "resource"'
_HEAD = re.compile(rb'^\s*\{[^{}]{0,120}"event"\s*:\s*"(Add|Update|Delete)"')
_TYPES = {"Add": ChangeType.ADDED, "Update": ChangeType.MODIFIED, "Delete": ChangeType.DELETED}
_FRESH_NS = 2 * SECOND_NS
_Event = tuple[str, int, ChangeType, Raw]


def sniff(path: Path, start: bytes) -> bool:
    """Tell whether a file whose content begins with `start` is a record of the simulator."""
    return path.suffix != ".ktr" and _HEAD.match(start) is not None


def recorded_changes(
    paths: Sequence[Path],
) -> tuple[Sequence[Path], Callable[[Issues], Iterator[Change]]]:
    """Return the files, and what yields their changes in order, as often as asked.

    What was there at the beginning comes first, for which files are read twice. The changes raise
    TraceError where a file cannot be read.
    """

    def changes(issues: Issues) -> Iterator[Change]:
        for where, at_ns, type_, raw in _events(paths, Issues()):
            if _was_there(at_ns, type_, raw):
                yield Change(at_ns=at_ns, type=type_, raw=raw, initial=True, where=where)
        yield from _live(paths, issues)

    return paths, changes


def _live(paths: Sequence[Path], issues: Issues) -> Iterator[Change]:
    last: dict[tuple[str, str, str], Raw] = {}
    for where, at_ns, type_, raw in _events(paths, issues):
        known = last.get(key(raw))
        if type_ is ChangeType.DELETED:
            if known is None:
                message = f"Delete {kind(raw)}: of an object that the record has not shown"
                issues.add("unknown-object", where, message)
                continue
            last.pop(key(raw))
            yield Change(at_ns=at_ns, type=type_, raw=known, initial=False, where=where)
            continue
        last[key(raw)] = raw
        if not _was_there(at_ns, type_, raw):
            yield Change(at_ns=at_ns, type=type_, raw=raw, initial=False, where=where)


def _was_there(at_ns: int, type_: ChangeType, raw: Raw) -> bool:
    return type_ is ChangeType.ADDED and created_before(raw, at_ns, _FRESH_NS)


def _events(paths: Sequence[Path], issues: Issues) -> Iterator[_Event]:
    latest_ns = 0
    for path in paths:
        with open_plain(path) as file:
            try:
                for where, line in json_values(file, str(path)):
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
        raise TraceError(where, "time (RFC 3339) and event (Add, Update or Delete) are wanted")
    if not is_carried(raw):
        issues.add("unknown-kind", where, f"{kind(raw)} is not carried in a trace")
        return None
    own = {name: value for name, value in meta(raw).items() if name != "managedFields"}
    if not own.get("namespace"):
        own.pop("namespace", None)
    return where, at_ns, type_, {**raw, "metadata": own, "spec": part(raw, "spec")}
