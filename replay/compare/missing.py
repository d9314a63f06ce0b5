"""What a decision followed from and the recording, or the services, do not have.

Disruption budgets that were not recorded are sought as any explanation is: with budgets put over
the pods that would else be victims, the recorded decision has to come out. Of other things it is
enough that the pod names them and that no object of their kind was recorded.
"""

from __future__ import annotations

import copy
from collections.abc import Container, Iterator, Set
from dataclasses import dataclass, replace

from replay.compare.explain import Asked, Explanation, Reason
from replay.compare.recorded import Cluster, Kind, RecordedDecision
from replay.compare.verdict import judged
from replay.trace.features import pod_features
from reprieve.kube.v1alpha1.affinity_pb2 import PodAffinityTerm
from reprieve.kube.v1alpha1.object_pb2 import Object
from reprieve.kube.v1alpha1.pod_pb2 import Pod
from reprieve.scheduler.v1alpha1.scheduler_pb2 import Evaluation

_BUDGET, _CLAIM, _NAMESPACE = "PodDisruptionBudget", "PersistentVolumeClaim", "Namespace"
_NOT_SERVED = "DynamicResources is not served: the pod's device claims (resourceClaims) always fit"
_TRIES_MAX = 12
_LABEL = "reprieve.compare/protected"


@dataclass(frozen=True, slots=True)
class Missing:
    """Looks for what is missing; `kinds` are those of the recording's objects."""

    asked: Asked
    kinds: Set[str]

    def explain(self, decision: RecordedDecision, cluster: Cluster | None) -> Explanation | None:
        """Return what explains a difference in the state of the decision, None for nothing."""
        if cluster is None:
            return None
        if any("resourceClaims" in each for each in pod_features(cluster.pod.spec)):
            return Explanation(reason=Reason.PLUGIN, text=_NOT_SERVED)
        for text in _not_recorded(cluster.pod, self.kinds):
            return Explanation(reason=Reason.MISSING, text=text)
        if decision.kind is Kind.PREEMPTION and _BUDGET not in self.kinds:
            return self._by_budgets(decision, cluster)
        return None

    def _by_budgets(self, decision: RecordedDecision, cluster: Cluster) -> Explanation | None:
        """Protect the pods that would wrongly be victims, until the recorded ones come out."""
        protected: dict[str, str] = {}
        for _ in range(_TRIES_MAX):
            with_budgets = _with_budgets(cluster, protected)
            found = self.asked.judge_in(with_budgets, decision.at_ns)
            if judged(decision, found, cluster.terminating).agrees:
                names = ", ".join(sorted(protected.values()))
                text = f"agrees where disruption budgets, of which none was recorded, hold {names}"
                return Explanation(reason=Reason.MISSING, text=text)
            more = {uid: name for uid, name in _wrong(decision, found) if uid not in protected}
            if not more:
                return None
            protected |= more
        return None


def _wrong(decision: RecordedDecision, found: Evaluation) -> Iterator[tuple[str, str]]:
    """Yield the victims, UID and name, that were not recorded, on the node that is picked."""
    picked = found.preemption.picked
    recorded = set(decision.victims or ()) if picked == decision.node else set()
    for candidate in found.preemption.candidates:
        if candidate.node_name == picked:
            for victim in candidate.victims:
                name = f"{victim.pod.namespace}/{victim.pod.name}"
                if name not in recorded:
                    yield victim.pod.uid, name


def _with_budgets(cluster: Cluster, protected: Container[str]) -> Cluster:
    """Return the cluster with budgets that allow no disruption of the pods of those UIDs."""
    objects, namespaces = list[Object](), dict[str, None]()
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


def _budget(namespace: str) -> Object:
    made = Object()
    budget = made.pod_disruption_budget
    budget.metadata.namespace, budget.metadata.name = namespace, "not-recorded"
    budget.spec.selector.match_labels[_LABEL] = ""
    budget.status.disruptions_allowed = 0
    return made


def _not_recorded(pod: Pod, kinds: Set[str]) -> Iterator[str]:
    """Yield what the pod names of kinds of which no object was recorded."""
    has_claims = any(each.HasField("persistent_volume_claim") for each in pod.spec.volumes)
    if _CLAIM not in kinds and has_claims:
        yield f"its volumes are claims, and no {_CLAIM} was recorded"
    selects = any(each.HasField("namespace_selector") for each in _terms(pod))
    if _NAMESPACE not in kinds and selects:
        words = "its affinity selects namespaces by their labels"
        yield f"{words}, and no {_NAMESPACE} was recorded"


def _terms(pod: Pod) -> Iterator[PodAffinityTerm]:
    affinity = pod.spec.affinity
    for each in (affinity.pod_affinity, affinity.pod_anti_affinity):
        yield from each.required_during_scheduling_ignored_during_execution
        for weighted in each.preferred_during_scheduling_ignored_during_execution:
            yield weighted.pod_affinity_term
