"""Makes a trace from a recording's folder: the importer of watches reads it, and usage is added.

As a replay expects, the times in a pod's usage profile are relative to the pod's start, and the
times in a node's profile to the node's creation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from replay.errors import RecordError
from replay.importers.kubernetes import watch
from replay.importers.recording.survey import Survey, survey
from replay.importers.records import ImportOptions, Issues, RecordNumbering
from replay.importers.registry import open_trace
from replay.kube.changes import time_ns
from replay.kube.documents import read_json
from replay.record.frames import USAGE, RecordingFolder
from replay.record.usage import CONTAINERS, USAGE_FIELDS
from reprieve.kube.v1beta1.pod_pb2 import Pod
from reprieve.trace.v1beta1.trace_pb2 import Header, Marker, PodLife, Record, UsageProfile

NO_USAGE = "usage was not recorded: no kubelet evicts a pod in a replay of this trace"
WINDOWS_MAX = 512
_BY_CONTAINER = ("cpu_milli", "memory_bytes")
_Usage = dict[str, Any]
_Window = tuple[int, _Usage]


def trace_of(folder: RecordingFolder) -> Iterator[Record]:
    """Yield the trace of a recording, even if the recording was interrupted.

    Raises RecordError if nothing was received, TraceError if a file cannot be read.
    """
    issues = Issues()
    about = folder.read_about()
    for path in folder.repair():
        issues.add("cut-short", str(path.name), "the recorder was stopped while it wrote")
    _add_notes(about, issues)
    files = folder.watches()
    if not files:
        raise RecordError(f"{folder.path}: has no recorded watches; give the folder of a recording")
    options = ImportOptions(source=str(about.get("server") or "recorded cluster"))
    recording = watch.open_recording(files)
    records: Iterable[Record] = open_trace(files, format=watch.NAME, options=options)
    history = UsageHistory()
    if (log := folder.usage_file()) is not None:
        history.read(log)
    if history.pods or history.nodes:
        facts = survey(recording.changes(Issues()))
        records = with_usage(records, facts, history)
        if history.merged:
            text = "usage of a long run: neighbouring windows are put together, the larger kept"
            issues.add("merged-usage", USAGE, text, history.merged)
    else:
        issues.add("no-usage", "recording", NO_USAGE)
    yield from _completed(
        records, folder, about, issues, is_claimed=recording.complete_until_ns is not None
    )


def _add_notes(about: Mapping[str, Any], issues: Issues) -> None:
    for note in about.get("notes") or ():
        issues.add("not-recorded", "recording", str(note))
    if about.get("broken"):
        issues.add("broken-off", "recording", str(about["broken"]))
    elif "ended" not in about:
        issues.add("broken-off", "recording", "the recorder was stopped before its end")


def _completed(
    records: Iterable[Record],
    folder: RecordingFolder,
    about: Mapping[str, Any],
    issues: Issues,
    *,
    is_claimed: bool,
) -> Iterator[Record]:
    """Yield the records, with the recorder's facts in the header and its issues at the end.

    `is_claimed`: whether the watches state until when they are complete. If not, the window extends
    from the last change to the end of the recorder.
    """
    at_ns, sequence, ended_ns = 0, 0, 0 if is_claimed else time_ns(about.get("ended")) or 0
    for record in records:
        if record.HasField("header"):
            ended_ns = max(ended_ns, record.header.window_end_time_ns)
            _complete(record.header, about, ended_ns)
        elif record.HasField("issue"):
            # The folder's path is about this machine, not about the cluster.
            record.issue.where = record.issue.where.removeprefix(f"{folder.path}/")
        if record.time_ns > ended_ns:
            # A replay stops at the end of the window, so all issues must come before it.
            for issue in issues.taken():
                sequence += 1
                yield Record(time_ns=at_ns, sequence=sequence, issue=issue)
        at_ns, sequence = record.time_ns, sequence + 1
        record.sequence = sequence
        yield record
    for issue in issues:
        sequence += 1
        yield Record(time_ns=at_ns, sequence=sequence, issue=issue)
    marker = Marker(name="end of the recording")
    yield Record(time_ns=max(at_ns, ended_ns), sequence=sequence + 1, marker=marker)


def _complete(header: Header, about: Mapping[str, Any], ended_ns: int) -> None:
    """Add the recorder's facts that watches do not contain to the header."""
    header.importer = "record 1"
    header.window_end_time_ns = ended_ns
    header.kubernetes_version = str(about.get("version") or "") or header.kubernetes_version
    for name in ("usage", "redacted"):
        if about.get(name):
            header.options[name] = str(about[name])
    if isinstance(names := about.get("namespaces"), list):
        header.options["namespaces"] = ", ".join(map(str, names))


