"""PersistentVolumeClaims that a StatefulSet makes for its pods.

No volume controller is simulated: a claim whose class binds with its first consumer is left to the
scheduler, as in a cluster; any other is created bound, to a volume of its size that every node can
reach, as if a provisioner had acted at once.

Source: kubernetes v1.34 pkg/controller/statefulset/stateful_pod_control.go,
createMissingPersistentVolumeClaims; pkg/controller/volume/persistentvolume/pv_controller.go, bind.
"""

from __future__ import annotations

from replay.hashing import object_uid
from replay.world.api.cluster import Cluster
from replay.world.part import Part
from reprieve.kube.v1beta1 import meta_pb2, object_pb2, storage_pb2
from services.rpc.kube.fields import set_time

_BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
_DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
_LATE = "WaitForFirstConsumer"


class Claims(Part):
    """The claims and storage classes of the cluster; creates the claims that are missing."""

    kinds = frozenset({"PersistentVolumeClaim", "StorageClass"})
    _keys: set[str]
    _classes: dict[str, storage_pb2.StorageClass]

    def __init__(self, cluster: Cluster) -> None:
        super().__init__()
        self._cluster = cluster

    def see(self, message: object_pb2.KubernetesObject) -> None:
        """Note a user's claim or storage class; other kinds are ignored."""
        if message.HasField("persistent_volume_claim"):
            meta = message.persistent_volume_claim.metadata
            self._keys.add(f"{meta.namespace or 'default'}/{meta.name}")
        elif message.HasField("storage_class"):
            self._classes[message.storage_class.metadata.name] = message.storage_class

    def forget(self, ref: meta_pb2.ObjectReference) -> None:
        """Note that an object was deleted."""
        if ref.kind == "PersistentVolumeClaim":
            self._keys.discard(f"{ref.namespace or 'default'}/{ref.name}")
        elif ref.kind == "StorageClass":
            self._classes.pop(ref.name, None)

    def provide(
        self, now_ns: int, template: storage_pb2.PersistentVolumeClaim, namespace: str, name: str
    ) -> None:
        """Create a claim from its template, unless there is one of that name."""
        key = f"{namespace}/{name}"
        if key in self._keys:
            return
        self._keys.add(key)
        wrapped = object_pb2.KubernetesObject()
        claim = wrapped.persistent_volume_claim
        claim.CopyFrom(template)
        meta = claim.metadata
        meta.namespace, meta.name = namespace, name
        meta.uid = object_uid("PersistentVolumeClaim", namespace, name)
        set_time(meta.creation_timestamp, now_ns)
        claim.status.phase = "Pending"
        if not self._binds_late(claim):
            self._bind(now_ns, claim)
        self._cluster.put_other(now_ns, wrapped, is_new=True)

    def _binds_late(self, claim: storage_pb2.PersistentVolumeClaim) -> bool:
        spec = claim.spec
        if spec.HasField("storage_class_name"):
            storage_class = self._classes.get(spec.storage_class_name)
        else:
            storage_class = next(filter(_is_default, self._classes.values()), None)
            if storage_class is not None:
                spec.storage_class_name = storage_class.metadata.name
        return storage_class is not None and storage_class.volume_binding_mode == _LATE

    def _bind(self, now_ns: int, claim: storage_pb2.PersistentVolumeClaim) -> None:
        meta, spec = claim.metadata, claim.spec
        wrapped = object_pb2.KubernetesObject()
        volume = wrapped.persistent_volume
        volume.metadata.name = f"pvc-{meta.uid}"
        volume.metadata.uid = object_uid("PersistentVolume", "", volume.metadata.name)
        set_time(volume.metadata.creation_timestamp, now_ns)
        volume.spec.capacity.update(spec.resources.requests)
        volume.spec.access_modes.extend(spec.access_modes)
        volume.spec.storage_class_name = spec.storage_class_name
        volume.spec.claim_ref.kind = "PersistentVolumeClaim"
        volume.spec.claim_ref.namespace, volume.spec.claim_ref.name = meta.namespace, meta.name
        volume.spec.claim_ref.uid = meta.uid
        volume.status.phase = "Bound"
        self._cluster.put_other(now_ns, wrapped, is_new=True)
        spec.volume_name = volume.metadata.name
        meta.annotations[_BIND_COMPLETED] = "yes"
        claim.status.phase = "Bound"
        claim.status.access_modes.extend(spec.access_modes)
        claim.status.capacity.update(spec.resources.requests)


def _is_default(storage_class: storage_pb2.StorageClass) -> bool:
    return storage_class.metadata.annotations.get(_DEFAULT_CLASS) == "true"
