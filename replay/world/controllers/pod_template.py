"""Making a controller's pod: its name, its UID, its owner, and the life that the trace tells of it.

Names and UIDs are hashes of the owner and a number, so that two runs pair their pods. The number
counts all pods that the owner ever had; of an owner that gives each pod a place (an ordinal, a
node, a completion index) it counts those of the place, so that a place's pods pair whatever
happens elsewhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import chain, count

from replay.kube.identity import name_suffix, object_uid
from replay.world.api.cluster import Cluster
from replay.world.api.conditions import ready_since_ns
from replay.world.api.pod_record import PodRecord, object_ref
from replay.world.journal import Journal
from replay.world.kubelet.pod_lifecycle import Lives
from reprieve.kube.v1beta1 import meta_pb2, pod_pb2, workloads_pb2
from reprieve.trace.v1beta1 import trace_pb2
from services.rpc.kube.fields import time_ns

GENERATED_BASE_MAX = 58
"""Letters of a generateName that are kept, so that a name of 63 comes out."""
REVISION_LABEL = "controller-revision-hash"
"""Which template a pod of a StatefulSet or a DaemonSet was made from."""
_BATCH = frozenset({"Job", "CronJob"})
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
_PHASES = {"Pending": 0, "Unknown": 1, "Running": 2}
_INT32_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Owner:
    """Who makes a pod."""

    kind: str
    meta: meta_pb2.ObjectMeta

    def own(self, meta: meta_pb2.ObjectMeta) -> None:
        """Put down that this owner manages an object."""
        version = "v1" if self.kind == "ReplicationController" else "apps/v1"
        meta.owner_references.add(
            api_version="batch/v1" if self.kind in _BATCH else version,
            kind=self.kind,
            name=self.meta.name,
            uid=self.meta.uid,
            controller=True,
        )


class PodMaker:
    """Makes the pods of all controllers, and remembers whose pods were refused."""

    def __init__(self, cluster: Cluster, lives: Lives, journal: Journal) -> None:
        self._cluster = cluster
        self._lives = lives
        self._journal = journal
        self._recorded: dict[tuple[str, str, str, int], trace_pb2.ControllerPod] = {}
        self._recorded_names: dict[tuple[str, str, str, str], list[trace_pb2.ControllerPod]] = {}
        self._made_at: dict[tuple[str, str], int] = {}
        self._refused: dict[str, None] = {}

    def expect(self, record: trace_pb2.ControllerPod) -> None:
        """Take what the trace tells of a pod (or a ReplicaSet) that a controller will make."""
        owner = record.owner
        named = (owner.kind, owner.namespace, owner.name)
        self._recorded[(*named, record.ordinal)] = record
        if owner.kind == "StatefulSet" and record.name:
            self._recorded_names.setdefault((*named, record.name), []).append(record)

    def recorded(self, owner: Owner, ordinal: int) -> trace_pb2.ControllerPod | None:
        """Return what the trace tells of what an owner makes as its next of that number."""
        named = (owner.kind, owner.meta.namespace, owner.meta.name)
        return self._recorded.get((*named, ordinal))

    def draft(self, owner: Owner, template: workloads_pb2.PodTemplateSpec) -> pod_pb2.Pod:
        """Return a pod of the template that has no name yet."""
        pod = pod_pb2.Pod()
        pod.spec.CopyFrom(template.spec)
        pod.metadata.labels.update(template.metadata.labels)
        pod.metadata.annotations.update(template.metadata.annotations)
        pod.metadata.namespace = owner.meta.namespace
        owner.own(pod.metadata)
        return pod

    def create(
        self, now_ns: int, owner: Owner, pod: pod_pb2.Pod, *, place: str = "", base: str = ""
    ) -> bool:
        """Create a drafted pod and tell whether it was admitted; a refusal is noted.

        A pod that has no name gets one that begins with `base`, which is the owner's where it is
        not given.
        """
        meta, own = pod.metadata, owner.meta
        born = self._cluster.births.get(own.uid, 0)
        ordinal, identity = born, own.uid
        if place:
            ordinal, identity = self._made_at.get((own.uid, place), 0), f"{own.uid}/{place}"
        recorded = self._life_of(owner, born, meta.name)
        if not meta.name:
            meta.generate_name = base or f"{own.name}-"
            wished = recorded.name if recorded else ""
            meta.name = self._free_name(meta, identity, ordinal, wished)
        meta.uid = object_uid("Pod", own.namespace, meta.name, identity, ordinal)
        life = trace_pb2.PodLife()
        if recorded is not None:
            life.CopyFrom(recorded.life)
        refusal = self._lives.create(now_ns, pod, life)
        if refusal:
            self._journal.note("refused", refusal)
            self._refused[own.uid] = None
            return False
        if place:
            self._made_at[own.uid, place] = ordinal + 1
        self._journal.made(now_ns, object_ref("Pod", meta), object_ref(owner.kind, own), born)
        return True

    def take_refused(self) -> dict[str, None]:
        """Return the owners whose pods were refused since this was last asked."""
        refused, self._refused = self._refused, {}
        return refused

    def _life_of(self, owner: Owner, born: int, name: str) -> trace_pb2.ControllerPod | None:
        """Return what the trace tells of the owner's next pod, or its next pod of that name."""
        if not name:
            return self.recorded(owner, born)
        named = (owner.kind, owner.meta.namespace, owner.meta.name, name)
        waiting = self._recorded_names.get(named)
        return waiting.pop(0) if waiting else None

    def _free_name(
        self, meta: meta_pb2.ObjectMeta, identity: str, ordinal: int, recorded: str
    ) -> str:
        """Return the recorded name, or one that is made, whichever no other pod has.

        Source: kubernetes v1.34 apiserver pkg/storage/names/generate.go, GenerateName.
        """
        base = meta.generate_name[:GENERATED_BASE_MAX]
        made = (base + name_suffix(identity, ordinal, 5 + more) for more in count())
        names = chain((recorded,) if recorded else (), made)
        return next(
            name for name in names if f"{meta.namespace}/{name}" not in self._cluster.pod_uids
        )


