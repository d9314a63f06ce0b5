"""Audit logs of an API server (audit.k8s.io), level RequestResponse for writes.

The objects are those of the responses. The response to a binding or an eviction is only a Status:
the new state of the pod is computed from the request, as for a patch whose response is not in the
log. Reads and failed writes are skipped. Events in the entries of a cloud's log are unwrapped:
Google's Cloud Logging has one as LogEntry.protoPayload of type AuditLog, in JSON (one a line, or an
array as `gcloud logging read --format=json` prints it) or YAML, without the stage, the HTTP code of
the verb and the response of most patches; Azure has the event's line as a text in properties.log.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from replay import bounds
from replay.errors import TraceError
from replay.importers.recording.interpreter import recording_importer
from replay.importers.recording.strategic_merge import merged
from replay.importers.records import Issues, Recording
from replay.kube.changes import (
    ChangeType,
    Raw,
    RecordedChange,
    grace_period_s,
    key,
    kind,
    latest_ns,
    meta,
    part,
    parts,
    time_ns,
)
from replay.kube.documents import read_documents
from replay.kube.kinds import KINDS_BY_RESOURCE, is_carried, list_items
from services.kube.time import SECOND_NS

_HEAD = re.compile(rb'^\s*\{[^{}]{0,200}"apiVersion"\s*:\s*"audit\.k8s\.io/')
_WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})
_Key = tuple[str, str, str]
_MARKS = re.compile(rb'"protoPayload"\s*:|"log"\s*:\s*"\{|^protoPayload:', re.MULTILINE)
_OK, _FAILED = 200, 500


def sniff(path: Path, start: bytes) -> bool:
    """Return whether a file whose content begins with `start` is an audit log."""
    return path.suffix != ".ktr" and (_HEAD.match(start) is not None or is_wrapped(start))


def open_recording(paths: Sequence[Path]) -> Recording:
    """Return the recording of the logs."""

    def changes(issues: Issues) -> Iterator[RecordedChange]:
        log = _Log(issues)
        for path in paths:
            for where, entry in audit_events(path):
                yield from log.read(where, entry)

    return Recording(paths=paths, changes=changes)


class _Log:
    """Makes changes of events; holds the last state of each object, for bindings and patches."""

    def __init__(self, issues: Issues) -> None:
        self._issues = issues
        self._last: dict[_Key, Raw] = {}
        self._last_ns = 0
        self._actor = ""

    def read(self, where: str, entry: Raw) -> Iterator[RecordedChange]:
        """Yield the changes of an event."""
        named, verb = part(entry, "objectRef"), str(entry.get("verb"))
        object_kind = KINDS_BY_RESOURCE.get(str(named.get("resource")))
        code = part(entry, "responseStatus").get("code")
        is_write = entry.get("stage") == "ResponseComplete" and verb in _WRITES
        if not is_write or object_kind is None or not isinstance(code, int) or code >= 300:
            return
        self._last_ns = max(self._last_ns, self._time_ns(where, entry))
        self._actor = str(part(entry, "user").get("username") or "")
        answer, subresource = part(entry, "responseObject"), str(named.get("subresource"))
        if subresource in {"binding", "eviction"} and verb == "create":
            yield from self._on_pod(where, named, entry)
        elif verb == "deletecollection":
            for item in list_items(answer) or ():
                yield from self._delete(where, item, named, object_kind)
        elif verb == "delete":
            yield from self._delete(where, answer, named, object_kind)
        elif is_carried(answer) and kind(answer) == object_kind:
            type_ = ChangeType.ADDED if verb == "create" else ChangeType.MODIFIED
            yield self._change(where, type_, answer)
        elif verb == "patch" and (patched := self._patched(named, object_kind, entry)) is not None:
            message = f"patch {object_kind}: no answer was kept; put together from the request"
            self._issues.add("put-together", where, message)
            yield self._change(where, ChangeType.MODIFIED, patched, is_computed=True)
        else:
            message = f"{verb} {object_kind}: no object in the answer; log at RequestResponse"
            self._issues.add("audit-level", where, message)

    def _time_ns(self, where: str, entry: Raw) -> int:
        """Return the time of an event; an issue counts those without stageTimestamp."""
        at_ns = time_ns(entry.get("stageTimestamp"))
        if at_ns is not None:
            return at_ns
        asked_ns = time_ns(entry.get("requestReceivedTimestamp"))
        what = "requestReceivedTimestamp" if asked_ns is not None else "the latest of its object"
        self._issues.add("guessed-time", where, f"no stageTimestamp: {what} is taken")
        return latest_ns(part(entry, "responseObject")) if asked_ns is None else asked_ns

    def _patched(self, named: Raw, object_kind: str, entry: Raw) -> Raw | None:
        """Return the object after the request's patch; None if the log has not both."""
        patch, last = part(entry, "requestObject"), self._last_state(named, object_kind)
        return merged(last, patch) if last is not None and patch else None

    def _last_state(self, named: Raw, object_kind: str) -> Raw | None:
        namespace, name = str(named.get("namespace") or ""), str(named.get("name") or "")
        return self._last.get((object_kind, namespace, name))

    def _delete(
        self, where: str, answer: Raw, named: Raw, object_kind: str
    ) -> Iterator[RecordedChange]:
        """Yield a deletion; an object with a grace period or finalizers is only modified."""
        if kind(answer) == object_kind:
            waits = meta(answer).get("deletionGracePeriodSeconds") or meta(answer).get("finalizers")
            type_ = ChangeType.MODIFIED if waits else ChangeType.DELETED
            yield self._change(where, type_, answer)
            return
        last = self._last_state(named, object_kind)
        if last is None:
            message = f"delete {object_kind}: of an object that the log has not shown"
            self._issues.add("unknown-object", where, message)
            return
        yield self._change(where, ChangeType.DELETED, last, is_computed=True)

    def _on_pod(self, where: str, named: Raw, entry: Raw) -> Iterator[RecordedChange]:
        """Yield the change of a pod by a binding or an eviction."""
        last = self._last_state(named, "Pod")
        if last is None:
            message = f"{named.get('subresource')} of a pod that the log has not shown"
            self._issues.add("unknown-object", where, message)
        elif named.get("subresource") == "binding":
            target = part(part(entry, "requestObject"), "target").get("name")
            yield self._change(where, ChangeType.MODIFIED, _bound(last, target), is_computed=True)
        else:
            grace_s = part(part(entry, "requestObject"), "deleteOptions").get("gracePeriodSeconds")
            pod = _evicted(last, self._last_ns, grace_s)
            waits = meta(pod)["deletionGracePeriodSeconds"] > 0
            type_ = ChangeType.MODIFIED if waits else ChangeType.DELETED
            yield self._change(where, type_, pod, is_computed=True)

    def _change(
        self, where: str, type_: ChangeType, raw: Raw, *, is_computed: bool = False
    ) -> RecordedChange:
        """Return a change; a state that is computed here has no resourceVersion."""
        metadata = {name: value for name, value in meta(raw).items() if name != "managedFields"}
        if is_computed:
            metadata.pop("resourceVersion", None)
        raw = {**raw, "metadata": metadata}
        if type_ is ChangeType.DELETED:
            self._last.pop(key(raw), None)
        else:
            self._last[key(raw)] = raw
        return RecordedChange(
            at_ns=self._last_ns, type=type_, raw=raw, initial=False, where=where, actor=self._actor
        )


