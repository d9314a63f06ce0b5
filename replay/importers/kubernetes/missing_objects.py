"""Objects that a list of a cluster's objects lacks, inferred from the objects that it has.

`kubectl get deployments,pods,nodes` prints pods without their ReplicaSets. A Deployment without a
ReplicaSet would make a new one, with all of its pods a second time; therefore the ReplicaSet is
inferred. A PriorityClass is inferred from the pods that were admitted with it, since their
replacements are admitted, too. Other missing objects are counted as issues.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from replay.importers.recording.survey import SIMULATED_OWNERS, inferred_class
from replay.importers.records import Issues
from replay.kube.kinds import KINDS, metadata
from reprieve.kube.v1beta1.meta_pb2 import ObjectMeta, OwnerReference
from reprieve.kube.v1beta1.object_pb2 import KubernetesObject
from reprieve.kube.v1beta1.pod_pb2 import Pod
from reprieve.kube.v1beta1.workloads_pb2 import Deployment, PodTemplateSpec, ReplicaSet
from services.kube.pod import SYSTEM_CLASSES, TERMINAL_PHASES

_HASH_LABEL = "pod-template-hash"
_NO_OWNER = "a pod's controller is not in the list: no other pod takes its place when it goes"
_NO_NODE = "a pod's node is not in the list: the pod stays on it as it is"
_NO_PODS = "a controller reports pods, and none of them is in the list: it creates them again"
_NO_SET = "a ReplicaSet is not in the list: inferred from its Deployment and its pods"
_NO_CLASS = "a PriorityClass is not in the list: inferred from the pods that name it"


def inferred_objects(objects: Sequence[KubernetesObject], issues: Issues) -> list[KubernetesObject]:
    """Return missing PriorityClasses and ReplicaSets; `issues` counts what cannot be inferred."""
    listing = _Listing(objects)
    inferred = [*_classes(listing, issues), *_replica_sets(listing, issues)]
    for pod in listing.pods:
        if pod.spec.node_name and pod.spec.node_name not in listing.nodes:
            issues.add("missing-node", _named("Pod", pod.metadata), _NO_NODE)
    for where in listing.without_pods():
        issues.add("missing-pods", where, _NO_PODS)
    return inferred


class _Listing:
    """The objects of a list, indexed by what refers to them; `owners` are the UIDs of owners."""

    def __init__(self, objects: Iterable[KubernetesObject]) -> None:
        self.pods: list[Pod] = []
        self.nodes: set[str] = set()
        self.classes = {system_class.name for system_class in SYSTEM_CLASSES}
        self.uids: set[str] = set()
        self.owners: set[str] = set()
        self.deployments: dict[str, Deployment] = {}
        self._by_name: dict[tuple[str, str], Deployment] = {}
        self._reporting: list[tuple[str, str]] = []
        for message in objects:
            field = message.WhichOneof("object") or ""
            meta = metadata(message)
            self.uids.add(meta.uid)
            owner = _controller(meta)
            if owner is not None:
                self.owners.add(owner.uid)
            match field:
                case "pod" if message.pod.status.phase not in TERMINAL_PHASES:
                    self.pods.append(message.pod)
                case "node":
                    self.nodes.add(meta.name)
                case "priority_class":
                    self.classes.add(meta.name)
                case "deployment":
                    self.deployments[meta.uid] = message.deployment
                    self._by_name[meta.namespace, meta.name] = message.deployment
            if _reports_pods(message, field):
                self._reporting.append((meta.uid, _named(KINDS[field], meta)))

    def deployment_of(self, pod: ObjectMeta, owner: OwnerReference) -> Deployment | None:
        """Return the Deployment of a pod's ReplicaSet, by that name without its hash."""
        name = owner.name.rpartition("-")[0] if owner.kind == "ReplicaSet" else ""
        replica_set = self._by_name.get((pod.namespace, name))
        if replica_set is None or _HASH_LABEL not in pod.labels:
            return None
        labels = replica_set.spec.selector.match_labels
        return replica_set if all(pod.labels.get(key) == labels[key] for key in labels) else None

    def without_pods(self) -> list[str]:
        """Return the controllers that report pods and own nothing in the list."""
        return [where for uid, where in self._reporting if uid not in self.owners]


