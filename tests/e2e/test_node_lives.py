"""Manifests whose nodes are drained, fail and go, replayed through the real services."""

from __future__ import annotations

from pathlib import Path

import pytest

from replay.backends.processes import EmbeddedServices
from replay.importers.registry import open_trace
from replay.runner import FinishedReplay
from reprieve.kube.v1beta1 import meta_pb2
from reprieve.trace.v1beta1 import trace_pb2
from services.kube.time import SECOND_NS
from tests.e2e.replays import run

S = SECOND_NS
CLUSTER = """
apiVersion: v1
kind: Node
metadata: {name: a, annotations: {%s}}
status:
  allocatable: {cpu: "2", memory: 4Gi, pods: "10"}
---
apiVersion: v1
kind: Node
metadata: {name: b}
status:
  allocatable: {cpu: "2", memory: 4Gi, pods: "10"}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web}
spec:
  minAvailable: 3
  selector: {matchLabels: {app: web}}
---
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: web}
spec:
  replicas: 4
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 2
      containers:
      - {name: c, image: web, resources: {requests: {cpu: 250m}}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: sums}
spec:
  completions: 3
  template:
    metadata:
      annotations: {reprieve/service-time: 20s}
    spec:
      restartPolicy: Never
      containers:
      - {name: c, image: sums, resources: {requests: {cpu: 250m}}}
"""


def play(
    here: EmbeddedServices, folder: Path, annotation: str, *more: trace_pb2.Record
) -> FinishedReplay:
    """Replay the cluster, its node "a" annotated."""
    path = folder / "cluster.yaml"
    path.write_text(CLUSTER % annotation, encoding="utf-8")
    records = list(open_trace([path]))
    for number, record in enumerate(more, start=1):
        record.sequence = records[-1].sequence + number
    return run(here, [*records, *more], folder / "run")


def removed(finished: FinishedReplay) -> list[tuple[int, str]]:
    """Return when (s) and why each pod of the ReplicaSet was removed."""
    return [
        (entry.time_ns // S, entry.observed.removed.cause)
        for entry in finished.run.decisions()
        if entry.observed.HasField("removed") and entry.observed.object.name.startswith("web-")
    ]


def on(finished: FinishedReplay, node: str) -> list[str]:
    """Return the names of the pods that are active on a node at the end."""
    pods = finished.replay.cluster.active_by_node.get(node, {}).values()
    return sorted(pod.message.metadata.name for pod in pods)


@pytest.mark.e2e
def test_a_drained_node_empties_as_fast_as_the_budget_allows(
    here: EmbeddedServices, tmp_path: Path
) -> None:
    """One pod every five seconds; replacements go to the other node."""
    finished = play(here, tmp_path, "reprieve/drain-at: 10s")
    drained = [at_s for at_s, cause in removed(finished) if cause == "drained"]
    assert drained
    assert len(set(drained)) == len(drained)
    assert all((at_s - 12) % 5 == 0 for at_s in drained)
    assert on(finished, "a") == []
    assert len([name for name in on(finished, "b") if name.startswith("web-")]) == 4


@pytest.mark.e2e
def test_the_pods_of_a_node_that_fails_are_replaced_after_their_toleration(
    here: EmbeddedServices, tmp_path: Path
) -> None:
    """Silent from 10 s on, Unknown at 60 s, tainted at 65 s; 300 s are tolerated.

    They themselves terminate for as long as the node is silent.
    """
    finished = play(here, tmp_path, "reprieve/fail-at: 10s")
    pods = finished.replay.cluster.pods.values()
    assert [pod.is_terminating for pod in pods if pod.node_name == "a" and not pod.is_terminal]
    alive = [name for name in on(finished, "b") if name.startswith("web-")]
    assert len(alive) == 4
    made = [
        entry.time_ns // S
        for entry in finished.run.decisions()
        if entry.observed.HasField("created")
    ]
    assert 365 in made


@pytest.mark.e2e
def test_the_pods_of_a_node_that_goes_are_replaced_a_minute_later(
    here: EmbeddedServices, tmp_path: Path
) -> None:
    """The scheduler knows them on a node that is not there until then."""
    node = meta_pb2.ObjectReference(kind="Node", name="a")
    gone = trace_pb2.Record(time_ns=30 * S, delete=trace_pb2.Delete(object=node))
    finished = play(here, tmp_path, "", gone)
    lost = {at_s for at_s, cause in removed(finished) if cause == "node-lost"}
    assert lost == {90}
    assert len([name for name in on(finished, "b") if name.startswith("web-")]) == 4


@pytest.mark.e2e
def test_a_job_runs_to_its_end_one_pod_after_the_other(
    here: EmbeddedServices, tmp_path: Path
) -> None:
    """Three completions of 20 s each."""
    finished = play(here, tmp_path, "")
    ended = [
        entry.time_ns // S
        for entry in finished.run.decisions()
        if entry.observed.HasField("finished") and entry.observed.finished.phase == "Succeeded"
    ]
    assert ended == [20, 40, 60]