def _bound(pod: Raw, node_name: object) -> Raw:
    return {
        **pod,
        "spec": {**part(pod, "spec"), "nodeName": node_name},
        "status": _with_condition(pod, {"type": "PodScheduled", "status": "True"}),
    }


_GRACE_S = 30
"""The default of terminationGracePeriodSeconds."""


def _evicted(pod: Raw, at_ns: int, requested_s: object) -> Raw:
    """Return the pod after an API-initiated eviction; without a node it is deleted at once."""
    spec = part(pod, "spec")
    grace_s = grace_period_s(requested_s)
    if grace_s is None:
        grace_s = grace_period_s(spec.get("terminationGracePeriodSeconds"))
    if grace_s is None:
        grace_s = _GRACE_S
    if not spec.get("nodeName"):
        grace_s = 0
    gone = datetime.fromtimestamp(at_ns // SECOND_NS + grace_s, UTC)
    metadata: Mapping[str, Any] = {
        **meta(pod),
        "deletionTimestamp": gone.isoformat(),
        "deletionGracePeriodSeconds": grace_s,
    }
    target = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
    return {**pod, "metadata": metadata, "status": _with_condition(pod, target)}


def _with_condition(pod: Raw, condition: Raw) -> Raw:
    status = part(pod, "status")
    rest = [
        other_condition
        for other_condition in parts(status, "conditions")
        if other_condition.get("type") != condition["type"]
    ]
    return {**status, "conditions": [*rest, condition]}


def is_wrapped(start: bytes) -> bool:
    """Return whether content that begins with `start` has audit events in a cloud's entries."""
    return _MARKS.search(start) is not None and (
        b"google.cloud.audit.AuditLog" in start or b"audit.k8s.io/" in start
    )


def audit_events(path: Path) -> Iterator[tuple[str, Raw]]:
    """Yield the file's audit events, unwrapped, with file and line. Raises TraceError."""
    for where, value in read_documents(path):
        for item in value if isinstance(value, list) else (value,):
            if isinstance(item, dict):
                yield from _unwrapped(where, item)


def _unwrapped(where: str, entry: Raw) -> Iterator[tuple[str, Raw]]:
    """Yield the events of an entry: itself, of a list of records, of Azure's text, or Google's."""
    if isinstance(records := entry.get("records"), list):
        for record in records:
            yield from _unwrapped(where, record if isinstance(record, dict) else {})
    elif isinstance(log := part(entry, "properties").get("log"), str):
        bounds.check_json(log.encode(), where)
        try:
            event = orjson.loads(log)
        except orjson.JSONDecodeError as error:
            raise TraceError(where, f"properties.log is not JSON: {error}") from error
        if isinstance(event, dict):
            yield where, event
    elif "protoPayload" in entry:
        if (event_of_google := _from_google(entry)) is not None:
            yield where, event_of_google
    else:
        yield where, entry


def _from_google(entry: Raw) -> Raw | None:
    """Return an entry of Cloud Logging as an audit event; None for any but a Kubernetes write."""
    payload, operation = part(entry, "protoPayload"), part(entry, "operation")
    method = str(payload.get("methodName") or "")
    verb = method.rpartition(".")[2]
    named = _resource(str(payload.get("resourceName") or ""))
    if not method.startswith("io.k8s.") or verb not in _WRITES or not named:
        return None
    code = part(payload, "status").get("code") or 0
    finished = operation.get("last", True) is True
    return {
        "stage": "ResponseComplete" if finished else "RequestReceived",
        "verb": verb,
        "stageTimestamp": entry.get("timestamp") or entry.get("receiveTimestamp"),
        "user": {"username": part(payload, "authenticationInfo").get("principalEmail")},
        "objectRef": named,
        "responseStatus": {"code": _FAILED if code else _OK},
        "requestObject": _object(payload, "request"),
        "responseObject": _object(payload, "response"),
    }


def _resource(name: str) -> dict[str, str]:
    """Return the object reference of a path such as "core/v1/namespaces/N/pods/P/status"."""
    parts = name.split("/")[2:]
    namespace = ""
    if parts[:1] == ["namespaces"] and len(parts) > 2:
        namespace, parts = parts[1], parts[2:]
    names = ("resource", "name", "subresource")
    named_parts = dict(zip(names, parts, strict=False))
    return {**named_parts, "namespace": namespace} if named_parts else {}


def _object(payload: Raw, name: str) -> Mapping[str, Any]:
    return {key: value for key, value in part(payload, name).items() if key != "@type"}


IMPORTER = recording_importer(
    "audit",
    'audit log lines: JSON objects with "apiVersion": "audit.k8s.io/...", or log entries of a '
    "cloud that hold such events",
    sniff,
    open_recording,
)
