"""Recording an API server that closes, expires, refuses and pages."""

from __future__ import annotations

import contextlib
import re
import resource as resource_limits
import signal
import sys
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from secrets import token_hex

import pytest

from replay.errors import ApiError, RecordError, UnreachableError
from replay.importers.registry import open_trace
from replay.kube.kinds import KINDS_BY_RESOURCE, RESOURCES, is_carried
from replay.record import recorder
from replay.record.coverage import EFFECTS
from replay.record.frames import RecordingFolder
from replay.record.recorded_trace import trace_of
from replay.record.store import ResourceStore
from replay.trace.files import open_plain
from reprieve.trace.v1beta1.trace_pb2 import Record
from tests.api_server import BREAK, CLOSE, ApiServerDouble, Listing, Raw, Refusal, Script
from tests.unit.importers.builders import kinds, make_object, make_pod
from tests.unit.record.recording import (
    PATHS,
    access,
    cluster,
    event,
    fast,
    gone,
    issues,
    issues_found,
    recorded,
    resource,
    trace,
)

CONDITIONS = (("PodScheduled", "True", ""),)


def node(name: str, version: int) -> Raw:
    """Return a node."""
    return make_object("Node", name, version, status={"allocatable": {"cpu": "4"}})


def running(name: str, version: int, **fields: object) -> Raw:
    """Return a pod that runs on node n."""
    return make_pod(name, version, node="n", phase="Running", conditions=CONDITIONS, **fields)  # type: ignore[arg-type] # as the builder has it


def told(records: Iterable[Record]) -> list[str]:
    """Return the kinds of records that tell of the cluster."""
    others = ("header", "issue", "template", "marker")
    return [kind for kind in kinds(records) if not kind.startswith(others)]


def names(records: Iterable[Record]) -> list[str]:
    """Return the names of the pods that are created."""
    pods = [record for record in records if record.HasField("pod_create")]
    return [record.pod_create.pod.metadata.name for record in pods]


def test_a_list_and_its_watch_become_a_trace(tmp_path: Path) -> None:
    """Listed objects existed before; watched events happened during the recording."""
    pods = Script(
        lists=[Listing(items=[running("old", 3)], version=5)],
        watches=[[event("ADDED", make_pod("new", 6)), event("MODIFIED", running("new", 7))]],
    )
    nodes = Script(lists=[Listing(items=[node("n", 2)], version=5)])
    with ApiServerDouble(cluster(Pod=pods, Node=nodes)) as server:
        records = trace(server, tmp_path / "f")
    assert told(records) == [
        "create node",
        "pod_create",
        "pod_create",
        "observed scheduled",
        "observed started",
    ]
    assert records[2].pod_create.pod.spec.node_name == "n"
    header = records[0].header
    assert (header.kubernetes_version, header.importer) == ("v1.34.1", "record 1")
    # What is quiet at the end was recorded too.
    assert records[-1].marker.name == "end of the recording"
    assert records[-2].time_ns < records[-1].time_ns == header.window_end_time_ns


def test_a_closed_watch_continues_where_it_was(tmp_path: Path) -> None:
    """From the version of the last event or bookmark, without a list, and without telling twice."""
    bookmark = {"kind": "Pod", "metadata": {"resourceVersion": "9"}}
    pods = Script(
        watches=[
            [event("ADDED", make_pod("p", 6)), CLOSE],
            [event("ADDED", make_pod("p", 6)), event("BOOKMARK", bookmark), CLOSE],
            [event("MODIFIED", running("p", 10))],
        ]
    )
    with ApiServerDouble(cluster(Pod=pods)) as server:
        records = trace(server, tmp_path / "f")
    asked = [query.get("resourceVersion") for query in pods.asked if "watch" in query]
    assert asked[:3] == ["1", "6", "9"]
    # And a list at the end.
    assert len([query for query in pods.asked if "watch" not in query]) == 2
    assert told(records) == ["pod_create", "observed scheduled", "observed started"]


