"""The snapshot's objects beside nodes and pods, which plugins look up by name.

An epoch counts the changes of a group of kinds, so that values derived from them can be cached
until one of them changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from services.framework.snapshot.devices import DEVICE_KINDS, DeviceObject, Devices
from services.kube.devices import DeviceClass, ResourceClaim, ResourceSlice
from services.kube.pod import EMPTY
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
        value: CatalogObject | None = None if place is None else self._shelf(place[0]).get(key)
        return value

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
