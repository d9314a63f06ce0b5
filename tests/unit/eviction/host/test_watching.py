"""A live node with control groups version 2, from recorded files: statistics and wake-ups."""

from __future__ import annotations

import select
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from services.eviction.core.pod import EvictionPod
from services.eviction.host import watch
from services.eviction.host.cgroups import Cgroup, EventNotifier, Machine, open_notifier
from services.eviction.host.watch import StepReport, WakeReason, Watch, WatchSettings
from services.kube.kubelet import EvictionConfig
from services.kube.time import SECOND_NS
from tests.unit.eviction.host.folders import MIB, OTHER_UID, UID, proc, v2

STEADY, HUNGRY = f"pod{UID}", f"pod{OTHER_UID}"
KIB = 1024
CONFIG = EvictionConfig(
    hard={"memory.available": "1Mi"},
    enforce_node_allocatable=("pods",),
    local_storage_isolation=False,
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Record a kubelet's groups: a limit of 100 MiB, a steady pod and a hungry one."""
    path = v2(tmp_path / "kubepods", usage=60 * MIB, inactive=10 * MIB, limit=str(100 * MIB))
    v2(path / "besteffort", usage=0, inactive=0)
    v2(path / STEADY, usage=20 * MIB, inactive=0, pids="4001\n")
    v2(path / "besteffort" / HUNGRY, usage=40 * MIB, inactive=0, pids="4002\n4003\n")
    return path


class Clock:
    """A clock that advances by one second with each reading."""

    def __init__(self) -> None:
        self.now_s = 100

    def __call__(self) -> int:
        """Return the time."""
        self.now_s += 1
        return self.now_s * SECOND_NS


def watched(
    tmp_path: Path,
    root: Path,
    steps: int,
    *,
    notifications: bool = False,
    after: Callable[[], None] = lambda: None,
) -> list[StepReport]:
    """Take steps and return them; `after` is done after each."""
    reports: list[StepReport] = []
    known = {UID: EvictionPod(uid=UID, namespace="default", name="steady", priority=7)}
    settings = WatchSettings(
        root=Cgroup.open(root),
        config=CONFIG,
        node_fs=tmp_path,
        image_fs=tmp_path,
        api_pods=known,
        interval_ns=3 * SECOND_NS,
        notifications=notifications,
    )

    def report(step: StepReport) -> None:
        reports.append(step)
        after()

    machine = Machine(proc(tmp_path / "proc"))
    (machine.proc / "meminfo").write_text(
        "MemTotal: 800000 kB\nMemFree: 300000 kB\nInactive(file): 100000 kB\n"
    )
    one = Watch(settings, report, machine=machine, clock_ns=Clock())
    one.run(steps)
    one.close()
    return reports


def test_the_machine_the_limit_and_each_pod_are_seen(tmp_path: Path, root: Path) -> None:
    """The root group does not tell of itself on version 2; the machine's own figures do."""
    (seen,) = watched(tmp_path, root, 1)
    memory, pods = seen.summary.memory, seen.summary.allocatable_memory
    assert memory is not None
    assert pods is not None
    assert memory.available_bytes == 400_000 * KIB
    assert (pods.available_bytes, pods.working_set_bytes) == (50 * MIB, 50 * MIB)
    used = {uid: item.memory_working_set_bytes for uid, item in seen.summary.pods.items()}
    assert used == {UID: 20 * MIB, OTHER_UID: 40 * MIB}
    assert (seen.pods, seen.result.evictions, seen.woken) == (2, (), WakeReason.INTERVAL)


def test_too_little_memory_for_pods_names_the_victim_and_kills_no_pod(
    tmp_path: Path, root: Path
) -> None:
    """Both pods exceed their requests; the pod of lower priority is the victim."""
    v2(root, usage=100 * MIB, inactive=MIB // 2, limit=str(100 * MIB))
    (seen,) = watched(tmp_path, root, 1)
    assert [condition.value for condition in seen.result.conditions_held] == ["MemoryPressure"]
    (kill,) = seen.kills
    assert (kill.eviction.uid, kill.ended) == (OTHER_UID, None)
    assert kill.eviction.cause == "allocatableMemory.available"


def test_a_stall_or_an_event_wakes_the_watch_and_leaves_its_loop(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Version 2 has no thresholds: memory.events and memory.pressure notify instead."""
    (root / "memory.pressure").write_text("")
    answers = iter([[], [(3, select.POLLPRI)], [], [], []])
    monkeypatch.setattr(select, "poll", lambda: FakePoll(lambda: next(answers, [])))
    seen = watched(tmp_path, root, 3, notifications=True)
    assert [step.woken for step in seen] == [
        WakeReason.INTERVAL,
        WakeReason.NOTIFICATION,
        WakeReason.INTERVAL,
    ]


class FakePoll:
    """A poll with a fixed result."""

    def __init__(self, answer: Callable[[], Sequence[tuple[int, int]]]) -> None:
        self._answer = answer
        self.registered: list[tuple[int, int]] = []

    def register(self, descriptor: int, mask: int) -> None:
        """Keep what is waited for."""
        self.registered.append((descriptor, mask))

    def poll(self, _timeout_ms: float) -> Sequence[tuple[int, int]]:
        """Answer at once."""
        return self._answer()


def test_stalls_are_watched_if_the_kernel_reports_them(root: Path) -> None:
    """150 ms of a second, as a trigger written to memory.pressure; without that file, events."""
    without = open_notifier(Cgroup.open(root))
    assert isinstance(without, EventNotifier)
    assert not without.wait(0)
    without.close()
    (root / "memory.pressure").write_text("")
    both = open_notifier(Cgroup.open(root))
    both.update([1, 2])
    both.close()
    assert (root / "memory.pressure").read_bytes() == b"some 150000 1000000\0"


def open_files() -> int:
    """Return how many files this process has open."""
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def test_nothing_stays_open(root: Path) -> None:
    """Neither the files nor a trigger that was refused."""
    before = open_files()
    (root / "memory.pressure").write_text("")
    open_notifier(Cgroup.open(root)).close()
    assert open_files() == before


def test_what_the_kernel_notifies_of_is_refreshed_every_10_s(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Independent of the frequency of steps: here slightly more than every 3 s."""
    asked: list[Sequence[int]] = []

    class Told:
        def update(self, crossings: Sequence[int]) -> None:
            asked.append(crossings)

        def wait(self, _timeout_s: float) -> bool:
            return False

        def close(self) -> None:
            """Nothing is open."""

    monkeypatch.setattr(watch, "open_notifier", lambda _cgroup: Told())
    reports = watched(tmp_path, root, 7, notifications=True)
    refreshed: list[int] = []
    for report in reports[:-1]:
        if not refreshed or report.at_ns - refreshed[-1] >= 10 * SECOND_NS:
            refreshed.append(report.at_ns)
    assert 1 < len(refreshed) < len(reports) // 2
    assert len(asked) == 2 * len(refreshed)
