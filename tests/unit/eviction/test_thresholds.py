"""When a threshold is met."""

from __future__ import annotations

import pytest

from services.eviction.core.observations import Observation
from services.eviction.core.signals import Signal
from services.eviction.core.thresholds import (
    Threshold,
    ThresholdValue,
    by_eviction_priority,
    percent_share,
)
from services.kube.quantity import parse

GI = 1 << 30


def _threshold(signal: Signal = Signal.MEMORY_AVAILABLE, value: str = "1Gi") -> Threshold:
    return Threshold(signal=signal, value=ThresholdValue(quantity=parse(value)))


def test_exactly_the_value_available_does_not_meet_a_threshold() -> None:
    """Met is strictly less."""
    threshold = _threshold()
    assert not threshold.is_met(Observation(available=GI, capacity=8 * GI), with_min_reclaim=False)
    assert threshold.is_met(Observation(available=GI - 1, capacity=8 * GI), with_min_reclaim=False)


def test_a_percentage_is_a_32_bit_share_of_the_capacity() -> None:
    """10 % of 100Gi is 160 bytes more than a tenth, since 0.1 is no 32-bit float."""
    value = ThresholdValue(percentage=percent_share(10))
    assert str(value.amount(100 * GI)) == "10737418400"
    assert value.amount(100 * GI).value() == 10737418400


@pytest.mark.parametrize("percent", ["10%", "12.5%", "1.5%", "33.3%", "99%", "0.001%"])
def test_a_percentage_prints_as_it_was_written(percent: str) -> None:
    """The shortest number that is the same 32-bit share."""
    assert str(ThresholdValue(percentage=percent_share(float(percent[:-1])))) == percent


def test_minimum_reclaim_raises_the_amount_that_must_be_available() -> None:
    """It adds to the value, in amounts or shares of the capacity."""
    threshold = Threshold(
        signal=Signal.MEMORY_AVAILABLE,
        value=ThresholdValue(quantity=parse("1Gi")),
        min_reclaim=ThresholdValue(percentage=percent_share(50)),
    )
    seen = Observation(available=2 * GI, capacity=8 * GI)
    assert not threshold.is_met(seen, with_min_reclaim=False)
    assert threshold.is_met(seen, with_min_reclaim=True)


def test_memory_is_reclaimed_first_and_the_rest_keeps_its_order() -> None:
    """Hard thresholds have no precedence over soft ones, nor disks over pids."""
    pids = _threshold(Signal.PID_AVAILABLE, "100")
    nodefs = _threshold(Signal.NODEFS_AVAILABLE)
    allocatable = _threshold(Signal.ALLOCATABLE_MEMORY_AVAILABLE)
    assert by_eviction_priority([pids, nodefs, allocatable]) == (allocatable, pids, nodefs)
