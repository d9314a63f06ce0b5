"""The autoscaler's scans against what upstream's own code did, in a scripted cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from replay.conform.autoscaler.cluster import Json
from replay.conform.autoscaler.loop import difference, play
from tests.autoscaler_driver import CoreAutoscaler
from tests.vectors import read_vectors

GOLDEN = Path(__file__).parents[2].parent / "shared" / "golden"
VECTORS = [
    vector
    for path in sorted(GOLDEN.glob("autoscaler-loop-*.jsonl.gz"))
    for vector in read_vectors(path)
]


@pytest.mark.skipif(not VECTORS, reason="no ../shared/golden")
@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["id"])
def test_scans_decide_what_upstream_decides(vector: Json) -> None:
    """Every scan's report and calls, in the order of names that the recording has."""
    autoscaler = CoreAutoscaler(vector["config"])
    assert difference(vector, autoscaler, by_name=True) == ""


def test_a_difference_names_its_scan() -> None:
    """A wrong target, a missing call, and a scan that may differ."""
    template = {"status": {"capacity": {"cpu": "2", "memory": "4Gi", "pods": "9"}}}
    group = {"name": "g", "min": 0, "max": 2, "initial": 1, "template": template}
    script: Json = {
        "config": {"scan_interval_ms": 10_000, "scans": 2, "groups": [group]},
        "script": [{"at_ms": 0, "op": "node_add", "group": "g", "name": "g-0"}],
    }
    reports = list(play(script, CoreAutoscaler(script["config"])))

    def compared(*, by_name: bool = True, **changes: object) -> str:
        expected = [reports[0], {**reports[1], **changes}]
        vector = {**script, "expected": expected}
        if not by_name:
            vector |= {"ties_from_scan": 1, "alternatives": [reports[1]]}
        return difference(vector, CoreAutoscaler(script["config"]), by_name=by_name)

    assert compared() == ""
    wrong = compared(targets={"g": 2})
    assert wrong == 'scan 1 at 20000 ms: targets {"g":1}, expected {"g":2}'
    assert "calls" in compared(calls=[{"at_ms": 20_000, "call": "evict", "pod": "a/b"}])
    assert compared(by_name=False, targets={"g": 2}) == ""
    assert compared(by_name=False) == ""