def test_a_connection_that_breaks_within_a_line_loses_nothing(tmp_path: Path) -> None:
    """Half a line is no event; the watch continues from the last whole one."""
    pods = Script(
        watches=[[event("ADDED", make_pod("p", 6)), BREAK], [event("ADDED", make_pod("q", 7))]]
    )
    with ApiServerDouble(cluster(Pod=pods)) as server:
        records = trace(server, tmp_path / "f")
    assert names(records) == ["p", "q"]


def test_after_410_a_list_shows_what_happened_meanwhile(tmp_path: Path) -> None:
    """One pod came, changed, went, or stayed: each has one note, which says that it is late.

    A note has the time in which that happened.
    """
    before = [running("stays", 2), running("changes", 3), running("goes", 4)]
    after = [
        running("stays", 2),
        running("changes", 12, metadata={"labels": {"a": "b"}}),
        make_pod("comes", 11),
    ]
    pods = Script(
        lists=[Listing(items=before, version=5), Listing(items=after, version=20)],
        watches=[[gone(), CLOSE], [event("DELETED", make_pod("comes", 21))]],
    )
    with ApiServerDouble(cluster(Pod=pods)) as server:
        records = trace(server, tmp_path / "f")
    assert told(records) == [
        *["pod_create"] * 3,
        "delete Pod user",
        "observed removed",
        "pod_create",
        "update pod",
        "delete Pod user",
        "observed removed",
    ]
    [gap] = [issue for issue in issues(records) if issue.kind == "gap"]
    assert re.match(r"pods were not watched all the time from 20\S+Z to 20\S+Z \(", gap.message)
    assert "Expired: too old: a change in that time is recorded at its end" in gap.message
    assert gap.count == 1
    assert "watch-error" not in issues_found(records)


def test_a_name_that_was_taken_again_meanwhile_is_two_pods(tmp_path: Path) -> None:
    """The uid distinguishes them; the first one's end comes before the second one."""
    again = make_pod("p", 9, metadata={"uid": "another"})
    pods = Script(
        lists=[Listing(items=[running("p", 2)], version=5), Listing(items=[again], version=10)],
        watches=[[gone(), CLOSE]],
    )
    with ApiServerDouble(cluster(Pod=pods)) as server:
        records = trace(server, tmp_path / "f")
    assert told(records) == ["pod_create", "delete Pod user", "observed removed", "pod_create"]


def test_a_list_comes_in_pages(tmp_path: Path) -> None:
    """Every page is read, with the token that the one before gave."""
    pods = Script(lists=[Listing(items=[make_pod(f"p{i}", i) for i in range(7)], version=9)])
    with ApiServerDouble(cluster(Pod=pods)) as server:
        records = trace(server, tmp_path / "f", options=fast(page=3))
    assert names(records) == [f"p{i}" for i in range(7)]
    assert [query.get("continue") for query in pods.asked[:3]] == [None, "3", "6"]


def test_a_token_that_expires_makes_the_next_list_one_piece(tmp_path: Path) -> None:
    """Otherwise a list that takes longer than a token lives would never end."""
    items = [make_pod(f"p{i}", i) for i in range(5)]
    pods = Script(lists=[Listing(items=items, version=9, expires=1)])
    with ApiServerDouble(cluster(Pod=pods)) as server:
        records = trace(server, tmp_path / "f", options=fast(page=2))
    assert names(records) == [f"p{i}" for i in range(5)]
    assert [query.get("limit") for query in pods.asked[:3]] == ["2", "2", None]


def test_a_kind_that_is_forbidden_is_named_and_the_rest_continues(tmp_path: Path) -> None:
    """As a role that lacks one resource has it."""
    words = 'csinodes.storage.k8s.io is forbidden: User "u" cannot list resource'
    nodes = Script(lists=[Listing(items=[node("n", 2)], version=5)])
    scripts = cluster(Node=nodes, CSINode=Script(refusal=(403, "Forbidden", words)))
    with ApiServerDouble(scripts) as server:
        outcome = recorded(server, tmp_path / "f")
    assert len(outcome.notes) == 1
    assert outcome.notes[0].startswith("csinodes are not recorded")
    assert words in outcome.notes[0]
    records = list(trace_of(outcome.folder))
    assert "create node" in kinds(records)
    assert [issue.message for issue in issues(records) if issue.kind == "not-recorded"] == [
        outcome.notes[0]
    ]


