"""GpuSharing: a pod fits where enough devices have enough left; Reserve gives it its own.

Args: `select` is how a part of one GPU is placed: "best" (the default), "worst", "random" or
"fragmentation", which needs `workload` (gradient.py).
"""

# ruff: noqa: ARG002 - a plugin's methods have the arguments that they have

from __future__ import annotations

from collections.abc import Hashable, Mapping

import numpy as np

from reprieve_gpu_sharing.asked import Asked, asked
from reprieve_gpu_sharing.choice import SELECTIONS, devices_for
from reprieve_gpu_sharing.devices import DEVICES_MAX, USED, Devices, Held, free_in_view, free_milli
from reprieve_gpu_sharing.gradient import steepest
from reprieve_gpu_sharing.workload import Workload
from services.scheduler.core.plugin_api import (
    Code,
    FilterPlugin,
    Int64s,
    NodeView,
    Plain,
    Pod,
    PodColumnsPlugin,
    PreFiltered,
    ReservePlugin,
    Scope,
    Snapshot,
    StatefulPlugin,
    Status,
)

_FRAGMENTATION = "fragmentation"


class GpuSharing(FilterPlugin[Asked], ReservePlugin, PodColumnsPlugin, StatefulPlugin):
    """Filters by devices, and keeps who holds which."""

    name = "GpuSharing"
    scope = Scope.PODS

    def __init__(self, args: Mapping[str, object]) -> None:
        select = args.get("select", "best")
        if select not in {*SELECTIONS, _FRAGMENTATION}:
            known = ", ".join([*SELECTIONS, _FRAGMENTATION])
            raise ValueError(f"select: {select!r} is none of {known}")
        self._select = str(select)
        self._workload = Workload.of(args) if select == _FRAGMENTATION else None

    def filter_key(self, pod: Pod, snapshot: Snapshot) -> Hashable | None:
        """Return devices and thousandths of each; None for a pod without GPUs."""
        wanted = asked(pod, snapshot)
        return (wanted.gpus, wanted.gpu_milli) if wanted.gpus else None

    def pre_filter(self, pod: Pod, snapshot: Snapshot) -> PreFiltered[Asked]:
        """Read what the pod asks for."""
        return PreFiltered(data=asked(pod, snapshot))

    def filter(self, data: Asked, snapshot: Snapshot, rows: Int64s, codes: Int64s) -> None:
        """Refuse rows with fewer devices that have enough left."""
        changed = np.unique(rows)
        fitting = np.count_nonzero(free_milli(snapshot, changed) >= data.gpu_milli, axis=1)
        codes[changed] = fitting < data.gpus

    def filter_node(self, data: Asked, view: NodeView) -> int:
        """Do the same for one node, which a preemption empties and fills."""
        return int(sum(left >= data.gpu_milli for left in free_in_view(view)) < data.gpus)

    def filter_status(self, data: Asked, code: int) -> Status:
        """Return the only refusal; deleting pods helps."""
        reason = f"node(s) had fewer than {data.gpus} GPU(s) with {data.gpu_milli}m left"
        return Status(code=Code.UNSCHEDULABLE, plugin=self.name, reasons=(reason,))

    def reserve(self, pod: Pod, row: int, snapshot: Snapshot) -> Status | None:
        """Give the pod its devices."""
        wanted = asked(pod, snapshot)
        if not wanted.gpus:
            return None
        chosen = self._chosen(pod, wanted, row, snapshot)
        if chosen is None:
            return self.filter_status(wanted, 1)
        Devices.of(snapshot).take(pod.uid, Held(row, chosen, wanted.gpu_milli), snapshot)
        return None

    def unreserve(self, pod: Pod, row: int, snapshot: Snapshot) -> None:
        """Take them back."""
        Devices.of(snapshot).give_back(pod.uid, snapshot)

    def pod_came(self, pod: Pod, row: int, snapshot: Snapshot) -> None:
        """Give devices to a pod that came bound; one that is assumed gets them in Reserve."""
        wanted = asked(pod, snapshot)
        if not pod.node_name or not wanted.gpus:
            return
        devices = Devices.of(snapshot)
        held = devices.left(pod.uid, row)
        if held is None:
            chosen = self._chosen(pod, wanted, row, snapshot) or range(wanted.gpus)
            held = Held(
                row, [device for device in chosen if device < DEVICES_MAX], wanted.gpu_milli
            )
        devices.take(pod.uid, held, snapshot)

    def pod_went(self, pod: Pod, row: int, snapshot: Snapshot) -> None:
        """Take back what a pod held that went."""
        Devices.of(snapshot).give_back(pod.uid, snapshot)

    def came_to_view(self, pod: Pod, view: NodeView) -> None:
        """Count a pod's devices in a dry run: its own, or those that it would be given."""
        self._count_in_view(pod, view, 1)

    def went_from_view(self, pod: Pod, view: NodeView) -> None:
        """Take them out again."""
        self._count_in_view(pod, view, -1)

    def saved_state(self, snapshot: Snapshot) -> Plain:
        """Return who holds what."""
        return {
            uid: [held.row, held.milli, *held.devices]
            for uid, held in Devices.of(snapshot).held.items()
        }

    def restore_state(self, saved: Plain, snapshot: Snapshot) -> None:
        """Take up who holds what, in place of what followed from the pods alone."""
        if not isinstance(saved, dict):
            raise TypeError("the devices held are no mapping")
        devices = Devices.of(snapshot)
        for uid in list(devices.held):
            devices.give_back(uid, snapshot)
        for uid, numbers in saved.items():
            if not isinstance(numbers, list):
                raise TypeError("a pod's devices are no list")
            row, milli, *held = [int(str(number)) for number in numbers]
            devices.take(uid, Held(row, held, milli), snapshot)

    def _chosen(
        self, pod: Pod, wanted: Asked, row: int, snapshot: Snapshot
    ) -> tuple[int, ...] | None:
        free: list[int] = free_milli(snapshot, np.array([row]))[0].tolist()
        if self._workload is None or not wanted.is_share:
            share = SELECTIONS.get(self._select, SELECTIONS["best"])
            return devices_for(free, wanted, pod.uid, share)
        device = steepest(self._workload, snapshot, row, wanted, is_assumed=not pod.node_name)
        return (device,) if device >= 0 else None

    def _count_in_view(self, pod: Pod, view: NodeView, sign: int) -> None:
        held = Devices.of(view.snapshot).held.get(pod.uid)
        wanted = asked(pod, view.snapshot)
        if held is not None and held.row == view.row:
            chosen: tuple[int, ...] = held.devices
        else:
            found = devices_for(free_in_view(view), wanted, pod.uid, SELECTIONS["best"])
            chosen = found or ()
        for device in chosen:
            view.change_owned(USED[device], sign * wanted.gpu_milli)
