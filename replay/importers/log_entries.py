"""Audit events as clouds wrap them, turned into what an API server's own log holds.

Google's Cloud Logging keeps an event as LogEntry.protoPayload of type AuditLog, in JSON (one a
line, or an array as `gcloud logging read --format=json` prints) or YAML; Azure keeps the event's
line as a text in properties.log. Google drops the stage, the verb's HTTP code and, of most patches,
the answer.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson

from replay.importers.json_stream import json_values
from replay.importers.recording.change import Raw, part
from replay.importers.yaml_documents import YamlDocumentError, YamlDocuments
from replay.trace.compression import open_plain
from replay.trace.errors import TraceError

_MARKS = re.compile(rb'"protoPayload"\s*:|"log"\s*:\s*"\{|^protoPayload:', re.MULTILINE)
_METHODS = frozenset({"create", "update", "patch", "delete", "deletecollection"})
_OK, _FAILED = 200, 500


def is_wrapped(start: bytes) -> bool:
    """Tell whether content that begins with `start` holds wrapped audit events."""
    return _MARKS.search(start) is not None and (
        b"google.cloud.audit.AuditLog" in start or b"audit.k8s.io/" in start
    )


def audit_events(path: Path) -> Iterator[tuple[str, Raw]]:
    """Yield the file's audit events, unwrapped, with their places. Raises TraceError."""
    for where, value in _values(path):
        for each in value if isinstance(value, list) else (value,):
            if isinstance(each, dict):
                yield from _unwrapped(where, each)


def _unwrapped(where: str, entry: Raw) -> Iterator[tuple[str, Raw]]:
    """Yield the events within an entry: itself, a list of records, Azure's text, or Google's."""
    if isinstance(records := entry.get("records"), list):
        for each in records:
            yield from _unwrapped(where, each if isinstance(each, dict) else {})
    elif isinstance(log := part(entry, "properties").get("log"), str):
        try:
            event = orjson.loads(log)
        except orjson.JSONDecodeError as error:
            raise TraceError(where, f"properties.log is no JSON: {error}") from error
        if isinstance(event, dict):
            yield where, event
    elif "protoPayload" in entry:
        if (found := _from_google(entry)) is not None:
            yield where, found
    else:
        yield where, entry


def _from_google(entry: Raw) -> Raw | None:
    """Return an entry of Cloud Logging as an audit event; None where it is none of Kubernetes'."""
    payload, operation = part(entry, "protoPayload"), part(entry, "operation")
    method = str(payload.get("methodName") or "")
    verb = method.rpartition(".")[2]
    named = _resource(str(payload.get("resourceName") or ""))
    if not method.startswith("io.k8s.") or verb not in _METHODS or not named:
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
    """Return what "core/v1/namespaces/N/pods/P/status" names."""
    parts = name.split("/")[2:]
    namespace = ""
    if parts[:1] == ["namespaces"] and len(parts) > 2:
        namespace, parts = parts[1], parts[2:]
    names = ("resource", "name", "subresource")
    found = dict(zip(names, parts, strict=False))
    return {**found, "namespace": namespace} if found else {}


def _object(payload: Raw, name: str) -> Mapping[str, Any]:
    return {key: value for key, value in part(payload, name).items() if key != "@type"}


def _values(path: Path) -> Iterator[tuple[str, Any]]:
    with open_plain(path) as file:
        if file.peek(64).lstrip()[:1] in {b"{", b"["}:
            yield from json_values(file, str(path))
            return
        try:
            lines = io.TextIOWrapper(file, encoding="utf-8-sig")
            for line, document in YamlDocuments().read(lines):
                yield f"{path}, line {line}", document
        except YamlDocumentError as error:
            raise TraceError(f"{path}, line {error.line}", f"is no YAML: {error}") from error
        except UnicodeDecodeError as error:
            raise TraceError(str(path), f"is no UTF-8: {error}") from error
