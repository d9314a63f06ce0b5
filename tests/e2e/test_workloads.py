"""Manifests of every controller, replayed through the real services."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from replay.backends.processes import EmbeddedServices
from replay.importers.records import ImportOptions
from replay.importers.registry import open_trace
from replay.runner import FinishedReplay
from tests.e2e.replays import bindings, run

NODE = """
apiVersion: v1
kind: Node
metadata: {{name: {name}}}
status:
  allocatable: {{cpu: "2", memory: 4Gi, pods: "10"}}
---"""

CLUSTER = """
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: high}
value: 1000
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent}
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec:
      containers:
      - {name: c, image: agent, resources: {requests: {cpu: 100m}}}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  replicas: 2
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec:
      containers:
      - {name: c, image: db, resources: {requests: {cpu: 1500m}}}
---
apiVersion: v1
kind: Pod
metadata: {name: important}
spec:
  priorityClassName: high
  containers:
  - {name: c, image: x, resources: {requests: {cpu: 1500m}}}
"""


def play(here: EmbeddedServices, folder: Path, text: str, *, batch_size: int = 0) -> FinishedReplay:
    """Replay manifests whose workloads come every ten seconds."""
    path = folder / "cluster.yaml"
    path.write_text(text, encoding="utf-8")
    records = open_trace([path], options=ImportOptions(every_ns=10_000_000_000))
    return run(here, records, folder / "run", batch_size=batch_size)


@pytest.mark.e2e
def test_daemon_pods_are_everywhere_and_a_preempted_pod_of_a_set_waits_under_its_name(
    here: EmbeddedServices, tmp_path: Path
) -> None:
    """A Job or a ReplicaSet would have made another pod at once."""
    nodes = "".join(NODE.format(name=name) for name in ("a", "b"))
    finished = play(here, tmp_path, nodes + CLUSTER)
    bound = bindings(finished)
    agents = {bind.node for name, bind in bound.items() if name.startswith("agent-")}
    assert agents == {"a", "b"}
    (victim,) = bound["important"].victims
    pods = {pod.message.metadata.name: pod for pod in finished.replay.cluster.pods.values()}
    assert pods["important"].message.status.phase == "Running"
    assert sorted(name for name in pods if name.startswith("db-")) == ["db-0", "db-1"]
    assert [name for name, pod in pods.items() if pod.queued] == [victim]


@pytest.mark.e2e
def test_the_decisions_of_controllers_are_the_same_in_batches_of_any_size(
    here: EmbeddedServices, tmp_path: Path
) -> None:
    """One pod an exchange, and many."""
    nodes = "".join(NODE.format(name=name) for name in ("a", "b", "c"))
    logs = []
    for size in (1, 1000):
        folder = tmp_path / str(size)
        folder.mkdir()
        finished = play(here, folder, nodes + CLUSTER, batch_size=size)
        logs.append((finished.run.path / "decisions.jsonl").read_bytes())
    assert logs[0] == logs[1]


SPREAD = """
apiVersion: v1
kind: Node
metadata: {name: large, labels: {kubernetes.io/hostname: large}}
status: {allocatable: {cpu: "64", memory: 64Gi, pods: "10"}}
---
apiVersion: v1
kind: Node
metadata: {name: small, labels: {kubernetes.io/hostname: small}}
status: {allocatable: {cpu: "4", memory: 4Gi, pods: "10"}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 4
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - {name: c, image: web, resources: {requests: {cpu: 500m}}}
"""


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("kind", "nodes"),
    [
        ("Deployment", {"large": 2, "small": 2}),
        ("StatefulSet", {"large": 2, "small": 2}),
        ("Job", {"large": 4}),
    ],
)
def test_the_pods_of_a_set_are_spread_by_default(
    here: EmbeddedServices, tmp_path: Path, kind: str, nodes: dict[str, int]
) -> None:
    """PodTopologySpread's own constraints count the pods of the owner; a Job's are not spread."""
    text = SPREAD.replace("Deployment", kind)
    if kind == "Job":
        text = text.replace("apps/v1", "batch/v1").replace("replicas", "parallelism")
        text = text.replace("selector: {matchLabels: {app: web}}", "completions: 4")
        text = text.replace("    spec:\n", "    spec:\n      restartPolicy: Never\n")
    bound = bindings(play(here, tmp_path, text))
    assert Counter(bind.node for bind in bound.values()) == nodes
