"""The recorder: it sees all of a run, writes it down and counts it; nothing comes back into the run.

It stands at the edge, so it reads the wall clock: how long a round took is measured here.
"""

from __future__ import annotations

from dataclasses import asdict
from time import perf_counter_ns
from typing import Any

from replay.results.run_directory import RunDirectory
from replay.results.tally import Tally
from reprieve.scheduler.v1alpha1 import scheduler_pb2
from reprieve.trace.v1alpha1 import trace_pb2

RUN_ROUND = "runRound"
"""The step that lasts from a round's telling to its outcomes, gRPC and all."""


class Recorder:
    """Observes a replay (its Observer), takes its decisions (its Sink) and keeps the `tally`."""

    def __init__(self, run: RunDirectory) -> None:
        self.tally = Tally()
        self._run = run
        self._decision_log = run.decision_log()
        self._round_log = run.round_log()
        self._began_ns = self._told_ns = perf_counter_ns()
        self.wall_ns = 0

    def round_told(self, round_: scheduler_pb2.Round) -> None:
        """Write down a round and count what has happened."""
        self._round_log.write(round_)
        self.tally.told(round_)
        for event in round_.events:
            match event.WhichOneof("event"):
                case "add":
                    if event.add.HasField("pod"):
                        pod = event.add.pod
                        self.tally.pod_added(
                            pod.metadata.uid, pod.spec.priority, has_node=bool(pod.spec.node_name)
                        )
                case "delete":
                    self.tally.pod_gone(event.delete.uid)
        self._told_ns = perf_counter_ns()

    def outcomes(self, round_: scheduler_pb2.Round, outcomes: scheduler_pb2.RoundOutcomes) -> None:
        """Count what the scheduler answered."""
        taken_ns = perf_counter_ns() - self._told_ns
        self.tally.step(RUN_ROUND, taken_ns, len(outcomes.outcomes))
        self.tally.outcomes(outcomes)
        for outcome in outcomes.outcomes:
            self.tally.outcome(outcome)

    def decided(self, decision: trace_pb2.Decision) -> None:
        """Write down a decision and count it."""
        self._decision_log.write(decision)
        self.tally.decided(decision)

    def close(self) -> None:
        """End the files. `wall_ns` is from the recorder's making to here."""
        self.wall_ns = perf_counter_ns() - self._began_ns
        self._decision_log.close()
        self._round_log.close()
        self._run.write_latencies(self._latencies())

    def _latencies(self) -> dict[str, Any]:
        steps = {
            name: {"pods": step.pods, **asdict(step.wall.quantiles())}
            for name, step in sorted(self.tally.steps.items())
        }
        return {"wall_ns": self.wall_ns, "steps": steps}
