"""ReplicaSets, ReplicationControllers and Deployments: as many pods of a template as desired.

A Deployment gives all replicas to the ReplicaSet of its current template at once.

Source: kubernetes v1.34 pkg/controller/replicaset/replica_set.go, syncReplicaSet, manageReplicas;
pkg/controller/controller_utils.go, FilterActivePods; pkg/controller/deployment/sync.go, sync,
getNewReplicaSet; pkg/controller/replication/conversion.go (a ReplicationController is served as a
ReplicaSet).
"""

from __future__ import annotations

from replay.hashing import object_uid
from replay.world.api.cluster import Cluster, replicas
from replay.world.api.pod_record import controller_uid
from replay.world.controllers.pod_control import (
    ControllerRef,
    PodControl,
    first_to_go,
    template_hash,
)
from reprieve.kube.v1beta1 import meta_pb2, workloads_pb2
from services.rpc.kube.fields import set_time

HASH_LABEL = "pod-template-hash"


class ReplicaSets:
    """Keeps spec.replicas active pods of each set."""

    def __init__(self, cluster: Cluster, pod_control: PodControl) -> None:
        self._cluster = cluster
        self._pod_control = pod_control
        self._sets: dict[str, dict[str, workloads_pb2.ReplicaSet]] = {}
        self._kinds: dict[str, str] = {}

    def put(self, message: workloads_pb2.ReplicaSet, *, kind: str = "ReplicaSet") -> None:
        """Add or replace a ReplicaSet, or an object of another `kind` that is served as one."""
        meta = message.metadata
        owner_uid = controller_uid(meta)
        if meta.uid not in self._cluster.replica_sets:
            births = self._cluster.births
            births[owner_uid] = births.get(owner_uid, 0) + 1
        self._sets.setdefault(owner_uid, {})[meta.uid] = message
        self._kinds[meta.uid] = kind
        self._cluster.replica_sets[meta.uid] = message
        self._cluster.changed.owners[meta.uid] = None

    def put_replication_controller(self, message: workloads_pb2.ReplicationController) -> None:
        """Add or replace a ReplicationController."""
        served = workloads_pb2.ReplicaSet(metadata=message.metadata)
        if message.spec.HasField("replicas"):
            served.spec.replicas = message.spec.replicas
        served.spec.template.CopyFrom(message.spec.template)
        self.put(served, kind="ReplicationController")

    def remove(self, uid: str) -> None:
        """Remove a ReplicaSet; its Deployment looks again."""
        owner_uid = controller_uid(self._cluster.replica_sets.pop(uid).metadata)
        del self._sets[owner_uid][uid], self._kinds[uid]
        self._cluster.changed.deployments[owner_uid] = None

    def of(self, deployment_uid: str) -> list[workloads_pb2.ReplicaSet]:
        """Return the ReplicaSets of a Deployment, the oldest first."""
        return list(self._sets.get(deployment_uid, {}).values())

    def resize(self, replica_set: workloads_pb2.ReplicaSet, wanted: int) -> bool:
        """Set spec.replicas, and return whether it was another number."""
        if replica_set.spec.HasField("replicas") and replica_set.spec.replicas == wanted:
            return False
        replica_set.spec.replicas = wanted
        self.put(replica_set)
        return True

    def sync(self, now_ns: int, uid: str) -> bool:
        """Create and delete pods; return False, as a second sync changes nothing."""
        replica_set = self._cluster.replica_sets[uid]
        owned = self._cluster.pods_by_owner.get(uid, {}).values()
        active = [pod for pod in owned if pod.is_active]
        wanted = replicas(replica_set.spec)
        owner = ControllerRef(self._kinds[uid], replica_set.metadata)
        for missing in range(wanted - len(active), 0, -1):
            pod = self._pod_control.draft(owner, replica_set.spec.template)
            if not self._pod_control.create(now_ns, owner, pod, missing=missing):
                return False
        if len(active) > wanted:
            related = [
                pod
                for each in self._related(replica_set)
                for pod in self._cluster.pods_by_owner.get(each.metadata.uid, {}).values()
            ]
            for victim in first_to_go(active, related, now_ns)[: len(active) - wanted]:
                self._pod_control.delete(now_ns, victim)
        return False

    def _related(self, replica_set: workloads_pb2.ReplicaSet) -> list[workloads_pb2.ReplicaSet]:
        owner_uid = controller_uid(replica_set.metadata)
        return self.of(owner_uid) if owner_uid else [replica_set]


