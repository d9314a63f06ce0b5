"""What pods use by somebody's word: read, and as a curve."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replay.world.kubelet.annotations import Growth, GrowthCurve, UsageRule, parse_growth
from replay.world.kubelet.usage_curves import (
    HORIZON_NS,
    NodeUsage,
    UsageLimits,
    look_again_ns,
    next_change_ns,
)
from services.kube.selector import LabelSelector, Operator, Requirement
from tests.unit.world.builders import S, make_pod

MIB = 1 << 20
MINUTE = 60 * S


@pytest.mark.parametrize(
    ("text", "growth"),
    [
        ("200Mi", Growth(start_bytes=200 * MIB)),
        ("0", Growth(start_bytes=0)),
        ("+50Mi/m", Growth(more_bytes=50 * MIB, period_ns=MINUTE)),
        (
            "1.5G+1k/1h30m",
            Growth(start_bytes=1_500_000_000, more_bytes=1000, period_ns=90 * MINUTE),
        ),
        ("1Gi+1Mi/s", Growth(start_bytes=1024 * MIB, more_bytes=MIB, period_ns=S)),
    ],
)
def test_usage_is_an_amount_a_growth_or_both(text: str, growth: Growth) -> None:
    """The period is a unit of time, or so many of them."""
    assert parse_growth(text) == growth


@pytest.mark.parametrize(
    "text", ["", "+", "50Mi/m", "+50Mi", "-50Mi/m", "200Mi +50Mi/m", "+50Xi/m", "+50Mi/x", "+1/0s"]
)
def test_what_is_not_a_usage_is_refused(text: str) -> None:
    """With what could be written."""
    with pytest.raises(ValueError, match=r"is no|is not a"):
        parse_growth(text)


def test_usage_grows_every_ten_seconds_until_the_node_has_no_more() -> None:
    """As often as a kubelet looks."""
    curve = GrowthCurve(growth=parse_growth("100Mi+60Mi/m"), most_bytes=125 * MIB)
    assert [curve.used(at_s * S) // MIB for at_s in (-1, 0, 9, 10, 29, 30, 99)] == [
        0,
        100,
        100,
        110,
        120,
        125,
        125,
    ]
    assert [curve.next_change_ns(at_s * S) for at_s in (-1, 0, 29, 30)] == [0, 10 * S, 30 * S, None]


amounts = st.integers(0, 500)


@given(
    growth=st.builds(
        Growth,
        start_bytes=st.none() | amounts,
        more_bytes=amounts,
        period_ns=st.integers(1, 200).map(lambda seconds: seconds * S),
    ),
    most_bytes=amounts,
    offset_s=st.integers(-50, 300),
    length_s=st.integers(0, 300),
)
def test_all_methods_of_a_curve_agree(
    growth: Growth, most_bytes: int, offset_s: int, length_s: int
) -> None:
    """Changes and the most that is used follow from what is used at each second."""
    curve = GrowthCurve(growth=growth, most_bytes=most_bytes)
    seconds = range(offset_s, offset_s + length_s + 1)
    used = {second: curve.used(second * S) for second in (offset_s, *seconds)}
    assert curve.most(offset_s * S, seconds[-1] * S) == max(used.values()) <= most_bytes
    offsets, steps = curve.changes(offset_s * S, seconds[-1] * S)
    changed = dict(zip((offsets // S).tolist(), steps.tolist(), strict=True))
    for before, second in pairwise(seconds):
        assert used[second] - used[before] == changed.get(second, 0)
        if used[second] != used[before]:
            assert curve.next_change_ns(before * S) == second * S
    end_ns = 10**6 * S
    assert (curve.next_change_ns(end_ns) is None) or curve.used(end_ns) < most_bytes


def test_a_slow_growth_is_found_in_a_few_looks() -> None:
    """1 MiB a day comes to 100 MiB on day 100, to within 10 s."""
    sources = NodeUsage()
    curve = GrowthCurve(growth=parse_growth("+1Mi/d"), most_bytes=1024 * MIB)
    sources.memory.append((0, curve))
    bounds, now_ns, looks = UsageLimits(memory=100 * MIB), 0, 0
    while curve.used(now_ns) <= 100 * MIB:
        at_ns = look_again_ns(sources, now_ns, bounds)
        assert at_ns is not None
        assert at_ns > now_ns
        now_ns, looks = at_ns, looks + 1
    day_100 = 100 * 24 * 60 * MINUTE
    assert day_100 < now_ns <= day_100 + 10 * S
    assert looks < 24
    assert now_ns > HORIZON_NS
    assert look_again_ns(sources, 0, UsageLimits(memory=1024 * MIB)) is None
    assert next_change_ns(sources, 0) == 10 * S


def test_a_rule_means_pods_by_their_labels_or_one_by_its_name() -> None:
    """In its namespace."""
    growth = parse_growth("1Gi")
    labels = LabelSelector(
        requirements=(Requirement(key="app", operator=Operator.IN, values=("web",)),)
    )
    by_label = UsageRule(resource="memory", growth=growth, selector=labels)
    by_name = UsageRule(resource="memory", growth=growth, namespace="default", name="a")
    web, other = make_pod("a"), make_pod("a")
    web.metadata.labels["app"] = "web"
    other.metadata.namespace = "other"
    assert [by_label.matches(pod) for pod in (web, other)] == [True, False]
    assert [by_name.matches(pod) for pod in (web, other)] == [True, False]
