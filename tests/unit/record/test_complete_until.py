"""A watcher's claims of completeness, compared with the log of all changes of a server."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from threading import Event, Thread
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replay.errors import UnreachableError
from replay.importers.kubernetes.watch_coverage import (
    GAP,
    RecordingCoverage,
    ResourceCoverage,
    recording_coverage,
)
from replay.kube.changes import time_ns
from replay.kube.documents import read_json
from replay.record import watcher as watcher_module
from replay.record.backoff import Backoff
from replay.record.frames import LineFile
from replay.record.http_client import RequestBounds
from replay.record.store import GoneError, WatchError
from replay.record.usage import ClusterIndex
from replay.record.watcher import Watcher
from tests.api_server import Raw
from tests.unit.importers.builders import make_pod
from tests.unit.record.recording import event, resource

MS = 1_000_000
NAMES = st.integers(0, 3)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["write", "write", "delete"]), NAMES),
        st.tuples(st.just("deliver"), st.integers(1, 4)),
        st.tuples(
            st.sampled_from(
                ["bookmark", "half a line", "break", "resume", "gone", "relist", "prove", "others"]
            ),
            st.just(0),
        ),
    ),
    max_size=40,
)
ENDS = st.sampled_from(["answers", "fails", "is refused"])


class ServerModel:
    """A store of pods; `log` has each change with its time and version. Time passes by calls."""

    bounds = RequestBounds()

    def __init__(self) -> None:
        self.now_ns, self.version = 10**18, 1
        self.pods: dict[int, Raw] = {}
        self.log: list[tuple[int, int, Raw]] = []
        self.answers = True

    def clock(self) -> int:
        """Return the time, which passes by that."""
        self.now_ns += MS
        return self.now_ns

    def write(self, name: int) -> None:
        """Create a pod, or change it."""
        self.version += 1
        before = self.pods.get(name)
        uid = before["metadata"]["uid"] if before else f"uid-{self.version}"
        self.pods[name] = make_pod(f"p{name}", self.version, metadata={"uid": uid})
        type_ = "MODIFIED" if before else "ADDED"
        self.log.append((self.clock(), self.version, event(type_, self.pods[name])))

    def delete(self, name: int) -> None:
        """Delete a pod where it exists."""
        if (before := self.pods.pop(name, None)) is None:
            return
        self.version += 1
        metadata = {**before["metadata"], "resourceVersion": str(self.version)}
        deleted = event("DELETED", {**before, "metadata": metadata})
        self.log.append((self.clock(), self.version, deleted))

    @contextlib.contextmanager
    def opened(self, path: str, query: dict[str, Any], **_: str) -> Iterator[Raw]:
        """Answer a page of a list, as ApiServer.opened does."""
        if not self.answers:
            raise UnreachableError(f"{path}: no answer")
        items = orjson.loads(orjson.dumps(list(self.pods.values())))
        first = int(query.get("continue", 0))
        end = first + query["limit"]
        more = {"continue": str(end)} if end < len(items) else {}
        metadata = {"resourceVersion": str(self.version), **more}
        yield {"metadata": metadata, "items": items[first:end]}

    def shown(self, text: str) -> str:
        """Return a text, which has no secret."""
        return text


class Recorded:
    """A watcher without threads: the test delivers the events of the watch."""

    def __init__(self, path: Path, *, page: int) -> None:
        self.server = ServerModel()
        self.file = LineFile(path / "pods.watch.jsonl.zst")
        self.watcher = Watcher(
            resource=resource("Pod"),
            api=self.server,  # type: ignore[arg-type] # what a watcher uses of it
            file=self.file,
            index=ClusterIndex(),
            ending=Event(),
            now_ns=self.server.clock,
            redact=lambda raw: raw,
            page=page,
            backoff=Backoff(),
        )
        self.list()

    def list(self) -> None:
        """List, and open a watch."""
        self.watcher._list()
        self.watcher._watch_answer = SimpleNamespace(is_within_line=False)  # type: ignore[assignment] # the only field that is read

    @property
    def is_open(self) -> bool:
        """Return whether a watch is open."""
        return self.watcher._watch_answer is not None

    def step(self, what: str, number: int) -> None:  # noqa: C901 - a table
        """Do one thing, where it is possible."""
        match what:
            case "write":
                self.server.write(number)
            case "delete":
                self.server.delete(number)
            case "deliver" if self.is_open:
                for _ in range(number):
                    self._deliver()
            case "bookmark" if self.is_open:
                self._bookmark()
            case "half a line" if self.is_open:
                self.watcher._watch_answer = SimpleNamespace(is_within_line=True)  # type: ignore[assignment] # as above
            case "break":
                self.watcher._watch_answer = None
            case "resume" if self.watcher._store.version:
                self.watcher._watch_answer = SimpleNamespace(is_within_line=False)  # type: ignore[assignment] # as above
            case "gone":
                self.watcher._watch_answer = None
                self.watcher._lost(GoneError("too old"))
            case "relist" if not self.watcher._store.version:
                self.list()
            case "prove":
                self.watcher.prove()
            case "others":
                # Objects of other kinds are written to the same store.
                self.server.version += 7

    def end(self, how: str) -> None:
        """End the recording; `how` is what becomes of its last list."""
        self.server.clock()
        self.watcher.end_ns = self.server.now_ns
        self.server.answers = how == "answers"
        if how == "is refused":
            self.watcher._refused("403 Forbidden")
        else:
            with contextlib.suppress(UnreachableError, WatchError):
                self.watcher._close()
        self.watcher.note_missing_end()
        self.file.close()

    def _deliver(self) -> None:
        seen = int(self.watcher._store.version)
        coming = next((entry for entry in self.server.log if entry[1] > seen), None)
        self.watcher._watch_answer = SimpleNamespace(is_within_line=False)  # type: ignore[assignment] # as above
        if coming is not None:
            self.server.clock()
            self.watcher._take(orjson.dumps(coming[2]))

    def _bookmark(self) -> None:
        """Say a bookmark of the latest version, as a server may that has said all before it."""
        seen = int(self.watcher._store.version)
        if not any(version > seen for _, version, _ in self.server.log):
            metadata = {"resourceVersion": str(self.server.version)}
            self.watcher._take(orjson.dumps(event("BOOKMARK", {"metadata": metadata})))


def silent_lives(log: list[tuple[int, int, Raw]], recorded: set[int]) -> set[str]:
    """Return the objects that came and went without a word of an open watch: no list has them."""
    ended = {raw["object"]["metadata"]["uid"] for _, _, raw in log if raw["type"] == "DELETED"}
    told = {raw["object"]["metadata"]["uid"] for _, at, raw in log if at in recorded}
    return ended - told


def check(path: Path, server: ServerModel) -> RecordingCoverage:
    """Check that the file claims no change that it lacks; return what it claims."""
    coverage = recording_coverage([path])
    [claimed] = coverage.resources
    lines = [line for _, line in read_json(path) if line["event"]["type"] != GAP]
    events = [line for line in lines if line["event"]["type"] != "BOOKMARK"]
    recorded = {int(line["event"]["object"]["metadata"]["resourceVersion"]) for line in events}
    silent = silent_lives(server.log, recorded)
    for at_ns, version, raw in server.log:
        is_claimed = at_ns < claimed.complete_until_ns and not _in_gap(claimed, at_ns, version)
        if is_claimed and raw["object"]["metadata"]["uid"] not in silent:
            assert version in recorded, (version, claimed)
    _check_state(server, claimed, events)
    for line in events:
        # A change after a gap has the bounds of its time.
        if "since" in line:
            since_ns, until_ns = time_ns(line["since"]), time_ns(line["arrival"])
            assert since_ns is not None
            assert until_ns is not None
            assert since_ns <= until_ns
    return coverage


def _in_gap(claimed: ResourceCoverage, at_ns: int, version: int) -> bool:
    """Return whether a gap has a change, by its time as well as by its version."""
    by_time = any(g.since_ns <= at_ns <= (g.until_ns or at_ns) for g in claimed.gaps)
    by_version = any(
        (g.since_version or 0) < version <= (g.until_version or version) for g in claimed.gaps
    )
    return by_time and by_version


def _check_state(server: ServerModel, claimed: ResourceCoverage, events: list[Any]) -> None:
    """Check that the lines lead to the state of the claimed time, where nothing came after it."""
    if any(at_ns >= claimed.complete_until_ns for at_ns, _, _ in server.log):
        return
    state: dict[str, str] = {}
    for line in events:
        item = line["event"]["object"]["metadata"]
        if line["event"]["type"] == "DELETED":
            state.pop(item["uid"], None)
        else:
            state[item["uid"]] = item["resourceVersion"]
    metadata = [pod["metadata"] for pod in server.pods.values()]
    assert state == {item["uid"]: item["resourceVersion"] for item in metadata}


@settings(max_examples=300, deadline=None)
@given(STEPS, ENDS, st.sampled_from([2, 500]))
def test_whatever_a_server_does_a_recording_claims_no_change_that_it_lacks(
    steps: list[tuple[str, int]], end: str, page: int
) -> None:
    """Watches that lag, stall, break and expire, proofs at any time, and every end."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(watcher_module, "_SETTLE_S", 0.0)
        recorded = Recorded(Path(folder), page=page)
        for what, number in steps:
            recorded.step(what, number)
        recorded.end(end)
        coverage = check(recorded.file.path, recorded.server)
    [claimed] = coverage.resources
    ended_ns = recorded.watcher.end_ns
    if recorded.watcher.status.is_complete:
        assert claimed.complete_until_ns == ended_ns // 1000 * 1000
        assert not coverage.without_end
    elif end != "is refused":
        # The end that is missing is in the file, and so is when it was.
        assert coverage.without_end == [claimed]
        assert claimed.ended_ns == ended_ns // 1000 * 1000
    else:
        assert claimed.is_refused


