"""Persistent volumes, claims, storage classes and the objects that CSI drivers publish.

Sizes are in bytes; None if they are not set.

Source: kubernetes v1.34 api/core/v1/types.go and api/storage/v1/types.go.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from services.kube.node import LABEL_REGION, LABEL_REGION_BETA, LABEL_ZONE, LABEL_ZONE_BETA
from services.kube.pod import EMPTY, OwnerReference
from services.kube.selector import LabelSelector, NodeSelector
from services.kube.volumes import DiskSource

CLASS_ANNOTATION_BETA = "volume.beta.kubernetes.io/storage-class"
NO_PROVISIONER = "kubernetes.io/no-provisioner"
TOPOLOGY_LABELS = (LABEL_ZONE_BETA, LABEL_REGION_BETA, LABEL_ZONE, LABEL_REGION)
"""The labels for zone and region of a volume or a node."""
ZONE_DELIMITER = "__"
"""Separates the zones in the label of a volume that is in several zones."""


class VolumeMode(Enum):
    """The mode of a volume: a file system or a block device."""

    FILESYSTEM = "Filesystem"
    BLOCK = "Block"


class VolumePhase(Enum):
    """The phase of a persistent volume; NONE before a controller has set it."""

    NONE = ""
    PENDING = "Pending"
    AVAILABLE = "Available"
    BOUND = "Bound"
    RELEASED = "Released"
    FAILED = "Failed"


class ClaimPhase(Enum):
    """The phase of a claim; NONE before a controller has set it."""

    NONE = ""
    PENDING = "Pending"
    BOUND = "Bound"
    LOST = "Lost"


class BindingMode(Enum):
    """When a claim of a class is bound."""

    IMMEDIATE = "Immediate"
    WAIT_FOR_FIRST_CONSUMER = "WaitForFirstConsumer"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRef:
    """The claim that a volume is bound to; `uid` "" matches any UID."""

    namespace: str
    name: str
    uid: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PersistentVolume:
    """A volume; `node_affinity` None means that every node can use it.

    `source` is None for a source that no plugin reads (a node's disk or path). `deletion_ns` is
    None unless the volume is being deleted.
    """

    name: str
    uid: str = ""
    labels: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    annotations: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    capacity_bytes: int = 0
    access_modes: tuple[str, ...] = ()
    claim_ref: ClaimRef | None = None
    storage_class_name: str = ""
    volume_mode: VolumeMode = VolumeMode.FILESYSTEM
    node_affinity: NodeSelector | None = None
    volume_attributes_class_name: str | None = None
    source: DiskSource | None = None
    phase: VolumePhase = VolumePhase.NONE
    deletion_ns: int | None = None
    resource_version: str = ""

    @property
    def zones(self) -> list[tuple[str, frozenset[str]]]:
        """Return the zones and regions by label; a label with an empty value is ignored.

        Source: kubernetes v1.34 plugins/volumezone/volume_zone.go, getPVTopologies;
        cloud-provider/volume/helpers/zones.go, LabelZonesToSet.
        """
        labelled: list[tuple[str, frozenset[str]]] = []
        for label in TOPOLOGY_LABELS:
            places = self.labels.get(label, "").split(ZONE_DELIMITER)
            named = frozenset(place.strip() for place in places)
            if "" not in named:
                labelled.append((label, named))
        return labelled


@dataclass(frozen=True, slots=True, kw_only=True)
class PersistentVolumeClaim:
    """A claim; `storage_class_name` None means the default class, "" no class.

    `selector` None matches every volume. `deletion_ns` is None unless the claim is being deleted.
    """

    namespace: str
    name: str
    uid: str = ""
    labels: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    annotations: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    owners: tuple[OwnerReference, ...] = ()
    access_modes: tuple[str, ...] = ()
    selector: LabelSelector | None = None
    request_bytes: int = 0
    volume_name: str = ""
    storage_class_name: str | None = None
    volume_mode: VolumeMode = VolumeMode.FILESYSTEM
    volume_attributes_class_name: str | None = None
    phase: ClaimPhase = ClaimPhase.NONE
    deletion_ns: int | None = None
    resource_version: str = ""

    @property
    def key(self) -> str:
        """Return namespace/name."""
        return f"{self.namespace}/{self.name}"

    @property
    def class_name(self) -> str:
        """Return the requested class, from the beta annotation or the spec; "" if there is none.

        Source: kubernetes v1.34 component-helpers/storage/volume/helpers.go,
        GetPersistentVolumeClaimClass.
        """
        return self.annotations.get(CLASS_ANNOTATION_BETA, self.storage_class_name or "")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyRequirement:
    """A label that a node must have, with one of `values`."""

    key: str
    values: tuple[str, ...] = ()


TopologyTerm = tuple[TopologyRequirement, ...]
"""A conjunction of requirements on a node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageClass:
    """A storage class; without `allowed_topologies`, volumes can be provisioned everywhere."""

    name: str
    provisioner: str = ""
    parameters: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    annotations: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    binding_mode: BindingMode = BindingMode.IMMEDIATE
    allowed_topologies: tuple[TopologyTerm, ...] = ()
    creation_ns: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CsiNodeDriver:
    """A driver on a node; `allocatable_count` None means no limit."""

    name: str
    node_id: str = ""
    topology_keys: tuple[str, ...] = ()
    allocatable_count: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CsiNode:
    """A node's drivers; `name` is the node's name. An annotation lists migrated plugins."""

    name: str
    annotations: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    drivers: tuple[CsiNodeDriver, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeAttachment:
    """A persistent volume, by name, or an inline volume that `attacher` attaches to a node."""

    name: str
    attacher: str = ""
    node_name: str = ""
    persistent_volume_name: str | None = None
    inline: DiskSource | None = None
    attached: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CsiDriver:
    """A driver; `storage_capacity`: whether scheduling considers its CSIStorageCapacity objects."""

    name: str
    attach_required: bool = True
    storage_capacity: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CsiStorageCapacity:
    """Free capacity of a class on the nodes that `node_topology` selects (None selects none)."""

    namespace: str
    name: str
    node_topology: LabelSelector | None = None
    storage_class_name: str = ""
    capacity_bytes: int | None = None
    maximum_volume_size_bytes: int | None = None
