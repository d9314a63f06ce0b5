"""A live node's loop: step, report, evict, wait for the interval or the kernel's notification.

Source: kubernetes v1.32 pkg/kubelet/eviction/eviction_manager.go, Start (the loop of 10 s),
synchronize (thresholds of notifications refreshed every 10 s), waitForPodsCleanup (polls of 1 s, at
most 30 s).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import Any

import orjson

from services.eviction.core.manager import Manager
from services.eviction.core.observations import MemoryStats, NodeSummary
from services.eviction.core.pod import EvictionPod
from services.eviction.core.results import (
    CLEANUP_POLL_NS,
    CLEANUP_TIMEOUT_NS,
    MONITORING_INTERVAL_NS,
    Eviction,
    NeedReclaim,
    StepResult,
)
from services.eviction.core.signals import Signal
from services.eviction.core.thresholds import REFRESH_NS
from services.eviction.host.cgroups import (
    Cgroup,
    CgroupError,
    CgroupMemory,
    CgroupVersion,
    Machine,
    Notifier,
    crossing,
    file_system,
    group_memory,
    open_notifier,
)
from services.eviction.host.pods import RunningPod, kill, running_pods, usage
from services.kube.kubelet import EvictionConfig
from services.kube.quantity import Format, Quantity
from services.kube.time import SECOND_NS
from services.terminal import json_text, one_line


class WakeReason(Enum):
    """The reason for a step."""

    INTERVAL = "interval"
    NOTIFICATION = "notification"
    CLEANUP = "cleanup"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """An eviction, and whether its pod's processes have ended; None without --act."""

    eviction: Eviction
    ended: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport:
    """One step: why it was taken, the statistics, the result and the evictions."""

    at_ns: int
    woken: WakeReason
    summary: NodeSummary
    pods: int
    result: StepResult
    kills: tuple[Kill, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchSettings:
    """The watched control group, which contains all pods, and a path on each file system.

    `api_pods` as in running_pods. Without `act`, no process is killed.
    """

    root: Cgroup
    config: EvictionConfig
    node_fs: Path = Path("/")
    image_fs: Path = Path("/")
    api_pods: Mapping[str, EvictionPod] = field(default_factory=dict)
    interval_ns: int = MONITORING_INTERVAL_NS
    act: bool = False
    notifications: bool = True


class Watch:
    """Steps this machine's eviction manager, and calls `report` with each step."""

    def __init__(
        self,
        settings: WatchSettings,
        report: Callable[[StepReport], None],
        *,
        machine: Machine | None = None,
        clock_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        """Raise ConfigError for refused thresholds, OSError if the kernel refuses to notify."""
        self._settings = settings
        self._report = report
        self._machine = machine or Machine()
        self._clock_ns = clock_ns
        self._manager = Manager(settings.config)
        self._top = _top(settings.root)
        self._notifiers: dict[Signal, tuple[Cgroup, Notifier]] = {}
        self._refreshed_ns: int | None = None
        self._end_ns = 0
        if settings.notifications:
            watched = {threshold.signal for threshold in self._manager.thresholds}
            for signal, cgroup in (
                (Signal.MEMORY_AVAILABLE, self._top),
                (Signal.ALLOCATABLE_MEMORY_AVAILABLE, settings.root),
            ):
                if signal in watched and _can_notify(cgroup):
                    self._notifiers[signal] = (cgroup, open_notifier(cgroup))

    def run(self, steps: int | None = None) -> None:
        """Take `steps` steps; None: run without end."""
        woken = WakeReason.INTERVAL
        taken = 0
        while steps is None or taken < steps:
            report = self._step(woken)
            self._report(report)
            taken += 1
            if steps is not None and taken >= steps:
                return
            if any(killed.ended is not None for killed in report.kills):
                self._wait_for_cleanup(report)
                woken = WakeReason.CLEANUP
            else:
                woken = self._wait(report)

    def close(self) -> None:
        """End the kernel's notifications."""
        for _, notifier in self._notifiers.values():
            notifier.close()

    def _step(self, woken: WakeReason) -> StepReport:
        now_ns = self._clock_ns()
        running = list(running_pods(self._settings.root, self._settings.api_pods))
        summary = self._summary(now_ns, running)
        result = self._manager.synchronize(
            now_ns=now_ns, summary=summary, pods=[pod.pod for pod in running]
        )
        if isinstance(result, NeedReclaim):
            summary = self._summary(self._clock_ns(), running)
            result = self._manager.resume(summary)
        by_uid = {pod.pod.uid: pod for pod in running}
        kills = tuple(self._kill(eviction, by_uid[eviction.uid]) for eviction in result.evictions)
        return StepReport(
            at_ns=now_ns,
            woken=woken,
            summary=summary,
            pods=len(running),
            result=result,
            kills=kills,
        )

    def _kill(self, eviction: Eviction, running: RunningPod) -> Kill:
        ended = None
        if self._settings.act:
            ended = kill(running.cgroup, self._settings.root, eviction.grace_period_s)
        return Kill(eviction=eviction, ended=ended)

    def _summary(self, now_ns: int, running: list[RunningPod]) -> NodeSummary:
        capacity = self._machine.memory_capacity()
        pods_memory = self._settings.root.memory()
        return NodeSummary(
            memory=self._node_memory(now_ns, capacity),
            allocatable_memory=group_memory(pods_memory, capacity, now_ns) if pods_memory else None,
            nodefs=file_system(self._settings.node_fs, now_ns),
            imagefs=file_system(self._settings.image_fs, now_ns),
            rlimit=self._machine.pids(now_ns),
            pods=usage(running),
        )

    def _node_memory(self, now_ns: int, capacity: int) -> MemoryStats:
        """Return the root group's memory with version 1; with version 2, the machine's memory."""
        top = self._top.memory() if self._top.version is CgroupVersion.V1 else None
        if top is None:
            return self._machine.memory(now_ns)
        unlimited = CgroupMemory(usage=top.usage, working_set=top.working_set, limit=None)
        return group_memory(unlimited, capacity, now_ns)

    def _wait(self, report: StepReport) -> WakeReason:
        """Wait for the interval's end or a notification, whichever comes first.

        A step after a notification does not restart the loop's interval.
        """
        self._refresh(report)
        if report.woken is not WakeReason.NOTIFICATION:
            self._end_ns = report.at_ns + self._settings.interval_ns
        while (left_ns := self._end_ns - self._clock_ns()) > 0:
            left_s = left_ns / SECOND_NS
            if not self._notifiers:
                time.sleep(left_s)
                break
            slice_s = left_s if len(self._notifiers) == 1 else min(left_s, 0.2)
            for _, notifier in self._notifiers.values():
                if notifier.wait(slice_s / len(self._notifiers)):
                    return WakeReason.NOTIFICATION
        return WakeReason.INTERVAL

    def _refresh(self, report: StepReport) -> None:
        """Set the kernel's notifications according to the statistics of this step.

        This happens at most once in REFRESH_NS, however many steps notifications cause.
        """
        if self._refreshed_ns is not None and report.at_ns - self._refreshed_ns < REFRESH_NS:
            return
        self._refreshed_ns, summary = report.at_ns, report.summary
        stats = {
            Signal.MEMORY_AVAILABLE: summary.memory,
            Signal.ALLOCATABLE_MEMORY_AVAILABLE: summary.allocatable_memory,
        }
        for signal, (cgroup, notifier) in self._notifiers.items():
            memory, observed = cgroup.memory(), stats[signal]
            if memory is None or observed is None:
                continue
            notifier.update(
                [
                    crossing(watched, observed, memory)
                    for watched in self._manager.watched
                    if watched.signal is signal
                ]
            )

    def _wait_for_cleanup(self, report: StepReport) -> None:
        """Wait until the evicted pods have no processes, at most CLEANUP_TIMEOUT_NS."""
        gone = {killed.eviction.uid for killed in report.kills}
        end_ns = self._clock_ns() + CLEANUP_TIMEOUT_NS
        while self._clock_ns() < end_ns:
            time.sleep(CLEANUP_POLL_NS / SECOND_NS)
            running = {running_pod.pod.uid for running_pod in running_pods(self._settings.root, {})}
            if not gone & running:
                return


def _top(cgroup: Cgroup) -> Cgroup:
    """Return the topmost group above this one that has memory figures."""
    while True:
        try:
            cgroup = Cgroup.open(cgroup.path.parent)
        except CgroupError:
            return cgroup


def _can_notify(cgroup: Cgroup) -> bool:
    name = "cgroup.event_control" if cgroup.version is CgroupVersion.V1 else "memory.events"
    return (cgroup.path / name).exists()


_MIB = 1 << 20


def printer(output: str, write: Callable[[str], None]) -> Callable[[StepReport], None]:
    """Return the function that prints a step as lines ("table") or as one object ("json")."""
    if output == "json":
        return lambda report: write(json_text(orjson.dumps(_mapping(report)).decode()))
    return lambda report: write("\n".join(map(one_line, _lines(report))))


def _lines(report: StepReport) -> list[str]:
    at = datetime.fromtimestamp(report.at_ns / 1e9, UTC).strftime("%H:%M:%S")
    conditions = (
        ", ".join(condition.value for condition in report.result.conditions_held) or "no pressure"
    )
    lines = [
        f"{at}  memory available {_amount(report.summary.memory)}, for pods "
        f"{_amount(report.summary.allocatable_memory)}; {report.pods} pods; {conditions}"
        + (f"  ({report.woken.value})" if report.woken.value != "interval" else "")
    ]
    lines += [f"          threshold met: {threshold}" for threshold in report.result.thresholds_met]
    lines += [f"          {_outcome(killed)}" for killed in report.kills]
    return lines


def _outcome(kill: Kill) -> str:
    eviction = kill.eviction
    name = f"{eviction.namespace}/{eviction.name}" if eviction.namespace else eviction.name
    done = {None: "would evict", True: "evicted", False: "could not end"}[kill.ended]
    return f"{done} {name} (grace period {eviction.grace_period_s} s): {eviction.message.strip()}"


def _amount(stats: MemoryStats | None) -> str:
    if stats is None or stats.available_bytes is None:
        return "unknown"
    rounded = stats.available_bytes // _MIB * _MIB
    return str(Quantity.from_value(rounded, Format.BINARY_SI))


def _mapping(report: StepReport) -> dict[str, Any]:
    result = report.result
    return {
        "at_ns": report.at_ns,
        "woken": report.woken.value,
        "pods": report.pods,
        "memory": _memory(report.summary.memory),
        "allocatable_memory": _memory(report.summary.allocatable_memory),
        "conditions": [condition.value for condition in result.conditions_held],
        "thresholds_met": [str(threshold) for threshold in result.thresholds_met],
        "evictions": [
            {
                "uid": killed.eviction.uid,
                "namespace": killed.eviction.namespace,
                "name": killed.eviction.name,
                "signal": killed.eviction.cause,
                "grace_period_s": killed.eviction.grace_period_s,
                "message": killed.eviction.message,
                "ended": killed.ended,
            }
            for killed in report.kills
        ],
        "error": result.error,
    }


def _memory(stats: MemoryStats | None) -> dict[str, int | None] | None:
    if stats is None:
        return None
    return {"available_bytes": stats.available_bytes, "working_set_bytes": stats.working_set_bytes}
