"""API servers that flood, stall, lie and repeat secrets: a recording stays within its bounds."""

from __future__ import annotations

import gzip
import re
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from io import BufferedIOBase
from pathlib import Path
from threading import Event

import orjson
import pytest

from replay.errors import ApiError, RecordError, UnreachableError
from replay.importers.registry import open_trace
from replay.record.api import ApiServer
from replay.record.backoff import Backoff
from replay.record.connect import server_version
from replay.record.coverage import EFFECTS
from replay.record.frames import RecordingFolder
from replay.record.http_client import OPTIONS, BoundError, RequestBounds
from replay.record.kubeconfig import Access
from replay.record.recorded_trace import trace_of
from replay.record.recorder import RecorderSettings, RecordingProgress
from replay.record.redact import Redactor
from replay.record.session import RecordingResult, record
from replay.record.usage_sources import KubeletUsage, choose_source
from replay.trace.files import open_plain
from tests.api_server import CLOSE, ApiServerDouble, Hostile, Listing, Raw, Script
from tests.unit.importers.builders import kinds, make_object, make_pod
from tests.unit.record.recording import access, cluster, event, gone, quick

PODS, NODES = "/api/v1/pods", "/api/v1/nodes"
SUMMARY = "/api/v1/nodes/n/proxy/stats/summary"
TOKEN = "token-that-nobody-may-see"  # noqa: S105 - that is what the tests look for
MIB = 1 << 20
"""Bytes of the small bounds below."""
SMALL = RequestBounds(
    end_s=0.3, response_bytes=MIB, usage_bytes=MIB, event_bytes=MIB, list_bytes=MIB
)
"""Times of requests as they are: a machine may be too busy for short ones."""
PATIENT = replace(SMALL, end_s=30.0)
"""For recordings whose end is waited for."""


def recorded(
    server: ApiServerDouble,
    folder: Path,
    *,
    seconds: float = 0.5,
    bounds: RequestBounds = SMALL,
    backoff: Callable[[], Backoff] = quick,
    until: Callable[[RecordingProgress], bool] = lambda _: False,
    how: Access | None = None,
    usage: str = "off",
    is_redacted: bool = False,
) -> RecordingResult:
    """Record for so many seconds, or until the progress is as a test wants it."""
    api = ApiServer(how or access(server), time.time_ns, bounds)
    end_s = time.monotonic() + seconds

    def keep_going(state: RecordingProgress) -> bool:
        time.sleep(0.005)
        return time.monotonic() < end_s and not until(state)

    return record(
        api,
        RecordingFolder.create(folder),
        choose_source(usage, api),
        version=server_version(api),
        options=RecorderSettings(
            backoff=backoff, usage_every_s=0.01, redactor=Redactor(b"k") if is_redacted else None
        ),
        now_ns=time.time_ns,
        keep_going=keep_going,
    )


def settled(state: RecordingProgress) -> bool:
    """Return whether every kind was listed or is refused."""
    return bool(state.statuses) and state.listed == len(state.statuses)


def refused(state: RecordingProgress) -> bool:
    """Return whether pods are no longer recorded, and all other kinds were listed."""
    return settled(state) and bool(state.statuses["pods"].refused)


def sent(status: str, *pieces: bytes, head: str = "", again: bytes = b"") -> Hostile:
    """Return an answer of these bytes; `again` follows without end."""

    def write(file: BufferedIOBase, stopping: Event) -> None:
        file.write(f"HTTP/1.1 {status}\r\n{head}\r\n".encode())
        for piece in pieces:
            file.write(piece)
        while again and not stopping.is_set():
            file.write(again)

    return write


def stalled(*pieces: bytes, every_s: float = 0.0, drip: bytes = b"") -> Hostile:
    """Return an answer that begins and never ends; `drip` follows every `every_s`."""

    def write(file: BufferedIOBase, stopping: Event) -> None:
        for piece in pieces:
            file.write(piece)
        file.flush()
        while not stopping.wait(every_s or None):
            file.write(drip)
            file.flush()

    return write


def chunk(data: bytes) -> bytes:
    """Return a chunk of a chunked answer."""
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


HEAD = b"HTTP/1.1 200 OK\r\n"
CHUNKED = "Transfer-Encoding: chunked\r\n"
GZIP_WITH_NAME = b"\x1f\x8b\x08\x08" + bytes(6)
LENGTH = b"Content-Length: 1000\r\n\r\n"


