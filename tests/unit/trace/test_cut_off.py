"""A native trace that was cut off is noticed wherever it was cut, and read where that is asked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import zstandard
from click.testing import CliRunner

from replay.cli.commands.traces import validate_command
from replay.errors import TraceError
from replay.importers.records import ImportOptions
from replay.importers.registry import open_trace
from replay.trace.files import delimited
from replay.trace.reader import has_end, read
from replay.trace.writer import Writer, write
from reprieve.trace.v1beta1.trace_pb2 import Record
from tests.unit.trace.builders import make_header, make_marker, make_pod

_OLD = Path(__file__).parent / "data" / "format1.ktr"
_FRAMES = 4


def _frames(path: Path) -> list[int]:
    """Write a trace of four frames; return where each of them ends."""
    ends = []
    with Writer(path) as writer:
        writer.write(make_header())
        for number in range(1, _FRAMES + 1):
            writer.write(make_pod(number, 2 * number, "p" * 100))
            writer.write(make_marker(number, 2 * number + 1))
            writer.flush()
            ends.append(path.stat().st_size)
    return ends


@pytest.mark.parametrize("frame", range(_FRAMES))
def test_a_trace_that_is_cut_between_two_frames_is_refused(tmp_path: Path, frame: int) -> None:
    """It is refused before the first record, so that no long replay runs on half of a trace."""
    path = tmp_path / "t.ktr"
    ends = _frames(path)
    path.write_bytes(path.read_bytes()[: ends[frame]])
    with pytest.raises(TraceError, match=r"t\.ktr: was cut off: it has no end; --read-cut-off"):
        next(read(path))


def test_a_cut_within_the_end_is_one_too(tmp_path: Path) -> None:
    """By any number of bytes."""
    path = tmp_path / "t.ktr"
    ends = _frames(path)
    whole = path.read_bytes()
    for size in range(ends[-1] + 1, len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(TraceError, match="was cut off"):
            next(read(path))


@pytest.mark.parametrize(
    ("name", "share"), [("t.ktr", 0.5), ("t.jsonl", 0.5), ("t.jsonl.gz", 0.9), ("t.jsonl.zst", 0.9)]
)
def test_what_is_left_of_a_cut_trace_can_be_read(tmp_path: Path, name: str, share: float) -> None:
    """Up to its last whole record, with an issue that says so."""
    path = tmp_path / name
    written = [
        make_header(),
        *(make_pod(n, n + 1, f"{n * 977**9 % 10**20}") for n in range(1, 3_000)),
    ]
    with Writer(path) as writer:
        for number, record in enumerate(written):
            writer.write(record)
            if number % 500 == 0:
                writer.flush()
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole)) + 1])
    with pytest.raises(TraceError, match=r"was cut off.*; --read-cut-off reads what is left"):
        list(read(path))
    *left, last = open_trace([path], options=ImportOptions(reads_cut_off=True))
    assert 100 < len(left) < len(written)
    assert left == written[: len(left)]
    assert last.issue.kind == "cut-off"
    assert "was cut off" in last.issue.message


def test_a_trace_that_lacks_a_frame_in_the_middle_is_refused(tmp_path: Path) -> None:
    """The end has the number of records."""
    path = tmp_path / "t.ktr"
    ends = _frames(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: ends[0]] + whole[ends[1] :])
    with pytest.raises(TraceError, match="has 7 records, and 9 when it was written"):
        list(read(path))


def test_a_trace_whose_writer_failed_has_no_end(tmp_path: Path) -> None:
    """What raised is not hidden, and the file does not look complete; a whole write leaves none."""

    def records() -> Iterator[Record]:
        yield make_header()
        raise RuntimeError

    def written() -> None:
        with Writer(tmp_path / "t.ktr") as writer:
            for record in records():
                writer.write(record)

    with pytest.raises(RuntimeError):
        written()
    assert not has_end(tmp_path / "t.ktr")
    with pytest.raises(RuntimeError):
        write(tmp_path / "whole.ktr", records())
    assert [path.name for path in tmp_path.iterdir()] == ["t.ktr"]


def test_an_appended_trace_has_one_end(tmp_path: Path) -> None:
    """That of both writers' records."""
    path = tmp_path / "t.ktr"
    write(path, [make_header(), make_marker(1, 2)])
    with Writer(path, append=True) as writer:
        writer.write(make_marker(2, 3))
    assert len(list(read(path))) == 3
    assert path.read_bytes().count(b"end\0") == 1


def test_readers_of_before_skip_the_end(tmp_path: Path) -> None:
    """It is a skippable frame of zstd."""
    records = [make_header(), make_pod(1, 2, "p")]
    write(tmp_path / "t.ktr", records)
    with (tmp_path / "t.ktr").open("rb") as file:
        reader = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)
        assert reader.read(1 << 20) == b"".join(map(delimited, records))


def test_an_older_trace_is_read_and_validate_names_the_missing_checks() -> None:
    """Its frames have no checksums, and it never had an end."""
    assert list(read(_OLD)) == list(read(_OLD.with_suffix(".jsonl")))
    result = CliRunner().invoke(validate_command, [str(_OLD), "-o", "wide"])
    assert "has no end: whether it was cut off cannot be checked" in result.output


def test_a_new_trace_has_no_such_warning(tmp_path: Path) -> None:
    """It was checked."""
    write(tmp_path / "t.ktr", [make_header(), make_pod(1, 2, "p")])
    result = CliRunner().invoke(validate_command, [str(tmp_path / "t.ktr"), "-o", "wide"])
    assert "cut off" not in result.output


@pytest.mark.parametrize("name", ["t.jsonl.zst", "t.jsonl.gz"])
def test_compressed_lines_that_are_cut_between_two_lines_are_refused(
    tmp_path: Path, name: str
) -> None:
    """A flush ends a block of the compression, and its frame continues."""
    path = tmp_path / name
    with Writer(path) as writer:
        writer.write(make_header())
        writer.write(make_marker(1, 2))
        writer.flush()
        size = path.stat().st_size
        writer.write(make_marker(2, 3))
    assert size
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(TraceError, match="compressed content ends in the middle"):
        list(read(path))


def test_a_record_may_be_as_long_as_a_line(tmp_path: Path) -> None:
    """Its length is checked before it is gathered."""
    path = tmp_path / "t.ktr"
    plain = delimited(make_header()) + b"\xff\xff\xff\xff\x0f" + b"x" * 100
    path.write_bytes(zstandard.compress(plain))
    with pytest.raises(TraceError, match=r"a record is too long; .* --max-line-bytes raises it"):
        list(read(path))


def test_empty_records_without_number_are_refused_at_once(tmp_path: Path) -> None:
    """A bomb of zeros is as many empty records."""
    path = tmp_path / "t.ktr"
    path.write_bytes(zstandard.compress(delimited(make_header()) + bytes(64 << 20)))
    with pytest.raises(TraceError, match="sequence 0 follows 1"):
        list(read(path))


def test_a_trace_that_expands_too_much_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As any compressed file is."""
    monkeypatch.setattr("replay.bounds._EXPANSION_FROM_BYTES", 1 << 20)
    path = tmp_path / "t.ktr"
    record = Record(time_ns=1, sequence=2)
    record.marker.name = "x" * (8 << 20)
    write(path, [make_header(), record])
    with pytest.raises(TraceError, match="expands too much; the bound is 1,000, and --max-exp"):
        list(read(path))
