"""Memory notifications: at which amounts the kernel is asked to tell the kubelet at once.

A kubelet with kernelMemcgNotification takes a step of its own at the moment when memory crosses a
threshold, beside those of its loop. What is asked for follows from the capacity that a step
observed, and is asked for anew when it is older than REFRESH_NS.

Source: kubernetes v1.32 pkg/kubelet/eviction/eviction_manager.go (Start, synchronize) and
memory_threshold_notifier.go (UpdateThreshold).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from services.eviction.core.observations import Observation
from services.eviction.core.signals import Signal
from services.eviction.core.thresholds import Threshold

REFRESH_NS = 10 * 1_000_000_000
"""Upstream waits for more than 10 s, which its loop of 10 s and a bit always is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notifications:
    """What the kernel was asked at `updated_ns`, None before the first time.

    `amounts` are pairs of a signal and what is available of it, bytes: the kernel tells when the
    signal comes down to that amount or below it, and when it rises above it again.
    """

    updated_ns: int | None = None
    amounts: tuple[tuple[Signal, int], ...] = ()


def refreshed(
    before: Notifications,
    thresholds: Iterable[Threshold],
    observations: Mapping[Signal, Observation],
    *,
    now_ns: int,
) -> Notifications:
    """Return what the kernel is asked after a step at `now_ns`.

    A signal that the step did not observe keeps what was asked before.
    """
    if before.updated_ns is not None and now_ns - before.updated_ns < REFRESH_NS:
        return before
    watched = [each for each in thresholds if each.signal.is_memory]
    unseen = [each for each in before.amounts if each[0] not in observations]
    seen = [
        (each.signal, each.value.amount(observations[each.signal].capacity).value())
        for each in watched
        if each.signal in observations
    ]
    return Notifications(updated_ns=now_ns, amounts=tuple(dict.fromkeys([*seen, *unseen])))
