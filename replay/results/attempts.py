"""Attempts as schedulers tell them, each in an outcome of its own or several refusals in one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from reprieve.scheduler.v1beta1 import scheduler_pb2

CYCLE = "schedulingCycle"

Steps = Mapping[str, Sequence[int]]
"""By the steps' names, what each took on the wall clock, ns: an entry for each pod."""


def steps_of(outcomes: scheduler_pb2.RoundOutcomes) -> Steps:
    """Return the steps of all cycles that `outcomes` tell, without those not measured."""
    found: dict[str, list[int]] = {}
    for outcome in outcomes.outcomes:
        if outcome.HasField("refusals"):
            found.setdefault(CYCLE, []).extend(outcome.refusals.wall_ns)
            for step in outcome.refusals.steps:
                found.setdefault(step.name, []).extend(step.wall_ns)
        else:
            for phase in outcome.phases:
                found.setdefault(phase.name, []).append(phase.wall_ns)
    return found


def one_by_one(outcomes: scheduler_pb2.RoundOutcomes) -> Iterator[scheduler_pb2.Outcome]:
    """Yield the outcome of each attempt; refusals told together have no names of pods."""
    for outcome in outcomes.outcomes:
        if outcome.HasField("refusals"):
            yield from _refusals(outcome.at_ns, outcome.refusals)
        else:
            yield outcome


def _refusals(at_ns: int, refusals: scheduler_pb2.Refusals) -> Iterator[scheduler_pb2.Outcome]:
    for number, uid in enumerate(refusals.uids):
        verdict = refusals.verdicts[refusals.refused_by[number]]
        one = scheduler_pb2.Outcome(
            at_ns=at_ns,
            attempts=refusals.attempts[number],
            first_enqueued_ns=refusals.first_enqueued_ns[number],
            queued_ns=refusals.queued_ns[number],
            unschedulable=verdict,
        )
        one.pop.uid = uid
        one.pop.cycle = refusals.first_cycle + number
        yield one


def pods_of(outcomes: scheduler_pb2.RoundOutcomes) -> int:
    """Return how many attempts `outcomes` tell."""
    return sum(
        len(each.refusals.uids) if each.HasField("refusals") else 1 for each in outcomes.outcomes
    )
