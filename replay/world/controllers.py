"""ReplicaSets and Deployments: who makes a pod again.

Controllers look at the cluster between rounds, at what has changed only. A pod that is made takes
its name, its UID and (where the trace tells it) its life from its owner and its ordinal, so that
two runs pair their pods.

Source: kubernetes v1.34 pkg/controller/replicaset/replica_set.go, syncReplicaSet, manageReplicas;
pkg/controller/controller_utils.go, FilterActivePods, ActivePodsWithRanks;
pkg/controller/deployment/sync.go, getNewReplicaSet.
"""

from __future__ import annotations

from hashlib import blake2b

from replay.identity import name_suffix, object_uid
from replay.world.cluster import Changed, Cluster
from replay.world.pod_record import PodRecord
from replay.world.conditions import timestamp
from replay.world.lives import Lives
from reprieve.kube.v1alpha1 import meta_pb2, pod_pb2, workloads_pb2
from reprieve.trace.v1alpha1 import trace_pb2

HASH_LABEL = "pod-template-hash"


class Controllers:
    """The Deployment and the ReplicaSet controller of a cluster."""

    def __init__(self, cluster: Cluster, lives: Lives) -> None:
        self._cluster = cluster
        self._lives = lives
        self._made: dict[str, int] = {}
        self._recorded: dict[tuple[str, str, str, int], trace_pb2.ControllerPod] = {}
        self.refused: list[str] = []

    def expect(self, record: trace_pb2.ControllerPod) -> None:
        """Take what the trace tells of a pod (or a ReplicaSet) that a controller will make."""
        owner = record.owner
        self._recorded[owner.kind, owner.namespace, owner.name, record.ordinal] = record

    def put_replica_set(self, message: workloads_pb2.ReplicaSet) -> None:
        """Add or replace a ReplicaSet."""
        self._cluster.replica_sets[message.metadata.uid] = message
        self._cluster.changed.owners[message.metadata.uid] = None

    def put_deployment(self, message: workloads_pb2.Deployment) -> None:
        """Add or replace a Deployment."""
        self._cluster.deployments[message.metadata.uid] = message
        self._cluster.changed.deployments[message.metadata.uid] = None

    def remove(self, now_ns: int, uid: str) -> None:
        """Delete a Deployment or a ReplicaSet and, in the background, all that it owns."""
        if self._cluster.deployments.pop(uid, None) is not None:
            for replica_set in self._owned_sets(uid):
                self.remove(now_ns, replica_set.metadata.uid)
        self._cluster.replica_sets.pop(uid, None)
        for pod in list(self._cluster.pods_by_owner.get(uid, {}).values()):
            self._lives.delete(now_ns, pod, None, "deleted")

    def reconcile(self, now_ns: int, changed: Changed) -> None:
        """Make and delete what the changed controllers ask for."""
        for uid in changed.deployments:
            deployment = self._cluster.deployments.get(uid)
            if deployment is not None:
                self._roll_out(now_ns, deployment)
        owners = dict(changed.owners) | dict(self._cluster.changed.owners)
        for uid in owners:
            replica_set = self._cluster.replica_sets.get(uid)
            if replica_set is not None:
                self._scale(now_ns, replica_set)

    # Deployments

    def _roll_out(self, now_ns: int, deployment: workloads_pb2.Deployment) -> None:
        """Give all replicas to the ReplicaSet of the current template, at once."""
        wanted = deployment.spec.replicas if deployment.spec.HasField("replicas") else 1
        sets = self._owned_sets(deployment.metadata.uid)
        current = next((each for each in sets if _same_template(each, deployment)), None)
        for each in sets:
            if each is not current:
                self._resize(each, 0)
        if current is None:
            self.put_replica_set(self._new_set(now_ns, deployment, wanted))
        else:
            self._resize(current, wanted)

    def _owned_sets(self, deployment_uid: str) -> list[workloads_pb2.ReplicaSet]:
        return [
            each
            for each in self._cluster.replica_sets.values()
            if any(
                owner.controller and owner.uid == deployment_uid
                for owner in each.metadata.owner_references
            )
        ]

    def _resize(self, replica_set: workloads_pb2.ReplicaSet, wanted: int) -> None:
        if not replica_set.spec.HasField("replicas") or replica_set.spec.replicas != wanted:
            replica_set.spec.replicas = wanted
            self.put_replica_set(replica_set)

    def _new_set(
        self, now_ns: int, deployment: workloads_pb2.Deployment, replicas: int
    ) -> workloads_pb2.ReplicaSet:
        owner = deployment.metadata
        ordinal = self._next(owner.uid)
        recorded = self._recorded.get(("Deployment", owner.namespace, owner.name, ordinal))
        template_hash = _template_hash(deployment)
        made = workloads_pb2.ReplicaSet()
        made.metadata.name = (recorded.name if recorded else "") or f"{owner.name}-{template_hash}"
        made.metadata.namespace = owner.namespace
        made.metadata.uid = object_uid(
            "ReplicaSet", owner.namespace, made.metadata.name, owner.uid, ordinal
        )
        made.metadata.creation_timestamp.CopyFrom(timestamp(now_ns))
        made.metadata.labels.update(deployment.spec.template.metadata.labels)
        made.metadata.labels[HASH_LABEL] = template_hash
        _own(made.metadata, "Deployment", owner)
        made.spec.replicas = replicas
        made.spec.selector.CopyFrom(deployment.spec.selector)
        made.spec.template.CopyFrom(deployment.spec.template)
        made.spec.template.metadata.labels[HASH_LABEL] = template_hash
        return made

    # ReplicaSets

    def _scale(self, now_ns: int, replica_set: workloads_pb2.ReplicaSet) -> None:
        uid = replica_set.metadata.uid
        owned = self._cluster.pods_by_owner.get(uid, {}).values()
        active = [pod for pod in owned if not pod.is_terminal and not pod.is_terminating]
        wanted = replica_set.spec.replicas if replica_set.spec.HasField("replicas") else 1
        for _ in range(wanted - len(active)):
            self._make(now_ns, replica_set)
        if len(active) > wanted:
            for pod in sorted(active, key=_rank)[: len(active) - wanted]:
                self._lives.delete(now_ns, pod, None, "deleted")

    def _make(self, now_ns: int, replica_set: workloads_pb2.ReplicaSet) -> None:
        owner = replica_set.metadata
        ordinal = self._next(owner.uid)
        recorded = self._recorded.get(("ReplicaSet", owner.namespace, owner.name, ordinal))
        pod = pod_pb2.Pod()
        template = replica_set.spec.template
        pod.spec.CopyFrom(template.spec)
        pod.metadata.labels.update(template.metadata.labels)
        pod.metadata.annotations.update(template.metadata.annotations)
        pod.metadata.name = (recorded.name if recorded else "") or (
            f"{owner.name}-{name_suffix(owner.uid, ordinal)}"
        )
        pod.metadata.namespace = owner.namespace
        pod.metadata.generate_name = f"{owner.name}-"
        pod.metadata.uid = object_uid("Pod", owner.namespace, pod.metadata.name, owner.uid, ordinal)
        _own(pod.metadata, "ReplicaSet", owner)
        life = recorded.life if recorded else trace_pb2.PodLife()
        refusal = self._lives.create(now_ns, pod, life)
        if refusal:
            self.refused.append(refusal)

    def _next(self, owner_uid: str) -> int:
        """Return how many the owner has had; those of the trace itself count at first."""
        if owner_uid not in self._made:
            pods = len(self._cluster.pods_by_owner.get(owner_uid, {}))
            self._made[owner_uid] = pods + len(self._owned_sets(owner_uid))
        ordinal = self._made[owner_uid]
        self._made[owner_uid] = ordinal + 1
        return ordinal


