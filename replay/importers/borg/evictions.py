"""Why a task was evicted: the traces tell only that it was.

Told apart by what happened beside it: its machine was removed within five seconds; a task of higher
priority was scheduled on its machine at the same instant; or neither, which leaves overcommitment
and errors of disks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from replay.importers.borg.machines import node_name
from replay.importers.borg.pods import Task
from reprieve.kube.v1alpha1.object_ref_pb2 import ObjectRef
from reprieve.trace.v1alpha1.trace_pb2 import Evicted, Observed, Preempted, Record, Removed

_NEAR_US = 5_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Happened:
    at_us: int
    machine: str
    priority: int
    pod: ObjectRef


class Evictions:
    """Holds evictions until it is known what happened around them."""

    def __init__(self, removed_us: Mapping[str, int]) -> None:
        self._removed_us = removed_us
        self._waiting: deque[_Happened] = deque()
        self._scheduled: deque[_Happened] = deque()

    def scheduled(self, task: Task, at_us: int) -> None:
        """Note that a task was scheduled."""
        self._scheduled.append(_happened(task, task.machine, at_us))

    def evicted(self, task: Task, machine: str, at_us: int) -> None:
        """Note an eviction."""
        self._waiting.append(_happened(task, machine, at_us))

    def decided(self, now_us: int) -> Iterator[Record]:
        """Yield observations of the evictions that are old enough to be judged."""
        while self._waiting and self._waiting[0].at_us + _NEAR_US < now_us:
            each = self._waiting.popleft()
            observed = Observed(object=each.pod)
            by = self._preemptor(each)
            removed_us = self._removed_us.get(each.machine)
            if removed_us is not None and abs(removed_us - each.at_us) <= _NEAR_US:
                observed.removed.CopyFrom(Removed(cause="node-lost"))
            elif by is not None:
                name = node_name(each.machine)
                observed.preempted.CopyFrom(Preempted(by=by, node_name=name))
            else:
                name = node_name(each.machine)
                observed.evicted.CopyFrom(Evicted(node_name=name, message="EVICT"))
            yield Record(at_ns=each.at_us * 1000, observed=observed)
        oldest_us = self._waiting[0].at_us if self._waiting else now_us
        while self._scheduled and self._scheduled[0].at_us < oldest_us:
            self._scheduled.popleft()

    def _preemptor(self, victim: _Happened) -> ObjectRef | None:
        for each in self._scheduled:
            here = each.at_us == victim.at_us and each.machine == victim.machine
            if here and each.priority > victim.priority:
                return each.pod
        return None


def _happened(task: Task, machine: str, at_us: int) -> _Happened:
    return _Happened(at_us=at_us, machine=machine, priority=task.submit.priority, pod=task.ref())
