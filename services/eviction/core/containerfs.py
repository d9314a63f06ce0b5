"""Thresholds on containerfs, which are never a user's own.

Writable layers lie on nodefs or on imagefs, so their thresholds are that file system's. What a
user set for containerfs is overwritten in its place, or switched off where the other file
system has no such threshold.

Source: kubernetes v1.32 pkg/kubelet/eviction/helpers.go, UpdateContainerFsThresholds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from services.eviction.core.layout import Layout
from services.eviction.core.signals import Signal
from services.eviction.core.thresholds import Threshold

_SOURCES: dict[str, dict[Signal, Signal]] = {
    "nodefs": {
        Signal.CONTAINERFS_AVAILABLE: Signal.NODEFS_AVAILABLE,
        Signal.CONTAINERFS_INODES_FREE: Signal.NODEFS_INODES_FREE,
    },
    "imagefs": {
        Signal.CONTAINERFS_AVAILABLE: Signal.IMAGEFS_AVAILABLE,
        Signal.CONTAINERFS_INODES_FREE: Signal.IMAGEFS_INODES_FREE,
    },
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ThresholdPhases:
    """Thresholds of a manager over its first steps.

    `first_step` is what the step that detects the file systems watches; `settled` is what that
    step's reclaim and every later step use. They differ since upstream's first step still holds
    the list to which the derived thresholds are appended.
    """

    first_step: tuple[Threshold, ...]
    settled: tuple[Threshold, ...]


def unchanged(thresholds: tuple[Threshold, ...], _layout: Layout) -> ThresholdPhases:
    """Return the thresholds as they are: v1.27 knows no containerfs."""
    return ThresholdPhases(first_step=thresholds, settled=thresholds)


def derived(thresholds: tuple[Threshold, ...], layout: Layout) -> ThresholdPhases:
    """Return the thresholds with containerfs' own taken from the file system it shares."""
    if layout.containerfs_is is None:
        return unchanged(thresholds, layout)
    in_place: list[Threshold | None] = list(thresholds)
    appended: list[Threshold] = []
    for signal, source in _SOURCES[layout.containerfs_is].items():
        for hard in (True, False):
            model = _last(thresholds, source, hard=hard)
            copy = None if model is None else replace(model[1], signal=signal)
            overwritten = _last(thresholds, signal, hard=hard)
            if overwritten is not None:
                in_place[overwritten[0]] = copy
            elif copy is not None:
                appended.append(copy)
    first_step = tuple(each for each in in_place if each is not None)
    return ThresholdPhases(first_step=first_step, settled=(*first_step, *appended))


def _last(
    thresholds: tuple[Threshold, ...], signal: Signal, *, hard: bool
) -> tuple[int, Threshold] | None:
    found = None
    for index, each in enumerate(thresholds):
        if each.signal is signal and each.is_hard is hard:
            found = index, each
    return found
