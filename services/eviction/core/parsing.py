"""Thresholds from a kubelet's eviction settings, parsed and checked.

Statements are read in the order of their signals' names, so that thresholds have one order and the
first of several errors is always the same; upstream iterates over Go maps here.

Source: kubernetes v1.32 pkg/kubelet/eviction/helpers.go, ParseThresholdConfig and what it calls;
pkg/kubelet/kubelet.go (NewMainKubelet, which refuses to start where that fails).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from services.eviction.core.signals import Signal
from services.eviction.core.thresholds import Threshold, ThresholdValue, percent_share
from services.kube.kubelet import EvictionConfig, Statements
from services.kube.quantity import DurationError, Quantity, QuantityError, parse, parse_duration_ns


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
    for each in soft:
        if each.signal not in graces:
            raise ConfigError(
                f"soft_grace[{each.signal.value}]",
                "grace period must be specified for the soft eviction threshold "
                f"{each.signal.value}",
            )
    graced = [replace(each, grace_ns=graces[each.signal]) for each in soft]
    thresholds = [replace(each, min_reclaim=reclaims.get(each.signal)) for each in (*hard, *graced)]
    if _NODE_ALLOCATABLE_KEY in config.enforce_node_allocatable:
        thresholds += _allocatable(thresholds)
    return tuple(thresholds)


def _allocatable(thresholds: list[Threshold]) -> list[Threshold]:
    return [
        replace(each, signal=Signal.ALLOCATABLE_MEMORY_AVAILABLE)
        for each in thresholds
        if each.signal is Signal.MEMORY_AVAILABLE and each.is_hard
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
    found = []
    for field, signal, text in _statements(setting, statements, supported):
        # Upstream ignores a threshold of 0% and of 100%.
        if text in _IGNORED_PERCENTAGES:
            continue
        value = _share(field, signal, text) if text.endswith("%") else _amount(field, signal, text)
        found.append(Threshold(signal=signal, value=value))
    return found


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
                field,
                f"invalid eviction grace period specified: {text}, must be a positive value",
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
