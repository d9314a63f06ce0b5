"""A scheduler that reports false figures changes none of the run's: the world measures.

The decisions are those of our scheduler; a server between the two falsifies, in every answer, each
figure that a scheduler may report of itself or of the cluster, or leaves it out.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from replay.backends.processes import EmbeddedServices
from replay.results.run.directory import RunDirectory
from replay.results.schema import WALL_FIGURES
from replay.results.tables.query import RunTables
from replay.whatif.facts import all_figures, read_facts
from reprieve.scheduler.v1beta1 import scheduler_pb2, scheduler_service_pb2
from tests.e2e.commands import reprieve
from tests.e2e.test_budgets import node, pod, preemptors, web, write_list
from tests.e2e.test_wrong_answers import between

Lie = Callable[[scheduler_pb2.RoundOutcomes], None]
FIGURES = """
SELECT name, priority, scheduled_ns, node_name, waited_ns, attempts, nominations, ending,
    preempted_by, preempted_ns FROM pods ORDER BY name
"""
VICTIMS = """
SELECT at_ns, name, priority, node_name, by_name, by_priority, violates_budget FROM preemptions
ORDER BY sequence
"""


def trace(folder: Path) -> Path:
    """Write a cluster in which preemption first keeps within a budget and then violates it.

    A pod with a scheduling gate waits, and one fits nowhere.
    """
    gated = pod("gated", 1000)
    gated["spec"]["schedulingGates"] = [{"name": "wait"}]
    vast = pod("vast", 5)
    vast["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "64"
    free = [node("free"), pod("small", 1)]
    return write_list(folder, *web(3, {"maxUnavailable": 1}), *free, *preemptors(3), gated, vast)


def leave_out(outcomes: scheduler_pb2.RoundOutcomes) -> None:
    """Leave out all that a scheduler may leave out."""
    for name in ("phases", "queue_exchanges"):
        outcomes.ClearField(name)
    for outcome in outcomes.outcomes:
        for name in ("first_enqueued_time_ns", "queued_time_ns", "phases", "warnings", "requeue"):
            outcome.ClearField(name)  # type: ignore[arg-type] # a field
        if outcome.HasField("bind"):
            outcome.bind.CopyFrom(scheduler_pb2.Bind(node_name=outcome.bind.node_name))
        elif outcome.unschedulable.HasField("preemption"):
            preemption = outcome.unschedulable.preemption
            for name in ("budget_violations", "decided_by", "candidates", "reprieved"):
                preemption.ClearField(name)  # type: ignore[arg-type] # a field
            for victim in preemption.victims:
                uid = victim.pod.uid
                victim.Clear()
                victim.pod.uid = uid


def falsify(outcomes: scheduler_pb2.RoundOutcomes) -> None:
    """Report other values than are true."""
    for outcome in outcomes.outcomes:
        if outcome.HasField("refusals"):
            refusals = outcome.refusals
            pods = len(refusals.uids)
            for column in (refusals.first_enqueued_time_ns, refusals.queued_time_ns):
                column[:] = [0] * pods
            refusals.attempts[:] = [77] * pods
            if not refusals.requeues:
                refusals.requeues.add(event="Nothing")
            refusals.requeue_numbers[:] = [1] * pods
            continue
        outcome.first_enqueued_time_ns, outcome.queued_time_ns, outcome.attempts = 0, 0, 77
        if outcome.HasField("bind"):
            bind = outcome.bind
            bind.feasible_nodes, bind.tied_nodes, bind.evaluated_nodes, bind.score = 9, 8, 7, 6
        elif outcome.unschedulable.HasField("preemption"):
            preemption = outcome.unschedulable.preemption
            preemption.budget_violations, preemption.candidates = 41, 42
            preemption.decided_by = scheduler_pb2.PREEMPTION_CRITERION_TIE
            for victim in preemption.victims:
                victim.violates_budget, victim.priority = not victim.violates_budget, 12345
                victim.pod.namespace, victim.pod.name = "elsewhere", "nobody"


def measured(run: RunDirectory) -> dict[str, Any]:
    """Return all figures of a run, its summary, and what its tables say of pods and victims."""
    summary = run.summary()
    for name in (*WALL_FIGURES, "run", "services"):
        summary.pop(name, None)
    nominated = [
        [victim.name for victim in decision.observed.nominated.victims]
        for decision in run.decisions()
        if decision.observed.HasField("nominated")
    ]
    with RunTables(run) as tables:
        rows = [list(tables.select(sql).rows()) for sql in (FIGURES, VICTIMS)]
    return {
        "figures": all_figures(read_facts(run)),
        "summary": summary,
        "rows": rows,
        "nominated": nominated,
    }


@pytest.mark.e2e
def test_no_figure_of_a_run_follows_what_its_scheduler_reports(
    services: EmbeddedServices, tmp_path: Path
) -> None:
    """Of three victims in web, whose budget allows one disruption, two violate it."""
    path, answer = trace(tmp_path), scheduler_service_pb2.RunRoundResponse
    figures: dict[str, dict[str, Any]] = {}
    lies: dict[str, Lie] = {"honest": lambda _: None, "silent": leave_out, "false": falsify}
    with between(services.addresses["scheduler"], "StreamingRunRound", answer) as proxy:
        for name, lie in lies.items():

            def spoil(message: Any, lie: Lie = lie) -> bool:
                for outcomes in message.rounds:
                    lie(outcomes)
                return False

            proxy.begin(spoil)
            options = ("--scheduler", proxy.address, "--no-eviction", "--in-process", "-q")
            reprieve(tmp_path, "replay", str(path), "--run", name, *options)
            figures[name] = measured(RunDirectory.open(tmp_path / name))
    honest = figures.pop("honest")
    assert honest["figures"]["preempted"] == 3
    assert honest["figures"]["against_budget"] == 2
    assert honest["summary"]["decided"]["budget_violations"] == 2
    assert figures == {"silent": honest, "false": honest}