def template_hash(template: workloads_pb2.PodTemplateSpec) -> str:
    """Return what tells one template from another, ten hexadecimal digits."""
    text = template.SerializeToString(deterministic=True)
    return blake2b(text, digest_size=5).hexdigest()


def first_to_go(
    pods: Sequence[PodRecord], related: Iterable[PodRecord], now_ns: int
) -> list[PodRecord]:
    """Return active pods by who goes first.

    Unassigned; pending; not ready; of a lower deletion cost; with more of the active `related`
    pods (those of the same Deployment) on its node; ready for a shorter time; created later; the
    UID. The two times count by their binary logarithm (so that age among equals is no fate), and
    of two pods whose times to readiness are alike but not equal upstream compares only the UIDs.
    Source: kubernetes v1.34 pkg/controller/controller_utils.go, ActivePodsWithRanks.Less,
    logarithmicRankDiff; pkg/controller/replicaset/replica_set.go,
    getPodsRankedByRelatedPodsOnSameNode.
    """
    crowd = Counter(
        pod.node_name for pod in related if not pod.is_terminal and not pod.is_terminating
    )

    def rank(pod: PodRecord) -> tuple[object, ...]:
        is_ready = pod.is_ready
        return (
            bool(pod.node_name),
            _PHASES.get(pod.message.status.phase, 0),
            is_ready,
            deletion_cost(pod),
            -crowd[pod.node_name],
            _magnitude(now_ns - ready_since_ns(pod.message.status)) if is_ready else 0,
            _magnitude(now_ns - time_ns(pod.message.metadata.creation_timestamp)),
            pod.uid,
        )

    return sorted(pods, key=rank)


def deletion_cost(pod: PodRecord) -> int:
    """Return the pod's deletion cost; one that is no int32 in plain form counts as 0."""
    text = pod.message.metadata.annotations.get(DELETION_COST, "0")
    digits = text.removeprefix("-")
    plain = digits.isascii() and digits.isdigit() and (digits == "0" or digits[0] != "0")
    if not plain or text == "-0" or not -_INT32_MAX - 1 <= int(text) <= _INT32_MAX:
        return 0
    return int(text)


def _magnitude(age_ns: int) -> int:
    """Return the whole binary logarithm of an age, -1 for none."""
    return age_ns.bit_length() - 1 if age_ns > 0 else -1