def _classes(listing: _Listing, issues: Issues) -> Iterator[KubernetesObject]:
    """Yield the missing PriorityClasses, each from the pod of it that was created last."""
    last: dict[str, Pod] = {}
    for pod in listing.pods:
        name = pod.spec.priority_class_name
        if name and name not in listing.classes and pod.spec.HasField("priority"):
            other = last.get(name)
            if other is None or _created_ns(other.metadata) <= _created_ns(pod.metadata):
                last[name] = pod
    for name, pod in last.items():
        made = inferred_class(name, pod.spec.priority, pod.spec.preemption_policy)
        issues.add("inferred", f"PriorityClass {name}", _NO_CLASS)
        yield KubernetesObject(priority_class=made)


def _replica_sets(listing: _Listing, issues: Issues) -> Iterator[KubernetesObject]:
    missing: dict[str, dict[str, list[Pod]]] = {}
    for pod in listing.pods:
        owner = _controller(pod.metadata)
        if owner is None or owner.kind not in SIMULATED_OWNERS["Pod"] or owner.uid in listing.uids:
            continue
        deployment = listing.deployment_of(pod.metadata, owner)
        if deployment is None:
            issues.add("missing-owner", _named("Pod", pod.metadata), _NO_OWNER)
        else:
            sets = missing.setdefault(deployment.metadata.uid, {})
            sets.setdefault(owner.uid, []).append(pod)
    for uid, sets in missing.items():
        is_alone = uid not in listing.owners
        newest = max(
            sets,
            key=lambda set_uid: max(
                _created_ns(replica_set.metadata) for replica_set in sets[set_uid]
            ),
        )
        for set_uid, pods in sets.items():
            is_current = is_alone and set_uid == newest
            made = _replica_set(listing.deployments[uid], pods, is_current=is_current)
            issues.add("inferred", _named("ReplicaSet", made.metadata), _NO_SET)
            listing.owners.add(uid)
            yield KubernetesObject(replica_set=made)


def _replica_set(deployment: Deployment, pods: Sequence[Pod], *, is_current: bool) -> ReplicaSet:
    first = min((pod.metadata for pod in pods), key=_created_ns)
    owner = _controller(first)
    assert owner is not None  # noqa: S101 - the caller found the pods by it
    template = PodTemplateSpec()
    if is_current:
        template.CopyFrom(deployment.spec.template)
    else:
        template.spec.CopyFrom(pods[0].spec)
        template.spec.ClearField("node_name")
        template.metadata.labels.MergeFrom(first.labels)
    hash_ = first.labels[_HASH_LABEL]
    template.metadata.labels[_HASH_LABEL] = hash_
    made = ReplicaSet()
    made.metadata.name, made.metadata.namespace = owner.name, first.namespace
    made.metadata.uid = owner.uid
    if first.HasField("creation_timestamp"):
        made.metadata.creation_timestamp.CopyFrom(first.creation_timestamp)
    made.metadata.labels.MergeFrom(template.metadata.labels)
    made.metadata.owner_references.add(
        api_version="apps/v1",
        kind="Deployment",
        name=deployment.metadata.name,
        uid=deployment.metadata.uid,
        controller=True,
    )
    made.spec.replicas = sum(not pod.metadata.HasField("deletion_timestamp") for pod in pods)
    made.spec.selector.CopyFrom(deployment.spec.selector)
    made.spec.selector.match_labels[_HASH_LABEL] = hash_
    made.spec.template.CopyFrom(template)
    return made


def _controller(meta: ObjectMeta) -> OwnerReference | None:
    return next((owner for owner in meta.owner_references if owner.controller), None)


def _reports_pods(message: KubernetesObject, field: str) -> bool:
    match field:
        case "deployment" | "replica_set" | "replication_controller" | "stateful_set":
            return bool(getattr(message, field).status.replicas)
        case "daemon_set":
            return bool(message.daemon_set.status.current_number_scheduled)
        case "job":
            return bool(message.job.status.active)
    return False


def _named(kind: str, meta: ObjectMeta) -> str:
    return f"{kind} {meta.namespace}/{meta.name}"


def _created_ns(meta: ObjectMeta) -> int:
    return meta.creation_timestamp.ToNanoseconds()
