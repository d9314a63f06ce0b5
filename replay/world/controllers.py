"""ReplicaSets and Deployments: who makes a pod again.

Controllers look at the cluster between rounds, at what has changed only. A pod that is made takes
its name, its UID and (where the trace tells it) its life from its owner and its ordinal, so that
two runs pair their pods.

Source: kubernetes v1.34 pkg/controller/replicaset/replica_set.go, syncReplicaSet, manageReplicas;
pkg/controller/controller_utils.go, FilterActivePods; pkg/controller/deployment/sync.go, sync,
getNewReplicaSet.
"""

from __future__ import annotations

from hashlib import blake2b
from itertools import chain, count

from replay.identity import name_suffix, object_uid
from replay.world.cluster import Changed, Cluster
from replay.world.conditions import timestamp
from replay.world.journal import Journal
from replay.world.lives import Lives
from replay.world.scale_down import first_to_go
from reprieve.kube.v1alpha1 import meta_pb2, object_ref_pb2, pod_pb2, workloads_pb2
from reprieve.trace.v1alpha1 import trace_pb2

HASH_LABEL = "pod-template-hash"
GENERATED_BASE_MAX = 58
"""Letters of a generateName that are kept, so that a name of 63 comes out."""


class Controllers:
    """The Deployment and the ReplicaSet controller of a cluster."""

    def __init__(self, cluster: Cluster, lives: Lives, journal: Journal) -> None:
        self._cluster = cluster
        self._lives = lives
        self._journal = journal
        self._uids: dict[tuple[str, str, str], str] = {}
        self._sets: dict[str, dict[str, workloads_pb2.ReplicaSet]] = {}
        self._recorded: dict[tuple[str, str, str, int], trace_pb2.ControllerPod] = {}
        self._refused: dict[str, None] = {}

    def expect(self, record: trace_pb2.ControllerPod) -> None:
        """Take what the trace tells of a pod (or a ReplicaSet) that a controller will make."""
        owner = record.owner
        self._recorded[owner.kind, owner.namespace, owner.name, record.ordinal] = record

    def uid_of(self, kind: str, namespace: str, name: str) -> str:
        """Return the UID of the Deployment or ReplicaSet of that name, "" for none."""
        return self._uids.get((kind, namespace, name), "")

    def put_replica_set(self, message: workloads_pb2.ReplicaSet) -> None:
        """Add or replace a ReplicaSet."""
        meta = message.metadata
        if meta.uid not in self._cluster.replica_sets:
            births = self._cluster.births
            births[_controller_uid(meta)] = births.get(_controller_uid(meta), 0) + 1
        self._sets.setdefault(_controller_uid(meta), {})[meta.uid] = message
        self._uids["ReplicaSet", meta.namespace, meta.name] = meta.uid
        self._cluster.replica_sets[meta.uid] = message
        self._cluster.changed.owners[meta.uid] = None

    def put_deployment(self, message: workloads_pb2.Deployment) -> None:
        """Add or replace a Deployment."""
        meta = message.metadata
        self._uids["Deployment", meta.namespace, meta.name] = meta.uid
        self._cluster.deployments[meta.uid] = message
        self._cluster.changed.deployments[meta.uid] = None

    def remove(self, now_ns: int, uid: str) -> None:
        """Delete a Deployment or a ReplicaSet and, in the background, all that it owns.

        An unknown one is accepted. A Deployment whose ReplicaSet was deleted looks again.
        """
        deployment = self._cluster.deployments.pop(uid, None)
        if deployment is not None:
            self._forget_name("Deployment", deployment.metadata)
            for replica_set in self._owned_sets(uid):
                self.remove(now_ns, replica_set.metadata.uid)
        replica_set_ = self._cluster.replica_sets.pop(uid, None)
        if replica_set_ is None:
            return
        self._forget_name("ReplicaSet", replica_set_.metadata)
        owner_uid = _controller_uid(replica_set_.metadata)
        del self._sets[owner_uid][uid]
        self._cluster.changed.deployments[owner_uid] = None
        for pod in list(self._cluster.pods_by_owner.get(uid, {}).values()):
            self._lives.delete(now_ns, pod, None, "deleted")

    def retry_refused(self) -> None:
        """Let ReplicaSets whose pods were refused try again, as something has changed for them."""
        self._cluster.changed.owners.update(self._refused)
        self._refused.clear()

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
        """Give all replicas to the ReplicaSet of the current template, at once.

        A Deployment that is paused gives them to the one that it has.
        """
        wanted = deployment.spec.replicas if deployment.spec.HasField("replicas") else 1
        sets = self._owned_sets(deployment.metadata.uid)
        current = next((each for each in sets if _same_template(each, deployment)), None)
        if deployment.spec.paused:
            current = _active_or_latest(sets)
            if current is None:
                return
        for each in sets:
            if each is not current:
                self._resize(each, 0)
        if current is None:
            self.put_replica_set(self._new_set(now_ns, deployment, wanted))
        else:
            self._resize(current, wanted)

    def _owned_sets(self, deployment_uid: str) -> list[workloads_pb2.ReplicaSet]:
        return list(self._sets.get(deployment_uid, {}).values())

    def _forget_name(self, kind: str, meta: meta_pb2.ObjectMeta) -> None:
        if self.uid_of(kind, meta.namespace, meta.name) == meta.uid:
            del self._uids[kind, meta.namespace, meta.name]

    def _resize(self, replica_set: workloads_pb2.ReplicaSet, wanted: int) -> None:
        if not replica_set.spec.HasField("replicas") or replica_set.spec.replicas != wanted:
            replica_set.spec.replicas = wanted
            self.put_replica_set(replica_set)

    def _new_set(
        self, now_ns: int, deployment: workloads_pb2.Deployment, replicas: int
    ) -> workloads_pb2.ReplicaSet:
        owner = deployment.metadata
        ordinal = self._cluster.births.get(owner.uid, 0)
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
        made.spec.selector.match_labels[HASH_LABEL] = template_hash
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
            refusal = self._make(now_ns, replica_set)
            if refusal:
                self._journal.note("refused", refusal)
                self._refused[uid] = None
                return
        if len(active) > wanted:
            related = [
                pod
                for each in self._related_sets(replica_set)
                for pod in self._cluster.pods_by_owner.get(each.metadata.uid, {}).values()
            ]
            for pod in first_to_go(active, related, now_ns)[: len(active) - wanted]:
                self._lives.delete(now_ns, pod, None, "deleted")

    def _related_sets(
        self, replica_set: workloads_pb2.ReplicaSet
    ) -> list[workloads_pb2.ReplicaSet]:
        """Return the sets of the same Deployment, the set itself among them."""
        owner_uid = _controller_uid(replica_set.metadata)
        return self._owned_sets(owner_uid) if owner_uid else [replica_set]

    def _make(self, now_ns: int, replica_set: workloads_pb2.ReplicaSet) -> str:
        """Make the next pod of a ReplicaSet; answer why it was refused, "" where it was not."""
        owner = replica_set.metadata
        ordinal = self._cluster.births.get(owner.uid, 0)
        recorded = self._recorded.get(("ReplicaSet", owner.namespace, owner.name, ordinal))
        pod = pod_pb2.Pod()
        template = replica_set.spec.template
        pod.spec.CopyFrom(template.spec)
        pod.metadata.labels.update(template.metadata.labels)
        pod.metadata.annotations.update(template.metadata.annotations)
        pod.metadata.name = self._free_name(owner, ordinal, recorded.name if recorded else "")
        pod.metadata.namespace = owner.namespace
        pod.metadata.generate_name = f"{owner.name}-"
        pod.metadata.uid = object_uid("Pod", owner.namespace, pod.metadata.name, owner.uid, ordinal)
        _own(pod.metadata, "ReplicaSet", owner)
        life = trace_pb2.PodLife()
        if recorded is not None:
            life.CopyFrom(recorded.life)
        refusal = self._lives.create(now_ns, pod, life)
        if not refusal:
            made = object_ref_pb2.ObjectRef(
                kind="Pod",
                namespace=owner.namespace,
                name=pod.metadata.name,
                uid=pod.metadata.uid,
            )
            by = object_ref_pb2.ObjectRef(
                kind="ReplicaSet", namespace=owner.namespace, name=owner.name, uid=owner.uid
            )
            self._journal.made(now_ns, made, by, ordinal)
        return refusal

    def _free_name(self, owner: meta_pb2.ObjectMeta, ordinal: int, recorded: str) -> str:
        """Return the recorded name, or one that is made, whichever no other pod has.

        Source: kubernetes v1.34 apiserver pkg/storage/names/generate.go, GenerateName.
        """
        base = f"{owner.name}-"[:GENERATED_BASE_MAX]
        made = (base + name_suffix(owner.uid, ordinal, 5 + more) for more in count())
        names = chain((recorded,) if recorded else (), made)
        return next(
            name for name in names if f"{owner.namespace}/{name}" not in self._cluster.pod_uids
        )


def _own(meta: meta_pb2.ObjectMeta, kind: str, owner: meta_pb2.ObjectMeta) -> None:
    meta.owner_references.add(
        api_version="apps/v1", kind=kind, name=owner.name, uid=owner.uid, controller=True
    )


def _controller_uid(meta: meta_pb2.ObjectMeta) -> str:
    return next((owner.uid for owner in meta.owner_references if owner.controller), "")


def _active_or_latest(sets: list[workloads_pb2.ReplicaSet]) -> workloads_pb2.ReplicaSet | None:
    active = [each for each in sets if not each.spec.HasField("replicas") or each.spec.replicas]
    return next(reversed(active or sets), None)


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