def test_a_kind_that_is_missing_is_noted_with_its_effect_on_a_replay(tmp_path: Path) -> None:
    """Before the server's words."""
    scripts = cluster(Pod=Script(refusal=(403, "Forbidden", "no")))
    with ApiServerDouble(scripts) as server:
        outcome = recorded(server, tmp_path / "f")
    assert outcome.notes[0].startswith(f"pods are not recorded; {EFFECTS['Pod']}: ")


def test_where_every_kind_is_forbidden_the_recording_is_refused(tmp_path: Path) -> None:
    """With the server's words."""
    refused = Script(refusal=(403, "Forbidden", "cannot list"))
    with (
        ApiServerDouble(dict.fromkeys(PATHS.values(), refused)) as server,
        pytest.raises(RecordError, match="403 Forbidden: cannot list"),
    ):
        recorded(server, tmp_path / "f")


def test_an_unknown_client_is_reported_once(tmp_path: Path) -> None:
    """401 comes before anything is recorded."""
    with (
        ApiServerDouble(cluster(), bearer="t") as server,
        pytest.raises(ApiError, match="/version: 401 Unauthorized"),
    ):
        recorded(server, tmp_path / "f")


def test_credentials_that_end_meanwhile_end_the_recording_with_what_there_is(
    tmp_path: Path,
) -> None:
    """The trace is whole, and says why it ends."""
    pods = Script(
        lists=[Listing(items=[running("p", 2)], version=5)],
        watches=[[CLOSE], (401, "Unauthorized", "Unauthorized")],
    )
    with ApiServerDouble(cluster(Pod=pods)) as server:
        outcome = recorded(server, tmp_path / "f")
    assert "401 Unauthorized" in outcome.broken
    records = list(trace_of(outcome.folder))
    assert names(records) == ["p"]
    assert "broken-off" in issues_found(records)


def test_a_server_that_does_not_answer_is_one_clear_error(tmp_path: Path) -> None:
    """With its address, and without the words of a library."""
    with ApiServerDouble({}) as server:
        how = access(server)
    with pytest.raises(UnreachableError, match=r"http://127\.0\.0\.1:\d+: .*refused") as refusal:
        recorded(server, tmp_path / "f", how=how)
    assert "object at" not in str(refusal.value)


def test_a_server_that_fails_for_a_while_is_asked_again(tmp_path: Path) -> None:
    """503 is no reason to give a kind up."""
    away = (503, "ServiceUnavailable", "etcd is away")
    pods = Script(lists=[away, away, away, Listing(items=(), version=5)], watches=[away, []])
    with ApiServerDouble(cluster(Pod=pods)) as server:
        outcome = recorded(server, tmp_path / "f")
    assert outcome.state.statuses["pods"].is_listed
    assert outcome.notes == ()


def test_frames_are_a_recording_of_their_own(tmp_path: Path) -> None:
    """The importer of watches reads the folder as it reads any other."""
    pods = Script(watches=[[event("ADDED", make_pod("p", 6))]])
    with ApiServerDouble(cluster(Pod=pods)) as server:
        made = trace(server, tmp_path / "f")
    read = list(open_trace([tmp_path / "f"]))
    assert told(read) == told(made) == ["pod_create"]


@pytest.mark.parametrize("cut", [1, 7, 50])
def test_what_a_killed_recorder_left_is_usable(tmp_path: Path, cut: int) -> None:
    """The last zstd frame may be written in part: it is cut off, and the rest is a trace."""
    pods = Script(watches=[[event("ADDED", make_pod("p", 6))]])
    with ApiServerDouble(cluster(Pod=pods)) as server:
        folder = recorded(server, tmp_path / "f").folder
    file = folder.path / "pods.watch.jsonl.zst"
    whole = file.read_bytes()
    file.write_bytes(whole + whole[: len(whole) - cut])
    (folder.path / "recording.json").unlink()
    records = list(trace_of(RecordingFolder(folder.path)))
    assert names(records) == ["p"]
    assert "cut-short" in issues_found(records)
    assert "broken-off" in issues_found(records)


