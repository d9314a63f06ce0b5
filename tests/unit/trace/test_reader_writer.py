"""Tests of reading and writing the native trace."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
import zstandard
from google.protobuf import json_format
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from replay.errors import TraceError
from replay.trace.files import delimited
from replay.trace.reader import read
from replay.trace.writer import SUFFIXES, Writer, write
from reprieve.kube.v1beta1.object_pb2 import KubernetesObject
from reprieve.trace.v1beta1.trace_pb2 import Delete, Observed, Record, UsageProfile
from tests.unit.trace.builders import make_header, make_marker, make_pod

_INT64 = st.integers(min_value=-(2**63), max_value=2**63 - 1)
_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@st.composite
def _content(draw: st.DrawFn) -> Record:
    """Return a record of any kind, without time and number."""
    record, name = Record(), draw(_TEXT)
    match draw(st.integers(0, 5)):
        case 0:
            return make_pod(0, 0, name)
        case 1:
            record.delete.CopyFrom(Delete(cause=name, grace_period_seconds=draw(_INT64)))
        case 2:
            create = KubernetesObject()
            create.pod_disruption_budget.spec.min_available.string_value = name
            record.create.CopyFrom(create)
        case 3:
            profile = UsageProfile(id=draw(st.integers(0, 2**32 - 1)), maxima=draw(st.booleans()))
            profile.segments.add(offset_duration_ns=draw(_INT64), memory_bytes=draw(_INT64))
            record.usage.CopyFrom(profile)
        case 4:
            observed = Observed(resource_version=name)
            observed.scheduled.score = draw(_INT64)
            record.observed.CopyFrom(observed)
        case _:
            record.update.node.metadata.labels[name] = draw(_TEXT)
    return record


@st.composite
def _traces(draw: st.DrawFn) -> list[Record]:
    """Return a whole trace."""
    records, at_ns, sequence = [make_header(source=draw(_TEXT))], 0, 1
    for record in draw(st.lists(_content(), max_size=8)):
        at_ns += draw(st.integers(0, 10**12))
        sequence += draw(st.integers(1, 3))
        record.time_ns, record.sequence = at_ns, sequence
        records.append(record)
    return records


@pytest.mark.parametrize("suffix", SUFFIXES)
@settings(
    max_examples=25,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(records=_traces())
def test_what_was_written_is_read_again(tmp_path: Path, suffix: str, records: list[Record]) -> None:
    """Every form loses nothing."""
    path = tmp_path / f"t{suffix}"
    assert write(path, records) == len(records)
    assert list(read(path)) == records


def test_the_form_is_detected_by_content(tmp_path: Path) -> None:
    """The content decides, not the suffix of the name."""
    records = [make_header(), make_marker(5, 2)]
    for suffix in SUFFIXES:
        written = tmp_path / f"t{suffix}"
        write(written, records)
        other = tmp_path / "other.dat"
        other.write_bytes(written.read_bytes())
        assert list(read(other)) == records


def test_a_header_of_123_bytes_is_not_taken_for_json(tmp_path: Path) -> None:
    """The length 123 is the letter that JSON begins with."""
    padding = 0
    while make_header(source="x" * padding).ByteSize() != 0x7B:
        padding += 1
    write(tmp_path / "t.ktr", [make_header(source="x" * padding)])
    assert next(read(tmp_path / "t.ktr")).ByteSize() == 0x7B


def test_records_go_into_several_frames_and_can_be_appended(tmp_path: Path) -> None:
    """A flush ends a frame; an appended file continues where it ended."""
    path = tmp_path / "t.ktr"
    with Writer(path) as writer:
        writer.write(make_header())
        writer.flush()
        writer.write(make_marker(1, 2))
    with Writer(path, append=True) as writer:
        writer.write(make_marker(2, 3))
    assert path.read_bytes().count(b"\x28\xb5\x2f\xfd") == 3
    assert [record.sequence for record in read(path)] == [1, 2, 3]


def test_an_appended_record_must_follow_the_last_record(tmp_path: Path) -> None:
    """The order goes across the two writers."""
    path = tmp_path / "t.ktr"
    write(path, [make_header(), make_marker(7, 2)])
    with Writer(path, append=True) as writer, pytest.raises(TraceError, match="follows 7"):
        writer.write(make_marker(6, 3))


def test_equal_traces_are_equal_files(tmp_path: Path) -> None:
    """Nothing of the clock gets into a file."""
    for suffix in SUFFIXES:
        for name in ("a", "b"):
            write(tmp_path / f"{name}{suffix}", [make_header(), make_pod(1, 2, "p")])
        first, second = (tmp_path / f"{name}{suffix}" for name in ("a", "b"))
        assert first.read_bytes() == second.read_bytes()


@pytest.mark.parametrize(
    ("records", "problem"),
    [
        ([make_marker(0, 1)], "the first record is a header"),
        ([make_header(), make_marker(5, 2), make_marker(4, 3)], "atNs 4 follows 5"),
        ([make_header(), make_marker(5, 2), make_marker(5, 2)], "sequence 2 follows 2"),
        ([make_header(), make_header()], "a second header"),
        ([make_header(format_version=9)], "format_version 9"),
    ],
)
def test_a_broken_order_is_refused_by_reader_and_writer(
    tmp_path: Path, records: list[Record], problem: str
) -> None:
    """Header first, time and number rising."""
    with pytest.raises(TraceError, match=problem):
        write(tmp_path / "t.ktr", records)
    lines = [json_format.MessageToJson(record, indent=None) for record in records]
    path = tmp_path / "t.jsonl"
    path.write_text("\n".join(lines) + "\n")
    expected = "neither" if "first record" in problem else problem
    with pytest.raises(TraceError, match=expected):
        list(read(path))


def test_fewer_records_than_the_header_counts_are_refused(tmp_path: Path) -> None:
    """A reader that counts otherwise has lost some."""
    header = make_header()
    header.header.counts.update({"header": 1, "marker": 2})
    write(tmp_path / "t.ktr", [header, make_marker(0, 2)])
    with pytest.raises(TraceError, match="1 records of kind marker, the header counts 2"):
        list(read(tmp_path / "t.ktr"))


def test_a_frame_that_ends_within_a_record_is_refused(tmp_path: Path) -> None:
    """No record straddles two frames."""
    path = tmp_path / "t.ktr"
    whole = delimited(make_header()) + delimited(make_pod(1, 2, "p"))[:-2]
    path.write_bytes(zstandard.ZstdCompressor().compress(whole))
    with pytest.raises(TraceError, match="frame 1: ends in the middle of record 2"):
        list(read(path))


def test_a_broken_line_is_refused_with_its_number(tmp_path: Path) -> None:
    """Empty lines count, and are skipped."""
    path = tmp_path / "t.jsonl"
    write(path, [make_header()])
    path.write_text(path.read_text() + '\n{"atNs": "x"}\n')
    with pytest.raises(TraceError, match=r"t\.jsonl, line 3"):
        list(read(path))


def test_broken_compression_is_refused(tmp_path: Path) -> None:
    """A download that was cut."""
    path = tmp_path / "t.jsonl.gz"
    write(path, [make_header(), *(make_pod(n, n + 1, f"p{n}") for n in range(1, 2000))])
    path.write_bytes(path.read_bytes()[:-500])
    with pytest.raises(TraceError, match="was cut off: its compressed content ends in the middle"):
        list(read(path))


@pytest.mark.parametrize("content", [b"", b"hello\n", b"{}\n", gzip.compress(b"a,b\n", mtime=0)])
def test_other_files_are_refused(tmp_path: Path, content: bytes) -> None:
    """Neither form."""
    path = tmp_path / "t.ktr"
    path.write_bytes(content)
    with pytest.raises(TraceError, match=r"neither a \.ktr nor a \.jsonl"):
        list(read(path))


def test_a_missing_file_and_a_wrong_name_are_refused(tmp_path: Path) -> None:
    """The message names the expected file."""
    with pytest.raises(TraceError, match="No such file"):
        list(read(tmp_path / "no.ktr"))
    with pytest.raises(TraceError, match=r"write \.ktr"):
        Writer(tmp_path / "t.bin")
