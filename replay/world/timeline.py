"""What is still to come: a heap of actions under virtual time.

An action is data, not a function, so that a run can be saved: its kind and the key of the object
that it is about. An object has at most one action of a kind to come. Actions of one moment come in
the order in which they were planned, and those planned while a moment's actions run belong to the
next round of that moment.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple


class Kind(Enum):
    """What an action does to its object."""

    __hash__ = object.__hash__  # Enum's own is a call to Python, several times a pod.

    KUBELET_SEES = "a kubelet sees a pod that was bound to its node"
    START = "a pod's containers run"
    FINISH = "a pod has done its work"
    STOPPED = "a pod's containers have stopped"
    REMOVE = "a pod is removed from the API server"
    STEP = "a node's eviction manager takes its next step"
    USAGE = "what a node's pods use, or itself, comes to matter"
    RECHECK = "a budget gives up waiting for a granted disruption"
    LOOK = "a controller looks at its object again"
    RESTART = "a kubelet starts a pod's containers again"
    CYCLE = "a scheduling cycle, or a binding, is over"
    TAINT = "a pod has put up with its node's taints for long enough"
    DRAIN = "a node that is drained is tried again, or begins to be"
    SILENT = "a node stops reporting"
    UNREACHABLE = "a silent node is given up"
    BACK = "a node reports again"
    COLLECT = "the pods of a node that has gone are collected"
    POD_GC = "pods that have ended, and are too many, are collected"


POD_KINDS = (
    Kind.KUBELET_SEES,
    Kind.START,
    Kind.FINISH,
    Kind.STOPPED,
    Kind.REMOVE,
    Kind.RESTART,
    Kind.TAINT,
)
"""The kinds whose key is a pod's UID."""

_SPARSE, _SPARE = 2, 1024
"""How many times what is to come, and a bit, the heap may hold before the cancelled are let go."""


class Action(NamedTuple):
    """One planned action; `key` is a pod's or controller's UID, a node's name or a budget's key.

    It is "" where there is but one of a kind.
    """

    kind: Kind
    key: str


@dataclass(slots=True)
class _Planned:
    at_ns: int
    action: Action
    idle: bool
    cancelled: bool = False


class Timeline:
    """Actions ordered by (time in ns, order of planning)."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, _Planned]] = []
        self._coming: dict[tuple[Kind, str], _Planned] = {}
        self._count = 0
        self._idle = 0

    def __len__(self) -> int:
        return len(self._coming)

    @property
    def is_idle(self) -> bool:
        """Tell whether nothing is planned that a run must go on for."""
        return self._idle == len(self._coming)

    def plan(self, at_ns: int, kind: Kind, key: str, *, idle: bool = False) -> None:
        """Plan an action at `at_ns`, in place of one of the same kind and key.

        An idle action is one that would change nothing as things stand: a run does not go on for
        its sake.
        """
        action = Action(kind, key)
        known = self._coming.get(action)
        if known is not None:
            if known.at_ns == at_ns:
                self._idle += idle - known.idle
                known.idle = idle
                return
            self._cancel(known)
        planned = self._coming[action] = _Planned(at_ns, action, idle)
        self._idle += idle
        self._count += 1
        heapq.heappush(self._heap, (at_ns, self._count, planned))
        if len(self._heap) > _SPARSE * (len(self._coming) + _SPARE):
            self._heap = [each for each in self._heap if not each[2].cancelled]
            heapq.heapify(self._heap)

    def plan_earlier(self, at_ns: int, kind: Kind, key: str) -> None:
        """Plan an action at `at_ns`, unless one of the same kind and key comes before that."""
        planned_ns = self.planned_ns(kind, key)
        if planned_ns is None or at_ns < planned_ns:
            self.plan(at_ns, kind, key)

    def cancel(self, kind: Kind, key: str) -> None:
        """Take an action out; one that is not planned is accepted."""
        planned = self._coming.pop((kind, key), None)
        if planned is not None:
            self._cancel(planned)

    def _cancel(self, planned: _Planned) -> None:
        planned.cancelled = True
        self._idle -= planned.idle

    def cancel_pod(self, uid: str) -> None:
        """Take out all that is planned for a pod."""
        for kind in POD_KINDS:
            self.cancel(kind, uid)

    def planned_ns(self, kind: Kind, key: str) -> int | None:
        """Return when an action is due, None where it is not planned."""
        planned = self._coming.get((kind, key))
        return None if planned is None else planned.at_ns

    def next_ns(self) -> int | None:
        """Return when the next action is due, None where nothing is planned."""
        while self._heap and self._heap[0][2].cancelled:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def ahead(self) -> Iterator[tuple[int, Action]]:
        """Yield what is to come, in order, with its time; nothing may be planned meanwhile."""
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
        """Remove and return what is due at `now_ns`, in order."""
        due: list[Action] = []
        while self._heap and self._heap[0][0] <= now_ns:
            planned = heapq.heappop(self._heap)[2]
            if not planned.cancelled:
                action = planned.action
                del self._coming[action]
                self._idle -= planned.idle
                due.append(action)
        return due
