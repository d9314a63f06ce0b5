"""How far a free run went the way of the recording."""

from __future__ import annotations

from collections.abc import Iterable

from replay.compare.free_run import (
    BindingMatch,
    FreeRunAgreement,
    PodOverlap,
    RecordedOutcomes,
    has_outcomes,
)
from reprieve.trace.v1beta1.trace_pb2 import Decision, Observed, Record


def _scheduled(name: str, node: str, tied: int = 1) -> Observed:
    observed = Observed()
    observed.object.namespace, observed.object.name = "default", name
    observed.scheduled.node_name, observed.scheduled.tied_nodes = node, tied
    return observed


def _befell(name: str, kind: str) -> Observed:
    observed = Observed()
    observed.object.namespace, observed.object.name = "default", name
    getattr(observed, kind).node_name = "n"
    return observed


def _agreement(
    recorded: Iterable[Observed], run: Iterable[Decision | Observed]
) -> FreeRunAgreement:
    outcomes = RecordedOutcomes()
    records = [Record(observed=entry) for entry in recorded]
    assert list(outcomes.seen(records)) == records
    decisions = [e if isinstance(e, Decision) else Decision(observed=e) for e in run]
    return outcomes.agreement(decisions)


def test_a_binding_is_compared_with_the_recorded_binding_of_its_pod() -> None:
    """A node that was one of several equal ones is distinguished from one that was not."""
    agreement = _agreement(
        [_scheduled("a", "n"), _scheduled("b", "n"), _scheduled("c", "n"), _scheduled("d", "n")],
        [_scheduled("a", "n"), _scheduled("b", "m", tied=2), _scheduled("c", "m")],
    )
    assert agreement.bindings == {
        BindingMatch.SAME: 1,
        BindingMatch.TIED: 1,
        BindingMatch.OTHER: 1,
        BindingMatch.UNBOUND: 1,
    }
    assert agreement.run_only == 0


def test_a_second_binding_is_compared_with_the_second_recorded_one() -> None:
    """A third one is the run's own, and one that was refused is none."""
    refused = Decision(observed=_scheduled("a", "x"), refused="gone")
    agreement = _agreement(
        [_scheduled("a", "n"), _scheduled("a", "m")],
        [refused, _scheduled("a", "n"), _scheduled("a", "m"), _scheduled("a", "n")],
    )
    assert (agreement.bindings[BindingMatch.SAME], agreement.run_only) == (2, 1)


def test_victims_are_those_of_both_of_the_recording_and_of_the_run() -> None:
    """Preempted and evicted pods are distinguished."""
    agreement = _agreement(
        [_befell("a", "preempted"), _befell("b", "preempted"), _befell("c", "evicted")],
        [_befell("a", "preempted"), _befell("d", "preempted")],
    )
    assert agreement.preempted == PodOverlap(both=1, recorded_only=1, run_only=1)
    assert agreement.evicted == PodOverlap(both=0, recorded_only=1, run_only=0)


def test_a_trace_that_observed_only_starts_has_no_outcomes() -> None:
    """It has no decision of a scheduler or a kubelet."""
    assert not has_outcomes([Record(), Record(observed=_befell("a", "started"))])
    assert has_outcomes([Record(), Record(observed=_befell("a", "evicted"))])
