"""What is still to come: a heap of actions under virtual time.

An action is data, not a function, so that a run can be saved: its kind and the key of the object
that it is about. Actions of one moment come in the order in which they were planned, and those
planned while a moment's actions run belong to the next round of that moment.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """What an action does to its object."""

    KUBELET_SEES = "a kubelet sees a pod that was bound to its node"
    START = "a pod's containers run"
    FINISH = "a pod has done its work"
    STOPPED = "a pod's containers have stopped"
    REMOVE = "a pod is removed from the API server"
    STEP = "a node's eviction manager takes its next step"
    USAGE = "what a pod uses changes"


@dataclass(frozen=True, slots=True)
class Action:
    """One planned action; `key` is a pod's UID or a node's name."""

    kind: Kind
    key: str


class Timeline:
    """Actions ordered by (time in ns, order of planning)."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Action]] = []
        self._planned = 0

    def __len__(self) -> int:
        return len(self._heap)

    def plan(self, at_ns: int, kind: Kind, key: str) -> None:
        """Plan an action at `at_ns`."""
        self._planned += 1
        heapq.heappush(self._heap, (at_ns, self._planned, Action(kind, key)))

    def next_ns(self) -> int | None:
        """Return when the next action is due, None where nothing is planned."""
        return self._heap[0][0] if self._heap else None

    def take_due(self, now_ns: int) -> list[Action]:
        """Remove and return what is due at `now_ns`, in order."""
        due: list[Action] = []
        while self._heap and self._heap[0][0] <= now_ns:
            due.append(heapq.heappop(self._heap)[2])
        return due