def ended(folder: Path, *steps: tuple[str, int], how: str = "answers") -> Recorded:
    """Return a recording of these steps that has ended."""
    recorded = Recorded(folder, page=500)
    for what, number in steps:
        recorded.step(what, number)
    recorded.end(how)
    check(recorded.file.path, recorded.server)
    return recorded


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give no watch time at the end: these watches say what they say before it."""
    monkeypatch.setattr(watcher_module, "_SETTLE_S", 0.0)


def claims(recorded: Recorded) -> ResourceCoverage:
    """Return what a recording claims of its pods."""
    [claimed] = recording_coverage([recorded.file.path]).resources
    return claimed


def test_a_quiet_watch_is_complete_by_an_equal_list(tmp_path: Path) -> None:
    """Without a gap: nothing differs."""
    recorded = ended(tmp_path, ("write", 1), ("deliver", 1), ("others", 0))
    assert recorded.watcher.status.is_complete
    assert claims(recorded).gaps == ()


@pytest.mark.parametrize("how", ["half a line", "break", "gone"])
def test_a_watch_that_was_not_open_at_the_end_has_a_gap_that_the_last_list_closes(
    tmp_path: Path, how: str
) -> None:
    """Even if the list is equal, because an object may have been created and deleted meanwhile."""
    steps = [("write", 1), ("deliver", 1), ("prove", 0), (how, 0), ("others", 0)]
    recorded = ended(tmp_path, *steps)
    assert recorded.watcher.status.is_complete
    [gap] = claims(recorded).gaps
    assert gap.until_ns == recorded.watcher.end_ns


def test_what_a_silent_watch_has_not_delivered_is_late_and_has_its_bounds(tmp_path: Path) -> None:
    """From the last proof to the end."""
    recorded = ended(tmp_path, ("write", 1), ("deliver", 1), ("prove", 0), ("write", 2))
    [gap] = claims(recorded).gaps
    assert (gap.since_version, gap.until_version) == (2, 3)
    late = [line for _, line in read_json(recorded.file.path) if "since" in line]
    assert [line["event"]["type"] for line in late] == [GAP, "ADDED"]
    assert {time_ns(line["since"]) for line in late} == {gap.since_ns}


LATE = [("write", 1), ("deliver", 1), ("prove", 0), ("write", 2), ("delete", 2), ("prove", 0)]
"""An object that comes and goes while the watch is silent; a list without it is a proof."""


@pytest.mark.parametrize("how", ["answers", "fails", "is refused"])
def test_a_late_event_withdraws_the_proof_of_a_list_that_lacked_its_object(
    tmp_path: Path, how: str
) -> None:
    """The object's creation arrives, and its deletion does not."""
    recorded = ended(tmp_path, *LATE, ("deliver", 1), how=how)
    claimed, deleted_ns = claims(recorded), recorded.server.log[2][0]
    if how == "answers":
        assert [gap.since_ns < deleted_ns for gap in claimed.gaps] == [True]
    else:
        assert claimed.complete_until_ns < deleted_ns


