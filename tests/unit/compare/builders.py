"""Recordings for the tests of the comparison."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from replay.compare.reading import read_recording
from replay.compare.recorded import Recording
from tests.unit.importers.builders import Raw, line, make_object, make_pod

FIT = "0/1 nodes are available: 1 Insufficient cpu."


def node(name: str, version: int, cpu: str = "2") -> bytes:
    """Return a line on which a node comes."""
    amounts = {"cpu": cpu, "memory": "8Gi", "pods": "110"}
    info = {"kubeletVersion": "v1.34.1"}
    raw = make_object(
        "Node", name, version, spec={}, status={"allocatable": amounts, "nodeInfo": info}
    )
    return line(0, "ADDED", raw)


def pod(name: str, version: int, **fields: Any) -> Raw:
    """Return a pod of one cpu, or of `cpu`, with a `priority`."""
    cpu, priority = fields.pop("cpu", "1"), fields.pop("priority", 0)
    message = fields.pop("refused", "")
    status: Raw = dict(fields.pop("status", {}))
    if message:
        refused = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        status["conditions"] = [*status.get("conditions", []), {**refused, "message": message}]
    containers = [{"name": "c", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}]
    return make_pod(
        name,
        version,
        spec={"containers": containers, "priority": priority},
        status=status,
        **fields,
    )


def victim(name: str, version: int, on: str) -> Raw:
    """Return a pod on a node that was chosen as a victim."""
    return pod(
        name, version, node=on, conditions=[("DisruptionTarget", "True", "PreemptionByScheduler")]
    )


def preempted_event(of: str, by: str, on: str) -> bytes:
    """Return a scheduler's Event on a victim."""
    raw = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{of}.1", "uid": f"event-{of}", "resourceVersion": "900"},
        "reason": "Preempted",
        "message": f"Preempted by pod uid-{by} on node {on}",
        "involvedObject": {"kind": "Pod", "name": of, "uid": f"uid-{of}"},
    }
    return line(9, "ADDED", raw)


def recording(
    folder: Path,
    *lines: bytes,
    events: Sequence[bytes] = (),
    log: Sequence[dict[str, Any]] | None = None,
    scheduler_names: Sequence[str] = ("default-scheduler",),
) -> Recording:
    """Write a recording and read it; `log` is its decisions.jsonl."""
    write(folder, *lines, events=events, log=log)
    return read_recording([folder], format_name=None, scheduler_names=scheduler_names)


def write(
    folder: Path,
    *lines: bytes,
    events: Sequence[bytes] = (),
    log: Sequence[dict[str, Any]] | None = None,
) -> None:
    """Write a recording's files."""
    (folder / "all.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    if events:
        (folder / "events.jsonl").write_bytes(b"\n".join(events) + b"\n")
    if log is not None:
        text = "".join(json.dumps(entry) + "\n" for entry in log)
        (folder / "decisions.jsonl").write_text(text, encoding="utf-8")
