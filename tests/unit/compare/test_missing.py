"""Missing objects that explain a difference."""

from __future__ import annotations

import pytest

from replay.compare.explain import DifferenceReason
from replay.compare.missing_data import MissingDataExplainer
from replay.compare.recorded import ClusterView, DecisionKind, RecordedDecision
from reprieve.kube.v1beta1.meta_pb2 import ObjectReference
from reprieve.kube.v1beta1.object_pb2 import KubernetesObject
from reprieve.kube.v1beta1.pod_pb2 import Pod
from reprieve.scheduler.v1beta1.scheduler_pb2 import Evaluation
from tests.builders import make_pod


class Picky:
    """Picks the first node none of whose pods a budget holds."""

    def evaluate_in(self, cluster: ClusterView, at_ns: int) -> Evaluation:
        """Return the verdict."""
        del at_ns
        found = Evaluation()
        held = any(obj.HasField("pod_disruption_budget") for obj in cluster.objects)
        for held_object in cluster.objects:
            if not held_object.HasField("pod") or (
                held and "reprieve.compare/protected" in _labels(held_object)
            ):
                continue
            found.preemption.picked = found.preemption.picked or held_object.pod.spec.node_name
            candidate = found.preemption.candidates.add(node_name=held_object.pod.spec.node_name)
            victim = candidate.victims.add().pod
            victim.uid, victim.namespace = held_object.pod.metadata.uid, "default"
            victim.name = held_object.pod.metadata.name
        return found


def _labels(held: KubernetesObject) -> set[str]:
    return set(held.pod.metadata.labels)


def _on(name: str, node: str) -> KubernetesObject:
    return KubernetesObject(pod=make_pod(name).uid(f"uid-{name}").node(node).message())


def _cluster(pod: Pod | None = None) -> ClusterView:
    objects = [_on("a", "n"), _on("b", "m"), _on("c", "o")]
    return ClusterView(objects=objects, nominated=[], pod=pod or Pod(), terminating=frozenset())


def _decision(
    kind: DecisionKind, node: str = "", victims: tuple[str, ...] = ()
) -> RecordedDecision:
    return RecordedDecision(
        kind=kind,
        pod=ObjectReference(name="p"),
        written=1,
        position=1,
        at_ns=1,
        version="",
        node=node,
        victims=victims,
    )


def test_budgets_that_were_not_recorded_are_sought() -> None:
    """Those of a and b make c the victim; where a budget was recorded, all were."""
    decision = _decision(DecisionKind.PREEMPTION, "o", ("default/c",))
    explanation = MissingDataExplainer(Picky(), frozenset({"Pod"})).explain(decision, _cluster())
    assert explanation is not None
    assert explanation.reason is DifferenceReason.MISSING
    assert explanation.text.endswith("protect default/a, default/b")
    recorded = MissingDataExplainer(Picky(), frozenset({"Pod", "PodDisruptionBudget"}))
    assert recorded.explain(decision, _cluster()) is None


def test_no_budget_makes_victims_of_a_node_without_them() -> None:
    """The search ends when there is no victim left to protect."""
    decision = _decision(DecisionKind.PREEMPTION, "elsewhere", ("default/x",))
    assert MissingDataExplainer(Picky(), frozenset()).explain(decision, _cluster()) is None


@pytest.mark.parametrize("kind", [DecisionKind.BIND, DecisionKind.FAILURE])
def test_a_pod_with_device_claims_needs_the_devices(kind: DecisionKind) -> None:
    """Slices, classes and claims, each of which may not have been recorded."""
    pod = Pod()
    pod.spec.resource_claims.add(name="gpu")
    kinds = {"ResourceSlice", "DeviceClass", "ResourceClaim"}
    for missing in kinds:
        explainer = MissingDataExplainer(Picky(), kinds - {missing})
        explanation = explainer.explain(_decision(kind), _cluster(pod))
        assert explanation is not None
        assert explanation.text.endswith(f"no {missing} was recorded")
    assert MissingDataExplainer(Picky(), kinds).explain(_decision(kind), _cluster(pod)) is None


def test_a_reference_to_an_unrecorded_object_explains_a_difference() -> None:
    """Claims, and namespaces that are selected by their labels."""
    pod = Pod()
    pod.spec.volumes.add(name="v").persistent_volume_claim.claim_name = "data"
    bind = _decision(DecisionKind.BIND, "n")
    explanation = MissingDataExplainer(Picky(), frozenset()).explain(bind, _cluster(pod))
    assert explanation is not None
    assert "no PersistentVolumeClaim was recorded" in explanation.text
    known = frozenset({"PersistentVolumeClaim"})
    assert MissingDataExplainer(Picky(), known).explain(bind, _cluster(pod)) is None
    selects = Pod()
    anti = selects.spec.affinity.pod_anti_affinity
    anti.required_during_scheduling_ignored_during_execution.add().namespace_selector.SetInParent()
    explanation = MissingDataExplainer(Picky(), known).explain(bind, _cluster(selects))
    assert explanation is not None
    assert "no Namespace was recorded" in explanation.text
