"""The fleet's columns against the manager's own test, threshold by threshold."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from services.eviction.core.columns import observation_columns, threshold_columns
from services.eviction.core.observations import Observation
from services.eviction.core.signals import Signal
from services.eviction.core.thresholds import Threshold, ThresholdValue, met, percent_share
from services.kube.quantity import parse

AMOUNTS = st.integers(min_value=0, max_value=1 << 45)
VALUES = st.one_of(
    AMOUNTS.map(lambda amount: ThresholdValue(quantity=parse(str(amount + 1)))),
    AMOUNTS.map(lambda amount: ThresholdValue(quantity=parse(f"{amount}.5"))),
    st.floats(min_value=0.01, max_value=99.9).map(
        lambda percent: ThresholdValue(percentage=percent_share(percent))
    ),
)
THRESHOLDS = st.lists(
    st.builds(Threshold, signal=st.sampled_from(Signal), value=VALUES), max_size=6
)
OBSERVATIONS = st.dictionaries(
    st.sampled_from(Signal),
    st.builds(Observation, available=st.integers(-5, 1 << 45), capacity=AMOUNTS),
)


@settings(max_examples=200, deadline=None)
@given(thresholds=THRESHOLDS, nodes=st.lists(OBSERVATIONS, min_size=1, max_size=5))
def test_columns_meet_a_threshold_exactly_where_the_manager_does(
    thresholds: list[Threshold], nodes: list[dict[Signal, Observation]]
) -> None:
    """Fractions, shares and unobserved signals included."""
    expected = [bool(met(thresholds, node, with_min_reclaim=False)) for node in nodes]
    columns = threshold_columns(thresholds)
    assert columns.any_met(observation_columns(nodes)).tolist() == expected
