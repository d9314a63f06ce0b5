"""ReplicaSets and ReplicationControllers: as many pods of a template as desired.

Source: kubernetes v1.34 pkg/controller/replicaset/replica_set.go, syncReplicaSet, manageReplicas;
replica_set_utils.go, calculateStatus; pkg/controller/controller_utils.go, FilterActivePods;
pkg/controller/replication/conversion.go (a ReplicationController is served as a ReplicaSet).
"""

from __future__ import annotations

from replay.world.api.cluster import Cluster, replicas
from replay.world.api.pod_record import PodRecord, controller_uid
from replay.world.controllers.workloads.pod_control import ControllerRef, PodControl, first_to_go
from replay.world.part import Part
from reprieve.kube.v1beta1 import pod_pb2, workloads_pb2
from services.kube.time import SECOND_NS


class ReplicaSets(Part):
    """Keeps spec.replicas active pods of each set."""

    _sets: dict[str, dict[str, workloads_pb2.ReplicaSet]]
    _kinds: dict[str, str]

    def __init__(self, cluster: Cluster, pod_control: PodControl) -> None:
        super().__init__()
        self._cluster = cluster
        self._pod_control = pod_control

    def put(self, message: workloads_pb2.ReplicaSet, *, kind: str = "ReplicaSet") -> None:
        """Add or replace a ReplicaSet, or an object of another `kind` that is served as one."""
        meta = message.metadata
        owner_uid = controller_uid(meta)
        stored = self._cluster.replica_sets.get(meta.uid)
        if stored is None:
            births = self._cluster.births
            births[owner_uid] = births.get(owner_uid, 0) + 1
        elif (former_uid := controller_uid(stored.metadata)) != owner_uid:
            del self._sets[former_uid][meta.uid]
            self._cluster.changed.deployments[former_uid] = None
            self._cluster.changed.deployments[owner_uid] = None
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
        """Remove a ReplicaSet; its Deployment is synced."""
        owner_uid = controller_uid(self._cluster.replica_sets.pop(uid).metadata)
        del self._sets[owner_uid][uid], self._kinds[uid]
        self._cluster.changed.deployments[owner_uid] = None

    def may_claim(self, _uid: str, pod: PodRecord) -> bool:
        """Return whether a set adopts or releases a pod at all: only those that are active."""
        return pod.is_active

    def adopted(self, uid: str, pod: PodRecord) -> None:
        """Follow an adoption, of which the cluster's index of owned pods knows."""

    def disowned(self, uid: str, pod_uid: str, pod: pod_pb2.Pod) -> None:
        """Follow a release, of which the cluster's index of owned pods knows."""

    def of(self, deployment_uid: str) -> list[workloads_pb2.ReplicaSet]:
        """Return the ReplicaSets of a Deployment ("": of none), in the order of their creation."""
        return list(self._sets.get(deployment_uid, {}).values())

    def pods(self, uid: str) -> int:
        """Return how many pods of a set have neither ended nor are terminating."""
        return len(self._cluster.owned.active.get(uid, ()))

    def available(
        self, now_ns: int, replica_set: workloads_pb2.ReplicaSet
    ) -> tuple[int, int | None]:
        """Return how many pods of a set are available, and when the next one will be, ns.

        A pod is available once it has been ready for minReadySeconds. The time is None if no
        ready pod waits for that.
        """
        ready = self._cluster.owned.ready_ns.get(replica_set.metadata.uid, {})
        wait_ns = replica_set.spec.min_ready_seconds * SECOND_NS
        if not wait_ns:
            return len(ready), None
        waiting = [since_ns for since_ns in ready.values() if since_ns + wait_ns > now_ns]
        return len(ready) - len(waiting), min(waiting) + wait_ns if waiting else None

    def sync(self, now_ns: int, uid: str) -> bool:
        """Create and delete pods; return False, as a second sync changes nothing."""
        replica_set = self._cluster.replica_sets[uid]
        active = self._cluster.owned.active.get(uid, {})
        surplus = len(active) - replicas(replica_set.spec)
        owner = ControllerRef(self._kinds[uid], replica_set.metadata)
        for missing in range(-surplus, 0, -1):
            pod = self._pod_control.draft(owner, replica_set.spec.template)
            if not self._pod_control.create(now_ns, owner, pod, missing=missing):
                return False
        if surplus > 0:
            related = [
                pod
                for sibling in self._related(replica_set)
                for pod in self._cluster.owned.active.get(sibling.metadata.uid, {}).values()
            ]
            for victim in first_to_go(list(active.values()), related, now_ns)[:surplus]:
                self._pod_control.delete(now_ns, victim)
        return False

    def _related(self, replica_set: workloads_pb2.ReplicaSet) -> list[workloads_pb2.ReplicaSet]:
        owner_uid = controller_uid(replica_set.metadata)
        return self.of(owner_uid) if owner_uid else [replica_set]
