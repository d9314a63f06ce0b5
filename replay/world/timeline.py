"""The timeline: planned actions, ordered by virtual time.

An action is data, not a function, so that a run can be saved: its kind and its object's key. An
object has at most one planned action of a kind. Actions of one instant run in the order in which
they were planned, except that steps of eviction managers come first; those planned while an
instant's actions run belong to its next round.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple


class ActionKind(Enum):
    """The kind of a planned action; the values are texts for users."""

    __hash__ = object.__hash__  # Enum's own is a call to Python, several times a pod.

    KUBELET_SEES = "a kubelet sees a pod that was bound to its node"
    START = "a pod's containers start"
    READY = "a pod becomes ready"
    FINISH = "a pod's containers exit"
    STOPPED = "a pod's containers have stopped"
    REMOVE = "a pod is removed from the API server"
    STEP = "a node's eviction manager takes its next step"
    USAGE = "a node's usage may reach a threshold"
    RECHECK = "a budget stops waiting for a granted disruption"
    BUDGET_STATUS = "a budget's delayed status is computed"
    LOOK = "a controller looks at its object again"
    RESTART = "a kubelet restarts a pod's containers"
    MEMORY = "a pod's memory may exceed a limit"
    NODE_MEMORY = "the memory of a node's pods may exceed a limit"
    CYCLE = "a scheduling cycle, or a binding, ends"
    PREEMPTION = "the deletions of a preemption reach the API server"
    DEVICE_READY = "a driver has made a claim's devices ready"
    DEVICE_WAIT = "a binding's wait for its devices ends"
    TAINT = "a pod's toleration of its node's taints ends"
    DEVICE_TAINT = "a pod's toleration of its devices' taints ends"
    DRAIN = "the drain of a node begins or goes on"
    UNCORDON = "a drained node is uncordoned"
    SILENT = "a node stops reporting"
    MONITOR = "the node lifecycle controller looks at the nodes"
    TAINT_NODE = "the next failed node of a zone is tainted"
    BACK = "a node reports again"
    COLLECT = "the pods of a deleted node are collected"
    POD_GC = "the pod garbage collector deletes pods"
    PROVISION = "an instance of a node group becomes a node"
    SCAN = "the cluster autoscaler scans"
    AUTOSCALER = "the cluster autoscaler has work between scans"


POD_KINDS = (
    ActionKind.KUBELET_SEES,
    ActionKind.START,
    ActionKind.READY,
    ActionKind.FINISH,
    ActionKind.STOPPED,
    ActionKind.REMOVE,
    ActionKind.RESTART,
    ActionKind.MEMORY,
    ActionKind.TAINT,
    ActionKind.DEVICE_TAINT,
)
"""The kinds whose key is a pod's UID."""
BEFORE_END_KINDS = frozenset(
    {
        ActionKind.KUBELET_SEES,
        ActionKind.START,
        ActionKind.READY,
        ActionKind.FINISH,
        ActionKind.RESTART,
        ActionKind.MEMORY,
    }
)
"""The kinds that do nothing to a pod that has ended at the same instant."""

_SPARSE, _SPARE = 2, 1024
"""The heap is rebuilt without cancelled actions above _SPARSE * (planned + _SPARE) entries."""


class Action(NamedTuple):
    """One planned action; `key` is a pod's or controller's UID, a node's name, or another key.

    It is "" for a kind that has one action only.
    """

    kind: ActionKind
    key: str


@dataclass(slots=True)
class _Planned:
    at_ns: int
    action: Action
    idle: bool
    cancelled: bool = False


class Timeline:
    """Actions ordered by (time in ns, order of planning)."""

    _heap: list[tuple[int, int, _Planned]]
    _planned: dict[tuple[ActionKind, str], _Planned]
    _count: int
    _idle: int

    def __init__(self) -> None:
        self._heap = []
        self._planned = {}
        self._count = 0
        self._idle = 0

    def __len__(self) -> int:
        return len(self._planned)

    @property
    def is_idle(self) -> bool:
        """Return whether all planned actions are idle, so that a run may end."""
        return self._idle == len(self._planned)

    def plan(self, at_ns: int, kind: ActionKind, key: str, *, idle: bool = False) -> None:
        """Plan an action at `at_ns`, in place of one of the same kind and key.

        An idle action would change nothing as things stand: a run does not continue for it.
        """
        action = Action(kind, key)
        before = self._planned.get(action)
        if before is not None:
            if before.at_ns == at_ns:
                self._idle += idle - before.idle
                before.idle = idle
                return
            self._cancel(before)
        planned = self._planned[action] = _Planned(at_ns, action, idle)
        self._idle += idle
        self._count += 1
        heapq.heappush(self._heap, (at_ns, self._count, planned))
        if len(self._heap) > _SPARSE * (len(self._planned) + _SPARE):
            self._heap = [entry for entry in self._heap if not entry[2].cancelled]
            heapq.heapify(self._heap)

    def plan_earlier(self, at_ns: int, kind: ActionKind, key: str) -> None:
        """Plan an action at `at_ns`, unless the same one is planned for an earlier time."""
        planned_ns = self.planned_ns(kind, key)
        if planned_ns is None or at_ns < planned_ns:
            self.plan(at_ns, kind, key)

    def cancel(self, kind: ActionKind, key: str) -> None:
        """Cancel an action; one that is not planned is accepted."""
        planned = self._planned.pop((kind, key), None)
        if planned is not None:
            self._cancel(planned)

    def _cancel(self, planned: _Planned) -> None:
        planned.cancelled = True
        self._idle -= planned.idle

    def cancel_pod(self, uid: str) -> None:
        """Cancel all actions of a pod."""
        planned = self._planned
        for kind in POD_KINDS:  # `cancel` in a loop costs nine calls at each pod's end.
            action = planned.pop((kind, uid), None)
            if action is not None:
                self._cancel(action)

    def planned_ns(self, kind: ActionKind, key: str) -> int | None:
        """Return when an action is due, ns, None if it is not planned."""
        planned = self._planned.get((kind, key))
        return None if planned is None else planned.at_ns

    def next_ns(self) -> int | None:
        """Return when the next action is due, ns, None if nothing is planned."""
        while self._heap and self._heap[0][2].cancelled:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def ahead(self) -> Iterator[tuple[int, Action]]:
        """Yield all actions in order, with their times; nothing may be planned meanwhile."""
        heap = self._heap
        edge = [(heap[0], 0)] if heap else []
        while edge:
            (at_ns, _, planned), index = heapq.heappop(edge)
            if not planned.cancelled:
                yield at_ns, planned.action
            for below in (2 * index + 1, 2 * index + 2):
                if below < len(heap):
                    heapq.heappush(edge, (heap[below], below))

    def take_due(self, now_ns: int) -> list[Action]:
        """Remove and return the actions that are due at `now_ns`, in order."""
        due: list[Action] = []
        while self._heap and self._heap[0][0] <= now_ns:
            planned = heapq.heappop(self._heap)[2]
            if not planned.cancelled:
                action = planned.action
                del self._planned[action]
                self._idle -= planned.idle
                due.append(action)
        if len(due) > 1:
            # What else happens on a node at this instant must see that its step is due, and must
            # not plan it anew.
            due.sort(key=_is_no_step)
        return due


def _is_no_step(action: Action) -> bool:
    return action.kind is not ActionKind.STEP
