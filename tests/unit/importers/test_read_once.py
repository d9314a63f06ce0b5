"""Manifests and recordings are read once in a process.

They are read again after a change, and for other options or bounds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from unittest import mock

import pytest

from replay import bounds
from replay.errors import TraceError
from replay.importers.kubernetes import manifests
from replay.importers.read_once import read_once
from replay.importers.recording.survey import survey
from replay.importers.records import ImportOptions
from replay.importers.registry import open_trace
from replay.kube import documents
from reprieve.trace.v1beta1.trace_pb2 import Record
from tests.unit.importers.builders import imported, line, make_pod

NODE = "apiVersion: v1\nkind: Node\nmetadata: {name: %s}\n"


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Collect the files that are read."""
    paths = list[Path]()
    original = documents.read_documents

    def counting(path: Path, *arguments: object) -> object:
        paths.append(path)
        return original(path, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr("replay.importers.kubernetes.manifests.read_documents", counting)
    return paths


def written(path: Path, name: str) -> Path:
    """Write a node's manifest."""
    path.write_text(NODE % name)
    return path


def names(path: Path, options: ImportOptions | None = None) -> list[str]:
    """Return the names of the nodes that a file creates."""
    records = list(open_trace([path], options=options))
    return [record.create.node.metadata.name for record in records if record.HasField("create")]


@pytest.fixture(autouse=True)
def _settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let files be settled at once."""
    monkeypatch.setattr("replay.importers.read_once.SETTLED_NS", -1)


def test_a_file_is_read_once(tmp_path: Path, reads: list[Path]) -> None:
    """The second reader gets the same records."""
    path = written(tmp_path / "a.yaml", "a")
    assert names(path) == names(path) == ["a"]
    assert reads == [path]


def test_a_recording_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a fork of a run replays may take less time than reading its recording."""
    surveyor = mock.Mock(side_effect=survey)
    monkeypatch.setattr("replay.importers.recording.interpreter.survey", surveyor)
    records = imported(tmp_path, line(1, "ADDED", make_pod("a", 1)))
    assert list(open_trace([tmp_path / "recording.jsonl"])) == records
    surveyor.assert_called_once()


def test_a_changed_file_of_the_same_size_is_read_again(tmp_path: Path, reads: list[Path]) -> None:
    """Its times tell."""
    path = written(tmp_path / "a.yaml", "a")
    assert names(path) == ["a"]
    assert names(written(path, "b")) == ["b"]
    assert len(reads) == 2


def test_a_file_that_replaces_another_is_read(tmp_path: Path) -> None:
    """Its inode tells."""
    path = written(tmp_path / "a.yaml", "a")
    assert names(path) == ["a"]
    written(tmp_path / "b.yaml", "b").replace(path)
    assert names(path) == ["b"]


def test_a_file_that_has_just_changed_is_read_again(
    tmp_path: Path, reads: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may change again within the same tick of the file system's clock."""
    monkeypatch.setattr("replay.importers.read_once.SETTLED_NS", 60 * 10**9)
    path = written(tmp_path / "a.yaml", "a")
    assert names(path) == names(path) == ["a"]
    assert len(reads) == 2


def test_a_file_is_read_again_with_other_options(tmp_path: Path, reads: list[Path]) -> None:
    """What was read with other options is another trace."""
    path = written(tmp_path / "a.yaml", "a")
    names(path)
    names(path, ImportOptions(licence="MIT"))
    assert len(reads) == 2


def test_tighter_bounds_refuse_what_was_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bounds that are set later hold for every reader after it."""
    path = written(tmp_path / "a.yaml", "a")
    assert names(path) == ["a"]
    monkeypatch.setattr(bounds, "_bounds", bounds.Bounds(object_bytes=10))
    with pytest.raises(TraceError):
        names(path)


def test_a_reader_may_change_its_records(tmp_path: Path) -> None:
    """Each reader has records of its own."""
    path = written(tmp_path / "a.yaml", "a")
    for record in open_trace([path]):
        record.CopyFrom(Record())
    assert names(path) == ["a"]


def test_what_is_kept_is_bounded(
    tmp_path: Path, reads: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oldest trace goes first."""
    first, second = (written(tmp_path / f"{name}.yaml", name) for name in "ab")
    names(first)
    size = sum(len(record.SerializeToString()) for record in open_trace([first]))
    monkeypatch.setattr("replay.importers.read_once.KEPT_BYTES", size)
    names(second)
    names(second)
    names(first)
    assert reads == [first, second, first]


def test_a_trace_beyond_the_bound_is_not_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What follows the bound is loaded when it is asked for, each time."""
    monkeypatch.setattr("replay.importers.read_once.KEPT_BYTES", 1)
    loaded = list[int]()

    def load(_paths: Sequence[Path], _options: ImportOptions) -> Iterator[Record]:
        for sequence in (1, 2, 3):
            loaded.append(sequence)
            yield Record(sequence=sequence)

    path = written(tmp_path / "a.yaml", "a")
    reading = read_once(load)([path], ImportOptions())
    assert loaded == [1]
    assert [record.sequence for record in reading] == [1, 2, 3]
    assert [record.sequence for record in read_once(load)([path], ImportOptions())] == [1, 2, 3]
    assert loaded == [1, 2, 3, 1, 2, 3]


def test_a_file_that_is_gone_is_refused(tmp_path: Path) -> None:
    """With the file's name, also where it was read before."""
    path = written(tmp_path / "a.yaml", "a")
    names(path)
    path.unlink()
    with pytest.raises(TraceError, match=r"a\.yaml"):
        list(manifests.IMPORTER.load([path], ImportOptions()))
