"""Audit logs of an API server (audit.k8s.io), level RequestResponse for writes.

The objects are the responses'. A binding and an eviction answer a Status alone: what they did to
the pod is put together from the request, and so is a patch whose answer was not kept. Writes that
failed, and reads, are passed over. Events that a cloud's log wraps are unwrapped (log_entries.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from replay.importers.issues import Issues
from replay.importers.kinds import RESOURCES, is_carried, listed
from replay.importers.log_entries import audit_events, is_wrapped
from replay.importers.options import ImportOptions
from replay.importers.provenance import header_of
from replay.importers.recording.change import (
    SECOND_NS,
    Change,
    ChangeType,
    Raw,
    key,
    kind,
    latest_ns,
    meta,
    part,
    parts,
    time_ns,
)
from replay.importers.recording.interpreter import interpret
from replay.importers.recording.strategic_merge import merged
from reprieve.trace.v1alpha1.trace_pb2 import Record

NAME = "audit"
LOOKED_FOR = (
    'audit log lines: JSON objects with "apiVersion": "audit.k8s.io/...", or log entries of a '
    "cloud that hold such events"
)
_HEAD = re.compile(rb'^\s*\{[^{}]{0,200}"apiVersion"\s*:\s*"audit\.k8s\.io/')
_WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})
_Key = tuple[str, str, str]


def sniff(path: Path, start: bytes) -> bool:
    """Tell whether a file whose content begins with `start` is an audit log."""
    return path.suffix != ".ktr" and (_HEAD.match(start) is not None or is_wrapped(start))


def load(paths: Sequence[Path], options: ImportOptions) -> Iterator[Record]:
    """Yield the trace of the logs, read in the order of `paths`. Raises TraceError."""
    chosen, changes = recorded_changes(paths)
    return interpret(changes, header_of(NAME, chosen, options), options)


def recorded_changes(
    paths: Sequence[Path],
) -> tuple[Sequence[Path], Callable[[Issues], Iterator[Change]]]:
    """Return the logs, and what yields their changes in order, as often as asked.

    The changes raise TraceError where a file cannot be read.
    """

    def changes(issues: Issues) -> Iterator[Change]:
        log = _Log(issues)
        for path in paths:
            for where, entry in audit_events(path):
                yield from log.read(where, entry)

    return paths, changes


class _Log:
    """Turns entries into changes; holds the last state of each object, to put bindings on."""

    def __init__(self, issues: Issues) -> None:
        self._issues = issues
        self._last: dict[_Key, Raw] = {}
        self._last_ns = 0
        self._actor = ""

    def read(self, where: str, entry: Raw) -> Iterator[Change]:
        """Yield the changes that an entry of the log tells."""
        named = part(entry, "objectRef")
        object_kind, verb = RESOURCES.get(str(named.get("resource"))), str(entry.get("verb"))
        code = part(entry, "responseStatus").get("code")
        written = entry.get("stage") == "ResponseComplete" and verb in _WRITES
        if not written or object_kind is None or not isinstance(code, int) or code >= 300:
            return
        self._last_ns = max(self._last_ns, self._time_ns(where, entry))
        self._actor = str(part(entry, "user").get("username") or "")
        answer, subresource = part(entry, "responseObject"), str(named.get("subresource"))
        if subresource in {"binding", "eviction"} and verb == "create":
            yield from self._on_pod(where, named, entry)
        elif verb == "deletecollection":
            for each in listed(answer) or ():
                yield from self._delete(where, each, named, object_kind)
        elif verb == "delete":
            yield from self._delete(where, answer, named, object_kind)
        elif is_carried(answer) and kind(answer) == object_kind:
            type_ = ChangeType.ADDED if verb == "create" else ChangeType.MODIFIED
            yield self._change(where, type_, answer)
        elif verb == "patch" and (patched := self._patched(named, object_kind, entry)) is not None:
            message = f"patch {object_kind}: no answer was kept; put together from the request"
            self._issues.add("put-together", where, message)
            yield self._change(where, ChangeType.MODIFIED, patched, moved=True)
        else:
            message = f"{verb} {object_kind}: no object in the answer; log at RequestResponse"
            self._issues.add("audit-level", where, message)

    def _time_ns(self, where: str, entry: Raw) -> int:
        """Return when an entry was written; what is guessed, for want of a stage's time, counts."""
        at_ns = time_ns(entry.get("stageTimestamp"))
        if at_ns is not None:
            return at_ns
        asked_ns = time_ns(entry.get("requestReceivedTimestamp"))
        what = "requestReceivedTimestamp" if asked_ns is not None else "the latest of its object"
        self._issues.add("guessed-time", where, f"no stageTimestamp: {what} is taken")
        return latest_ns(part(entry, "responseObject")) if asked_ns is None else asked_ns

    def _patched(self, named: Raw, object_kind: str, entry: Raw) -> Raw | None:
        """Return the object with the request's patch on it; None where either is not known."""
        patch = part(entry, "requestObject")
        name = str(named.get("namespace") or ""), str(named.get("name") or "")
        last = self._last.get((object_kind, *name))
        return merged(last, patch) if last is not None and patch else None

    def _delete(self, where: str, answer: Raw, named: Raw, object_kind: str) -> Iterator[Change]:
        """Yield a deletion; a pod with a grace period to go is only asked to stop."""
        if kind(answer) == object_kind:
            waits = meta(answer).get("deletionGracePeriodSeconds") or meta(answer).get("finalizers")
            type_ = ChangeType.MODIFIED if waits else ChangeType.DELETED
            yield self._change(where, type_, answer)
            return
        name = str(named.get("namespace") or ""), str(named.get("name") or "")
        last = self._last.get((object_kind, *name))
        if last is None:
            message = f"delete {object_kind}: of an object that the log has not shown"
            self._issues.add("unknown-object", where, message)
            return
        yield self._change(where, ChangeType.DELETED, last, moved=True)

    def _on_pod(self, where: str, named: Raw, entry: Raw) -> Iterator[Change]:
        """Yield what a binding or an eviction did to a pod."""
        name = str(named.get("namespace") or ""), str(named.get("name") or "")
        last = self._last.get(("Pod", *name))
        if last is None:
            message = f"{named.get('subresource')} of a pod that the log has not shown"
            self._issues.add("unknown-object", where, message)
        elif named.get("subresource") == "binding":
            target = part(part(entry, "requestObject"), "target").get("name")
            yield self._change(where, ChangeType.MODIFIED, _bound(last, target), moved=True)
        else:
            asked = part(part(entry, "requestObject"), "deleteOptions").get("gracePeriodSeconds")
            pod = _evicted(last, self._last_ns, asked)
            waits = meta(pod)["deletionGracePeriodSeconds"] > 0
            type_ = ChangeType.MODIFIED if waits else ChangeType.DELETED
            yield self._change(where, type_, pod, moved=True)

    def _change(self, where: str, type_: ChangeType, raw: Raw, *, moved: bool = False) -> Change:
        """Return a change. `moved`: put together here, so that its version is not the log's."""
        own = {name: value for name, value in meta(raw).items() if name != "managedFields"}
        if moved:
            own.pop("resourceVersion", None)
        raw = {**raw, "metadata": own}
        if type_ is ChangeType.DELETED:
            self._last.pop(key(raw), None)
        else:
            self._last[key(raw)] = raw
        return Change(
            at_ns=self._last_ns,
            type=type_,
            raw=raw,
            initial=False,
            where=where,
            actor=self._actor,
        )


def _bound(pod: Raw, node_name: object) -> Raw:
    return {
        **pod,
        "spec": {**part(pod, "spec"), "nodeName": node_name},
        "status": _with_condition(pod, {"type": "PodScheduled", "status": "True"}),
    }


def _evicted(pod: Raw, at_ns: int, asked_s: object) -> Raw:
    """Return the pod as an eviction by the API leaves it; one without a node goes at once."""
    spec = part(pod, "spec")
    own_s = spec.get("terminationGracePeriodSeconds", 30)
    grace_s = asked_s if isinstance(asked_s, int) else own_s
    if not spec.get("nodeName"):
        grace_s = 0
    gone = datetime.fromtimestamp(at_ns // SECOND_NS + grace_s, UTC)
    own: Mapping[str, Any] = {
        **meta(pod),
        "deletionTimestamp": gone.isoformat(),
        "deletionGracePeriodSeconds": grace_s,
    }
    target = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
    return {**pod, "metadata": own, "status": _with_condition(pod, target)}


def _with_condition(pod: Raw, condition: Raw) -> Raw:
    status = part(pod, "status")
    rest = [each for each in parts(status, "conditions") if each.get("type") != condition["type"]]
    return {**status, "conditions": [*rest, condition]}
