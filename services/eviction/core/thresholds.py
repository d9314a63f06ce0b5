"""Eviction thresholds: how a kubelet's settings are parsed and checked, and when one is met.

Two rules hold throughout. A threshold is met if strictly less is available than its value. A
percentage is multiplied with the observed capacity as a 32-bit float, as upstream does: 10 % of
100Gi is 10737418400 bytes.

A kubelet with kernelMemcgNotification takes an additional step, outside its loop, when memory
crosses a threshold. The amounts at which the kernel notifies are computed from the capacity that a
step observed, and are updated when they are older than REFRESH_NS.

Source: kubernetes v1.32 pkg/kubelet/eviction/api/types.go (Threshold, ThresholdValue,
GetThresholdQuantity), helpers.go (thresholdsMet, byEvictionPriority), eviction_manager.go (Start,
synchronize) and memory_threshold_notifier.go (UpdateThreshold).

Settings are read in the order of their signals' names, so that the order of thresholds and the
first of several errors are deterministic; upstream iterates over Go maps here.

Source: kubernetes v1.32 pkg/kubelet/eviction/helpers.go, ParseThresholdConfig and what it calls;
pkg/kubelet/kubelet.go (NewMainKubelet, which refuses to start where that fails).
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from services.eviction.core.observations import Observation
from services.eviction.core.signals import Signal
from services.kube.kubelet import EvictionConfig, Statements
from services.kube.quantity import NANO, Format, Quantity, QuantityError, parse, saturated
from services.kube.time import SECOND_NS, DurationError, format_duration, parse_duration_ns

_SHARE_MAX = 2.0**64
"""Limit for a share: it exceeds 64 bits for any capacity, and takes the place of infinity."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThresholdValue:
    """An amount (bytes, inodes, process IDs), or a share of the capacity if `quantity` is None.

    `percentage` is a share (0.1 for "10%") that a 32-bit float holds exactly.
    """

    quantity: Quantity | None = None
    percentage: float = 0.0

    def amount(self, capacity: int) -> Quantity:
        """Return the value for a capacity; a share is printed with binary suffixes."""
        if self.quantity is not None:
            return self.quantity
        # "nan%" is accepted, and never met: Go converts it to the lowest integer, or to 0.
        share = 0.0 if math.isnan(self.percentage) else min(self.percentage, _SHARE_MAX)
        return Quantity.from_value(saturated(int(float(capacity) * share)), Format.BINARY_SI)

    def __str__(self) -> str:
        """Print "1Gi", or "12.5%": the shortest number that parses to the same share."""
        if self.quantity is not None:
            return str(self.quantity)
        if math.isnan(self.percentage):
            return "NaN%"
        candidates = (float(f"{self.percentage * 100:.{digits}g}") for digits in range(1, 10))
        shortest = next(
            candidate for candidate in candidates if percent_share(candidate) == self.percentage
        )
        return f"{shortest:.9g}%"


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """A value below which a signal leads to eviction; a threshold with `grace_ns` 0 is hard.

    After the grace period has elapsed, the threshold counts as resolved only when the value plus
    `min_reclaim` is available.
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

    Raises OverflowError if a 32-bit float cannot hold it.
    """
    return _float32(_float32(percent) / 100)


def met(
    thresholds: Iterable[Threshold],
    observations: Mapping[Signal, Observation],
    *,
    with_min_reclaim: bool,
) -> tuple[Threshold, ...]:
    """Return the thresholds that are met, regardless of grace periods.

    A threshold on a signal without an observation is not met.
    """
    return tuple(
        threshold
        for threshold in thresholds
        if threshold.signal in observations
        and threshold.is_met(observations[threshold.signal], with_min_reclaim=with_min_reclaim)
    )


def by_eviction_priority(thresholds: Iterable[Threshold]) -> tuple[Threshold, ...]:
    """Return the thresholds in the order of reclaim: memory first, then the others as configured.

    Upstream's order within these two groups is a Go map's.
    """
    return tuple(sorted(thresholds, key=lambda threshold: not threshold.signal.is_memory))


def _float32(number: float) -> float:
    return float(struct.unpack("<f", struct.pack("<f", number))[0])


REFRESH_NS = 10 * SECOND_NS
"""Upstream requires more than 10 s; its loop of 10 s always takes slightly longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notifications:
    """The notifications set at `updated_ns`, None before the first time.

    `amounts` has pairs of a signal and an available amount in bytes: the kernel notifies when
    available memory falls to that amount, and when it rises above it again.
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
    kept = [amount for amount in before.amounts if amount[0] not in observations]
    observed = [
        (threshold.signal, threshold.value.amount(observations[threshold.signal].capacity).value())
        for threshold in thresholds
        if threshold.signal.is_memory and threshold.signal in observations
    ]
    return Notifications(updated_ns=now_ns, amounts=tuple(dict.fromkeys([*observed, *kept])))


class ConfigError(ValueError):
    """A configuration that a kubelet refuses; the text is upstream's.

    `field` is the path of the setting, such as `hard[memory.available]`.
    """

    def __init__(self, field: str, text: str) -> None:
        super().__init__(text)
        self.field = field