def slow() -> Backoff:
    """Return a back-off without chance: waits of 40, 80, 160, ... ms."""
    return Backoff(initial_s=0.04, chance=lambda: 0.0)


FLOODS = {
    "watches that answer 410": Script(watches=[(410, "Expired", "too old")] * 10_000),
    "watches that report 410": Script(watches=[[gone(), CLOSE]] * 10_000),
    "lists without a version": Script(lists=[Listing(items=(), version="")]),
    "watches that end at once": Script(watches=[[CLOSE]] * 10_000),
    "watches that end after an event": Script(
        watches=[[event("ADDED", make_pod(f"p{i}", i + 9)), CLOSE] for i in range(10_000)]
    ),
    "lists that are refused for a while": Script(lists=[(503, "Unavailable", "no")] * 10_000),
    "lists that are no lists": Script(lists=[(200, "x", "y")] * 10_000),
}


@pytest.mark.parametrize("script", FLOODS.values(), ids=FLOODS.keys())
def test_no_answer_makes_a_recorder_ask_without_a_pause(tmp_path: Path, script: Script) -> None:
    """In 300 ms there are attempts at 0, 40, 120 and 280 ms, of a list and a watch each.

    So there are at the end, where the answer to a list is wanted for another 300 ms.
    """
    with ApiServerDouble(cluster(Pod=script)) as server:
        recorded(server, tmp_path / "f", seconds=0.3, backoff=slow)
        assert 1 < server.requests[PODS] <= 14
        # A healthy kind is listed once, watched once if there is time, and listed at the end.
        assert server.requests[NODES] in (2, 3)


def test_retry_after_is_honoured(tmp_path: Path) -> None:
    """The kind is asked once, and not again before the second is over."""
    script = Script(lists=[(429, "TooManyRequests", "slow down")] * 1000)
    with ApiServerDouble(cluster(Pod=script)) as server:
        server.headers["Retry-After"] = "1"
        outcome = recorded(server, tmp_path / "f", seconds=0.5)
        assert server.requests[PODS] == 1
    assert "429 TooManyRequests: slow down" in "".join(outcome.notes)


def test_pages_without_end_are_not_a_list(tmp_path: Path) -> None:
    """A page that repeats objects is no progress; it is tried again as any failure is."""
    page = orjson.dumps({"metadata": {"continue": "again"}, "items": [make_pod("p", 2)]})
    with ApiServerDouble(cluster()) as server:
        head = f"Content-Length: {len(page)}\r\nConnection: close\r\n"
        server.hostile[PODS] = sent("200 OK", page, head=head)
        outcome = recorded(server, tmp_path / "f", backoff=slow)
        assert server.requests[PODS] <= 10
    assert "a page of a list without new objects" in "".join(outcome.notes)


def _pages(file: BufferedIOBase, _: Event) -> None:
    """Answer a page of one new object, and that there are more."""
    pod = make_pod(f"p{time.monotonic_ns()}", 2)
    body = orjson.dumps({"metadata": {"continue": "more"}, "items": [pod]})
    file.write(HEAD + f"Content-Length: {len(body)}\r\n\r\n".encode() + body)


def _new_pods(file: BufferedIOBase, stopping: Event) -> None:
    """Answer each request with new pods without end, as a watch does."""
    file.write(HEAD + b"\r\n")
    if stopping.is_set():
        return
    for number in range(100_000):
        file.write(orjson.dumps(event("ADDED", make_pod(f"p{number}", number + 9))) + b"\n")


ENDLESS = {
    "a length of 10 TB": (
        "response_bytes",
        sent("200 OK", head=f"Content-Length: {10 * 10**12}\r\n"),
    ),
    "an absurd length": ("response_bytes", sent("200 OK", head=f"Content-Length: {'9' * 400}\r\n")),
    "a body without end": ("response_bytes", sent("200 OK", again=b" " * 65536)),
    "chunks without end": (
        "response_bytes",
        sent("200 OK", head=CHUNKED, again=chunk(b" " * 65536)),
    ),
    "a gzip bomb": (
        "response_bytes",
        sent("200 OK", gzip.compress(b" " * 64 * MIB), head="Content-Encoding: gzip\r\n"),
    ),
    "pages of new objects without end": ("list_bytes", _pages),
}


