"""The end of a recording, with servers that fail watches and last lists in several ways."""

from __future__ import annotations

import time
from collections.abc import Callable
from io import BufferedIOBase
from pathlib import Path
from threading import Condition, Event

import orjson
import pytest

from replay.importers.kubernetes.watch_coverage import recording_coverage
from replay.importers.registry import open_trace
from replay.kube.changes import time_ns
from replay.kube.documents import read_json
from replay.record.api import ApiServer
from replay.record.connect import server_version
from replay.record.frames import RecordingFolder
from replay.record.http_client import RequestBounds
from replay.record.recorded_trace import trace_of
from replay.record.recorder import RecorderSettings, RecordingProgress
from replay.record.redact import Redactor
from replay.record.session import RecordingResult, record
from replay.record.usage_sources import choose_source
from tests.api_server import ApiServerDouble, Raw
from tests.unit.importers.builders import make_object
from tests.unit.record.recording import PATHS, access, cluster, event, gone, issues, quick

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
KINDS = (
    *("Pod", "Node", "Service", "Job", "Deployment", "ReplicaSet", "StatefulSet", "DaemonSet"),
    "CSINode",
)
"""The kinds of the watches below, in their order."""
WATCHES = (
    *("is reset", "is redirected", "stalls within a line", "is silent", "drips", "reports 410"),
    *("answers 410", "answers 429", "answers 503"),
)
LISTS = (
    *("stalls", "is reset", "is redirected", "drips", "answers 410", "answers 429", "answers 503"),
)
AFTER_S, END_S = 0.35, 2.0


class LiveResource:
    """A resource of a server that works until `fail`; `log` has its changes with times, versions.

    After `fail`, watches do what `watch` says, and lists what `list` says ("" to answer them).
    """

    def __init__(self, kind: str, watch: str, list_: str) -> None:
        self.kind, self.watch, self.list = kind, watch, list_
        self.log: list[tuple[int, int, Raw]] = []
        self.objects: dict[str, Raw] = {}
        self.version = 10
        self.fails = False
        self.changed = Condition()

    def write(self) -> None:
        """Create an object, at this moment."""
        with self.changed:
            self.version += 1
            name = f"{self.kind.lower()}-{self.version}"
            self.objects[name] = make_object(self.kind, name, self.version)
            self.log.append((time.time_ns(), self.version, event("ADDED", self.objects[name])))
            self.changed.notify_all()

    def fail(self) -> None:
        """Begin to do what `watch` and `list` say."""
        with self.changed:
            self.fails = True
            self.changed.notify_all()

    def __call__(self, file: BufferedIOBase, stopping: Event, query: dict[str, str]) -> None:
        """Answer a list or a watch."""
        try:
            if "watch" in query:
                self._watch(file, stopping, int(query["resourceVersion"]))
            else:
                self._list(file, stopping)
        except OSError:
            # The recorder has gone.
            return

    def _list(self, file: BufferedIOBase, stopping: Event) -> None:
        with self.changed:
            how = self.list if self.fails else ""
            metadata = {"resourceVersion": str(3 if how == "is older" else self.version)}
            body = orjson.dumps({"metadata": metadata, "items": list(self.objects.values())})
        if how in {"", "is older"}:
            file.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        else:
            answer(how, file, stopping)

    def _watch(self, file: BufferedIOBase, stopping: Event, version: int) -> None:
        if self.fails:
            answer(self.watch, file, stopping)
            return
        file.write(HEAD)
        while not stopping.is_set():
            with self.changed:
                if not self.fails and self.version <= version:
                    self.changed.wait(0.1)
                coming = [raw for _, number, raw in self.log if number > version]
                fails, version = self.fails, self.version
            if fails:
                answer(self.watch, file, stopping, orjson.dumps((coming or [gone()])[0]) + b"\n")
                return
            for raw in coming:
                file.write(chunk(orjson.dumps(raw) + b"\n"))
            file.flush()


