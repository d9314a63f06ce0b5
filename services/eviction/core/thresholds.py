"""Eviction thresholds, and the amounts at which the kernel notifies of them.

Two rules hold throughout. A threshold is met where strictly less is available than its value. A
percentage is a 32-bit float of the observed capacity, as upstream computes it: 10 % of 100Gi is
10737418400 bytes.

A kubelet with kernelMemcgNotification takes a step of its own when memory crosses a threshold,
besides those of its loop. The amounts follow from the capacity that a step observed, and are set
again once they are older than REFRESH_NS.

Source: kubernetes v1.32 pkg/kubelet/eviction/api/types.go (Threshold, ThresholdValue,
GetThresholdQuantity), helpers.go (thresholdsMet, byEvictionPriority), eviction_manager.go (Start,
synchronize) and memory_threshold_notifier.go (UpdateThreshold).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from services.eviction.core.observations import Observation
from services.eviction.core.signals import Signal
from services.kube.quantity import NANO, Format, Quantity, format_duration


@dataclass(frozen=True, slots=True, kw_only=True)
class ThresholdValue:
    """An amount (bytes, inodes, pids), or a share of the capacity where `quantity` is None.

    `percentage` is a share (0.1 for "10%") that a 32-bit float holds exactly.
    """

    quantity: Quantity | None = None
    percentage: float = 0.0

    def amount(self, capacity: int) -> Quantity:
        """Return the value for that capacity; a share prints with binary suffixes."""
        if self.quantity is not None:
            return self.quantity
        # "nan%" is accepted, and never met: Go converts it to the lowest integer, or to 0.
        share = 0.0 if math.isnan(self.percentage) else self.percentage
        return Quantity.from_value(int(float(capacity) * share), Format.BINARY_SI)

    def __str__(self) -> str:
        """Print "1Gi", or "12.5%": the shortest number that reads back as the same share."""
        if self.quantity is not None:
            return str(self.quantity)
        if math.isnan(self.percentage):
            return "NaN%"
        candidates = (float(f"{self.percentage * 100:.{digits}g}") for digits in range(1, 10))
        shortest = next(each for each in candidates if percent_share(each) == self.percentage)
        return f"{shortest:.9g}%"


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """A value below which a signal leads to eviction; with `grace_ns` 0 it is hard.

    `min_reclaim` is how much more than the value must be available, once the grace period has
    elapsed, before the threshold counts as resolved.
    """

    signal: Signal
    value: ThresholdValue
    grace_ns: int = 0
    min_reclaim: ThresholdValue | None = None

    @property
    def is_hard(self) -> bool:
        """Whether the threshold has no grace period; a soft one of "0s" is hard, too."""
        return self.grace_ns == 0

    def is_met(self, observed: Observation, *, with_min_reclaim: bool) -> bool:
        """Return whether strictly less is available than the value (plus the minimum reclaim)."""
        needed_nano = self.value.amount(observed.capacity).nano
        if with_min_reclaim and self.min_reclaim is not None:
            needed_nano += self.min_reclaim.amount(observed.capacity).nano
        return observed.available * NANO < needed_nano

    def __str__(self) -> str:
        """Print all parts: "memory.available<1Gi grace=1m30s min_reclaim=5%"."""
        reclaim = "" if self.min_reclaim is None else str(self.min_reclaim)
        grace = format_duration(self.grace_ns)
        return f"{self.signal.value}<{self.value} grace={grace} min_reclaim={reclaim}"


def percent_share(percent: float) -> float:
    """Return `percent`/100 in 32-bit arithmetic, as upstream's parsePercentage computes it.

    Raises OverflowError where a 32-bit float cannot hold it.
    """
    return _float32(_float32(percent) / 100)


def met(
    thresholds: Iterable[Threshold],
    observations: Mapping[Signal, Observation],
    *,
    with_min_reclaim: bool,
) -> tuple[Threshold, ...]:
    """Return the thresholds that are met, before grace periods; unobserved signals are not."""
    return tuple(
        each
        for each in thresholds
        if each.signal in observations
        and each.is_met(observations[each.signal], with_min_reclaim=with_min_reclaim)
    )


def by_eviction_priority(thresholds: Iterable[Threshold]) -> tuple[Threshold, ...]:
    """Return the thresholds in the order of reclaim: memory first, else as configured.

    Upstream's order within the two groups is that of a Go map.
    """
    return tuple(sorted(thresholds, key=lambda each: not each.signal.is_memory))


def _float32(number: float) -> float:
    return float(struct.unpack("<f", struct.pack("<f", number))[0])


REFRESH_NS = 10 * 1_000_000_000
"""Upstream waits for more than 10 s, which its loop of 10 s and a bit always is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notifications:
    """The notifications set at `updated_ns`, None before the first time.

    `amounts` are pairs of a signal and an available amount in bytes: the kernel notifies when what
    is available falls to that amount, and when it rises above it again.
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
    """Return the notifications after a step at `now_ns`.

    A signal that the step did not observe keeps its amounts.
    """
    if before.updated_ns is not None and now_ns - before.updated_ns < REFRESH_NS:
        return before
    kept = [each for each in before.amounts if each[0] not in observations]
    observed = [
        (each.signal, each.value.amount(observations[each.signal].capacity).value())
        for each in thresholds
        if each.signal.is_memory and each.signal in observations
    ]
    return Notifications(updated_ns=now_ns, amounts=tuple(dict.fromkeys([*observed, *kept])))
