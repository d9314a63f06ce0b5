"""Recordings of a real control plane, played again: recorded, they are what they were."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from replay.importers.registry import open_trace
from replay.kube.kinds import RESOURCES
from replay.record.redact import Redactor
from reprieve.trace.v1beta1.trace_pb2 import Record
from tests.api_server import ApiServerDouble, Listing, Raw, Script
from tests.unit.importers.builders import kinds
from tests.unit.record.recording import cluster, fast, trace

RECORDINGS = Path(__file__).resolve().parents[3] / ".." / "shared" / "traces" / "recordings"
LIST_END = "k8s.io/initial-events-end"
FILES = {"pdb": "poddisruptionbudgets", "priorityclass": "priorityclasses"}

pytestmark = pytest.mark.skipif(
    not RECORDINGS.is_dir(), reason="no ../shared/traces beside the project"
)


def script(path: Path) -> Script:
    """Return a recorded watch as a server's first list and its later events."""
    first, said, version = list[Raw](), list[Raw | str](), 0
    with gzip.open(path) as file:
        for line in file:
            event = orjson.loads(line)["event"]
            own = event["object"].get("metadata") or {}
            if not version and LIST_END in (own.get("annotations") or {}):
                version = int(own["resourceVersion"])
            elif not version:
                first.append(event["object"])
            elif event["type"] != "RECORDER":
                said.append(event)
    return Script(lists=[Listing(items=first, version=version)], watches=[said])


def scripts(folder: Path) -> dict[str, Script]:
    """Return the scripts of a recording by path."""
    kinds = {resource.name: resource.kind for resource in RESOURCES}
    found = {}
    for path in sorted(folder.glob("*.watch.jsonl.gz")):
        name = path.name.partition(".")[0]
        if kind := kinds.get(FILES.get(name, name)):
            found[kind] = script(path)
    return cluster(**found)


def essence(records: list[Record]) -> Iterator[str]:
    """Yield the content of a trace without times and origins."""
    for record in records:
        if record.WhichOneof("record") in {"header", "issue", "marker"}:
            continue
        bare = Record()
        bare.CopyFrom(record)
        bare.ClearField("time_ns")
        bare.pod_create.ClearField("life") if bare.HasField("pod_create") else None
        bare.controller_pod.ClearField("life") if bare.HasField("controller_pod") else None
        if bare.HasField("observed") and bare.observed.HasField("scheduled"):
            bare.observed.scheduled.waited_duration_ns = 0
        yield str(bare)


@pytest.mark.parametrize("name", ["a", "c", "e"])
def test_recording_a_server_gives_the_trace_of_its_recording(tmp_path: Path, name: str) -> None:
    """The same records in the same order; only times differ, which are those of now."""
    watches = [
        path
        for path in sorted((RECORDINGS / name).glob("*.watch.jsonl.gz"))
        if not path.name.startswith("events")
    ]
    with ApiServerDouble(scripts(RECORDINGS / name)) as server:
        made = trace(server, tmp_path / "f")
    imported = list(open_trace(watches))
    assert list(essence(made)) == list(essence(imported))
    assert len(imported) > 30


def test_a_redacted_recording_gives_the_same_without_names(tmp_path: Path) -> None:
    """Kinds and their order stay; no name, label or node of the cluster is left."""
    folder = RECORDINGS / "e"
    with ApiServerDouble(scripts(folder)) as server:
        plain = trace(server, tmp_path / "plain")
    with ApiServerDouble(scripts(folder)) as server:
        options = fast(redactor=Redactor(b"key"))
        redacted = trace(server, tmp_path / "redacted", options=options)
    assert kinds(redacted) == kinds(plain)
    text = "\n".join(map(str, redacted))
    for name in ("e-e1-1", "e1-top", "hollow/", "e1-b"):
        assert name in "\n".join(map(str, plain))
        assert name not in text
