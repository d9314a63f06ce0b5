"""Explains differences by objects that were not recorded."""

from __future__ import annotations

import copy
from collections.abc import Container, Iterator, Set
from dataclasses import dataclass, replace

from replay.compare.explain import DifferenceExplanation, DifferenceReason, PodEvaluator
from replay.compare.recorded import ClusterView, DecisionKind, RecordedDecision
from replay.compare.verdict import compare_decision
from replay.trace.validate import claims_devices
from reprieve.kube.v1beta1.affinity_pb2 import PodAffinityTerm
from reprieve.kube.v1beta1.object_pb2 import KubernetesObject
from reprieve.kube.v1beta1.pod_pb2 import Pod
from reprieve.scheduler.v1beta1.scheduler_pb2 import Evaluation

_BUDGET, _CLAIM, _NAMESPACE = "PodDisruptionBudget", "PersistentVolumeClaim", "Namespace"
_DEVICE_KINDS = ("ResourceSlice", "DeviceClass", "ResourceClaim")
_TRIES_MAX = 12
_LABEL = "reprieve.compare/protected"


@dataclass(frozen=True, slots=True)
class MissingDataExplainer:
    """Finds objects that a decision depended on and that are missing.

    Missing disruption budgets explain a preemption if the evaluation agrees once budgets protect
    the victims that were not recorded. Missing objects of another kind explain a difference if the
    pod refers to one and the recording has no object of that kind. `kinds` are the kinds of the
    recording's objects.
    """

    evaluator: PodEvaluator
    kinds: Set[str]

    def explain(
        self, decision: RecordedDecision, cluster: ClusterView | None
    ) -> DifferenceExplanation | None:
        """Return the explanation of a difference; None if nothing is missing.

        `cluster` is the state of the decision.
        """
        if cluster is None:
            return None
        for text in _not_recorded(cluster.pod, self.kinds):
            return DifferenceExplanation(reason=DifferenceReason.MISSING, text=text)
        if decision.kind is DecisionKind.PREEMPTION and _BUDGET not in self.kinds:
            return self._by_budgets(decision, cluster)
        return None

    def _by_budgets(
        self, decision: RecordedDecision, cluster: ClusterView
    ) -> DifferenceExplanation | None:
        """Protect unrecorded victims by budgets until the evaluation agrees with the decision."""
        protected: dict[str, str] = {}
        for _ in range(_TRIES_MAX):
            with_budgets = _with_budgets(cluster, protected)
            evaluation = self.evaluator.evaluate_in(with_budgets, decision.at_ns)
            if compare_decision(decision, evaluation, cluster.terminating).agrees:
                names = ", ".join(sorted(protected.values()))
                text = (
                    f"agrees with disruption budgets, which were not recorded, that protect {names}"
                )
                return DifferenceExplanation(reason=DifferenceReason.MISSING, text=text)
            more = {uid: name for uid, name in _wrong(decision, evaluation) if uid not in protected}
            if not more:
                return None
            protected |= more
        return None


def _wrong(decision: RecordedDecision, evaluation: Evaluation) -> Iterator[tuple[str, str]]:
    """Yield UID and name of evaluated victims on the picked node that were not recorded."""
    picked = evaluation.preemption.picked
    recorded = set(decision.victims or ()) if picked == decision.node else set()
    for candidate in evaluation.preemption.candidates:
        if candidate.node_name == picked:
            for victim in candidate.victims:
                name = f"{victim.pod.namespace}/{victim.pod.name}"
                if name not in recorded:
                    yield victim.pod.uid, name


def _with_budgets(cluster: ClusterView, protected: Container[str]) -> ClusterView:
    """Return the cluster with budgets that allow no disruption of the pods with these UIDs."""
    objects, namespaces = list[KubernetesObject](), dict[str, None]()
    for held in cluster.objects:
        if held.pod.metadata.uid not in protected:
            objects.append(held)
            continue
        marked = copy.deepcopy(held)
        marked.pod.metadata.labels[_LABEL] = ""
        objects.append(marked)
        namespaces[held.pod.metadata.namespace] = None
    objects += [_budget(namespace) for namespace in namespaces]
    return replace(cluster, objects=objects)


def _budget(namespace: str) -> KubernetesObject:
    made = KubernetesObject()
    budget = made.pod_disruption_budget
    budget.metadata.namespace, budget.metadata.name = namespace, "not-recorded"
    budget.spec.selector.match_labels[_LABEL] = ""
    budget.status.disruptions_allowed = 0
    return made


def _not_recorded(pod: Pod, kinds: Set[str]) -> Iterator[str]:
    """Yield a text for each reference of the pod to an object of a kind that was not recorded."""
    has_claims = any(volume.HasField("persistent_volume_claim") for volume in pod.spec.volumes)
    if _CLAIM not in kinds and has_claims:
        yield f"its volumes are claims, and no {_CLAIM} was recorded"
    if claims_devices(pod.spec):
        for kind in _DEVICE_KINDS:
            if kind not in kinds:
                yield f"it has device claims (resourceClaims), and no {kind} was recorded"
    selects = any(term.HasField("namespace_selector") for term in _terms(pod))
    if _NAMESPACE not in kinds and selects:
        selects_text = "its affinity selects namespaces by their labels"
        yield f"{selects_text}, and no {_NAMESPACE} was recorded"


def _terms(pod: Pod) -> Iterator[PodAffinityTerm]:
    affinity = pod.spec.affinity
    for terms in (affinity.pod_affinity, affinity.pod_anti_affinity):
        yield from terms.required_during_scheduling_ignored_during_execution
        for weighted in terms.preferred_during_scheduling_ignored_during_execution:
            yield weighted.pod_affinity_term
