"""Notifications and kills, as far as recorded files can show them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from services.eviction.core.observations import MemoryStats
from services.eviction.core.signals import Signal
from services.eviction.core.thresholds import Threshold, ThresholdValue
from services.eviction.host import pods
from services.eviction.host.cgroups import Cgroup, CgroupError, CgroupMemory, crossing
from services.kube.quantity import parse
from tests.unit.eviction.host.folders import MIB, v2


@pytest.mark.parametrize(
    ("value", "usage_mib"),
    [
        (ThresholdValue(quantity=parse("100Mi")), 1000 - 100 + 50),
        (ThresholdValue(percentage=0.5), 1000 - 500 + 50),
        (ThresholdValue(quantity=parse("2Gi")), 0),
    ],
)
def test_the_usage_to_be_notified_of_leaves_the_thresholds_amount(
    value: ThresholdValue, usage_mib: int
) -> None:
    """Capacity less the amount, plus the part of the usage that is no working set."""
    threshold = Threshold(signal=Signal.MEMORY_AVAILABLE, value=value)
    stats = MemoryStats(available_bytes=700 * MIB, working_set_bytes=300 * MIB, time_ns=0)
    memory = CgroupMemory(usage=350 * MIB, working_set=300 * MIB, limit=None)
    assert crossing(threshold, stats, memory) == usage_mib * MIB


@pytest.mark.parametrize(("grace_s", "most_s"), [(0, 10), (4, 10), (11, 16), (30, 45)])
def test_a_kill_takes_one_and_a_half_grace_periods_at_most(grace_s: int, most_s: int) -> None:
    """And at least 10 s."""
    assert pods.timeout_s(grace_s) == most_s


def test_nothing_outside_the_root_is_touched(tmp_path: Path) -> None:
    """Neither a group elsewhere nor the root itself, nor by a link that leads out."""
    root = Cgroup.open(v2(tmp_path / "root", usage=0, inactive=0))
    elsewhere = v2(tmp_path / "elsewhere", usage=0, inactive=0, pids=f"{os.getpid()}\n")
    (root.path / "link").symlink_to(elsewhere)
    for path in (elsewhere, root.path, root.path / "link", root.path / ".." / "elsewhere"):
        with pytest.raises(CgroupError, match="no process is signalled"):
            pods.kill(Cgroup(path, root.version), root, 0)


def test_this_process_and_the_first_are_never_signalled(tmp_path: Path) -> None:
    """Even where a group claims to hold them; the kill has failed then."""
    root = Cgroup.open(v2(tmp_path, usage=0, inactive=0))
    pod = v2(tmp_path / "pod", usage=0, inactive=0, pids=f"1\n{os.getpid()}\n")
    moments = iter(range(100))
    ended = pods.kill(
        Cgroup(pod, root.version),
        root,
        1,
        sleep=lambda _s: None,
        clock=lambda: float(next(moments)),
    )
    assert not ended


def test_a_group_without_processes_is_ended_at_once(tmp_path: Path) -> None:
    """Nobody is waited for."""
    root = Cgroup.open(v2(tmp_path, usage=0, inactive=0))
    pod = v2(tmp_path / "pod", usage=0, inactive=0)
    assert pods.kill(Cgroup(pod, root.version), root, 30)
