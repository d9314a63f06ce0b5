"""A trace whose bits have changed is refused, not read with other content."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from replay.errors import TraceError
from replay.generate.workload import GenerateOptions, generate
from replay.trace.reader import read
from replay.trace.writer import write


@pytest.mark.parametrize("name", ["a.ktr", "a.jsonl.zst"])
def test_a_flipped_bit_is_refused_or_changes_nothing(tmp_path: Path, name: str) -> None:
    """Frames have checksums; a bit that no reader reads may change nothing."""
    path, random = tmp_path / name, Random(1)  # noqa: S311 - flips to test with, no secret
    records = list(generate(GenerateOptions(seed=1, nodes=3, pods=20)))
    write(path, records)
    whole = path.read_bytes()
    refused = 0
    for _ in range(150):
        changed, at = bytearray(whole), random.randrange(8 * len(whole))
        changed[at // 8] ^= 1 << at % 8
        path.write_bytes(changed)
        try:
            assert list(read(path)) == records
        except TraceError:
            refused += 1
    assert refused > 140
