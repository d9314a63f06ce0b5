"""Which pod holds which GPUs of its node, and how much of each is free.

The columns are the scheduler's (`Columns.owned`), one a device; who holds what is kept beside them,
once for each snapshot, since all profiles share it.
"""

from __future__ import annotations

from collections.abc import Sequence
from weakref import WeakKeyDictionary

import numpy as np

from reprieve_gpu_sharing.asked import COUNT, WHOLE_MILLI
from services.scheduler.core.plugin_api import Int64s, NodeView, Snapshot

DEVICES_MAX = 8
"""GPUs of a node that are looked at."""

USED = tuple(f"gpuSharing/used/{device}" for device in range(DEVICES_MAX))
ABSENT = -1
"""What is free of a device that the node does not have."""

_SHARED: WeakKeyDictionary[Snapshot, Devices] = WeakKeyDictionary()


class Held:
    """What one pod holds: thousandths of each of some devices of a row."""

    __slots__ = ("devices", "milli", "row")

    def __init__(self, row: int, devices: Sequence[int], milli: int) -> None:
        self.row = row
        self.devices = tuple(devices)
        self.milli = milli


class Devices:
    """The devices of a snapshot's nodes; `held` is by pod UID."""

    def __init__(self) -> None:
        self.held: dict[str, Held] = {}
        self._left: tuple[str, Held] | None = None

    @staticmethod
    def of(snapshot: Snapshot) -> Devices:
        """Return the devices that all plugins of a snapshot share."""
        found = _SHARED.get(snapshot)
        if found is None:
            found = _SHARED[snapshot] = Devices()
        return found

    def take(self, uid: str, held: Held, snapshot: Snapshot) -> None:
        """Give a pod its devices."""
        self.held[uid] = held
        for device in held.devices:
            snapshot.columns.owned(USED[device])[held.row] += held.milli
        snapshot.touch(held.row)

    def give_back(self, uid: str, snapshot: Snapshot) -> None:
        """Take a pod's devices back; a second time does nothing."""
        held = self.held.pop(uid, None)
        if held is None:
            return
        self._left = (uid, held)
        for device in held.devices:
            snapshot.columns.owned(USED[device])[held.row] -= held.milli
        snapshot.touch(held.row)

    def left(self, uid: str, row: int) -> Held | None:
        """Return what the pod held that gave its devices back last, if it was this one, here.

        A pod on a node that is changed goes and comes again.
        """
        if self._left is None or self._left[0] != uid or self._left[1].row != row:
            return None
        return self._left[1]


def free_milli(snapshot: Snapshot, rows: Int64s) -> Int64s:
    """Return what is free of each device, int64[rows, DEVICES_MAX]; ABSENT where there is none."""
    columns = snapshot.columns
    count = columns.allocatable[rows, columns.resource(COUNT)]
    free = np.empty((len(rows), DEVICES_MAX), dtype=np.int64)
    for device, name in enumerate(USED):
        free[:, device] = WHOLE_MILLI - columns.owned(name)[rows]
    free[np.arange(DEVICES_MAX) >= count[:, None]] = ABSENT
    return free


def free_in_view(view: NodeView) -> list[int]:
    """Return what is free of each device of one node, as it stands in a dry run."""
    column = view.snapshot.columns.resource(COUNT)
    count = view.allocatable[column] if column < len(view.allocatable) else 0
    return [
        WHOLE_MILLI - view.owned(name) if device < count else ABSENT
        for device, name in enumerate(USED)
    ]
