"""The export for Perfetto: slices on nodes, counters of the pending, instants of the displaced."""

from __future__ import annotations

from pathlib import Path

from replay.results.spans.chrome_trace import TraceEvent, trace_events
from replay.results.tables.query import RunTables
from tests.unit.results.small_run import small_run


def _events(tmp_path: Path, phase: str) -> list[TraceEvent]:
    with RunTables(small_run(tmp_path / "run")) as tables:
        return [trace_event for trace_event in trace_events(tables) if trace_event["ph"] == phase]


def test_a_pod_is_a_slice_on_its_node(tmp_path: Path) -> None:
    """In microseconds since the beginning, with what happened to it."""
    low, high = _events(tmp_path, "X")
    assert (low["ts"], low["dur"], low["args"]["preempted_by"]) == (0, 10e6, "default/high")
    assert (high["ts"], high["dur"], high["args"]["ending"]) == (11e6, 9e6, "Evicted")
    assert low["pid"] == high["pid"] > 0
    assert low["tid"] == high["tid"] == 1


def test_the_displaced_are_instants_on_their_node(tmp_path: Path) -> None:
    """With who or what displaced them."""
    seen = [(event["ts"], event["name"], event["args"]["why"]) for event in _events(tmp_path, "i")]
    assert seen == [
        (8e6, "Preempted default/low", "by default/high"),
        (19e6, "Evicted default/high", "memory.available"),
    ]


def test_pending_pods_are_counted_by_their_last_reason(tmp_path: Path) -> None:
    """High is nominated at once, and bound; late is never tried."""
    counted = [(event["ts"], tuple(event["args"].values())) for event in _events(tmp_path, "C")]
    assert counted == [(8e6, (0, 0, 1)), (11e6, (0, 0, 0)), (12e6, (1, 0, 0))]


def test_every_process_has_a_name(tmp_path: Path) -> None:
    """The cluster's, and each node's."""
    names = [event["args"]["name"] for event in _events(tmp_path, "M")]
    assert names == ["cluster", "node worker"]
