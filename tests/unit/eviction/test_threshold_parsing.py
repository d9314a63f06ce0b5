"""Thresholds as a kubelet's configuration writes them."""

from __future__ import annotations

import pytest

from services.eviction.core.manager import Manager
from services.eviction.core.observations import Observation
from services.eviction.core.thresholds import ConfigError
from services.kube.kubelet import EvictionConfig, Mode


def _texts(config: EvictionConfig) -> list[str]:
    return [str(threshold) for threshold in Manager(config).thresholds]


def test_hard_soft_and_reclaim_become_thresholds_in_that_order() -> None:
    """A minimum reclaim goes to every threshold of its signal."""
    config = EvictionConfig(
        hard={"pid.available": "1000", "memory.available": "1Gi"},
        soft={"memory.available": "25%"},
        soft_grace={"memory.available": "1m30s"},
        min_reclaim={"memory.available": "500Mi"},
    )
    assert _texts(config) == [
        "memory.available<1Gi grace=0s min_reclaim=500Mi",
        "pid.available<1k grace=0s min_reclaim=",
        "memory.available<25% grace=1m30s min_reclaim=500Mi",
    ]


def test_only_hard_memory_is_copied_to_allocatable_memory() -> None:
    """Enforcing the limit of all pods adds a threshold; a soft grace of 0 s counts as hard."""
    config = EvictionConfig(
        soft={"memory.available": "2Gi"},
        soft_grace={"memory.available": "1m"},
        hard={"memory.available": "12.5%", "nodefs.available": "10%"},
        enforce_node_allocatable=("pods",),
    )
    assert [text for text in _texts(config) if text.startswith("allocatable")] == [
        "allocatableMemory.available<12.5% grace=0s min_reclaim="
    ]


@pytest.mark.parametrize("text", ["0%", "100%"])
def test_either_end_of_the_scale_switches_a_threshold_off(text: str) -> None:
    """Upstream drops both silently."""
    assert _texts(EvictionConfig(hard={"memory.available": text})) == []


def test_a_share_that_is_not_a_number_is_accepted_and_never_met() -> None:
    """As upstream's reading of numbers has it; neither a threshold nor what to reclaim."""
    config = EvictionConfig(
        hard={"memory.available": "nan%"}, min_reclaim={"memory.available": "NaN%"}
    )
    (threshold,) = Manager(config).thresholds
    assert str(threshold) == "memory.available<NaN% grace=0s min_reclaim=NaN%"
    seen = Observation(available=0, capacity=1 << 40)
    assert not threshold.is_met(seen, with_min_reclaim=True)


@pytest.mark.parametrize(
    ("config", "field", "message"),
    [
        (
            EvictionConfig(hard={"memory.available": "+Infinity%"}),
            "hard[memory.available]",
            "eviction percentage threshold memory.available must be <= 100%: +Infinity%",
        ),
        (
            EvictionConfig(hard={"memory.available": "-inf%"}),
            "hard[memory.available]",
            "eviction percentage threshold memory.available must be >= 0%: -inf%",
        ),
        (
            EvictionConfig(hard={"memory": "1Gi"}),
            "hard[memory]",
            "unsupported eviction signal memory",
        ),
        (
            EvictionConfig(hard={"containerfs.available": "1Gi"}, mode=Mode.V1_27),
            "hard[containerfs.available]",
            "unsupported eviction signal containerfs.available",
        ),
        (
            EvictionConfig(hard={"memory.available": "101%"}),
            "hard[memory.available]",
            "eviction percentage threshold memory.available must be <= 100%: 101%",
        ),
        (
            EvictionConfig(hard={"memory.available": "-1%"}),
            "hard[memory.available]",
            "eviction percentage threshold memory.available must be >= 0%: -1%",
        ),
        (
            EvictionConfig(hard={"memory.available": "x%"}),
            "hard[memory.available]",
            'strconv.ParseFloat: parsing "x": invalid syntax',
        ),
        (
            EvictionConfig(hard={"memory.available": "1e60%"}),
            "hard[memory.available]",
            'strconv.ParseFloat: parsing "1e60": value out of range',
        ),
        (
            EvictionConfig(hard={"memory.available": "1GG"}),
            "hard[memory.available]",
            "unable to parse quantity's suffix",
        ),
        (
            EvictionConfig(soft={"memory.available": "1Gi"}),
            "soft_grace[memory.available]",
            "grace period must be specified for the soft eviction threshold memory.available",
        ),
        (
            EvictionConfig(min_reclaim={"pid.available": "-5"}),
            "min_reclaim[pid.available]",
            "negative eviction minimum reclaim specified for pid.available",
        ),
    ],
)
def test_a_refused_setting_is_named_with_upstreams_text(
    config: EvictionConfig, field: str, message: str
) -> None:
    """The text is the kubelet's, the field its path."""
    with pytest.raises(ConfigError) as refused:
        Manager(config)
    assert (refused.value.field, str(refused.value)) == (field, message)