def test_a_proof_that_was_withdrawn_holds_again_when_the_watch_reaches_it(tmp_path: Path) -> None:
    """So a watch that is slow costs a recording nothing."""
    recorded = ended(tmp_path, *LATE, ("deliver", 2), how="fails")
    assert claims(recorded).complete_until_ns > recorded.server.log[2][0]


def test_a_close_that_is_late_claims_nothing_after_the_end_is_noted_as_missing(
    tmp_path: Path,
) -> None:
    """The file is closed before the claim could be written."""
    recorded = Recorded(tmp_path, page=500)
    recorded.server.clock()
    recorded.watcher.end_ns = recorded.server.now_ns
    proof = recorded.watcher._asked_proof(500)
    recorded.watcher.note_missing_end()
    recorded.watcher._await(proof)
    recorded.file.close()
    assert not recorded.watcher.status.is_complete
    assert check(recorded.file.path, recorded.server).without_end == [claims(recorded)]


def test_the_end_is_not_noted_before_a_claim_of_it_is_written(tmp_path: Path) -> None:
    """The recorder closes the files after its note."""
    recorded = Recorded(tmp_path, page=500)
    recorded.server.clock()
    watcher, write = recorded.watcher, recorded.file.write
    watcher.end_ns = recorded.server.now_ns
    noting = Thread(target=watcher.note_missing_end)

    def slow(value: Mapping[str, Any]) -> None:
        noting.start()
        noting.join(0.1)
        assert noting.is_alive()
        write(value)

    recorded.file.write = slow  # type: ignore[method-assign] # a disk that is slow at that moment
    watcher._close()
    noting.join()
    recorded.file.close()
    assert check(recorded.file.path, recorded.server).complete_until_ns == watcher.end_ns


def test_without_the_last_list_the_end_is_the_last_proof_and_not_the_last_event(
    tmp_path: Path,
) -> None:
    """An event that arrives says nothing of the time after it happened."""
    steps = [("write", 1), ("deliver", 1), ("prove", 0), ("write", 2), ("write", 3)]
    recorded = ended(tmp_path, *steps, ("deliver", 1), how="fails")
    claimed = claims(recorded)
    assert not recorded.watcher.status.is_complete
    second = recorded.server.log[1][0]
    assert claimed.complete_until_ns < second
    assert claimed.ended_ns == recorded.watcher.end_ns
