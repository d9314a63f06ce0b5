"""Builders of what a cluster records: Kubernetes JSON, watch lines, and what comes out of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import orjson

from replay.importers.records import ImportOptions
from replay.importers.registry import open_trace
from reprieve.trace.v1beta1.trace_pb2 import Delete, ImportIssue, Observed, Record
from services.kube.time import SECOND_NS

Raw = dict[str, Any]
T0 = "2026-01-01T00:00:00Z"
T0_S = 1767225600
S = SECOND_NS


def at(second: float) -> str:
    """Return the arrival `second` s after T0."""
    return f"2026-01-01T00:{int(second) // 60:02d}:{second % 60:09.6f}Z"


def make_object(kind: str, name: str, version: int, **fields: Any) -> Raw:
    """Return an object; `metadata` is merged into what every object has."""
    versions = {"Pod": "v1", "Node": "v1", "PodDisruptionBudget": "policy/v1"}
    metadata: Raw = {
        "name": name,
        "uid": f"uid-{name}",
        "resourceVersion": str(version),
        "creationTimestamp": T0,
        **fields.pop("metadata", {}),
    }
    if kind not in {"Node", "PriorityClass"}:
        metadata.setdefault("namespace", "default")
    api_version = versions.get(kind, "apps/v1")
    if kind == "PriorityClass":
        api_version = "scheduling.k8s.io/v1"
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **fields}


def make_pod(
    name: str,
    version: int,
    *,
    node: str = "",
    phase: str = "Pending",
    conditions: Iterable[tuple[str, str, str]] = (),
    owner: Raw | None = None,
    metadata: Raw | None = None,
    spec: Raw | None = None,
    status: Raw | None = None,
) -> Raw:
    """Return a pod; `conditions` are (type, status, reason), `owner` its controller."""
    own: Raw = dict(metadata or {})
    if owner is not None:
        own["ownerReferences"] = [
            {
                "apiVersion": owner["apiVersion"],
                "kind": owner["kind"],
                "name": owner["metadata"]["name"],
                "uid": owner["metadata"]["uid"],
                "controller": True,
            }
        ]
    return make_object(
        "Pod",
        name,
        version,
        metadata=own,
        spec={
            "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}],
            "terminationGracePeriodSeconds": 30,
            **({"nodeName": node} if node else {}),
            **(spec or {}),
        },
        status={
            "phase": phase,
            "conditions": [
                {"type": type_, "status": state, "reason": reason}
                for type_, state, reason in conditions
            ],
            **(status or {}),
        },
    )


def make_replica_set(version: int, replicas: int, *, owner: Raw | None = None) -> Raw:
    """Return the ReplicaSet "rs"."""
    template = {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c"}]}}
    pod = make_pod("x", 0, owner=owner) if owner else {"metadata": {}}
    references = pod["metadata"].get("ownerReferences", [])
    return make_object(
        "ReplicaSet",
        "rs",
        version,
        metadata={"ownerReferences": references},
        spec={"replicas": replicas, "template": template},
    )


def make_deployment(version: int, replicas: int) -> Raw:
    """Return the Deployment "web"."""
    template = {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c"}]}}
    spec = {"replicas": replicas, "template": template}
    return make_object("Deployment", "web", version, spec=spec)


def line(second: float | None, type_: str, raw: Raw) -> bytes:
    """Return a line of a recording; without `second`, as kubectl prints it."""
    event: Raw = {"type": type_, "object": raw}
    return orjson.dumps(event if second is None else {"arrival": at(second), "event": event})


def list_end(kind: str, version: int) -> Raw:
    """Return the bookmark's object that ends the first list."""
    annotations = {"k8s.io/initial-events-end": "true"}
    metadata = {"resourceVersion": str(version), "annotations": annotations}
    return {"kind": kind, "apiVersion": "v1", "metadata": metadata, "spec": {"containers": None}}


def imported(path: Path, *lines: bytes, options: ImportOptions | None = None) -> list[Record]:
    """Write a file of the lines and import it."""
    file = path / "recording.jsonl"
    file.write_bytes(b"\n".join(lines) + b"\n")
    return list(open_trace([file], options=options))


def kinds(records: Iterable[Record]) -> list[str]:
    """Return the kinds of records, with what is created, updated, deleted or observed."""
    return [_kind(record) for record in records]


def _kind(record: Record) -> str:
    kind = record.WhichOneof("record") or ""
    match kind:
        case "create":
            return f"create {record.create.WhichOneof('object')}"
        case "update":
            return f"update {record.update.WhichOneof('object')}"
        case "delete":
            return f"delete {record.delete.object.kind} {record.delete.cause}"
        case "observed":
            return f"observed {record.observed.WhichOneof('observed')}"
        case "issue":
            return f"issue {record.issue.kind}"
    return kind


def observed(records: Iterable[Record], kind: str) -> list[Observed]:
    """Return the observations of a kind."""
    found = (record.observed for record in records if record.HasField("observed"))
    return [entry for entry in found if entry.WhichOneof("observed") == kind]


def deletes(records: Iterable[Record]) -> list[Delete]:
    """Return the deletions."""
    return [record.delete for record in records if record.HasField("delete")]


def issues(records: Iterable[Record]) -> Iterator[ImportIssue]:
    """Yield the issues."""
    return (record.issue for record in records if record.HasField("issue"))


def claim(second: float, kind: str, version: int, *, until: float, is_list: bool = False) -> bytes:
    """Return a recorder's line: its file is complete until a time, and up to a version."""
    raw = list_end(kind, version)
    annotations: Raw = raw["metadata"]["annotations"]
    if not is_list:
        annotations.clear()
    annotations["reprieve/complete-until"] = at(until)
    return line(second, "BOOKMARK", raw)


def gap(second: float, kind: str, version: int, *, since: float, **more: object) -> bytes:
    """Return a recorder's line: its file may lack changes after a version, since a time."""
    metadata = {"resourceVersion": str(version)}
    raw = {"kind": kind, "message": "why", "since": at(since), "metadata": metadata, **more}
    return line(second, "RECORDER", raw)
