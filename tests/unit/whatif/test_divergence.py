"""The first decision that differs."""

from __future__ import annotations

from pathlib import Path

from replay.results.run.directory import RunDirectory
from replay.whatif.decisions import sentence_of
from replay.whatif.divergence import first_divergence
from reprieve.kube.v1beta1 import meta_pb2
from reprieve.scheduler.v1beta1 import scheduler_pb2
from reprieve.trace.v1beta1 import trace_pb2


def bound(name: str, node: str, *, at_ns: int = 0, tied: int = 1) -> trace_pb2.Decision:
    """Return the decision that binds a pod, so many ns after the run's beginning."""
    reference = meta_pb2.ObjectReference(kind="Pod", namespace="prod", name=name, uid=f"uid-{name}")
    scheduled = trace_pb2.Scheduled(node_name=node, attempts=1, tied_nodes=tied)
    observed = trace_pb2.Observed(object=reference, scheduled=scheduled)
    return trace_pb2.Decision(time_ns=at_ns, observed=observed)


def run(path: Path, *decisions: trace_pb2.Decision, start_ns: int = 0) -> RunDirectory:
    """Return a run that begins at `start_ns` and decided these."""
    directory = RunDirectory.create(path)
    history = directory.round_log()
    history.write(scheduler_pb2.Round(time_ns=start_ns))
    history.close()
    log = directory.decision_log()
    for decision in decisions:
        decision.time_ns += start_ns
        log.write(decision)
    log.close()
    return directory


def test_runs_that_begin_at_other_times_are_compared_from_their_beginnings(tmp_path: Path) -> None:
    """And ties are not compared."""
    a = run(tmp_path / "a", bound("x", "n1", at_ns=5))
    b = run(tmp_path / "b", bound("x", "n1", at_ns=5, tied=3), start_ns=1000)
    assert first_divergence(a, b) is None


def test_runs_diverge_at_another_node_another_pod_and_another_time(tmp_path: Path) -> None:
    """After the decisions that are the same."""
    a = run(tmp_path / "a", bound("x", "n1"), bound("y", "n1", at_ns=7))
    for number, other in enumerate(
        (bound("y", "n2", at_ns=7), bound("z", "n1", at_ns=7), bound("y", "n1", at_ns=8))
    ):
        divergence = first_divergence(a, run(tmp_path / str(number), bound("x", "n1"), other))
        assert divergence is not None
        assert divergence.same == 1
        assert divergence.b is not None
        assert sentence_of(divergence.b) == sentence_of(other)


def test_a_run_that_ends_early_diverges_at_the_next_decision_of_the_other(tmp_path: Path) -> None:
    """In a sentence that names the pod."""
    a = run(tmp_path / "a", bound("x", "n1"))
    divergence = first_divergence(a, run(tmp_path / "b", bound("x", "n1"), bound("y", "n1")))
    assert divergence is not None
    assert divergence.a is None
    assert divergence.b is not None
    assert sentence_of(divergence.b) == "bound prod/y to n1"
