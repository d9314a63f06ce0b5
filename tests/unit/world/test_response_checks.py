"""An answer without a required field is refused by the field's path, whichever it is."""

from __future__ import annotations

from typing import Any

import pytest

from replay.world.response_checks import ContractError, check_outcomes, check_results
from reprieve.eviction.v1beta1 import eviction_service_pb2
from reprieve.scheduler.v1beta1 import scheduler_pb2
from tests.required_fields import incomplete


class Everything:
    """All pods and nodes are there."""

    def has_pod(self, uid: str) -> bool:
        """Return True."""
        return bool(uid)

    def has_node(self, name: str) -> bool:
        """Return True."""
        return bool(name)

    def guarding_budget(self, uid: str) -> str:
        """Return no budget."""
        assert uid
        return ""


def refused_field(outcomes: Any) -> str:
    """Return the field for which outcomes are refused."""
    with pytest.raises(ContractError) as caught:
        check_outcomes(outcomes, 1, Everything())
    assert caught.value.problem == "is required"
    return caught.value.field


def test_every_required_field_of_outcomes() -> None:
    """Those of outcomes of each kind among them."""
    cases: list[tuple[str, Any]] = list(incomplete(scheduler_pb2.RoundOutcomes.DESCRIPTOR))
    for _, outcomes in cases:
        for outcome in outcomes.outcomes:
            make_valid(outcome)
    assert [refused_field(outcomes) for _, outcomes in cases] == [path for path, _ in cases]
    assert {"outcomes[0].bind.node_name", "phases[0].name"} <= {path for path, _ in cases}


def make_valid(outcome: scheduler_pb2.Outcome) -> None:
    """Set what is required under a condition, and the numbers."""
    outcome.time_ns = outcome.attempts = 1
    if outcome.WhichOneof("decision") is None:
        outcome.bind.node_name = "n"
    if not outcome.HasField("refusals"):
        if not outcome.HasField("pop"):
            outcome.pop.uid = "x"
        outcome.pop.cycle = 1


@pytest.mark.parametrize(
    ("field", "requeues", "numbers"),
    [
        ("refusals.requeues[0].time_ns", [{"event": "NodeAdd", "time_ns": 2}], [1]),
        ("refusals.requeues[0].active_time_ns", [{"event": "NodeAdd", "active_time_ns": 2}], [1]),
        (
            "refusals.requeues[0].active_time_ns",
            [{"event": "NodeAdd", "time_ns": 1, "active_time_ns": 0}],
            [1],
        ),
        ("refusals.requeue_numbers[0]", [{"event": "NodeAdd"}], [2]),
        ("refusals.requeue_numbers", [{"event": "NodeAdd"}], [1, 1]),
        ("", [{"event": "NodeAdd", "time_ns": 1, "active_time_ns": 1}], [1]),
        ("", [{"event": "NodeAdd"}], []),
    ],
)
def test_what_moved_a_refused_pod_was_before_the_round(
    field: str, requeues: list[dict[str, Any]], numbers: list[int]
) -> None:
    """And each pod's number is one of the list, or 0."""
    outcomes = scheduler_pb2.RoundOutcomes()
    refusals = outcomes.outcomes.add(time_ns=1).refusals
    refusals.verdicts.add(message="no")
    refusals.uids.append("x")
    refusals.first_cycle = 1
    for column in (refusals.attempts, refusals.first_enqueued_time_ns, refusals.queued_time_ns):
        column.append(1)
    refusals.verdict_indexes.append(0)
    refusals.wall_duration_ns.append(0)
    for requeue in requeues:
        refusals.requeues.add(**requeue)
    refusals.requeue_numbers.extend(numbers)
    if not field:
        check_outcomes(outcomes, 1, Everything())
        return
    with pytest.raises(ContractError) as caught:
        check_outcomes(outcomes, 1, Everything())
    assert caught.value.field == f"outcomes[0].{field}"


def test_a_preemption_may_need_no_victims() -> None:
    """By v1.16's rules, on a node that an extender had refused."""
    outcomes = scheduler_pb2.RoundOutcomes()
    outcome = outcomes.outcomes.add(time_ns=1, attempts=1)
    outcome.pop.uid, outcome.pop.cycle = "x", 1
    outcome.unschedulable.preemption.node_name = "n"
    check_outcomes(outcomes, 1, Everything())


def test_a_missing_field_is_reported_with_its_pod() -> None:
    """If the answer has that."""
    outcomes = scheduler_pb2.RoundOutcomes()
    for uid in ("uid-a", "uid-b"):
        outcome = outcomes.outcomes.add(time_ns=1, attempts=1)
        outcome.pop.uid, outcome.pop.cycle = uid, 1
        outcome.bind.node_name = "n" if uid == "uid-a" else ""
    with pytest.raises(ContractError) as caught:
        check_outcomes(outcomes, 1, Everything())
    error = caught.value
    assert (error.field, error.pod_uid) == ("outcomes[1].bind.node_name", "uid-b")


def test_every_required_field_of_results() -> None:
    """By the operation's place."""
    operation = eviction_service_pb2.Operation()
    operation.step.node_name = "n"
    for path, result in incomplete(eviction_service_pb2.OperationResult.DESCRIPTOR):
        with pytest.raises(ContractError) as caught:
            check_results([result], [operation])  # type: ignore[list-item] # a result's descriptor
        assert (caught.value.field, caught.value.problem) == (f"results[0].{path}", "is required")
