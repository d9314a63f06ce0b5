"""The bundled loop: evicted, made again on a node that will be short too, and evicted again."""

from __future__ import annotations

from pathlib import Path

import pytest

from replay.backends.processes import EmbeddedServices
from replay.importers.registry import open_trace
from replay.runner import FinishedReplay, run_replay
from replay.settings import ReplaySettings
from tests.e2e.replays import DEMOS, NO_SPANS

TRACE = DEMOS / "eviction-loop.jsonl"
LOWER = """\
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
evictionHard: {memory.available: 50Mi}
"""
pytestmark = pytest.mark.e2e


def play(here: EmbeddedServices, run_path: Path, kubelet: str | None = None) -> FinishedReplay:
    """Replay the loop under a kubelet's configuration."""
    settings = ReplaySettings(
        version="test",
        scheduler_address=here.addresses["scheduler"],
        eviction_address=here.addresses["eviction"],
        kubelet_configuration=kubelet,
        run_path=run_path,
        sampling=NO_SPANS,
    )
    return run_replay(settings, lambda: open_trace([TRACE]), lambda _now_ns, _cluster, _tally: None)


def test_the_summary_finds_the_loop(here: EmbeddedServices, tmp_path: Path) -> None:
    """Whose pods, why, where and how often."""
    finished = play(here, tmp_path)
    (loop,) = finished.summary.decided.loops
    assert (loop.owner, loop.signal) == ("ReplicaSet default/cache", "memory.available")
    assert sorted(loop.nodes) == ["worker-1", "worker-2"]
    assert loop.evictions == finished.summary.decided.evicted[0].count > 10
    assert 120e9 < loop.every_ns < 600e9


def test_other_thresholds_end_the_loop(here: EmbeddedServices, tmp_path: Path) -> None:
    """The same usage leaves more than a lower threshold requests."""
    finished = play(here, tmp_path, LOWER)
    assert finished.summary.decided.loops == ()
    assert finished.summary.decided.evicted == ()
    assert finished.summary.decided.bound == 1
