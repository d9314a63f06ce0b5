"""Pods that never came to be fail a check; verdicts agree with kubectl, and live with the files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from replay.backends.processes import EmbeddedServices
from replay.generate.workload import GenerateOptions, generate
from replay.importers.registry import open_trace
from replay.overrides.overrides import Overrides
from replay.results.kubectl.objects import objects_at
from replay.results.run.directory import RunDirectory
from replay.runner import FinishedReplay
from replay.whatif.facts import read_facts
from replay.world.models import Models
from services.kube.time import SECOND_NS
from tests.e2e.commands import reprieve
from tests.e2e.replays import run
from tests.living_cluster import living_cluster, write_list

pytestmark = pytest.mark.e2e

_SHOP = """
apiVersion: v1
kind: Node
metadata: {name: n1}
status:
  allocatable: {cpu: "4", memory: 8Gi, pods: "110"}
  conditions: [{type: Ready, status: "True"}]
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: critical}
value: 1000
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  replicas: 5
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      priorityClassName: critcal
      containers:
      - {name: web, image: web, resources: {requests: {cpu: 100m}}}
---
apiVersion: v1
kind: Pod
metadata: {name: alone, namespace: shop}
spec:
  priorityClassName: critcal
  containers:
  - {name: web, image: web}
"""


def test_a_misspelt_priority_class_fails_the_check_that_nothing_is_pending(tmp_path: Path) -> None:
    """None of the Deployment's five pods exists, nor the one that nothing controls."""
    (tmp_path / "shop.yaml").write_text(_SHOP, encoding="utf-8")
    checks = {
        "pending == 0": "6 pods",
        "refused == 0": "6 pods",
        "unavailable == 0": "5 pods",
        "pending{workload=web,kind=Deployment} == 0": "5 pods",
        "unavailable{namespace=shop,class=critcal} < 5": "5 pods",
        "pending{name=alone} == 0": "1 pod",
    }
    asserts = [text for check in checks for text in ("--assert", check)]
    done = reprieve(tmp_path, "replay", "shop.yaml", "--run", "x", *asserts, code=1)
    failed = [f"failed: {check} (it is {found})" for check, found in checks.items()]
    assert done.stderr.split("Error: ")[1].splitlines() == failed
    rows = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert "refused by admission 6 6 of them not created by the end" in rows
    assert "Deployment shop/web 0 of 5 0 of 5 - at the end" in rows
    repaired = _SHOP.replace("critcal", "critical")
    (tmp_path / "repaired.yaml").write_text(repaired, encoding="utf-8")
    again = [text.replace("critcal", "critical") for text in asserts]
    reprieve(tmp_path, "replay", "repaired.yaml", "--run", "y", "-q", *again)


def test_checks_and_usage_may_name_what_an_override_adds(tmp_path: Path) -> None:
    """The Deployment comes by --apply, with its class."""
    node, _, workloads = _SHOP.replace("critcal", "critical").partition("---")
    (tmp_path / "node.yaml").write_text(node, encoding="utf-8")
    (tmp_path / "web.yaml").write_text(workloads, encoding="utf-8")
    options = ["--apply", "web.yaml", "--usage", "app=web memory 100Mi"]
    checks = ("unavailable{workload=web} == 0", "pending{class=critical,namespace=shop} == 0")
    asserts = [text for check in checks for text in ("--assert", check)]
    done = reprieve(tmp_path, "replay", "node.yaml", "--run", "x", "-q", *options, *asserts)
    assert done.stderr == ""


def _ready(run_: RunDirectory) -> dict[str, tuple[int, int]]:
    """Return desired and ready pods of the workloads with such columns, as kubectl shows them."""
    kinds = ("Deployment", "StatefulSet", "DaemonSet")
    end_ns = run_.manifest().end_ns
    held = objects_at(run_, kinds, end_ns)
    ready_pods = {}
    for (kind, namespace, name), message in held.objects.items():
        if kind not in kinds:
            continue
        status: Any = held.with_status(message, end_ns)
        if kind == "DaemonSet":
            numbers = status.status.desired_number_scheduled, status.status.number_ready
        else:
            numbers = status.spec.replicas, status.status.ready_replicas
        ready_pods[f"{kind} {namespace}/{name}"] = numbers
    return ready_pods


def _agree(finished: FinishedReplay) -> int:
    """Check a run's verdicts; return the number of workloads that were not whole."""
    facts = read_facts(finished.run)
    verdicts = [workload.verdict for workload in facts.workloads.values()]
    kubectl = _ready(finished.run)
    shown = {
        verdict.key: (verdict.desired, verdict.ready)
        for verdict in verdicts
        if verdict.key in kubectl
    }
    assert shown == kubectl
    live = [verdict for verdict in verdicts if not verdict.was_whole]
    assert list(finished.summary.workloads) == live
    assert finished.summary.unavailable == sum(verdict.unavailable for verdict in verdicts)
    pending = sum(pod.pending for pod in facts.pods.values())
    assert finished.summary.unbound.pods == pending
    return len(live)


@pytest.mark.parametrize("dropped", ["worker-2", "worker-2, worker-3", "worker-1, worker-4"])
def test_verdicts_on_a_living_cluster_are_kubectls(
    here: EmbeddedServices, tmp_path: Path, dropped: str
) -> None:
    """At the end; DaemonSets want as many pods fewer as nodes are gone."""
    path = write_list(tmp_path / "list.yaml", living_cluster())
    overrides = Overrides(drop_nodes=f"kubernetes.io/hostname in ({dropped})")
    plan = overrides.plan(lambda: open_trace([path]))
    finished = run(here, plan.records(0), tmp_path / "run")
    _agree(finished)


@pytest.mark.parametrize("seed", [3, 4, 5])
def test_what_is_counted_live_is_what_the_files_say(
    here: EmbeddedServices, tmp_path: Path, seed: int
) -> None:
    """Preempted and evicted pods of Deployments, with budgets, and pods that start late."""
    options = GenerateOptions(
        seed=seed,
        nodes=4,
        pods=200,
        deployments=6,
        budgets=6,
        window_ns=60 * SECOND_NS,
        service_ns=60 * SECOND_NS,
        leaky_percent=20,
    )
    models = Models(start_delay_ns=2 * SECOND_NS)
    assert _agree(run(here, generate(options), tmp_path / "run", models=models))
