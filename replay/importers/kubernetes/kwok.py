"""Recordings of kwok (`kwokctl snapshot record`): a cluster's objects, then their changes.

A file of YAML documents: first the objects of the cluster, then a ResourcePatch for each change,
with the time since the first one and a strategic merge patch. No time is absolute: the recording
begins at the latest time in its objects (to the second).

Source: kwok pkg/kwokctl/etcd/save.go (what is written), pkg/apis/action/v1alpha1 (ResourcePatch),
pkg/kwokctl/recording/recording.go of earlier versions (target.type, create, delete, patch).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from replay import bounds
from replay.errors import TraceError
from replay.importers.kubernetes.left_out import UNREAD, issue_of
from replay.importers.recording.interpreter import recording_importer
from replay.importers.recording.strategic_merge import merged
from replay.importers.records import Issues, Recording, single_path
from replay.kube.changes import ChangeType, Raw, RecordedChange, key, kind, latest_ns, meta, part
from replay.kube.documents import read_documents
from replay.kube.kinds import CLUSTER_SCOPED, KINDS_BY_RESOURCE, is_carried
from replay.trace.files import open_plain
from services.kube.time import DAY_NS

_YAML_HEAD = re.compile(rb"^(apiVersion|kind):\s", re.MULTILINE)
_PATCH = re.compile(rb"^kind:\s*[\"']?ResourcePatch\b", re.MULTILINE)
_SINCE_MAX_NS = 100 * 365 * DAY_NS
_Key = tuple[str, str, str]


def sniff(path: Path, start: bytes) -> bool:
    """Return whether a file whose content begins with `start` has ResourcePatches.

    They come after the objects of the whole cluster, so that a YAML file is read up to the first.
    """
    if start.lstrip()[:1] == b"{" or _YAML_HEAD.search(start) is None:
        return False
    if _PATCH.search(start):
        return True
    with open_plain(path) as file:
        lines = bounds.lines(file, str(path))
        return any(line[:5] == b"kind:" and _PATCH.match(line) for line in lines)


def open_recording(paths: Sequence[Path]) -> Recording:
    """Return the recording of the only file. Raises TraceError if it cannot be read."""
    path = single_path(paths, "one recording of kwok")
    start_ns = _start_ns(path)
    return Recording(
        paths=paths, changes=lambda issues: _PatchedObjects(issues, start_ns).changes(path)
    )


class _PatchedObjects:
    """Applies patches to the last states of objects."""

    def __init__(self, issues: Issues, start_ns: int) -> None:
        self._issues = issues
        self._start_ns = start_ns
        self._last: dict[_Key, Raw] = {}
        self._at_ns = start_ns

    def changes(self, path: Path) -> Iterator[RecordedChange]:
        message = "the beginning: the latest time that its first objects tell is taken"
        self._issues.add("guessed-time", str(path), message)
        for where, raw in _documents(path):
            if raw.get("kind") == "ResourcePatch":
                yield from self._patch(where, raw)
            elif not is_carried(raw):
                kind, message = issue_of(raw)
                self._issues.add(kind, where, message)
            else:
                yield self._change(where, ChangeType.ADDED, raw, initial=True)

    def _patch(self, where: str, raw: Raw) -> Iterator[RecordedChange]:
        resource = part(raw, "resource") or part(part(raw, "target"), "type")
        object_kind = KINDS_BY_RESOURCE.get(str(resource.get("resource")))
        if object_kind is None:
            message = f"{resource.get('resource')} are not carried in a trace"
            self._issues.add(UNREAD, where, message)
            return
        since_ns, method = raw.get("durationNanosecond", 0), _method(raw)
        if not isinstance(since_ns, int) or not 0 <= since_ns <= _SINCE_MAX_NS or not method:
            raise TraceError(where, "ResourcePatch: expected durationNanosecond and method")
        self._at_ns = max(self._at_ns, self._start_ns + since_ns)
        target = part(raw, "target")
        namespace = "" if object_kind in CLUSTER_SCOPED else str(target.get("namespace") or "")
        last = self._last.get((object_kind, namespace, str(target.get("name") or "")))
        template = part(raw, "template") or part(raw, "patch")
        if method == "create" and is_carried(template):
            yield self._change(where, ChangeType.ADDED, template)
        elif last is None:
            message = f"{method} {object_kind}: of an object that the recording has not shown"
            self._issues.add("unknown-object", where, message)
        elif method == "delete":
            yield self._change(where, ChangeType.DELETED, last)
        else:
            yield self._change(where, ChangeType.MODIFIED, merged(last, template))

    def _change(
        self, where: str, type_: ChangeType, raw: Raw, *, initial: bool = False
    ) -> RecordedChange:
        dropped = {"managedFields", "resourceVersion"}
        metadata = {name: value for name, value in meta(raw).items() if name not in dropped}
        raw = {**raw, "metadata": metadata}
        if type_ is ChangeType.DELETED:
            self._last.pop(key(raw), None)
        else:
            self._last[key(raw)] = raw
        return RecordedChange(at_ns=self._at_ns, type=type_, raw=raw, initial=initial, where=where)


def _method(raw: Raw) -> str:
    method = raw.get("method")
    if isinstance(method, str):
        return method if method in {"create", "patch", "delete"} else ""
    flags = [name for name in ("create", "delete") if raw.get(name) is True]
    return flags[0] if flags else "patch"


def _start_ns(path: Path) -> int:
    """Return the latest time in the first objects; without objects, in the first patch."""
    latest = 0
    for _, raw in _documents(path):
        if raw.get("kind") != "ResourcePatch":
            latest = max(latest, latest_ns(raw))
        elif latest:
            break
        else:
            latest = latest_ns(part(raw, "template") or part(raw, "patch"))
    return latest


def _documents(path: Path) -> Iterator[tuple[str, Raw]]:
    for where, document in read_documents(path):
        if not isinstance(document, dict) or not kind(document):
            raise TraceError(where, "is not a Kubernetes object: expected a mapping with a kind")
        yield where, document


IMPORTER = recording_importer(
    "kwok", 'a recording of kwokctl: YAML documents of kind "ResourcePatch"', sniff, open_recording
)
