"""The autoscaler's flags as options."""

from __future__ import annotations

import pytest

from services.autoscaler.core.options import Bounds, Options, OptionsError, from_flags
from services.kube.time import MINUTE_NS


def test_no_flags_are_the_defaults() -> None:
    """Without flags every option has upstream's default."""
    assert from_flags({}) == Options()


def test_a_flag_sets_its_option_also_where_names_differ() -> None:
    """Durations, bounds, truth values and shares are read; a group's defaults are flags, too."""
    options = from_flags(
        {
            "scale-down-unneeded-time": "1m",
            "scale-down-utilization-threshold": "0.7",
            "max-graceful-termination-sec": "10",
            "cores-total": "4:32",
            "memory-total": "1:2",
            "scale-down-unready-enabled": "false",
        }
    )
    assert options.group_defaults.scale_down_unneeded_ns == MINUTE_NS
    assert options.group_defaults.scale_down_utilization_threshold == 0.7
    assert options.max_graceful_termination_s == 10
    assert options.cores_total == Bounds(least=4, most=32)
    assert options.memory_total == Bounds(least=2**30, most=2**31)
    assert options.scale_down_unready_enabled is False


@pytest.mark.parametrize(
    ("flag", "text"),
    [
        ("scale-down-unneeded-time", "10"),
        ("cores-total", "5"),
        ("cores-total", "5:4"),
        ("scale-down-enabled", "yes"),
        ("zero-or-max-node-scaling", "true"),
        ("no-such-flag", "1"),
    ],
)
def test_what_is_no_flag_or_no_value_is_refused_by_name(flag: str, text: str) -> None:
    """The message has the flag."""
    with pytest.raises(OptionsError, match=f"--{flag}"):
        from_flags({flag: text})