def chunk(data: bytes) -> bytes:
    """Return a chunk of a chunked answer."""
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def answer(how: str, file: BufferedIOBase, stopping: Event, line: bytes = b"") -> None:
    """Fail a response, or a watch that continues with `line`, in the way `how`."""
    head = b"" if line else HEAD
    match how:
        case "is reset":
            return
        case "stalls within a line" | "stalls":
            file.write(head + chunk(line[:20] or b'{"type":'))
        case "is silent":
            file.write(head)
        case "drips":
            file.write(head)
            for byte in (line or b'{"type":"ADDED"') * 100:
                file.write(chunk(bytes([byte])))
                file.flush()
                if stopping.wait(0.05):
                    return
        case "reports 410" if line:
            file.write(chunk(orjson.dumps(gone()) + b"\n"))
            return
        case "is redirected" if not line:
            file.write(b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:9/\r\n\r\n")
            return
        case _:
            # A watch that is open ends, and the next one has this status.
            status = how.rpartition(" ")[2]
            if not line:
                file.write(f"HTTP/1.1 {status} No\r\nContent-Length: 0\r\n\r\n".encode())
            return
    file.flush()
    stopping.wait()


def recorded(
    folder: Path, resources: list[LiveResource], *, end_s: float = END_S
) -> RecordingResult:
    """Record resources that are written to all the time, and fail in the middle."""
    with ApiServerDouble(cluster()) as server:
        server.live = {PATHS[resource.kind]: resource for resource in resources}
        api = ApiServer(access(server), time.time_ns, RequestBounds(end_s=end_s))
        begun_ns, failed_s = list[int](), list[float]()

        def keep_going(state: RecordingProgress) -> bool:
            time.sleep(0.03)
            if not state.statuses or state.listed < len(state.statuses):
                return True
            for resource in resources:
                resource.write()
            statuses = [state.statuses[name_of(resource)] for resource in resources]
            # The trace begins with the first event, and so each must be complete beyond that.
            if not begun_ns and all(status.events for status in statuses):
                begun_ns.append(time.time_ns())
            until_ns = min(status.complete_until_ns for status in statuses)
            proved = bool(begun_ns) and until_ns > begun_ns[0]
            if not failed_s and proved:
                failed_s.append(time.monotonic())
                for resource in resources:
                    resource.fail()
            return not failed_s or time.monotonic() < failed_s[0] + AFTER_S

        return record(
            api,
            RecordingFolder.create(folder),
            choose_source("off", api),
            version=server_version(api),
            options=RecorderSettings(backoff=quick, prove_every_s=0.1),
            now_ns=time.time_ns,
            keep_going=keep_going,
        )


def name_of(resource: LiveResource) -> str:
    """Return the name of a resource in the API."""
    return PATHS[resource.kind].rpartition("/")[2]


def file_of(outcome: RecordingResult, resource: LiveResource) -> Path:
    """Return the file of a resource."""
    return outcome.folder.path / f"{name_of(resource)}.watch.jsonl.zst"


def check_claims(outcome: RecordingResult, resource: LiveResource) -> int:
    """Check that a resource claims nothing that it lacks; return until when it is complete."""
    path = file_of(outcome, resource)
    [claimed] = recording_coverage([path]).resources
    versions = {
        line["event"]["object"]["metadata"]["resourceVersion"]
        for _, line in read_json(path)
        if line["event"]["type"] == "ADDED"
    }
    before = [version for at, version, _ in resource.log if at < claimed.complete_until_ns]
    assert [version for version in before if str(version) not in versions] == []
    return claimed.complete_until_ns


@pytest.mark.parametrize("list_", LISTS)
def test_an_end_that_no_list_shows_is_named_with_the_time_since_when_it_is_missing(
    tmp_path: Path, list_: str
) -> None:
    """For each of nine things that a server does to watches; other kinds are complete."""
    resources = [
        LiveResource(kind, watch, list_) for kind, watch in zip(KINDS, WATCHES, strict=True)
    ]
    outcome = recorded(tmp_path / "f", resources)
    assert outcome.broken == ""
    statuses = outcome.state.statuses
    for resource in resources:
        until_ns = check_claims(outcome, resource)
        assert not statuses[name_of(resource)].is_complete, (resource.watch, list_)
        assert resource.log[0][0] < until_ns < resource.log[-1][0], resource.watch
    names = set(map(name_of, resources))
    others = [item for name, item in statuses.items() if name not in names]
    assert all(resource.is_complete for resource in others)
    assert outcome.missing.startswith("changes may be missing of ")
    records = list(trace_of(outcome.folder))
    coverage = recording_coverage(outcome.folder.watches())
    assert {resource.title for resource in coverage.without_end} == names
    # The window ends with the resource that is complete for the shortest time, and says so.
    assert records[0].header.window_end_time_ns == coverage.complete_until_ns
    [missing] = [issue for issue in issues(records) if issue.kind == "missing-end"]
    assert "the window of the trace ends at 20" in missing.message
    folder_end_ns = next(iter(open_trace([outcome.folder.path]))).header.window_end_time_ns
    assert folder_end_ns == records[0].header.window_end_time_ns


def test_a_list_at_the_end_closes_the_gap_of_each_watch(tmp_path: Path) -> None:
    """Nothing is missing; changes that the watch did not deliver are late, within a gap."""
    resources = [LiveResource(kind, watch, "") for kind, watch in zip(KINDS, WATCHES, strict=True)]
    # Every list is answered, so that closing does not take that long.
    outcome = recorded(tmp_path / "f", resources, end_s=30.0)
    assert outcome.missing == ""
    records = list(trace_of(outcome.folder))
    ended_ns = time_ns(outcome.folder.read_about()["ended"])
    assert records[0].header.window_end_time_ns == ended_ns
    gaps = [issue.message for issue in issues(records) if issue.kind == "gap"]
    for resource in resources:
        assert check_claims(outcome, resource) == ended_ns, resource.watch
        [claimed] = recording_coverage([file_of(outcome, resource)]).resources
        assert claimed.gaps, resource.watch
        assert any(gap.startswith(f"{claimed.title} were not watched") for gap in gaps)
    # The burst does not come after the window.
    assert max(record.time_ns for record in records) == ended_ns


def test_a_server_that_continues_has_no_gap_at_the_end(tmp_path: Path) -> None:
    """Although it is written to at that moment."""
    resources = [LiveResource(kind, "", "") for kind in KINDS]
    for resource in resources:
        resource.fail = lambda: None  # type: ignore[method-assign] # this one does not
    outcome = recorded(tmp_path / "f", resources, end_s=30.0)
    assert outcome.missing == ""
    coverage = recording_coverage(outcome.folder.watches())
    assert [
        resource.title for resource in coverage.resources if resource.gaps or resource.ended_ns
    ] == []
    assert len({resource.complete_until_ns for resource in coverage.resources}) == 1
    issues_found = {issue.kind for issue in issues(trace_of(outcome.folder))}
    assert issues_found.isdisjoint({"gap", "missing-end"})


def test_a_list_that_is_older_than_the_watch_proves_nothing(tmp_path: Path) -> None:
    """As of a store that was restored, or of a proxy that answers by itself."""
    resources = [LiveResource("Pod", "is silent", "is older")]
    outcome = recorded(tmp_path / "f", resources)
    check_claims(outcome, resources[0])
    assert "a list of resourceVersion 3, after " in outcome.missing


def hidden_410(words: str) -> Callable[[BufferedIOBase, Event], None]:
    """Return a watch that reports 410 with these words."""
    status = {"kind": "Status", "code": 410, "reason": "Expired", "message": words}

    def write(file: BufferedIOBase, _: Event) -> None:
        file.write(HEAD + chunk(orjson.dumps(event("ERROR", status)) + b"\n") + chunk(b""))

    return write


def test_the_words_of_a_410_are_redacted(tmp_path: Path) -> None:
    """In the frames, in recording.json and in the trace; names of any script."""
    pods = LiveResource("Pod", "reports 410", "")
    said = "acme-web of Größe_база in memory is too old"
    with ApiServerDouble(cluster()) as server:
        server.hostile_watches[PATHS["Pod"]] = hidden_410(said)
        api = ApiServer(access(server), time.time_ns, RequestBounds(end_s=END_S))
        end_s = time.monotonic() + 0.3

        def keep_going(_: RecordingProgress) -> bool:
            time.sleep(0.01)
            return time.monotonic() < end_s

        outcome = record(
            api,
            RecordingFolder.create(tmp_path / "f"),
            choose_source("off", api),
            version=server_version(api),
            options=RecorderSettings(backoff=quick, redactor=Redactor(b"k", ["memory"])),
            now_ns=time.time_ns,
            keep_going=keep_going,
        )
    file = file_of(outcome, pods)
    text = "".join(str(line) for _, line in read_json(file))
    text += (outcome.folder.path / "recording.json").read_text()
    text += str(list(trace_of(outcome.folder)))
    assert "too" in text
    for word in ("acme", "Größe", "база", "memory"):
        assert word not in text
