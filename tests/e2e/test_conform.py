"""`reprieve conform` as people use it, on a few vectors of their own."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.test_cli import REFUSED, reprieve

pytestmark = pytest.mark.e2e
DIFFERS = 1
CONFIG = {
    "hard": {"memory.available": "1Gi"},
    "pressure_transition_ms": 300_000,
    "max_pod_grace_s": 0,
    "dedicated_imagefs": False,
    "split_containerfs": False,
    "local_storage_isolation": False,
    "allow_overwrite_tgps": False,
}
STATS = {"memory": {"available": 4 << 30, "working_set": 1 << 30}}
CALM: dict[str, Any] = {
    "conditions": [],
    "under": [False, False, False],
    "thresholds_met": [],
    "first_observed_ms": {},
    "condition_last_observed_ms": {},
    "any_of": [{"evicted": [], "kills": [], "gc": [], "node_events": [], "pod_order": []}],
}


def vector(id_: str, expected: dict[str, object]) -> dict[str, object]:
    """Return a script of one step on a calm node."""
    return {
        "id": id_,
        "tags": ["calm"],
        "config": CONFIG,
        "script": [{"at_ms": 0, "stats": STATS}],
        "thresholds": ["memory.available<1Gi grace=0s min_reclaim="],
        "expected": [expected],
    }


def write(path: Path, *vectors: dict[str, object]) -> str:
    """Write vectors as a file that `conform` reads, and return its name."""
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(each) + "\n" for each in vectors)
    return path.name


def test_vectors_are_counted_by_topic_and_in_the_last_line(tmp_path: Path) -> None:
    """Gzipped files are read as well."""
    first = write(tmp_path / "eviction-v1.32-a.jsonl.gz", vector("a", CALM), vector("b", CALM))
    second = write(tmp_path / "eviction-v1.27-c.jsonl", vector("c", CALM))
    told = reprieve(tmp_path, "conform", first, second).stdout.splitlines()
    assert told[0] == "eviction-v1.32-a.jsonl.gz: eviction v1.32"
    assert [line.split() for line in told[1:3]] == [
        ["TOPIC", "PASSED", "FAILED"],
        ["calm", "2", "0"],
    ]
    assert "eviction-v1.27-c.jsonl: eviction v1.27" in told
    assert told[-1] == "3 passed, 0 failed"


def test_a_vector_that_differs_is_told_with_both_sides_and_ends_with_1(tmp_path: Path) -> None:
    """The others are played all the same."""
    pressed = CALM | {"conditions": ["MemoryPressure"]}
    name = write(tmp_path / "x.jsonl", vector("calm-after-all", pressed), vector("calm", CALM))
    done = reprieve(tmp_path, "conform", name, code=DIFFERS)
    assert "conditions [], expected ['MemoryPressure']" in done.stdout
    assert done.stdout.splitlines()[-1] == "1 passed, 1 failed"
    found = json.loads(reprieve(tmp_path, "conform", name, "-o", "json", code=DIFFERS).stdout)
    assert found[0]["topics"] == {"calm": {"passed": 1, "failed": 1}}
    assert [each["id"] for each in found[0]["differences"]] == ["calm-after-all"]
    only = reprieve(tmp_path, "conform", name, "--only", "calm-after", code=DIFFERS)
    assert only.stdout.splitlines()[-1] == "0 passed, 1 failed"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "holds no vectors"),
        ("{}\n", "neither a scenario nor a script"),
        ("nothing\n", "line 1: is no JSON"),
        ('{"config": {}, "script": []}\n', "is not whole"),
    ],
)
def test_a_file_without_vectors_is_refused(tmp_path: Path, text: str, said: str) -> None:
    """Exit 2 says what is wrong."""
    (tmp_path / "x.jsonl").write_text(text)
    assert said in reprieve(tmp_path, "conform", "x.jsonl", code=REFUSED).stderr
