"""Refuses decisions that the API server would reject, and names a mistake of the scheduler.

A decision is held against the cluster as it is when the decision is carried out. It is the
scheduler's mistake where what it had been sent when it decided already ruled it out. Otherwise
something has changed meanwhile, such as a pod that was deleted: a race that real clusters have,
too. What it had been sent is the cluster without the events that are still to be sent. Of these,
only removals and requests to delete can rule a decision out: no other change takes a pod's node
away, gates it or moves it.

Source: kubernetes v1.34 pkg/registry/core/pod/storage/storage.go, BindingREST.setPodNodeAndMetadata
(what makes a binding fail). Upstream's API server also binds to a deleted node, whose pod is
garbage collected later; here such a binding is refused.
"""

from __future__ import annotations

from collections.abc import Callable

from replay.world.api.cluster import Cluster
from replay.world.api.device_claims import key_of
from replay.world.api.pod_record import PodRecord
from replay.world.journal import Mistake, Refusal
from reprieve.scheduler.v1beta1 import scheduler_pb2

MAY_CHANGE = frozenset(
    {
        *(Mistake.UNKNOWN_POD, Mistake.UNKNOWN_NODE, Mistake.TERMINATING_POD),
        *(Mistake.UNKNOWN_VICTIM, Mistake.UNKNOWN_CLAIM),
    }
)
"""The causes that a change in the cluster can have instead of a mistake."""


class RefusalRules:
    """The rules, for decisions that are carried out now.

    `node_of_binding` returns the node that a pod is being bound to, "" if it is not being bound.
    """

    def __init__(self, cluster: Cluster, node_of_binding: Callable[[str], str]) -> None:
        self._cluster = cluster
        self._node_of_binding = node_of_binding

    def binding(self, outcome: scheduler_pb2.Outcome) -> Refusal | None:
        """Return why a binding is refused, None if it is carried out."""
        uid, node_name = outcome.pop.uid, outcome.bind.node_name
        pod = self._cluster.pods.get(uid)
        if pod is None:
            return self._unknown_pod(uid)
        name = pod.message.metadata.name
        if pod.is_terminating:
            message = f"pod {name} is being deleted, cannot be assigned to a host"
            return self._ruled_out("Pod", uid, message, Mistake.TERMINATING_POD)
        if pod.node_name:
            return _assigned(pod)
        if pod.message.spec.scheduling_gates:
            message = f"pod {name} has non-empty .spec.schedulingGates"
            return Refusal(message, Mistake.GATED_POD)
        if node_name not in self._cluster.nodes:
            message = f'nodes "{node_name}" not found'
            return self._ruled_out("Node", node_name, message, Mistake.UNKNOWN_NODE)
        return self._missing_claim(outcome.bind.claims)

    def _missing_claim(self, changes: scheduler_pb2.ClaimChanges) -> Refusal | None:
        """Return the refusal of a binding that changes a claim which does not exist."""
        for claim in changes.claims:
            key = key_of(claim)
            if key not in self._cluster.device_claims.by_key:
                message = f'resourceclaims.resource.k8s.io "{claim.metadata.name}" not found'
                return self._ruled_out("ResourceClaim", key, message, Mistake.UNKNOWN_CLAIM)
        return None

    def attempt(self, uid: str) -> Refusal | None:
        """Return why a failed attempt is not written to its pod's status, None if it is."""
        pod = self._cluster.pods.get(uid)
        if pod is None:
            return self._unknown_pod(uid)
        return _assigned(pod) if pod.node_name else None

    def deletion(self, uid: str, node_name: str) -> Refusal | None:
        """Return why the victim of a preemption on a node is not deleted, None if it is."""
        victim = self._cluster.pods.get(uid)
        if victim is None:
            message = f'no pod has the uid "{uid}"'
            return self._ruled_out("Pod", uid, message, Mistake.UNKNOWN_VICTIM)
        node = victim.node_name or self._node_of_binding(uid)
        if node == node_name:
            return None
        name = victim.message.metadata.name
        message = f"pod {name} is on {node or 'no node'}, not on {node_name}"
        return Refusal(message, Mistake.VICTIM_ELSEWHERE)

    def mistake(self, outcome: scheduler_pb2.Outcome) -> Mistake:
        """Return the mistake for which an outcome could be refused now, one of MAY_CHANGE.

        It is kept for an outcome that is carried out later, whose objects may change until then.
        """
        if outcome.HasField("bind"):
            refusals = [self.binding(outcome)]
        elif outcome.HasField("refusals"):
            refusals = [self.attempt(uid) for uid in outcome.refusals.uids]
        else:
            preemption = outcome.unschedulable.preemption
            uids = [victim.pod.uid for victim in preemption.victims]
            refusals = [self.attempt(outcome.pop.uid)]
            refusals += [self.deletion(uid, preemption.node_name) for uid in uids]
        causes = (refusal.cause for refusal in refusals if refusal is not None)
        return next((cause for cause in causes if cause in MAY_CHANGE), Mistake.NONE)

    def _unknown_pod(self, uid: str) -> Refusal:
        message = f'no pod has the uid "{uid}"'
        return self._ruled_out("Pod", uid, message, Mistake.UNKNOWN_POD)

    def _ruled_out(self, kind: str, identity: str, message: str, cause: Mistake) -> Refusal:
        """Return a refusal; it is not a mistake if the object's removal was not sent yet."""
        is_unsent = self._cluster.is_end_unsent(kind, identity)
        return Refusal(message, Mistake.NONE if is_unsent else cause)


def at_decision(refusal: Refusal | None, mistake: Mistake | None) -> Refusal | None:
    """Return a refusal with its cause at the time of the decision.

    `mistake` is that of a decision which is carried out later, None where it has just been made.
    """
    if refusal is None or mistake is None or refusal.cause not in MAY_CHANGE:
        return refusal
    return refusal._replace(cause=mistake)


def _assigned(pod: PodRecord) -> Refusal:
    message = f"pod {pod.message.metadata.name} is already assigned to node {pod.node_name!r}"
    return Refusal(message, Mistake.ASSIGNED_POD)


def decided_twice(outcome: scheduler_pb2.Outcome) -> Refusal:
    """Return the refusal of a pop that the same response has decided before."""
    pop = outcome.pop
    message = f'the pop of uid "{pop.uid}" in cycle {pop.cycle} has been decided already'
    return Refusal(message, Mistake.DECIDED_TWICE)
