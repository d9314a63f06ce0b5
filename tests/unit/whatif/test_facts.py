"""What is read of a run for figures."""

from __future__ import annotations

from pathlib import Path

import pytest

from replay.results.run.directory import RunDirectory
from replay.results.run.manifest import Manifest
from replay.whatif.facts import all_figures, read_facts
from reprieve.kube.v1beta1 import node_pb2, pod_pb2
from reprieve.scheduler.v1beta1 import scheduler_pb2
from reprieve.trace.v1beta1 import trace_pb2
from services.kube.time import SECOND_NS
from tests.builders import make_node
from tests.unit.results import messages

NODE = "worker"


def run_of(
    path: Path,
    *rounds: scheduler_pb2.Round,
    decisions: tuple[trace_pb2.Decision, ...] = (),
    ended: tuple[str, int] | None = None,
) -> RunDirectory:
    """Leave a run of these rounds and decisions; `ended` is why and after how many seconds."""
    directory = RunDirectory.create(path)
    manifest = Manifest(version="0", seed=0, rules="v1.34", traces=())
    if ended is not None:
        manifest = manifest.ended(ended[0], end_ns=messages.START_NS + ended[1] * SECOND_NS)
    directory.write_manifest(manifest)
    history = directory.round_log()
    for round_ in rounds:
        history.write(round_)
    history.close()
    log = directory.decision_log()
    for sequence, decision in enumerate(decisions, 1):
        decision.sequence = sequence
        log.write(decision)
    log.close()
    return directory


def node(cpu: str) -> node_pb2.Node:
    """Return the node."""
    return make_node(NODE).capacity(cpu=cpu, pods=10).message()


def held(name: str, cpu: str, of_the_pod: str = "", sidecar: str = "") -> pod_pb2.Pod:
    """Return a pod on the node."""
    made = messages.pod_message(name, node_name=NODE, phase="Running")
    made.spec.containers[0].resources.requests["cpu"] = cpu
    if of_the_pod:
        made.spec.resources.requests["cpu"] = of_the_pod
    if sidecar:
        added = made.spec.init_containers.add(name="i", restart_policy="Always")
        added.resources.requests["cpu"] = sidecar
    return made


@pytest.mark.parametrize(
    ("pod", "share"),
    [
        (held("p", "1"), 12.5),
        (held("p", "1", of_the_pod="4"), 50.0),
        (held("p", "1", sidecar="1"), 25.0),
    ],
)
def test_what_is_allocated_is_what_the_scheduler_counts(
    tmp_path: Path, pod: pod_pb2.Pod, share: float
) -> None:
    """Requests of the pod as a whole stand for its containers'."""
    round_ = messages.round_of(messages.added(node("8")), messages.added(pod))
    figures = all_figures(read_facts(run_of(tmp_path / "run", round_)))
    assert figures["allocated{resource=cpu}"] == share
    assert figures["allocated{resource=pods}"] == 10.0
