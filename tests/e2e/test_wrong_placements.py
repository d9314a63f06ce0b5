"""Schedulers that place pods where they do not fit: what a replay makes of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from replay.backends.processes import EmbeddedServices
from replay.backends.services import SchedulerService
from reprieve.scheduler.v1beta1 import scheduler_pb2
from reprieve.trace.v1beta1 import trace_pb2
from tests import builders
from tests.e2e.commands import reprieve
from tests.e2e.replays import run
from tests.e2e.test_small_schedulers import Small, served
from tests.unit.world.builders import S, create, create_pod

pytestmark = pytest.mark.e2e

NO_FIT = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins: {multiPoint: {disabled: [{name: NodeResourcesFit}]}}
"""
"""A scheduler of ours that does not look at resources."""


def pods_that_come_alone(count: int) -> list[trace_pb2.Record]:
    """Return a node of 4 CPUs and pods of 3, one every 10 s, each of which runs for 35 s."""
    records = [create(builders.make_node("n").capacity(cpu="4").message())]
    for number in range(count):
        pod = builders.make_pod(f"p{number}").uid(f"uid-{number}").req(cpu="3").message()
        records.append(create_pod(pod, service_duration_ns=35 * S))
        records[-1].time_ns = (1 + number) * 10 * S
    for sequence, record in enumerate(records, 1):
        record.sequence = sequence
    return records


def test_a_window_that_a_kubelet_refutes_leads_to_the_run_without_windows(
    here: EmbeddedServices, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rounds that were sent ahead said that the pods run: the run goes back."""
    records = pods_that_come_alone(12)
    whole = run(here, records, tmp_path / "windows", configuration=NO_FIT)
    monkeypatch.setattr(SchedulerService, "takes_windows", False)
    plain = run(here, records, tmp_path / "plain", configuration=NO_FIT)
    ended = [
        (entry.observed.object.name, entry.observed.finished.reason)
        for entry in plain.run.decisions()
        if entry.observed.HasField("finished")
    ]
    assert ended[:4] == [("p1", "OutOfcpu"), ("p2", "OutOfcpu"), ("p3", "OutOfcpu"), ("p0", "")]
    assert list(whole.run.decisions()) == list(plain.run.decisions())


NODES = """
apiVersion: v1
kind: Node
metadata: {name: small}
status: {allocatable: {cpu: "2", memory: 8Gi, pods: "10"}}
---
apiVersion: v1
kind: Node
metadata: {name: large, labels: {disk: ssd}}
spec: {taints: [{key: team, value: a, effect: NoSchedule}]}
status: {allocatable: {cpu: "64", memory: 8Gi, pods: "10"}}
---
"""
UNBOUND = "{name: v, persistentVolumeClaim: {claimName: none}}"
WEB = """
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: web, namespace: default}
spec:
  replicas: 4
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: c, resources: {requests: {cpu: "1"}}}]}
"""


def bare_pod(name: str, spec: str) -> str:
    """Return the manifest of a pod."""
    meta = f"metadata: {{name: {name}, namespace: default}}"
    return f"---\napiVersion: v1\nkind: Pod\n{meta}\nspec: {spec}\n"


def placed_by(
    folder: Path, manifests: str, decide: Callable[[scheduler_pb2.Outcome], None], *options: str
) -> dict[str, Any]:
    """Replay manifests by a scheduler of a few lines; return what the summary says was decided."""
    (folder / "cluster.yaml").write_text(manifests)
    with served(Small(decide)) as address:  # type: ignore[abstract] # gRPC refuses the others
        done = reprieve(folder, "replay", "cluster.yaml", "-o", "json", *address, *options)
    decided: dict[str, Any] = json.loads(done.stdout)["decided"]
    return decided


def to(node_name: str) -> Callable[[scheduler_pb2.Outcome], None]:
    """Return a scheduler's decision that binds every pod to one node."""

    def decide(outcome: scheduler_pb2.Outcome) -> None:
        outcome.bind.node_name = node_name

    return decide


def test_a_scheduler_without_fit_checks_has_invalid_placements(tmp_path: Path) -> None:
    """All pods are bound, and the summary says how many do not fit, and why."""
    decided = placed_by(tmp_path, NODES + WEB, to("small"))
    assert decided["bound"] > 4
    assert decided["invalid_placements"] == decided["bound"] - 2
    (cause,) = decided["invalid_placement_causes"]
    assert cause["name"] == "NodeResourcesFit"
    events = reprieve(tmp_path, "get", "events", "--run", "run", "-o", "json").stdout
    assert "OutOfcpu" in events


def test_without_the_audit_only_what_a_kubelet_rejects_is_found(tmp_path: Path) -> None:
    """A NoSchedule taint does not matter to it."""
    pod = bare_pod("p", "{containers: [{name: c}]}")
    audited = placed_by(tmp_path, NODES + pod, to("large"))
    assert [cause["name"] for cause in audited["invalid_placement_causes"]] == ["TaintToleration"]
    unaudited = placed_by(tmp_path, NODES + pod, to("large"), "--no-audit", "--force")
    assert (unaudited["bound"], unaudited["invalid_placements"]) == (1, 0)
    unfit = placed_by(tmp_path, NODES + WEB, to("small"), "--no-audit", "--force")
    assert [cause["name"] for cause in unfit["invalid_placement_causes"]] == ["OutOfcpu"]


@pytest.mark.parametrize(
    ("spec", "cause"),
    [
        ("{nodeSelector: {disk: hdd}, containers: [{name: c}]}", "NodeAffinity"),
        ("{schedulerName: other, containers: [{name: c}]}", "schedulerName"),
        (f"{{containers: [{{name: c}}], volumes: [{UNBOUND}]}}", "VolumeRestrictions"),
    ],
)
def test_each_broken_rule_has_its_cause(tmp_path: Path, spec: str, cause: str) -> None:
    """The name of the plugin that refuses the node."""
    decided = placed_by(tmp_path, NODES + bare_pod("p", spec), to("small"))
    assert [found["name"] for found in decided["invalid_placement_causes"]] == [cause]


def test_an_assertion_of_no_invalid_placements_fails(tmp_path: Path) -> None:
    """With the figure in its text, and exit code 1."""
    (tmp_path / "cluster.yaml").write_text(NODES + WEB)
    with served(Small(to("small"))) as address:  # type: ignore[abstract] # gRPC refuses the others
        checked = ("--assert", "invalid_placements == 0", *address)
        done = reprieve(tmp_path, "replay", "cluster.yaml", *checked, code=1)
    assert "invalid_placements == 0" in done.stdout + done.stderr