class Deployments:
    """Keeps the ReplicaSets of each Deployment."""

    def __init__(self, cluster: Cluster, sets: ReplicaSets, pod_control: PodControl) -> None:
        self._cluster = cluster
        self._sets = sets
        self._pod_control = pod_control

    def put(self, message: workloads_pb2.Deployment) -> None:
        """Add or replace a Deployment."""
        uid = message.metadata.uid
        self._cluster.deployments[uid] = message
        self._cluster.changed.deployments[uid] = None

    def roll_out(self, now_ns: int, uid: str) -> list[workloads_pb2.ReplicaSet]:
        """Resize a Deployment's ReplicaSets; return those that were resized or created.

        A paused Deployment resizes the ReplicaSet that it has; an unknown one is accepted.
        """
        deployment = self._cluster.deployments.get(uid)
        if deployment is None:
            return []
        wanted = replicas(deployment.spec)
        sets = self._sets.of(uid)
        current = next((each for each in sets if same_template(each, deployment)), None)
        if deployment.spec.paused:
            current = _active_or_latest(sets)
            if current is None:
                return []
        changed = [each for each in sets if each is not current and self._sets.resize(each, 0)]
        if current is None:
            made = self._new_set(now_ns, deployment, wanted)
            self._sets.put(made)
            changed.append(made)
        elif self._sets.resize(current, wanted):
            changed.append(current)
        return changed

    def _new_set(
        self, now_ns: int, deployment: workloads_pb2.Deployment, wanted: int
    ) -> workloads_pb2.ReplicaSet:
        owner = ControllerRef("Deployment", deployment.metadata)
        own = owner.meta
        ordinal = self._cluster.births.get(own.uid, 0)
        recorded = self._pod_control.recorded(owner, ordinal)
        hash_ = template_hash(deployment.spec.template)
        made = workloads_pb2.ReplicaSet()
        made.metadata.name = (recorded.name if recorded else "") or f"{own.name}-{hash_}"
        made.metadata.namespace = own.namespace
        made.metadata.uid = object_uid(
            "ReplicaSet", own.namespace, made.metadata.name, own.uid, ordinal
        )
        set_time(made.metadata.creation_timestamp, now_ns)
        made.metadata.labels.update(deployment.spec.template.metadata.labels)
        made.metadata.labels[HASH_LABEL] = hash_
        owner.own(made.metadata)
        made.spec.replicas = wanted
        made.spec.selector.CopyFrom(deployment.spec.selector)
        made.spec.selector.match_labels[HASH_LABEL] = hash_
        made.spec.template.CopyFrom(deployment.spec.template)
        made.spec.template.metadata.labels[HASH_LABEL] = hash_
        return made


def _active_or_latest(sets: list[workloads_pb2.ReplicaSet]) -> workloads_pb2.ReplicaSet | None:
    active = [each for each in sets if not each.spec.HasField("replicas") or each.spec.replicas]
    return next(reversed(active or sets), None)


def same_template(
    replica_set: workloads_pb2.ReplicaSet, deployment: workloads_pb2.Deployment
) -> bool:
    """Return whether a Deployment's current template is that of a ReplicaSet."""
    template, wanted = replica_set.spec.template, deployment.spec.template
    metadata = meta_pb2.ObjectMeta()
    metadata.CopyFrom(template.metadata)
    metadata.labels.pop(HASH_LABEL, "")
    return metadata == wanted.metadata and template.spec == wanted.spec
