"""kernelMemcgNotification in a replay: a step of its own at the moment of crossing."""

from __future__ import annotations

from pathlib import Path

import pytest

from replay.backends.processes import EmbeddedServices
from replay.runner import run_replay
from replay.settings import ReplaySettings
from tests.e2e.replays import NO_SPANS
from tests.e2e.test_pressure import LEAK_S, S, records

pytestmark = pytest.mark.e2e
CONFIG = """\
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
kernelMemcgNotification: {asked}
{more}
"""
SOFT = """\
evictionHard: {memory.available: 10Mi}
evictionSoft: {memory.available: 200Mi}
evictionSoftGracePeriod: {memory.available: 25s}
"""


def events(
    here: EmbeddedServices, path: Path, *, asked: bool, more: str = ""
) -> list[tuple[int, str]]:
    """Replay the leak; return what befell node and pod, as (seconds, what)."""
    text = CONFIG.format(asked=str(asked).lower(), more=more)
    settings = ReplaySettings(
        version="test",
        scheduler_address=here.addresses["scheduler"],
        eviction_address=here.addresses["eviction"],
        kubelet_configuration=text,
        run_path=path,
        sampling=NO_SPANS,
    )
    trace_records = iter(records())
    finished = run_replay(settings, lambda: trace_records, lambda _now_ns, _cluster, _tally: None)
    return [
        (entry.time_ns // S, what)
        for entry in finished.run.decisions()
        if (what := entry.observed.WhichOneof("observed") or "")
        in {"condition_changed", "evicted", "finished"}
    ]


def test_the_eviction_comes_when_memory_crosses_and_not_at_the_next_poll(
    here: EmbeddedServices, tmp_path: Path
) -> None:
    """The loop's own steps stay where they were: the condition goes with one of them."""
    assert events(here, tmp_path / "told", asked=True) == [
        (LEAK_S, "condition_changed"),
        (LEAK_S, "evicted"),
        (LEAK_S + 1, "finished"),
        (370, "condition_changed"),
    ]


def test_without_it_the_eviction_waits_for_the_poll(here: EmbeddedServices, tmp_path: Path) -> None:
    """At 70 s, the seventh time that the loop comes round."""
    assert events(here, tmp_path / "polled", asked=False) == [
        (70, "condition_changed"),
        (70, "evicted"),
        (71, "finished"),
        (372, "condition_changed"),
    ]


def test_a_soft_thresholds_grace_begins_at_the_crossing(
    here: EmbeddedServices, tmp_path: Path
) -> None:
    """Only the kernel notifies of it: the end of the grace is seen by the loop, as ever."""
    told = events(here, tmp_path / "told", asked=True, more=SOFT)
    polled = events(here, tmp_path / "polled", asked=False, more=SOFT)
    assert told[:2] == [(LEAK_S, "condition_changed"), (90, "evicted")]
    assert polled[:2] == [(70, "condition_changed"), (100, "evicted")]
