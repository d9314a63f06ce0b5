"""The snapshot's objects beside nodes and pods: nominations, and objects that plugins look up.

The queue is the record of nominations; the scheduler copies it, because the filters count nominated
pods (kubernetes v1.34 pkg/scheduler/backend/queue/nominator.go). Other objects are found by name.
An epoch counts the changes of a group of kinds, so that values derived from them can be cached
until one of them changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from services.framework.snapshot.devices import DEVICE_KINDS, DeviceObject, Devices
from services.kube.devices import DeviceClass, ResourceClaim, ResourceSlice
from services.kube.pod import EMPTY, Pod
from services.kube.storage import (
    CsiDriver,
    CsiNode,
    CsiStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from services.kube.workloads import Controller, ControllerKind, Namespace, Service


class NominatedPlace(NamedTuple):
    """The node that a pod is nominated to, and its place among the pods nominated there, from 0."""

    node_name: str
    place: int


class Nominations:
    """Nominated pods by node, in the order of their nomination; `epoch` counts the changes.

    `changed` is called with the name of each node that gets or loses one.
    """

    __slots__ = ("_by_node", "_changed", "_node_of", "epoch")

    def __init__(self, changed: Callable[[str], None]) -> None:
        self._changed = changed
        self._by_node: dict[str, dict[str, Pod]] = {}
        self._node_of: dict[str, str] = {}
        self.epoch = 0

    def put(self, pod: Pod, node_name: str) -> None:
        """Nominate `pod`; one that was nominated already moves to the end."""
        self.drop(pod.uid)
        self._by_node.setdefault(node_name, {})[pod.uid] = pod
        self._node_of[pod.uid] = node_name
        self.epoch += 1
        self._changed(node_name)

    def drop(self, uid: str) -> None:
        """Forget a pod's nomination, if it has one."""
        node_name = self._node_of.pop(uid, None)
        if node_name is None:
            return
        self.epoch += 1
        self._changed(node_name)
        del self._by_node[node_name][uid]
        if not self._by_node[node_name]:
            del self._by_node[node_name]

    def restore(self, pod: Pod, nominated: NominatedPlace | None) -> None:
        """Restore a place returned by `place_of`; other nominations must be as they were then.

        So changes are undone exactly where the latest is undone first.
        """
        if self.place_of(pod.uid) == nominated:
            return
        self.drop(pod.uid)
        if nominated is None:
            return
        self.put(pod, nominated.node_name)
        held = self._by_node[nominated.node_name]
        for uid in list(held)[nominated.place : -1]:
            held[uid] = held.pop(uid)

    def place_of(self, uid: str) -> NominatedPlace | None:
        """Return where a pod is nominated."""
        node_name = self._node_of.get(uid)
        if node_name is None:
            return None
        return NominatedPlace(node_name, list(self._by_node[node_name]).index(uid))

    def node_of(self, uid: str) -> str:
        """Return the node that a pod is nominated to, "" for none."""
        return self._node_of.get(uid, "")

    def any_on(self, node_name: str) -> bool:
        """Return whether pods are nominated to a node."""
        return node_name in self._by_node

    def on(self, node_name: str) -> Sequence[Pod]:
        """Return the pods nominated to a node."""
        return tuple(self._by_node.get(node_name, {}).values())

    def node_names(self) -> Sequence[str]:
        """Return the nodes that pods are nominated to."""
        return tuple(self._by_node)

    def all(self) -> Sequence[Pod]:
        """Return every nominated pod."""
        return [pod for held in self._by_node.values() for pod in held.values()]

    def counted(self, node_name: str, pod: Pod) -> Sequence[Pod]:
        """Return the nominated pods on a node that count in the filters of `pod`.

        These are the others of equal or higher priority.
        Source: kubernetes v1.34 framework/runtime/framework.go, addGENominatedPods.
        """
        held = self._by_node.get(node_name)
        if held is None:
            return ()
        return tuple(
            nominated
            for nominated in held.values()
            if nominated.priority >= pod.priority and nominated.uid != pod.uid
        )

    def __len__(self) -> int:
        return len(self._node_of)


CatalogObject = (
    Namespace
    | Service
    | Controller
    | PersistentVolume
    | PersistentVolumeClaim
    | StorageClass
    | CsiNode
    | VolumeAttachment
    | CsiDriver
    | CsiStorageCapacity
    | DeviceObject
)


