"""Disruption budgets in preemption: each attempt reads the status after all deletions before it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from replay.backends.processes import EmbeddedServices
from replay.backends.services import SchedulerService
from replay.generate.workload import GenerateOptions, generate
from replay.importers.registry import open_trace
from replay.runner import FinishedReplay
from replay.world.loop.replay import Limits, Replay
from replay.world.models import Models, with_values
from reprieve.kube.v1beta1 import pod_pb2, policy_pb2
from reprieve.scheduler.v1beta1 import scheduler_pb2
from reprieve.trace.v1beta1.trace_pb2 import Record
from services.kube.time import SECOND_NS
from services.kube.workloads import PodDisruptionBudget
from services.rpc.kube.codec import budget_from_message
from tests.e2e.replays import run

TAKEN = "2026-03-02T09:30:00Z"
STARTED = "2026-03-02T08:00:00Z"


def node(name: str) -> dict[str, Any]:
    """Return a ready node with room for one pod of 1500m."""
    room = {"cpu": "2", "memory": "8Gi", "pods": "110"}
    condition = {"type": "Ready", "status": "True", "lastHeartbeatTime": TAKEN}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {"capacity": room, "allocatable": room, "conditions": [condition]},
    }


def pod(name: str, priority: int, on: str = "", owner: str = "") -> dict[str, Any]:
    """Return a pod of 1500m that runs and is ready `on` a node, or is pending."""
    meta: dict[str, Any] = {
        "name": name,
        "namespace": "shop",
        "uid": f"uid-{name}",
        "labels": {"app": owner or name},
        "creationTimestamp": STARTED,
    }
    if owner:
        meta["ownerReferences"] = [
            {
                "apiVersion": "apps/v1",
                "kind": "ReplicaSet",
                "name": owner,
                "uid": f"uid-{owner}",
                "controller": True,
            }
        ]
    requests = {"cpu": "1500m", "memory": "1Gi"}
    spec: dict[str, Any] = {
        "priority": priority,
        "containers": [{"name": "c", "image": "x", "resources": {"requests": requests}}],
    }
    if not on:
        return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
    ready = [{"type": kind, "status": "True"} for kind in ("Ready", "PodScheduled")]
    status = {"phase": "Running", "startTime": STARTED, "conditions": ready}
    spec["nodeName"] = on
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": status}


def web(replicas: int, budget: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a ReplicaSet with a pod on each of the nodes web-1, web-2, ... and its budget."""
    template = pod("web", 0)
    replica_set = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": "web", "namespace": "shop", "uid": "uid-web"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": template["spec"]},
        },
    }
    guard = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, **budget},
    }
    names = [f"web-{number + 1}" for number in range(replicas)]
    pods = [pod(name, 0, on=name, owner="web") for name in names]
    return [*map(node, names), replica_set, guard, *pods]


def preempted(finished: FinishedReplay) -> list[tuple[str, bool]]:
    """Return the victims in order, each with whether it violated its budget."""
    return [
        (decision.observed.object.name, decision.observed.preempted.violates_budget)
        for decision in finished.run.decisions()
        if decision.observed.HasField("preempted")
    ]


def write_list(folder: Path, *objects: dict[str, Any]) -> Path:
    """Write objects as kubectl prints a List in YAML."""
    path, listed = folder / "cluster.yaml", {"apiVersion": "v1", "kind": "List"}
    path.write_text(yaml.dump(listed | {"items": [*objects]}, Dumper=yaml.CSafeDumper))
    return path


def preemptors(count: int = 4) -> list[dict[str, Any]]:
    """Return pods of high priority that wait together, of which each needs a node."""
    return [pod(f"urgent-{number}", 1000) for number in range(count)]


@pytest.mark.parametrize("batch_size", [1, 2, 256])
def test_preemptors_of_one_instant_spare_a_budget_that_the_first_has_used_up(
    here: EmbeddedServices, tmp_path: Path, batch_size: int
) -> None:
    """Of four, one takes a web pod, which maxUnavailable 1 allows; then web costs a violation.

    Four pods of `batch` have a higher priority than web's and no budget. At first web is the better
    victim: no candidate violates a budget, and its priority is lower. Once one web pod terminates,
    3 of 4 are healthy and 3 are desired: any other web pod violates, and batch does not.
    """
    others = [f"batch-{number}" for number in range(1, 5)]
    batch = [obj for name in others for obj in (node(name), pod(name, 5, on=name))]
    path = write_list(tmp_path, *web(4, {"maxUnavailable": 1}), *batch, *preemptors())
    records = open_trace([path])
    finished = run(here, records, tmp_path / "run", batch_size=batch_size)
    victims = preempted(finished)
    assert [violates for _, violates in victims] == [False] * 4
    assert sum(name.startswith("web") for name, _ in victims) == 1
    assert sum(name.startswith("batch") for name, _ in victims) == 3


