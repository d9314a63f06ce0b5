"""Tests of finding out a file's format."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import zstandard

from replay.errors import TraceError, UnreadableError
from replay.importers.registry import IMPORTERS, open_trace, recognise
from replay.trace.reader import read
from replay.trace.writer import write
from reprieve.trace.v1beta1.trace_pb2 import Record
from tests.unit.importers.builders import issues, kinds, line, make_pod
from tests.unit.trace.builders import make_header, make_marker


def test_native_traces_are_read_as_they_are(tmp_path: Path) -> None:
    """In all forms."""
    for name in ("t.ktr", "t.jsonl", "t.jsonl.zst"):
        write(tmp_path / name, [make_header(), make_marker(3, 2)])
        assert recognise(tmp_path / name) == "native"
        assert list(open_trace([tmp_path / name])) == list(read(tmp_path / name))


def test_a_file_of_an_unknown_format_is_refused_with_the_supported_formats(tmp_path: Path) -> None:
    """All formats are named."""
    (tmp_path / "x.txt").write_text("hello\n")
    with pytest.raises(TraceError) as refusal:
        open_trace([tmp_path / "x.txt"])
    for name in IMPORTERS:
        assert f"({name})" in str(refusal.value)


def test_files_of_two_formats_are_refused(tmp_path: Path) -> None:
    """Both paths are named by a user: neither is dropped."""
    write(tmp_path / "t.ktr", [make_header()])
    (tmp_path / "w.jsonl").write_bytes(line(0, "ADDED", make_pod("p", 2)))
    with pytest.raises(TraceError, match=r"w\.jsonl: is of format watch"):
        open_trace([tmp_path / "t.ktr", tmp_path / "w.jsonl"])


def test_a_folders_other_files_are_left_out_and_reported(tmp_path: Path) -> None:
    """What lies beside a recording."""
    (tmp_path / "pods.jsonl.zst").write_bytes(
        zstandard.ZstdCompressor().compress(line(0, "ADDED", make_pod("p", 2)))
    )
    (tmp_path / "notes.txt").write_text("about it\n")
    records = list(open_trace([tmp_path]))
    assert kinds(records) == ["header", "pod_create", "issue ignored-file"]
    assert [record.sequence for record in records] == [1, 2, 3]
    assert "no known format" in next(issues(records)).message


def test_a_folders_folders_are_left_out_and_reported(tmp_path: Path) -> None:
    """A folder without files is refused, with one to give instead."""
    inner = tmp_path / "apps"
    inner.mkdir()
    with pytest.raises(TraceError, match=f"only folders: give one of them, such as {inner}"):
        open_trace([tmp_path])
    (tmp_path / "pods.jsonl").write_bytes(line(0, "ADDED", make_pod("p", 2)))
    records = list(open_trace([tmp_path]))
    assert kinds(records) == ["header", "pod_create", "issue ignored-folder"]
    assert next(issues(records)).where == str(inner)


def test_a_format_can_be_named(tmp_path: Path) -> None:
    """For a file that its content does not give away."""
    file = tmp_path / "m"
    file.write_text(
        "# a long comment\n" * 5000 + "kind: Pod\napiVersion: v1\nmetadata: {name: p}\n"
    )
    with pytest.raises(TraceError, match="no known format"):
        open_trace([file])
    assert kinds(open_trace([file], format="manifests")) == ["header", "pod_create"]
    with pytest.raises(TraceError, match="'x' is not one of native"):
        open_trace([file], format="x")


@pytest.mark.parametrize("content", [[], ["x.txt"]])
def test_a_folder_without_a_trace_is_refused(tmp_path: Path, content: list[str]) -> None:
    """Empty, or of other files."""
    for name in content:
        (tmp_path / name).write_text("hello\n")
    with pytest.raises(TraceError, match="no file"):
        open_trace([tmp_path])
    with pytest.raises(TraceError, match="no path"):
        open_trace([])


@pytest.mark.parametrize(
    "error", [KeyError("x"), TypeError("x"), OverflowError("x"), RecursionError("x"), MemoryError()]
)
def test_an_importer_that_fails_refuses_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """In one line that requests a report: never with a traceback."""

    def load(*_: object) -> Iterator[Record]:
        yield make_header()
        raise error

    importer = replace(IMPORTERS["openb"], load=load)
    monkeypatch.setattr("replay.importers.registry.IMPORTERS", {"openb": importer})
    (tmp_path / "a.csv").write_text("name,cpu_milli\n")
    with pytest.raises(UnreadableError) as refused:
        list(open_trace([tmp_path / "a.csv"], format="openb"))
    name = type(error).__name__
    assert f"{tmp_path / 'a.csv'}: cannot be read as openb (after record 1: {name}: " in str(
        refused.value
    )


def test_a_long_text_of_the_file_is_shortened_in_a_refusal(tmp_path: Path) -> None:
    """Its beginning and its end are left."""
    (tmp_path / "a.csv").write_text(f"5,9,1,2,{'x' * 20_000}y,Terminated,50,0.1\n")
    with pytest.raises(TraceError, match="instances: 'xxx") as refused:
        list(open_trace([tmp_path / "a.csv"], format="alibaba-2017"))
    assert len(str(refused.value)) < 2000
    assert str(refused.value).endswith("xy' is not a number")


@pytest.mark.parametrize(
    ("text", "place", "problem"),
    [
        ("\tapiVersion: v1\n", "line 1, column 1", "is not YAML"),
        ("foo: 1\nbar: [1, 2\n", "line 3, column 1", "is not YAML"),
        ("- kind: Pod\n", "line 1", "is a list, not a Kubernetes object"),
        ("replicas: 3\n", "line 1", "it has no apiVersion and no kind"),
        ("", "", "has no document"),
    ],
)
def test_a_yaml_file_that_is_no_manifest_is_refused_with_its_own_problem(
    tmp_path: Path, text: str, place: str, problem: str
) -> None:
    """The parser's line, not a list of formats; beside manifests the same is a note."""
    file = tmp_path / "m.yaml"
    file.write_text(text)
    with pytest.raises(TraceError) as refusal:
        open_trace([file])
    assert refusal.value.where == f"{file}, {place}".rstrip(", ")
    assert problem in refusal.value.problem
    (tmp_path / "node.yaml").write_text("apiVersion: v1\nkind: Node\nmetadata: {name: 'n'}\n")
    ((issue),) = issues(open_trace([tmp_path]))
    assert issue.kind == "ignored-file"
    assert problem in issue.message


def test_manifests_may_have_quoted_keys(tmp_path: Path) -> None:
    """As some generators write them."""
    file = tmp_path / "m.yaml"
    file.write_text('"apiVersion": v1\n"kind": Node\n"metadata": {"name": "n"}\n')
    assert recognise(file) == "manifests"