_NODE_ALLOCATABLE_KEY = "pods"
_IGNORED_PERCENTAGES = frozenset({"0%", "100%"})
_PERCENT_NUMBER = re.compile(
    r"nan|[+-]?(?:\d+\.?\d*(?:e[+-]?\d+)?|\.\d+(?:e[+-]?\d+)?|inf(?:inity)?)", re.IGNORECASE
)
_QUANTITY_FORM = re.compile(r"[+-]?[0-9.]+[eEinumkKMGTP]*[-+]?[0-9]*")
_WRONG_FORM = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)
_WRONG_SUFFIX = "unable to parse quantity's suffix"


def parse_thresholds(config: EvictionConfig, supported: frozenset[Signal]) -> tuple[Threshold, ...]:
    """Return hard, then soft, then allocatable thresholds of the configuration.

    Raises ConfigError for the first setting that is refused.
    """
    hard = _parse_statements("hard", config.hard, supported)
    soft = _parse_statements("soft", config.soft, supported)
    graces = _parse_graces(config.soft_grace, supported)
    reclaims = _parse_min_reclaims(config.min_reclaim, supported)
    for threshold in soft:
        if threshold.signal not in graces:
            raise ConfigError(
                f"soft_grace[{threshold.signal.value}]",
                "grace period must be specified for the soft eviction threshold "
                f"{threshold.signal.value}",
            )
    graced = [replace(threshold, grace_ns=graces[threshold.signal]) for threshold in soft]
    thresholds = [
        replace(threshold, min_reclaim=reclaims.get(threshold.signal))
        for threshold in (*hard, *graced)
    ]
    if _NODE_ALLOCATABLE_KEY in config.enforce_node_allocatable:
        thresholds += _allocatable(thresholds)
    return tuple(thresholds)


def _allocatable(thresholds: list[Threshold]) -> list[Threshold]:
    return [
        replace(threshold, signal=Signal.ALLOCATABLE_MEMORY_AVAILABLE)
        for threshold in thresholds
        if threshold.signal is Signal.MEMORY_AVAILABLE and threshold.is_hard
    ]


def _statements(
    setting: str, statements: Statements, supported: frozenset[Signal]
) -> Iterator[tuple[str, Signal, str]]:
    by_name = {signal.value: signal for signal in supported}
    for name, text in sorted(statements.items()):
        field = f"{setting}[{name}]"
        if name not in by_name:
            raise ConfigError(field, f"unsupported eviction signal {name}")
        yield field, by_name[name], text


def _parse_statements(
    setting: str, statements: Statements, supported: frozenset[Signal]
) -> list[Threshold]:
    thresholds = []
    for field, signal, text in _statements(setting, statements, supported):
        # Upstream ignores thresholds of 0% and 100%.
        if text in _IGNORED_PERCENTAGES:
            continue
        value = _share(field, signal, text) if text.endswith("%") else _amount(field, signal, text)
        thresholds.append(Threshold(signal=signal, value=value))
    return thresholds


def _share(field: str, signal: Signal, text: str) -> ThresholdValue:
    share = _percentage(field, text)
    name = f"eviction percentage threshold {signal.value}"
    if share < 0:
        raise ConfigError(field, f"{name} must be >= 0%: {text}")
    if share > 1:
        raise ConfigError(field, f"{name} must be <= 100%: {text}")
    return ThresholdValue(percentage=share)


def _amount(field: str, signal: Signal, text: str) -> ThresholdValue:
    quantity = _quantity(field, text)
    if quantity.nano <= 0:
        raise ConfigError(field, f"eviction threshold {signal.value} must be positive: {quantity}")
    return ThresholdValue(quantity=quantity)


def _parse_graces(statements: Statements, supported: frozenset[Signal]) -> dict[Signal, int]:
    graces = {}
    for field, signal, text in _statements("soft_grace", statements, supported):
        try:
            graces[signal] = parse_duration_ns(text)
        except DurationError as error:
            raise ConfigError(field, str(error)) from error
        if graces[signal] < 0:
            raise ConfigError(
                field, f"invalid eviction grace period specified: {text}, must be a positive value"
            )
    return graces


def _parse_min_reclaims(
    statements: Statements, supported: frozenset[Signal]
) -> dict[Signal, ThresholdValue]:
    reclaims = {}
    for field, signal, text in _statements("min_reclaim", statements, supported):
        if text.endswith("%"):
            share = _percentage(field, text)
            if share <= 0:
                raise ConfigError(
                    field,
                    f"eviction percentage minimum reclaim {signal.value} must be positive: {text}",
                )
            reclaims[signal] = ThresholdValue(percentage=share)
            continue
        quantity = _quantity(field, text)
        if quantity.nano < 0:
            raise ConfigError(
                field, f"negative eviction minimum reclaim specified for {signal.value}"
            )
        reclaims[signal] = ThresholdValue(quantity=quantity)
    return reclaims


def _percentage(field: str, text: str) -> float:
    number = text.rstrip("%")
    if _PERCENT_NUMBER.fullmatch(number) is None:
        raise ConfigError(field, f'strconv.ParseFloat: parsing "{number}": invalid syntax')
    try:
        return percent_share(float(number))
    except OverflowError as error:
        raise ConfigError(
            field, f'strconv.ParseFloat: parsing "{number}": value out of range'
        ) from error


def _quantity(field: str, text: str) -> Quantity:
    try:
        return parse(text)
    except QuantityError as error:
        form = _QUANTITY_FORM.fullmatch(text)
        raise ConfigError(field, _WRONG_SUFFIX if form else _WRONG_FORM) from error
