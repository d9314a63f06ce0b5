"""What control groups and the machine say, as cAdvisor and the kubelet read it."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.eviction.core.pod import EvictionContainer, EvictionPod
from services.eviction.host.cgroups import (
    Cgroup,
    CgroupError,
    CgroupMemory,
    CgroupVersion,
    Machine,
    file_system,
    group_memory,
)
from services.eviction.host.pods import running_pods, uid_of, usage
from tests.unit.eviction.host.folders import MIB, OTHER_UID, UID, proc, v1, v2


def test_the_working_set_is_the_usage_without_files_unused_for_long(tmp_path: Path) -> None:
    """Of the whole subtree on version 1; of the group, which holds its subtree, on version 2."""
    one = Cgroup.open(v1(tmp_path / "one", usage=100 * MIB, inactive=30 * MIB, limit=200 * MIB))
    assert one.version is CgroupVersion.V1
    assert one.memory() == CgroupMemory(usage=100 * MIB, working_set=70 * MIB, limit=200 * MIB)
    two = Cgroup.open(v2(tmp_path / "two", usage=10, inactive=30))
    assert two.version is CgroupVersion.V2
    assert two.memory() == CgroupMemory(usage=10, working_set=0, limit=None)


def test_no_limit_on_version_1_is_the_largest_number_of_pages(tmp_path: Path) -> None:
    """As the kernel shows it."""
    found = Cgroup.open(v1(tmp_path, usage=1, inactive=0, limit=9223372036854771712)).memory()
    assert found is not None
    assert found.limit is None


def test_a_folder_without_memory_is_refused(tmp_path: Path) -> None:
    """With what to do where the controller is off."""
    with pytest.raises(CgroupError, match="is not a memory control group"):
        Cgroup.open(tmp_path)
    (tmp_path / "cgroup.controllers").write_text("cpu\n")
    with pytest.raises(CgroupError, match="use a group below it"):
        Cgroup.open(tmp_path)


def test_a_group_that_has_gone_has_no_memory(tmp_path: Path) -> None:
    """Pods end at any moment."""
    gone = Cgroup(tmp_path / "gone", CgroupVersion.V2)
    assert gone.memory() is None
    assert list(gone.processes()) == []
    assert not gone.exists


def test_available_memory_is_bounded_by_the_limit_or_the_machine() -> None:
    """A limit above the machine's memory counts as that."""
    memory = CgroupMemory(usage=50, working_set=40, limit=100)
    assert group_memory(memory, 1000, 7).available_bytes == 60
    assert (
        group_memory(CgroupMemory(usage=50, working_set=40, limit=None), 1000, 7).available_bytes
        == 960
    )
    assert (
        group_memory(CgroupMemory(usage=50, working_set=40, limit=5000), 90, 7).available_bytes
        == 50
    )


def test_the_machine_reports_memory_and_processes(tmp_path: Path) -> None:
    """Process ids are bounded by both limits; running are threads, as the kernel counts them."""
    machine = Machine(proc(tmp_path / "proc"))
    stats = machine.memory(7)
    assert (stats.available_bytes, stats.working_set_bytes) == (4000 * 1024, 4000 * 1024)
    pids = machine.pids(7)
    assert (pids.max_pid, pids.running_processes) == (63000, 321)


def test_statistics_are_of_the_file_system_that_contains_the_path(tmp_path: Path) -> None:
    """In bytes and inodes."""
    stats = file_system(tmp_path, 7)
    assert stats.available_bytes is not None
    assert stats.capacity_bytes is not None
    assert 0 < stats.available_bytes <= stats.capacity_bytes


@pytest.mark.parametrize(
    ("name", "uid"),
    [
        (f"pod{UID}", UID),
        (f"kubepods-burstable-pod{UID.replace('-', '_')}.slice", UID),
        (f"kubepods-pod{UID.replace('-', '_')}.slice", UID),
        ("mine", "mine"),
        ("podium", "podium"),
    ],
)
def test_a_cgroups_name_has_the_pods_uid(name: str, uid: str) -> None:
    """With either of the kubelet's drivers; any other group goes by its name."""
    assert uid_of(name) == uid


def test_pods_are_found_below_their_qos_class_with_their_statistics(tmp_path: Path) -> None:
    """Groups without processes are no running pods."""
    container = "cri-containerd-4f2d.scope"
    root = v2(tmp_path, usage=0, inactive=0)
    slice_ = root / "kubepods-burstable.slice"
    v2(slice_, usage=0, inactive=0)
    burstable = slice_ / f"kubepods-burstable-pod{UID.replace('-', '_')}.slice"
    v2(burstable, usage=90, inactive=10)
    v2(burstable / container, usage=70, inactive=0, pids="41\n42\n")
    guaranteed = root / f"kubepods-pod{OTHER_UID.replace('-', '_')}.slice"
    v2(guaranteed, usage=5, inactive=0)
    known = {
        UID: EvictionPod(
            uid=UID,
            namespace="default",
            name="web",
            priority=7,
            containers=(EvictionContainer(name="c"),),
        )
    }
    running = list(running_pods(Cgroup.open(root), known))
    assert [(pod.pod.name, pod.pod.priority) for pod in running] == [("web", 7)]
    used = usage(running)[UID]
    assert (used.memory_working_set_bytes, used.processes) == (80, 2)
    assert [
        (container.name, container.memory_working_set_bytes) for container in used.containers
    ] == [("c", 70)]
