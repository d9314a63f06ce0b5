"""The resume point: its content, and refusals of manipulated files."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import msgpack
import pytest
import zstandard

from replay.errors import RunError
from replay.results.run.resume_point import RESUME, ResumePoint, RunCommand, unpacked
from replay.state_codec import dump
from services.folder import write_file

_MIB = 1 << 20


def _write(folder: Path, content: bytes) -> Path:
    path = folder / RESUME
    path.write_bytes(zstandard.ZstdCompressor(level=1).compress(content))
    return path


def _point(**command: object) -> bytes:
    """Return the content of a file whose command has these values."""
    made = RunCommand(argv=("replay", "trace"), run="run", folder="/", **command)  # type: ignore[arg-type]  # by name
    return bytes(msgpack.packb({"format": 2, "signature": b""})) + dump(
        ResumePoint, ResumePoint(version="1", command=made)
    )


def test_a_resume_point_is_read_back_unchanged(tmp_path: Path) -> None:
    """With its command and all parts."""
    command = RunCommand(argv=("replay", "x"), run="r", folder="/f", environment={})
    point = ResumePoint(version="1", command=command, at_ns=7, scheduler=(b"a", b"b"), world=b"w")
    write_file(tmp_path / RESUME, point.encoded())
    assert ResumePoint.read(tmp_path) == point


def test_only_bounds_and_timeouts_are_kept_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Code to run, files with credentials and addresses are not."""
    monkeypatch.setenv("REPRIEVE_MAX_DEPTH", "9")
    monkeypatch.setenv("REPRIEVE_TIMEOUTS", "call=3s")
    for name in ("REPRIEVE_PLUGINS", "REPRIEVE_ACCESS", "REPRIEVE_LISTEN", "PYTHONPATH"):
        monkeypatch.setenv(name, "/somewhere")
    command = RunCommand.here(("replay",), tmp_path)
    assert command.environment == {"REPRIEVE_MAX_DEPTH": "9", "REPRIEVE_TIMEOUTS": "call=3s"}
    assert command.asked == ("REPRIEVE_ACCESS", "REPRIEVE_PLUGINS")


@pytest.mark.parametrize("name", ["PYTHONPATH", "REPRIEVE_PLUGINS", "LD_PRELOAD", "PATH", ""])
def test_a_file_that_sets_another_variable_is_refused(tmp_path: Path, name: str) -> None:
    """Before any variable is set."""
    _write(tmp_path, _point(environment={"REPRIEVE_MAX_DEPTH": "9", name: "/stranger"}))
    with pytest.raises(RunError, match="a variable of another kind"):
        ResumePoint.read(tmp_path)


@pytest.mark.parametrize("number", [1, 3])
def test_another_format_is_refused_with_its_number(tmp_path: Path, number: int) -> None:
    """Format 1, whose cluster is a pickle, too."""
    _write(tmp_path, msgpack.packb({"format": number, "version": "1", "world": b"cos\nsystem\n"}))
    with pytest.raises(RunError, match=f"has format {number}, and this version .* reads 2 only"):
        ResumePoint.read(tmp_path)


def test_a_checkpoint_that_compresses_well_is_read(tmp_path: Path) -> None:
    """The file is padded in proportion to its content."""
    point = ResumePoint(version="1", command=RunCommand(), world=bytes(40 * _MIB))
    write_file(tmp_path / RESUME, point.encoded())
    assert (tmp_path / RESUME).stat().st_size > _MIB
    assert ResumePoint.read(tmp_path) == point


_HEAD = msgpack.packb({"format": 2, "signature": b""})


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x81",
        _HEAD,
        _HEAD + b"\xdd\xff\xff\xff\xff" * 20_000,
        _HEAD + b"\x91" * 100_000,
        _HEAD + b"\xc6\xff\xff\xff\xff",
        _HEAD + msgpack.packb([[]] * 100_000),
        msgpack.packb([[]] * 100_000),
        bytes(300 << 20),
        _HEAD + msgpack.packb(["1", 5, 0, 0, [], [], b"", b""]),
    ],
    ids=range(10),
)
def test_a_bomb_is_refused_within_little_memory(tmp_path: Path, content: bytes) -> None:
    """A file of 100 KB at most, whatever it announces, repeats or nests."""
    path = _write(tmp_path, content)
    del content
    assert path.stat().st_size < 100_000
    tracemalloc.start()
    try:
        with pytest.raises(RunError, match=r"resume\.zst: is damaged"):
            ResumePoint.read(tmp_path)
        assert tracemalloc.get_traced_memory()[1] < 64 * _MIB
    finally:
        tracemalloc.stop()


def test_a_frame_that_does_not_state_its_size_is_refused(tmp_path: Path) -> None:
    """The size of its content is unknown before decompression."""
    data = zstandard.ZstdCompressor(write_content_size=False).compress(bytes(100))
    (tmp_path / RESUME).write_bytes(data)
    with pytest.raises(RunError, match="is damaged"):
        ResumePoint.read(tmp_path)


def test_a_services_checkpoint_that_is_no_message_is_refused() -> None:
    """By the file's name."""
    with pytest.raises(RunError, match=r"resume\.zst: a service's checkpoint is damaged"):
        unpacked([b"\xff"])