def test_nothing_is_recorded_into_a_folder_that_is_not_empty(tmp_path: Path) -> None:
    """It may hold the only copy of another recording."""
    (tmp_path / "mine").write_text("x")
    with pytest.raises(RecordError, match=r"not empty.*--from"):
        RecordingFolder.create(tmp_path)


def test_managed_fields_are_not_kept(tmp_path: Path) -> None:
    """They are half of an object, and nobody reads them."""
    raw = make_pod("p", 6, metadata={"managedFields": [{"manager": "kubectl"}]})
    pods = Script(lists=[Listing(items=[raw], version=7)])
    with ApiServerDouble(cluster(Pod=pods)) as server:
        recorded(server, tmp_path / "f")
    assert b"managedFields" not in _plain(tmp_path / "f" / "pods.watch.jsonl.zst")


def test_each_recorded_resource_is_one_that_a_trace_carries() -> None:
    """And all of those are recorded."""
    assert {resource.name: resource.kind for resource in RESOURCES} == KINDS_BY_RESOURCE
    assert all(is_carried({"apiVersion": e.api_version, "kind": e.kind}) for e in RESOURCES)
    assert resource("CSINode").path == "/apis/storage.k8s.io/v1/csinodes"


def _plain(path: Path) -> bytes:
    with open_plain(path) as file:
        return file.read()


def test_a_version_that_is_never_served_again_is_abandoned(tmp_path: Path) -> None:
    """As after an API server's store was restored from a backup."""
    error = {"kind": "Status", "code": 504, "reason": "Timeout", "message": "too large version"}
    pods = Script(
        lists=[Listing(items=[], version=90), Listing(items=[make_pod("p", 6)], version=8)],
        watches=[[event("ERROR", error), CLOSE] for _ in range(6)],
    )
    with ApiServerDouble(cluster(Pod=pods)) as server:
        records = trace(server, tmp_path / "f")
    assert names(records) == ["p"]
    assert len([query for query in pods.asked if "watch" not in query]) > 1


def test_a_watcher_that_breaks_ends_the_recording_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A resource never goes missing without a word."""

    def broken(*_: object) -> None:
        raise ValueError("a bug")

    monkeypatch.setattr(ResourceStore, "end_list", broken)
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    with (
        ApiServerDouble(cluster()) as server,
        pytest.raises(RecordError, match="ValueError: a bug"),
    ):
        recorded(server, tmp_path / "f")


@contextlib.contextmanager
def file_size_limit(limit_bytes: int) -> Iterator[None]:
    """Refuse to let any file of this process grow above a size, as a full disk does.

    Compiled modules are files, too: Python keeps what fits of one, and cannot read it afterwards.
    """
    written, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    before = resource_limits.getrlimit(resource_limits.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource_limits.setrlimit(resource_limits.RLIMIT_FSIZE, (limit_bytes, before[1]))
    try:
        yield
    finally:
        resource_limits.setrlimit(resource_limits.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
        sys.dont_write_bytecode = written


def test_a_full_disk_ends_the_recording_and_keeps_whole_frames(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error has the file and the system's message; importers can read the earlier frames."""
    monkeypatch.setattr(recorder, "_FLUSH_S", 0.05)
    first = [make_pod(f"p{i}", i + 2) for i in range(3)]
    long = (make_pod(token_hex(500), 10 + i) for i in range(200))
    events: list[Raw | str] = [event("ADDED", pod) for pod in long]
    path = tmp_path / "f" / "pods.watch.jsonl.zst"
    lists: list[Listing | Refusal] = [Listing(items=first, version=5)]
    pods = Script(lists=lists, watches=[events], listed_on_disk=path)
    with ApiServerDouble(cluster(Pod=pods)) as server, file_size_limit(20_000):
        outcome = recorded(server, tmp_path / "f")
    assert outcome.is_disk
    assert str(path) in outcome.broken
    assert "File too large" in outcome.broken
    assert names(open_trace([tmp_path / "f"]))[:3] == ["p0", "p1", "p2"]
    records = list(trace_of(outcome.folder))
    assert "cut-short" not in issues_found(records)
    assert "broken-off" in issues_found(records)
