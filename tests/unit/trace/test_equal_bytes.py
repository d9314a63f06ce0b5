"""Equal traces and histories are equal bytes, whichever process writes them.

Protobuf keeps a map's entries in an order of the process's own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
_WRITE_TRACE = """
import sys
from replay.generate.workload import GenerateOptions
from replay.generate.workload import generate
from replay.trace.writer import write
write(sys.argv[1], generate(GenerateOptions(nodes=5, pods=60, deployments=3, budgets=4, seed=9)))
"""
_WRITE_HISTORY = """
import sys
from pathlib import Path
from replay.results.run.history import RoundLog
from reprieve.scheduler.v1beta1.scheduler_pb2 import Round
from tests.growing import growing
round_ = Round(time_ns=1)
labels = round_.events.add().add.node.metadata.labels
labels.update({f"key-{number}": str(number) for number in range(20)})
log = RoundLog(growing(Path(sys.argv[1])))
log.write(round_)
log.close()
"""


def _written(program: str, path: Path, hash_seed: int) -> bytes:
    """Return what the program writes to the path, in a process with this PYTHONHASHSEED."""
    environment = {
        **os.environ,
        "PYTHONHASHSEED": str(hash_seed),
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "gen")]),
    }
    subprocess.run([sys.executable, "-c", program, path], env=environment, check=True)
    return path.read_bytes()


@pytest.mark.parametrize(
    ("name", "program"),
    [
        ("trace.ktr", _WRITE_TRACE),
        ("trace.jsonl", _WRITE_TRACE),
        ("trace.jsonl.gz", _WRITE_TRACE),
        ("history.rounds.zst", _WRITE_HISTORY),
    ],
)
def test_every_process_writes_the_same_bytes(name: str, program: str, tmp_path: Path) -> None:
    """Two processes whose hashes differ write one file."""
    one = _written(program, tmp_path / f"one-{name}", 1)
    other = _written(program, tmp_path / f"other-{name}", 2)
    assert one
    assert one == other