@pytest.mark.parametrize(("bound", "answer"), ENDLESS.values(), ids=ENDLESS.keys())
def test_an_answer_beyond_a_bound_is_refused_with_the_bound_and_its_option(
    tmp_path: Path, bound: str, answer: Hostile
) -> None:
    """The kind is left out with a note; all others are recorded."""
    node = make_object("Node", "n", 1, status={"allocatable": {"cpu": "4"}})
    nodes = Script(lists=[Listing(items=[node], version=5)])
    with ApiServerDouble(cluster(Node=nodes)) as server:
        server.hostile[PODS] = answer
        outcome = recorded(server, tmp_path / "f", seconds=60, bounds=PATIENT, until=refused)
    [note] = outcome.notes
    assert note.startswith(f"pods are not recorded; {EFFECTS['Pod']}: /api/v1/pods: ")
    assert f"more than {MIB:,} bytes, the bound of {OPTIONS[bound]}; raise it with" in note
    assert "create node" in kinds(trace_of(outcome.folder))


def test_a_line_of_a_watch_without_end_is_refused(tmp_path: Path) -> None:
    """The listed objects are kept; the note says until when the kind is recorded."""
    long = sent("200 OK", b'{"type":"ADDED","object":{"a":"', again=b"x" * 65536)
    pods = Script(lists=[Listing(items=[make_pod("p", 2)], version=5)])
    with ApiServerDouble(cluster(Pod=pods)) as server:
        server.hostile_watches[PODS] = long
        outcome = recorded(server, tmp_path / "f", seconds=60, bounds=PATIENT, until=refused)
    [note] = outcome.notes
    assert note.startswith("pods are only recorded until 20")
    assert "a line of the watch has more than" in note
    assert "--max-event-bytes" in note
    assert "pod_create" in kinds(trace_of(outcome.folder))


def test_events_of_new_objects_without_end_are_refused(tmp_path: Path) -> None:
    """They are held in memory as those of a list are."""
    with ApiServerDouble(cluster()) as server:
        server.hostile_watches[PODS] = _new_pods
        outcome = recorded(server, tmp_path / "f", seconds=60, bounds=PATIENT, until=refused)
    [note] = outcome.notes
    assert note.startswith("pods are only recorded until 20")
    assert "--max-list-bytes" in note
    # 1 KiB each at least.
    assert outcome.state.statuses["pods"].objects <= 1024


STALLS = {
    "nothing": stalled(),
    "half a status": stalled(b"HTTP/1."),
    "headers that drip": stalled(HEAD, every_s=0.02, drip=b"A: b\r\n"),
    "interim answers without end": stalled(every_s=0.005, drip=b"HTTP/1.1 100 Continue\r\n\r\n"),
    "half a body": stalled(HEAD, LENGTH, b"{"),
    "a body that drips": stalled(HEAD, LENGTH, every_s=0.02, drip=b" "),
    "chunks that drip": stalled(HEAD, CHUNKED.encode(), b"\r\n", every_s=0.02, drip=chunk(b" ")),
    "a chunk's size that drips": stalled(HEAD, CHUNKED.encode(), b"\r\n", every_s=0.02, drip=b"0"),
    "gzip that drips": stalled(
        HEAD, b"Content-Encoding: gzip\r\n\r\n", GZIP_WITH_NAME, every_s=0.02, drip=b"a"
    ),
}