def _own(meta: meta_pb2.ObjectMeta, kind: str, owner: meta_pb2.ObjectMeta) -> None:
    meta.owner_references.add(
        api_version="apps/v1", kind=kind, name=owner.name, uid=owner.uid, controller=True
    )


def _rank(pod: PodRecord) -> tuple[object, ...]:
    """Order pods by who goes first when a ReplicaSet shrinks.

    Unassigned, then pending, then not ready, then the one that has run the shortest, then the
    newest. Pod deletion cost and the spread over nodes are not looked at.
    """
    status = pod.message.status
    ready = any(each.type == "Ready" and each.status == "True" for each in status.conditions)
    meta = pod.message.metadata
    created = (meta.creation_timestamp.seconds, meta.creation_timestamp.nanos)
    return (
        bool(pod.node_name),
        status.phase == "Running",
        ready,
        -(pod.running_ns or 0),
        tuple(-part for part in created),
        pod.key,
    )


def _same_template(
    replica_set: workloads_pb2.ReplicaSet, deployment: workloads_pb2.Deployment
) -> bool:
    template = workloads_pb2.PodTemplateSpec()
    template.CopyFrom(replica_set.spec.template)
    if HASH_LABEL in template.metadata.labels:
        del template.metadata.labels[HASH_LABEL]
    return template == deployment.spec.template


def _template_hash(deployment: workloads_pb2.Deployment) -> str:
    text = deployment.spec.template.SerializeToString(deterministic=True)
    return blake2b(text, digest_size=5).hexdigest()
