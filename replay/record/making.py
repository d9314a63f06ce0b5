"""The trace of a recording's folder: the importer of watches reads it, usage is put in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from replay.importers import watch
from replay.importers.issues import Issues
from replay.importers.options import ImportOptions
from replay.importers.recording.change import time_ns
from replay.importers.recording.survey import survey
from replay.importers.registry import open_trace
from replay.record.errors import RecordError
from replay.record.frames import USAGE, Folder
from replay.record.profiles import UsageHistory, with_usage
from reprieve.trace.v1alpha1.trace_pb2 import Header, Marker, Record

NO_USAGE = "what pods use was not recorded: no kubelet evicts anybody in a replay of this"


def trace_of(folder: Folder) -> Iterator[Record]:
    """Yield the trace of what a recording left, ended or not.

    Raises RecordError where nothing was received, TraceError where a file cannot be read.
    """
    issues = Issues()
    about = folder.told()
    for path in folder.repair():
        issues.add("cut-short", str(path.name), "the recorder was stopped while it wrote")
    _note(about, issues)
    files = folder.watches()
    if not files:
        raise RecordError(f"{folder.path}: nothing of a recording is there")
    options = ImportOptions(source=str(about.get("server") or "recorded cluster"))
    records: Iterable[Record] = open_trace(files, format=watch.NAME, options=options)
    history = UsageHistory()
    if (log := folder.usage_file()) is not None:
        history.read(log)
    if history.pods or history.nodes:
        _, changes = watch.recorded_changes(files)
        records = with_usage(records, survey(changes(Issues())), history)
        if history.merged:
            text = "usage of a long run: neighbouring windows are put together, the larger kept"
            issues.add("merged-usage", USAGE, text, history.merged)
    else:
        issues.add("no-usage", "recording", NO_USAGE)
    yield from _told(records, folder, about, issues)


def _note(about: Mapping[str, Any], issues: Issues) -> None:
    for each in about.get("notes") or ():
        issues.add("not-recorded", "recording", str(each))
    if about.get("broken"):
        issues.add("broken-off", "recording", str(about["broken"]))
    elif "ended" not in about:
        issues.add("broken-off", "recording", "the recorder did not come to its end")


def _told(
    records: Iterable[Record], folder: Folder, about: Mapping[str, Any], issues: Issues
) -> Iterator[Record]:
    """Yield the records with what the recorder knows, in the header and behind the last one."""
    at_ns, sequence, ended_ns = 0, 0, time_ns(about.get("ended")) or 0
    for record in records:
        if record.HasField("header"):
            ended_ns = max(ended_ns, record.header.window_end_ns)
            _complete(record.header, about, ended_ns)
        elif record.HasField("issue"):
            # The folder's own place says more of whose machine this was than of the cluster.
            record.issue.where = record.issue.where.removeprefix(f"{folder.path}/")
        at_ns, sequence = record.at_ns, record.sequence
        yield record
    for issue in issues:
        sequence += 1
        yield Record(at_ns=at_ns, sequence=sequence, issue=issue)
    marker = Marker(name="end of the recording")
    yield Record(at_ns=max(at_ns, ended_ns), sequence=sequence + 1, marker=marker)


def _complete(header: Header, about: Mapping[str, Any], ended_ns: int) -> None:
    """Put into the header what watches do not tell; what is quiet at the end was recorded too."""
    header.importer = "record 1"
    header.window_end_ns = ended_ns
    header.kubernetes_version = str(about.get("version") or "") or header.kubernetes_version
    for name in ("usage", "redacted"):
        if about.get(name):
            header.options[name] = str(about[name])
