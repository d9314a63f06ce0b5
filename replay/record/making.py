"""The trace of a recording's folder: the importer of watches reads it, usage is put in.

A pod's profile of usage counts from its start, a node's own from when it came, as a replay reads
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from replay.errors import RecordError
from replay.importers.kubernetes import watch
from replay.importers.recording.survey import Survey, survey
from replay.importers.records import ImportOptions, Issues, Numbering
from replay.importers.registry import open_trace
from replay.kube.changes import time_ns
from replay.kube.documents import json_values
from replay.record.frames import USAGE, Folder
from replay.record.usage import AMOUNTS
from replay.trace.files import open_plain
from reprieve.kube.v1beta1.pod_pb2 import Pod
from reprieve.trace.v1beta1.trace_pb2 import Header, Marker, PodLife, Record, UsageProfile

NO_USAGE = "what pods use was not recorded: no kubelet evicts anybody in a replay of this"
WINDOWS_MAX = 512
_Told = dict[str, int]
_Window = tuple[int, _Told]


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


class UsageHistory:
    """What was used when, by pod (UID) and node (name): at most 512 windows of each.

    A longer run has neighbouring windows put together, the larger amounts kept. `merged` counts
    for how many that was done.
    """

    def __init__(self) -> None:
        self.pods: dict[str, list[_Window]] = {}
        self.nodes: dict[str, list[_Window]] = {}
        self._merged: set[str] = set()

    @property
    def merged(self) -> int:
        """Return how many pods and nodes had windows put together."""
        return len(self._merged)

    def read(self, path: Path) -> None:
        """Take a log of usage. Raises TraceError where it cannot be read."""
        with open_plain(path) as file:
            for _, line in json_values(file, str(path)):
                if isinstance(line, dict) and (at_ns := time_ns(line.get("arrival"))) is not None:
                    self.add(at_ns, line)

    def add(self, at_ns: int, line: Mapping[str, Any]) -> None:
        """Take one sample."""
        for windows_of, told in ((self.pods, line.get("pods")), (self.nodes, line.get("nodes"))):
            for name, amounts in (told or {}).items():
                windows = windows_of.setdefault(name, [])
                if windows and windows[-1][1] == amounts:
                    continue
                windows.append((at_ns, amounts))
                if len(windows) > WINDOWS_MAX:
                    windows[:] = _halved(windows)
                    self._merged.add(name)


def with_usage(records: Iterable[Record], facts: Survey, history: UsageHistory) -> Iterator[Record]:
    """Yield a trace's records with the profiles before the pods and nodes that have them.

    `facts` are what the recording's survey found: when each pod began to run.
    """
    profiles = _Profiles(facts, history)
    for record in records:
        yield from profiles.put_before(record)


class _Profiles:
    def __init__(self, facts: Survey, history: UsageHistory) -> None:
        self._facts = facts
        self._history = history
        self._numbering = Numbering()
        self._count = 0
        self._by_owner = {
            (each.owner_uid, each.ordinal): uid
            for uid, each in facts.objects.items()
            if each.kind == "Pod" and each.is_observed
        }
        self._owners = {key: uid for uid, key in facts.controllers.items()}

    def put_before(self, record: Record) -> Iterator[Record]:
        match record.WhichOneof("record"):
            case "pod_create":
                create = record.pod_create
                start_ns = _start_ns(create.pod, record.at_ns)
                yield from self._of_pod(
                    record.at_ns, create.pod.metadata.uid, start_ns, create.life
                )
            case "controller_pod":
                made = record.controller_pod
                owner = self._owners.get((made.owner.kind, made.owner.namespace, made.owner.name))
                uid = self._by_owner.get((owner or "", made.ordinal), "")
                yield from self._of_pod(record.at_ns, uid, None, made.life)
            case "create" if record.create.HasField("node"):
                windows = self._history.nodes.get(record.create.node.metadata.name, ())
                name = record.create.node.metadata.name
                yield from self._profile(record.at_ns, windows, record.at_ns, node_name=name)
        content = record.WhichOneof("record") or ""
        yield self._numbering.record(record.at_ns, **{content: getattr(record, content)})

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
        for seen_ns, amounts in windows:
            known = {name: amounts[name] for name in AMOUNTS if name in amounts}
            # What is seen first, and last before a pod is said to run, is what it begins with.
            offset_ns = max(0, seen_ns - start_ns) if profile.segments else 0
            if not offset_ns:
                del profile.segments[:]
            profile.segments.add(offset_ns=offset_ns, **known)
        if profile.segments:
            self._count += 1
            yield self._numbering.record(at_ns, usage=profile)


def _start_ns(pod: Pod, at_ns: int) -> int | None:
    """Return when a replay takes a pod to have begun that runs at the trace's beginning."""
    if pod.status.phase != "Running":
        return None
    return pod.status.start_time.ToNanoseconds() if pod.status.HasField("start_time") else at_ns


def _halved(windows: list[_Window]) -> list[_Window]:
    pairs = zip(windows[::2], [*windows[1::2], windows[-1]], strict=False)
    return [(first[0], _larger(first[1], second[1])) for first, second in pairs]


def _larger(one: _Told, other: _Told) -> _Told:
    names = {**one, **other}
    return {name: max(one.get(name, 0), other.get(name, 0)) for name in names}