class UsageHistory:
    """Recorded usage by pod (UID) and node (name), at most WINDOWS_MAX windows of each.

    Beyond that, neighbouring windows are merged, with the larger amounts of the two.
    """

    def __init__(self) -> None:
        self.pods: dict[str, list[_Window]] = {}
        self.nodes: dict[str, list[_Window]] = {}
        self._merged: set[str] = set()

    @property
    def merged(self) -> int:
        """Return the number of pods and nodes with merged windows."""
        return len(self._merged)

    def read(self, path: Path) -> None:
        """Add a log of usage. Raises TraceError if it cannot be read."""
        for _, line in read_json(path):
            if isinstance(line, dict) and (at_ns := time_ns(line.get("arrival"))) is not None:
                self.add(at_ns, line)

    def add(self, at_ns: int, line: Mapping[str, Any]) -> None:
        """Add one sample: a line of UsageLog."""
        for windows_of, usages in ((self.pods, line.get("pods")), (self.nodes, line.get("nodes"))):
            for name, usage in (usages or {}).items():
                windows = windows_of.setdefault(name, [])
                if windows and windows[-1][1] == usage:
                    continue
                windows.append((at_ns, usage))
                if len(windows) > WINDOWS_MAX:
                    windows[:] = _halved(windows)
                    self._merged.add(name)


def with_usage(records: Iterable[Record], facts: Survey, history: UsageHistory) -> Iterator[Record]:
    """Yield a trace's records, each pod and node with its usage profile before it.

    `facts` is the survey of the recording, which has the start of each pod.
    """
    profiles = _Profiles(facts, history)
    for record in records:
        yield from profiles.put_before(record)


class _Profiles:
    def __init__(self, facts: Survey, history: UsageHistory) -> None:
        self._facts = facts
        self._history = history
        self._numbering = RecordNumbering()
        self._count = 0
        self._by_owner = {
            (object_facts.owner_uid, object_facts.ordinal): uid
            for uid, object_facts in facts.objects.items()
            if object_facts.kind == "Pod" and object_facts.is_observed
        }
        self._owners = {key: uid for uid, key in facts.controllers.items()}

    def put_before(self, record: Record) -> Iterator[Record]:
        match record.WhichOneof("record"):
            case "pod_create":
                create = record.pod_create
                start_ns = _start_ns(create.pod, record.time_ns)
                yield from self._of_pod(
                    record.time_ns, create.pod.metadata.uid, start_ns, create.life
                )
            case "controller_pod":
                made = record.controller_pod
                owner = self._owners.get((made.owner.kind, made.owner.namespace, made.owner.name))
                uid = self._by_owner.get((owner or "", made.ordinal), "")
                yield from self._of_pod(record.time_ns, uid, None, made.life)
            case "create" if record.create.HasField("node"):
                windows = self._history.nodes.get(record.create.node.metadata.name, ())
                name = record.create.node.metadata.name
                yield from self._profile(record.time_ns, windows, record.time_ns, node_name=name)
        content = record.WhichOneof("record") or ""
        yield self._numbering.record(record.time_ns, **{content: getattr(record, content)})

    def _of_pod(
        self, at_ns: int, uid: str, start_ns: int | None, life: PodLife
    ) -> Iterator[Record]:
        facts = self._facts.objects.get(uid)
        if start_ns is None:
            start_ns = facts.running_ns if facts else None
        windows = self._history.pods.get(uid, ())
        if start_ns is None or not windows:
            return
        yield from self._profile(at_ns, windows, start_ns)
        life.usage_id = self._count

    def _profile(
        self, at_ns: int, windows: Iterable[_Window], start_ns: int, node_name: str = ""
    ) -> Iterator[Record]:
        profile = UsageProfile(id=self._count + 1, node_name=node_name)
        for sampled_ns, usage in windows:
            amounts = {name: usage[name] for name in USAGE_FIELDS if name in usage}
            # The first sample, or the last one before the pod's start, is the usage at its start.
            offset_ns = max(0, sampled_ns - start_ns) if profile.segments else 0
            if not offset_ns:
                del profile.segments[:]
            segment = profile.segments.add(offset_duration_ns=offset_ns, **amounts)
            for name, used in usage.get(CONTAINERS, {}).items():
                reported = {
                    resource: used[resource] for resource in _BY_CONTAINER if resource in used
                }
                segment.containers.add(name=name, **reported)
        if profile.segments:
            self._count += 1
            yield self._numbering.record(at_ns, usage=profile)


def _start_ns(pod: Pod, at_ns: int) -> int | None:
    """Return the start of a pod that runs at the start of the trace, as a replay reads it."""
    if pod.status.phase != "Running":
        return None
    return pod.status.start_time.ToNanoseconds() if pod.status.HasField("start_time") else at_ns


def _halved(windows: list[_Window]) -> list[_Window]:
    pairs = zip(windows[::2], [*windows[1::2], windows[-1]], strict=False)
    return [(first[0], _larger(first[1], second[1])) for first, second in pairs]


def _larger(one: _Usage, other: _Usage) -> _Usage:
    names = {**one, **other}
    return {
        name: _larger(one.get(name, {}), other.get(name, {}))
        if isinstance(names[name], dict)
        else max(one.get(name, 0), other.get(name, 0))
        for name in names
    }
