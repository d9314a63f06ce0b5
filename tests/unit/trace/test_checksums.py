"""A trace whose bits have changed is refused, not read with other content."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import orjson
import pytest

from replay.bundled import bundled
from replay.errors import TraceError
from replay.generate.workload import GenerateOptions, generate
from replay.record.frames import LineFile
from replay.trace.files import open_plain
from replay.trace.reader import read
from replay.trace.writer import write

_COMPRESSED = sorted(
    path for ending in ("*.ktr", "*.zst") for path in bundled("examples").rglob(ending)
)


def lines(path: Path) -> list[Any]:
    """Return the values of a compressed file of lines."""
    with open_plain(path) as plain:
        return [orjson.loads(line) for line in plain]


def refused_flips(path: Path, read_file: Callable[[Path], Any], flips: int) -> float:
    """Flip bits of a file, one at a time; return the share of the flips that were refused.

    Fails where a flip is read as other content.
    """
    random = Random(1)  # noqa: S311 - flips to test with, no secret
    whole, content, refused = path.read_bytes(), read_file(path), 0
    for _ in range(flips):
        changed, at = bytearray(whole), random.randrange(8 * len(whole))
        changed[at // 8] ^= 1 << at % 8
        path.write_bytes(changed)
        try:
            assert read_file(path) == content, f"bit {at} of {path.name} is read as other content"
        except (TraceError, orjson.JSONDecodeError):
            refused += 1
    return refused / flips


@pytest.mark.parametrize("name", ["a.ktr", "a.jsonl.zst"])
def test_a_flipped_bit_is_refused_or_changes_nothing(tmp_path: Path, name: str) -> None:
    """Frames have checksums; a bit that no reader reads may change nothing."""
    write(tmp_path / name, generate(GenerateOptions(seed=1, nodes=3, pods=20)))
    assert refused_flips(tmp_path / name, lambda path: list(read(path)), 150) > 0.9


@pytest.mark.parametrize("example", _COMPRESSED, ids=lambda path: path.name)
def test_every_bundled_trace_and_recording_has_checksums(tmp_path: Path, example: Path) -> None:
    """Also those that were made before their format had them."""
    copy = tmp_path / example.name
    copy.write_bytes(example.read_bytes())
    read_file = (lambda path: list(read(path))) if example.suffix == ".ktr" else lines
    assert refused_flips(copy, read_file, 60) > 0.8


def test_a_recorders_files_have_checksums(tmp_path: Path) -> None:
    """A recording is the only copy of what happened."""
    file = LineFile(tmp_path / "pods.watch.jsonl.zst")
    for number in range(50):
        file.write({"arrival": number, "event": {"type": "ADDED"}})
    file.close()
    assert refused_flips(file.path, lines, 100) > 0.8
