"""A scheduler that has come to a scenario by detours against what kube-scheduler v1.34.1 said.

Verdicts are cached and follow what changes. So each scenario's cluster is built up in steps, with
nodes and pods that come and go again, and all that is known of the pod is requested in between.
At the end every verdict, and what is decided in a real cycle, must be upstream's. The vectors lie
in the folder `shared` beside the repository.
"""

from __future__ import annotations

from dataclasses import replace

from replay.conform.vectors.scheduling import NOW_NS, Json, differences, round_of
from reprieve.kube.v1beta1 import object_pb2, pod_pb2
from reprieve.scheduler.v1beta1 import scheduler_pb2
from reprieve.scheduler.v1beta1 import scheduler_service_pb2 as service_pb2
from services.framework.runtime.diagnosis import Unschedulable
from services.kube.pod import Pod
from services.rpc.kube.codec import pod_from_message
from services.rpc.kube.json_codec import parse
from services.rpc.kube.spec import PodSpecInterner
from services.scheduler.cluster_events import (
    ClusterChange,
    PutBudget,
    PutNode,
    PutObject,
    PutPod,
    decode_object,
)
from services.scheduler.core.decisions import Binding
from services.scheduler.core.queueing.steps import Head, PopId
from services.scheduler.evaluation import evaluate_pod
from tests.scheduling_vectors import scheduler_of, vectors

FILE = "scheduling.jsonl.gz"
COMPARED = 597
"""All of the 600 but three, whose pending pod has a nodeName, which a session takes for bound."""
STRANGER = "stranger"


class Detour:
    """A scheduler of a scenario's cluster, and the pod that is asked about."""

    def __init__(self, scenario: Json) -> None:
        self.scheduler = scheduler_of(scenario, "v1.20")
        self._interner = PodSpecInterner()
        objects = [event.add for event in round_of(scenario).events]
        held = len(objects) - len(scenario["nominated"])
        self._objects, nominated = objects[:held], objects[held:]
        self.pending = pod_from_message(parse(pod_pb2.Pod, scenario["pending"]), self._interner)
        for nomination in nominated:
            self.scheduler.put_pod(pod_from_message(nomination.pod, self._interner))
        self.scheduler.put_pod(self.pending)

    def build(self) -> None:
        """Put the objects one by one; some leave for a while, and strangers come for a while."""
        for number, message in enumerate(self._objects):
            change = self._decoded(message)
            self._put(change)
            if number % 17 == 3:
                self._visited_by_stranger(change)
            if number % 11 == 2:
                self.ask()

    def ask(self) -> scheduler_pb2.Evaluation:
        """Return every verdict as things stand."""
        request = service_pb2.EvaluatePodRequest()
        request.pod.uid = self.pending.uid
        return evaluate_pod(self.scheduler, request, NOW_NS)

    def _decoded(self, message: object_pb2.KubernetesObject) -> ClusterChange:
        return decode_object(message, self._interner, "object")

    def _put(self, change: ClusterChange) -> None:
        match change:
            case PutPod(pod=pod):
                self.scheduler.put_pod(pod)
            case PutNode(node=node):
                self.scheduler.put_node(node)
            case PutBudget(budget=budget):
                self.scheduler.put_budget(budget)
            case PutObject(value=value):
                self.scheduler.snapshot.catalog.put(value)

    def _visited_by_stranger(self, change: ClusterChange) -> None:
        """Have a copy of a node come and go, or a copy of a pod on another node."""
        if isinstance(change, PutNode):
            self.scheduler.put_node(replace(change.node, name=STRANGER))
            self.ask()
            self.scheduler.remove_node(STRANGER)
        elif isinstance(change, PutPod):
            twin = self._elsewhere(change.pod)
            self.scheduler.put_pod(twin)
            self.ask()
            self.scheduler.remove_pod(twin.uid)

    def _elsewhere(self, pod: Pod) -> Pod:
        snapshot = self.scheduler.snapshot
        last = snapshot.name(snapshot.listed_rows()[-1])
        return replace(pod, uid=STRANGER, name=STRANGER, node_name=last)


def decided(detour: Detour, expected: Json) -> str:
    """Return how a real cycle's decision differs, "" where it does not."""
    pop = PopId(detour.pending.uid, 1)
    head = Head(pop=pop, attempts=1, first_enqueued_ns=0, queued_ns=0)
    verdict = detour.scheduler.decide(head, NOW_NS).verdict
    if isinstance(verdict, Binding):
        return "" if verdict.node_name in expected["hosts"] else f"bound to {verdict.node_name}"
    assert isinstance(verdict, Unschedulable), verdict
    preemption = expected["preemption"]
    picked = verdict.nomination.node if verdict.nomination is not None else ""
    if picked not in (preemption.get("pickedTies") or [preemption["picked"]]):
        return f"preempts on {picked!r}, wanted {preemption['picked']!r}"
    if verdict.nomination is None:
        return ""
    victims = [pod.key for pod in verdict.nomination.victims]
    should = preemption["candidates"][picked]["victims"]
    return "" if victims == should else f"takes {victims}, wanted {should}"


def test_detours_leave_no_trace_in_a_verdict_or_a_decision() -> None:
    """Every field of every scenario, and the host or the victims of a real cycle."""
    count, wrong = 0, []
    for scenario, expected in vectors(FILE):
        if "nodeName" in scenario["pending"]["spec"]:
            continue
        count += 1
        detour = Detour(scenario)
        detour.build()
        wrong += differences(scenario, expected, detour.ask())
        difference = decided(detour, expected)
        if difference:
            wrong.append(f"{scenario['id']}: {difference}")
    assert count == COMPARED
    assert not wrong, f"{len(wrong)} differences in {count} scenarios:\n" + "\n".join(wrong[:20])