class Catalog:
    """The objects by kind; namespaced ones by "namespace/name", others by their name.

    `namespace_epoch`, `workload_epoch` and `storage_epoch` grow with each change of their group.
    `has_workloads` says whether there is any service or controller. `devices` holds slices, classes
    and claims of devices.
    """

    __slots__ = (
        "_controllers",
        "attachments",
        "capacities",
        "claims",
        "classes",
        "csi_drivers",
        "csi_nodes",
        "devices",
        "has_workloads",
        "namespace_epoch",
        "namespaces",
        "services",
        "storage_epoch",
        "volumes",
        "workload_epoch",
    )

    def __init__(self) -> None:
        self.namespaces: dict[str, Namespace] = {}
        self.services: dict[str, Service] = {}
        self._controllers: dict[ControllerKind, dict[str, Controller]] = {
            kind: {} for kind in ControllerKind
        }
        self.volumes: dict[str, PersistentVolume] = {}
        self.claims: dict[str, PersistentVolumeClaim] = {}
        self.classes: dict[str, StorageClass] = {}
        self.csi_nodes: dict[str, CsiNode] = {}
        self.attachments: dict[str, VolumeAttachment] = {}
        self.csi_drivers: dict[str, CsiDriver] = {}
        self.capacities: dict[str, CsiStorageCapacity] = {}
        self.devices = Devices()
        self.has_workloads = False
        self.namespace_epoch = self.workload_epoch = self.storage_epoch = 0

    def controller(self, kind: ControllerKind, namespace: str, name: str) -> Controller | None:
        """Return a controller, None for an unknown one."""
        return self._controllers[kind].get(f"{namespace}/{name}")

    def namespace_labels(self, namespace: str) -> Mapping[str, str]:
        """Return a namespace's labels, none for one without an object."""
        known = self.namespaces.get(namespace)
        return EMPTY if known is None else known.labels

    def services_in(self, namespace: str) -> Iterable[Service]:
        """Return the services of a namespace."""
        return [service for service in self.services.values() if service.namespace == namespace]

    def held(self, kind: str, namespace: str, name: str) -> CatalogObject | None:
        """Return an object by its kind, such as "Namespace", None for an unknown one."""
        key = f"{namespace}/{name}" if namespace else name
        if kind in DEVICE_KINDS:
            return self.devices.held(kind, key)
        if kind in _CONTROLLERS:
            return self._controllers[ControllerKind(kind)].get(key)
        place = _SHELVES.get(_VALUE_OF.get(kind, kind))
        found: CatalogObject | None = None if place is None else self._shelf(place[0]).get(key)
        return found

    def put(self, value: CatalogObject) -> None:
        """Add an object, or replace the one of its name; an equal one changes nothing."""
        if isinstance(value, DeviceClass | ResourceClaim | ResourceSlice):
            self.devices.put(value)
            return
        namespace = getattr(value, "namespace", None)
        key = value.name if namespace is None else f"{namespace}/{value.name}"
        if isinstance(value, Controller):
            shelf: dict[str, Any] = self._controllers[value.kind]
            epoch = "workload_epoch"
        else:
            name, epoch = _SHELVES[type(value).__name__]
            shelf = self._shelf(name)
        if shelf.get(key) != value:
            shelf[key] = value
            self._advance(epoch)

    def remove(self, kind: str, namespace: str, name: str) -> None:
        """Remove an object of a kind such as "Namespace"; an unknown one is ignored."""
        key = f"{namespace}/{name}" if kind in _NAMESPACED else name
        if kind in DEVICE_KINDS:
            self.devices.remove(kind, key)
        elif kind in _CONTROLLERS:
            self._controllers[ControllerKind(kind)].pop(key, None)
            self._advance("workload_epoch")
        elif (place := _SHELVES.get(_VALUE_OF.get(kind, kind))) is not None:
            self._shelf(place[0]).pop(key, None)
            self._advance(place[1])

    def _shelf(self, name: str) -> dict[str, Any]:
        shelf: dict[str, Any] = getattr(self, name)
        return shelf

    def _advance(self, epoch: str) -> None:
        setattr(self, epoch, getattr(self, epoch) + 1)
        self.has_workloads = bool(self.services) or any(self._controllers.values())


_CONTROLLERS = frozenset(kind.value for kind in ControllerKind)
_NAMESPACED = _CONTROLLERS | {
    "Service",
    "PersistentVolumeClaim",
    "CSIStorageCapacity",
    "ResourceClaim",
}
_VALUE_OF = {
    "CSINode": "CsiNode",
    "CSIDriver": "CsiDriver",
    "CSIStorageCapacity": "CsiStorageCapacity",
}
_SHELVES = {
    "Namespace": ("namespaces", "namespace_epoch"),
    "Service": ("services", "workload_epoch"),
    "PersistentVolume": ("volumes", "storage_epoch"),
    "PersistentVolumeClaim": ("claims", "storage_epoch"),
    "StorageClass": ("classes", "storage_epoch"),
    "CsiNode": ("csi_nodes", "storage_epoch"),
    "VolumeAttachment": ("attachments", "storage_epoch"),
    "CsiDriver": ("csi_drivers", "storage_epoch"),
    "CsiStorageCapacity": ("capacities", "storage_epoch"),
}