@pytest.mark.parametrize("batch_size", [1, 256])
@pytest.mark.parametrize(
    ("budget", "allowed"),
    [
        ({"maxUnavailable": 1}, 1),
        ({"maxUnavailable": "50%"}, 2),
        ({"minAvailable": 1}, 3),
        ({"minAvailable": "100%"}, 0),
    ],
)
def test_violations_are_those_of_the_status_at_the_decision(
    here: EmbeddedServices, tmp_path: Path, budget: dict[str, Any], allowed: int, batch_size: int
) -> None:
    """Where only web can make room, so many are within its budget, and the rest violate it."""
    path = write_list(tmp_path, *web(4, budget), *preemptors())
    finished = run(here, open_trace([path]), tmp_path / "run", batch_size=batch_size)
    violations = [violates for _, violates in preempted(finished)]
    assert violations == [False] * allowed + [True] * (4 - allowed)


def test_a_budget_of_an_instant_with_many_preemptors_does_not_count_as_a_loop(
    here: EmbeddedServices, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More preemptors than the rounds that an instant may have without progress."""
    monkeypatch.setattr("replay.world.loop.replay.ROUNDS_MAX", 50)
    count = 55
    path = write_list(tmp_path, *web(count, {"maxUnavailable": "100%"}), *preemptors(count))
    finished = run(here, open_trace([path]), tmp_path / "run")
    assert len(preempted(finished)) == count


def test_a_late_controller_lets_a_budget_be_exceeded_with_a_note(
    here: EmbeddedServices, tmp_path: Path
) -> None:
    """With a delay of 1 s all four read the status of the beginning: one allowed disruption.

    Three of them violate it: the status of that moment would allow no further one.
    """
    path = write_list(tmp_path, *web(4, {"maxUnavailable": 1}), *preemptors())
    late = with_values(Models(), ["budget-delay=1s"])
    finished = run(here, open_trace([path]), tmp_path / "run", models=late)
    assert [violates for _, violates in preempted(finished)] == [False, True, True, True]
    notes = [note for note in finished.run.summary()["notes"] if note["kind"] == "budget-delay"]
    assert len(notes) == 1
    assert "budget shop/web: more pods were disrupted than it allows" in notes[0]["text"]
    current = run(here, open_trace([path]), tmp_path / "current")
    assert not [n for n in current.run.summary()["notes"] if n["kind"] == "budget-delay"]


class BudgetCheck:
    """Keeps the cluster as the scheduler received it, and checks each preemption by it.

    `preemptions` counts those of guarded pods, `violations` the victims that violate a budget.
    """

    def __init__(self) -> None:
        self._pods: dict[str, pod_pb2.Pod] = {}
        self._budgets: dict[str, policy_pb2.PodDisruptionBudget] = {}
        self._selectors: dict[str, PodDisruptionBudget] = {}
        self.preemptions = self.violations = 0

    def round_sent(self, round_: scheduler_pb2.Round) -> None:
        """Follow the events, as a list of pods and one of budgets."""
        for event in round_.events:
            put = event.add if event.HasField("add") else event.update
            if put.HasField("pod"):
                self._pods[put.pod.metadata.uid] = put.pod
            elif put.HasField("pod_disruption_budget"):
                budget = put.pod_disruption_budget
                self._budgets[budget.metadata.name] = budget
                self._selectors[budget.metadata.name] = budget_from_message(budget)
            elif event.HasField("patch"):
                patch, patched = event.patch, self._pods[event.patch.pod.uid]
                patched.status.CopyFrom(patch.status)
                patched.spec.node_name = patch.node_name or patched.spec.node_name
                if patch.HasField("deletion_time_ns"):
                    patched.metadata.deletion_timestamp.SetInParent()
            elif event.remove.kind == "Pod":
                del self._pods[event.remove.uid]

    def outcomes(self, _round: scheduler_pb2.Round, outcomes: scheduler_pb2.RoundOutcomes) -> None:
        """Check the preemptions of a round."""
        for outcome in outcomes.outcomes:
            if outcome.HasField("bind"):
                self._pods[outcome.pop.uid].spec.node_name = outcome.bind.node_name
            elif outcome.unschedulable.HasField("preemption"):
                self._check(self._pods[outcome.pop.uid], outcome.unschedulable.preemption)

    def _check(self, preemptor: pod_pb2.Pod, preemption: scheduler_pb2.Preemption) -> None:
        guards = {uid: self._guards(pod) for uid, pod in self._pods.items()}
        allowed = {name: self._allowed(budget, guards) for name, budget in self._budgets.items()}
        for name, budget in self._budgets.items():
            assert budget.status.disruptions_allowed == allowed[name], name
        lower = [
            pod
            for pod in self._pods.values()
            if pod.spec.node_name == preemption.node_name
            and pod.spec.priority < preemptor.spec.priority
            and pod.status.phase not in ("Succeeded", "Failed")
        ]
        flags = {victim.pod.uid: 2 * victim.violates_budget for victim in preemption.victims}
        # Any order of equally important pods is upstream's: take the one that the answer needs.
        lower.sort(key=lambda pod: (_importance(pod), flags.get(pod.metadata.uid, 1)))
        violating = set()
        for candidate in lower:
            for name in guards[candidate.metadata.uid]:
                allowed[name] -= 1
                if allowed[name] < 0:
                    violating.add(candidate.metadata.uid)
        for victim in preemption.victims:
            assert victim.violates_budget == (victim.pod.uid in violating), victim
            self.preemptions += bool(guards[victim.pod.uid])
            self.violations += victim.violates_budget

    def _guards(self, pod: pod_pb2.Pod) -> list[str]:
        meta = pod.metadata
        labels = dict(meta.labels)
        return [
            name
            for name, selector in self._selectors.items()
            if selector.guards(meta.namespace, labels)
        ]

    def _allowed(
        self, budget: policy_pb2.PodDisruptionBudget, guards: Mapping[str, list[str]]
    ) -> int:
        name, status = budget.metadata.name, budget.status
        healthy = sum(
            any(
                condition.type == "Ready" and condition.status == "True"
                for condition in member.status.conditions
            )
            and not member.metadata.HasField("deletion_timestamp")
            for uid, member in self._pods.items()
            if name in guards[uid]
        )
        return max(0, healthy - status.desired_healthy) if status.expected_pods else 0


def _importance(pod: pod_pb2.Pod) -> tuple[int, int, int]:
    """Return the order of potential victims: by priority, then by start; one without is last."""
    start = pod.status.start_time
    is_new = not pod.status.HasField("start_time")
    return (-pod.spec.priority, is_new, start.seconds * SECOND_NS + start.nanos)


def bursts(seed: int) -> Iterator[Record]:
    """Yield a workload on a full cluster whose pods come together twice a minute."""
    options = GenerateOptions(
        seed=seed,
        nodes=5,
        pods=90,
        deployments=4,
        budgets=12,
        window_ns=120 * SECOND_NS,
        service_ns=90 * SECOND_NS,
    )
    for record in generate(options):
        record.time_ns -= record.time_ns % (30 * SECOND_NS)
        yield record


def checked(services: EmbeddedServices, seed: int, batch_size: int) -> BudgetCheck:
    """Replay a workload, and return its check."""
    config = scheduler_pb2.SchedulerConfig(seed=seed, rules="v1.34", batch_size=batch_size)
    scheduler = SchedulerService(services.addresses["scheduler"], config)
    check = BudgetCheck()
    try:
        replay = Replay(
            scheduler, None, models=Models(), sink=lambda _decision: None, observer=check
        )
        replay.run(bursts(seed), Limits())
    finally:
        scheduler.close()
    return check


@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 2**16), batch_size=st.sampled_from([1, 3, 256]))
def test_every_violation_is_that_of_a_current_status(
    here: EmbeddedServices, seed: int, batch_size: int
) -> None:
    """At pod preemption the status counts the pods as they are, and violations follow from it."""
    checked(here, seed, batch_size)


def test_a_workload_preempts_pods_with_budgets(here: EmbeddedServices) -> None:
    """Two thirds of the workloads violate none; this is one of the others."""
    check = checked(here, seed=3, batch_size=256)
    assert check.preemptions > check.violations > 0