@pytest.mark.parametrize("answer", STALLS.values(), ids=STALLS.keys())
def test_a_request_ends_with_its_time_however_slowly_bytes_come(answer: Hostile) -> None:
    """300 ms of it; the error names the option, unless not one byte came."""
    with ApiServerDouble({}) as server:
        server.hostile["/version"] = answer
        bounds = RequestBounds(request_s=0.3)
        with pytest.raises(UnreachableError, match=r"after 0\.3s, the bound of --request-timeout"):
            ApiServer(access(server), time.time_ns, bounds).get("/version")


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_server_that_takes_a_connection_and_is_silent_costs_the_time_of_a_request(
    scheme: str,
) -> None:
    """In TLS's handshake, too."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        how = Access(name="x", server=f"{scheme}://127.0.0.1:{silent.getsockname()[1]}")
        api = ApiServer(how, time.time_ns, RequestBounds(request_s=0.3))
        with pytest.raises(UnreachableError, match="--request-timeout"):
            api.get("/version")


def test_silence_ends_a_request_before_its_time() -> None:
    """--idle-timeout counts from the last byte."""
    with ApiServerDouble({}) as server:
        server.hostile["/version"] = stalled(HEAD, LENGTH, b"{")
        bounds = RequestBounds(idle_s=0.3)
        with pytest.raises(UnreachableError, match="timed out"):
            ApiServer(access(server), time.time_ns, bounds).get("/version")


@pytest.mark.parametrize("answer", STALLS.values(), ids=STALLS.keys())
@pytest.mark.parametrize("is_watch", [False, True], ids=["list", "watch"])
def test_a_recording_ends_at_once_however_a_server_stalls(
    tmp_path: Path, *, answer: Hostile, is_watch: bool
) -> None:
    """No thread waits in a read, and what was received is a trace."""
    node = make_object("Node", "n", 1, status={"allocatable": {"cpu": "4"}})
    nodes = Script(lists=[Listing(items=[node], version=5)])
    with ApiServerDouble(cluster(Node=nodes)) as server:
        (server.hostile_watches if is_watch else server.hostile)[PODS] = answer
        stalled_s = [0.0]

        def until(state: RecordingProgress) -> bool:
            stalled_s[0] = time.monotonic()
            is_asked = server.requests[PODS] > is_watch
            return is_asked and state.statuses["nodes"].is_listed

        outcome = recorded(
            server, tmp_path / "f", seconds=60.0, bounds=RequestBounds(end_s=0.5), until=until
        )
        assert time.monotonic() - stalled_s[0] < 3
    assert "create node" in kinds(trace_of(outcome.folder))


MALFORMED = {
    "no JSON": b"<html>",
    "half JSON": b'{"items": [',
    "100,000 levels": b"[" * 100_000 + b"]" * 100_000,
    "a list": b"[]",
    "nothing": b"",
    "a number": b"1e400",
    "wrong metadata": b'{"metadata": [], "items": []}',
    "wrong items": b'{"metadata": {"resourceVersion": "5"}, "items": {"a": 1}}',
    "wrong objects": b'{"metadata": {"resourceVersion": "5"}, "items": [1, null, "x", [], {}]}',
    "wrong fields": b'{"metadata": {"resourceVersion": "5"}, "items": [{"metadata": {"name": {}, '
    b'"uid": [], "namespace": 5, "labels": 7}, "spec": 1, "status": []}]}',
    "a wrong version": b'{"metadata": {"resourceVersion": {}}, "items": []}',
    "an endless version": b'{"metadata": {"resourceVersion": "%s"}}' % (b"9" * 9999),
    "an object's endless version": b'{"metadata": {"resourceVersion": "5"}, "items": [{"metadata":'
    b'{"name": "p", "resourceVersion": "%s"}}]}' % (b"9" * 9999),
    "500 levels": b'{"metadata": {"resourceVersion": "5"}, "items": [{"metadata": {"name": "p"}, '
    b'"spec": %s}]}' % (b'{"a":' * 500 + b"1" + b"}" * 500),
    "a wrong token": b'{"metadata": {"continue": {}, "resourceVersion": "5"}, "items": []}',
    "not UTF-8": b'{"metadata": {"resourceVersion": "\xff"}}',
}


@pytest.mark.parametrize("redacted", [False, True], ids=["plain", "redacted"])
@pytest.mark.parametrize("body", MALFORMED.values(), ids=MALFORMED.keys())
def test_a_malformed_list_is_noted_and_ends_nothing(
    tmp_path: Path, *, body: bytes, redacted: bool
) -> None:
    """The other kinds are recorded, and the files are read again."""
    node = make_object("Node", "n", 1, status={"allocatable": {"cpu": "4"}})
    nodes = Script(lists=[Listing(items=[node], version=5)])
    with ApiServerDouble(cluster(Node=nodes)) as server:
        length = f"Content-Length: {len(body)}\r\n"
        server.hostile[PODS] = sent("200 OK", body, head=length)
        outcome = recorded(
            server,
            tmp_path / "f",
            seconds=60,
            is_redacted=redacted,
            until=lambda s: s.statuses["nodes"].is_listed and server.requests[PODS] > 2,
        )
    assert outcome.broken == ""
    assert outcome.state.statuses["nodes"].is_listed
    assert "create node" in kinds(trace_of(outcome.folder))


LINES = {
    "no JSON": b"<html>\n",
    "no event": b"{}\n[]\n1\nnull\n",
    "a wrong type": b'{"type": {"a": 1}, "object": {"metadata": {}}}\n',
    "a wrong object": b'{"type": "ADDED", "object": 5}\n',
    "wrong metadata": b'{"type": "ADDED", "object": {"metadata": 5}}\n',
    "a wrong error": b'{"type": "ERROR", "object": {"code": [], "reason": {}, "message": 5}}\n',
    "100,000 levels": b'{"type": "ADDED", "object": ' + b"[" * 100_000 + b"\n",
    "500 levels": b'{"type": "ADDED", "object": {"metadata": {"name": "p"}, "spec": %s}}\n'
    % (b'{"a":' * 500 + b"1" + b"}" * 500),
    "empty lines": b"\n" * 1000,
    "an endless version": b'{"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "%s"}}}'
    b"\n" % (b"9" * 9999),
}


@pytest.mark.parametrize("lines", LINES.values(), ids=LINES.keys())
def test_a_malformed_event_ends_nothing(tmp_path: Path, lines: bytes) -> None:
    """The watch is opened again."""
    pods = Script(lists=[Listing(items=[make_pod("p", 2)], version=5)])
    with ApiServerDouble(cluster(Pod=pods)) as server:
        server.hostile_watches[PODS] = sent("200 OK", lines)
        outcome = recorded(
            server, tmp_path / "f", seconds=60, until=lambda _: server.requests[PODS] > 3
        )
        assert server.requests[PODS] > 3
    assert outcome.broken == ""
    assert "pod_create" in kinds(open_trace([tmp_path / "f"]))


def test_an_object_that_is_nested_too_deeply_is_counted(tmp_path: Path) -> None:
    """JSON of a recording is at most 254 levels deep."""
    spec = b'{"a":' * 300 + b"1" + b"}" * 300
    good = orjson.dumps(make_pod("p", 2))
    body = (
        b'{"metadata": {"resourceVersion": "5"}, "items": [%s, {"metadata": {"name": "q"}, ' % good
    )
    body += b'"spec": %s}]}' % spec
    with ApiServerDouble(cluster()) as server:
        head = f"Content-Length: {len(body)}\r\n"
        server.hostile[PODS] = sent("200 OK", body, head=head)
        outcome = recorded(server, tmp_path / "f", seconds=60, until=settled)
    [note] = outcome.notes
    expected = "1 objects of pods are not recorded, or not in all states: they are malformed, or"
    assert note.startswith(expected)
    assert kinds(trace_of(outcome.folder)).count("pod_create") == 1


def test_a_redirect_is_not_followed() -> None:
    """The credentials are for one server."""
    with ApiServerDouble({}) as other, ApiServerDouble(cluster()) as server:
        where = f"Location: {other.url}/version\r\nContent-Length: 0\r\n"
        server.hostile["/version"] = sent("302 Found", head=where)
        how = replace(access(server), token=TOKEN)
        with pytest.raises(ApiError, match=r"302 Found: the answer is a redirect to 127\.0\.0\.1"):
            ApiServer(how, time.time_ns).get("/version")
        assert other.seen == []


def test_no_secret_is_in_what_a_server_says_back(tmp_path: Path) -> None:
    """A server that repeats the token: in a refusal, in an event, as a reason."""
    status = {"kind": "Status", "code": 410, "reason": "Expired", "message": f"Bearer {TOKEN}"}
    nodes = Script(refusal=(403, TOKEN, f"the token {TOKEN} may not list"))
    pods = Script(watches=[[event("ERROR", status), CLOSE] for _ in range(3)])
    with ApiServerDouble(cluster(Node=nodes, Pod=pods)) as server:
        how = replace(access(server), token=TOKEN)
        outcome = recorded(
            server,
            tmp_path / "f",
            seconds=60,
            how=how,
            until=lambda state: settled(state) and state.statuses["pods"].gaps > 1,
        )
        assert f"Bearer {TOKEN}" in server.seen
    assert "the token *** may not list" in "".join(outcome.notes)
    assert TOKEN not in repr((outcome.notes, outcome.broken, outcome.state, how))
    assert TOKEN not in str(list(trace_of(outcome.folder)))
    for file in (tmp_path / "f").iterdir():
        with open_plain(file) as opened:
            assert TOKEN.encode() not in opened.read()


def test_a_long_message_of_a_server_is_cut(tmp_path: Path) -> None:
    """And is one line, for it is printed."""
    nodes = Script(refusal=(403, "Forbidden", "no\n\x1b[31m" + "x" * 100_000))
    with ApiServerDouble(cluster(Node=nodes)) as server:
        outcome = recorded(server, tmp_path / "f", seconds=60, until=settled)
    [note] = outcome.notes
    assert len(note) < 800
    assert re.search(r"no  \[31mx+\.\.\.$", note)


def kubelets(*names: str) -> dict[str, Script]:
    """Return a cluster of nodes."""
    nodes = [make_object("Node", name, 1) for name in names]
    return cluster(Node=Script(lists=[Listing(items=nodes, version=5)]))


BAD_SUMMARIES = {
    "wrong types": b'{"node": [], "pods": {"a": 1}}',
    "wrong parts": b'{"node": {"cpu": 5, "fs": {"capacityBytes": "x"}}, "pods": [1, {"podRef": 5, '
    b'"containers": 7}]}',
    "no JSON": b"<html>",
    "huge numbers": b'{"node": {"memory": {"workingSetBytes": 1e300}, "cpu": {"usageNanoCores": '
    b"18446744073709551615}}}",
    "too much": b" " * (2 * MIB),
}


@pytest.mark.parametrize("body", BAD_SUMMARIES.values(), ids=BAD_SUMMARIES.keys())
def test_one_bad_kubelet_does_not_cost_the_usage_of_others(tmp_path: Path, body: bytes) -> None:
    """Its node is named as one without usage."""
    good: Raw = {"node": {"memory": {"workingSetBytes": 5 * MIB}}}
    with ApiServerDouble(kubelets("n", "bad"), answers={SUMMARY: good}) as server:
        head = f"Content-Length: {len(body)}\r\n"
        server.hostile[SUMMARY.replace("/n/", "/bad/")] = sent("200 OK", body, head=head)
        outcome = recorded(
            server,
            tmp_path / "f",
            seconds=60,
            bounds=PATIENT,
            usage="kubelet",
            until=lambda s: s.samples > 2,
        )
    assert outcome.state.samples > 2
    assert outcome.notes == ("nodes without recorded usage (1): bad",)


def test_a_kubelet_that_fails_is_asked_less_often() -> None:
    """While other kubelets are queried for every sample."""
    good: Raw = {"node": {"memory": {"workingSetBytes": 5 * MIB}}}
    with ApiServerDouble({}, answers={SUMMARY: good}) as server:
        usage = KubeletUsage(ApiServer(access(server), time.time_ns))
        for _ in range(20):
            assert [sample.node for sample in usage.sample(["n", "away"])] == ["n"]
        assert server.requests[SUMMARY] == 20
        assert server.requests[SUMMARY.replace("/n/", "/away/")] <= 5


def test_a_node_cannot_choose_another_path() -> None:
    """Its name is one segment of the path."""
    with ApiServerDouble({}) as server:
        usage = KubeletUsage(ApiServer(access(server), time.time_ns))
        with pytest.raises(RecordError, match="404"):
            usage.sample(["../../secrets?x="])
        [path] = server.requests
        assert path == "/api/v1/nodes/..%2F..%2Fsecrets%3Fx%3D/proxy/stats/summary"


def test_only_one_large_answer_is_in_memory() -> None:
    """The next one waits for it, and is cut at its time."""
    large = b'{"a": "' + b"x" * (20 * MIB) + b'"}'
    with ApiServerDouble({}) as server:
        server.hostile["/large"] = sent("200 OK", large)
        api = ApiServer(access(server), time.time_ns, RequestBounds(request_s=2.0))
        with (
            api.opened("/large"),
            pytest.raises(UnreachableError, match="--request-timeout"),
            api.opened("/large"),
        ):
            pass
        assert len(api.get("/large")["a"]) == 20 * MIB


def test_bounds_are_checked_against_what_is_read_not_what_is_sent() -> None:
    """A compressed answer that fits is read."""
    body = gzip.compress(orjson.dumps({"a": "x" * 1000}))
    with ApiServerDouble({}) as server:
        head = f"Content-Encoding: gzip\r\nContent-Length: {len(body)}\r\n"
        server.hostile["/a"] = sent("200 OK", body, head=head)
        fits = ApiServer(access(server), time.time_ns, replace(SMALL, response_bytes=1100))
        assert len(fits.get("/a")["a"]) == 1000
        with pytest.raises(BoundError, match="--max-response-bytes"):
            ApiServer(access(server), time.time_ns, replace(SMALL, response_bytes=900)).get("/a")
