"""Nodes: the fields that the scheduler reads.

Source: kubernetes v1.34 api/core/v1/types.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from services.kube.pod import EMPTY, NO_RESOURCES, Condition
from services.kube.selector import NodeSelector
from services.kube.taints import Taint

LABEL_HOSTNAME = "kubernetes.io/hostname"
LABEL_ZONE = "topology.kubernetes.io/zone"
LABEL_REGION = "topology.kubernetes.io/region"
LABEL_ZONE_BETA = "failure-domain.beta.kubernetes.io/zone"
LABEL_REGION_BETA = "failure-domain.beta.kubernetes.io/region"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerImage:
    """An image on a node, with all of its names."""

    names: tuple[str, ...]
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node; `allocatable` by resource name ("cpu" in thousandths of a core, else whole units).

    The codec replaces a missing allocatable by the capacity, as an API server's defaulting does.
    `declared_features` are the features of its kubelet that pods may require.
    """

    name: str
    uid: str = ""
    labels: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    annotations: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    allocatable: Mapping[str, int] = field(default_factory=lambda: NO_RESOURCES)
    capacity: Mapping[str, int] = field(default_factory=lambda: NO_RESOURCES)
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    images: tuple[ContainerImage, ...] = ()
    conditions: tuple[Condition, ...] = ()
    declared_features: tuple[str, ...] = ()
    resource_version: str = ""

    @property
    def zone_key(self) -> str:
        """Return region and zone as one key; "" if the node has neither label.

        Source: kubernetes v1.34 component-helpers/node/topology/helpers.go, GetZoneKey.
        """
        region = self.labels.get(LABEL_REGION_BETA, self.labels.get(LABEL_REGION, ""))
        zone = self.labels.get(LABEL_ZONE_BETA, self.labels.get(LABEL_ZONE, ""))
        return f"{region}:\x00:{zone}" if region or zone else ""

    def matches(self, labels: Iterable[tuple[str, str]], required: NodeSelector | None) -> bool:
        """Return whether a pod's nodeSelector and required node affinity admit the node.

        Source: kubernetes v1.34 component-helpers/scheduling/corev1/nodeaffinity,
        GetRequiredNodeAffinity.
        """
        if any(self.labels.get(key) != value for key, value in labels):
            return False
        return required is None or required.matches(self.labels, self.name)
