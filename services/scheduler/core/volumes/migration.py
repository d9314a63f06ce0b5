"""In-tree disks that a CSI driver serves in truth: their drivers, handles and topology.

Source: kubernetes v1.34 staging/src/k8s.io/csi-translation-lib/plugins/ (gce_pd.go, aws_ebs.go,
azure_disk.go, openstack_cinder.go, portworx.go, in_tree_volume.go); pkg/scheduler/framework/
plugins/nodevolumelimits/utils.go, isCSIMigrationOn; volumebinding/binder.go, tryTranslatePVToCSI.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from services.kube.selector import NodeSelector, NodeSelectorTerm, Operator, Requirement
from services.kube.storage import CsiNode, PersistentVolume
from services.kube.volumes import (
    AwsElasticBlockStore,
    AzureDisk,
    AzureFile,
    CinderDisk,
    GcePersistentDisk,
    PortworxVolume,
    VsphereDisk,
)

ZONE = "topology.kubernetes.io/zone"
REGION = "topology.kubernetes.io/region"
ZONE_BETA = "failure-domain.beta.kubernetes.io/zone"
REGION_BETA = "failure-domain.beta.kubernetes.io/region"
DELIMITER = "__"
_MIGRATED_ANNOTATION = "storage.alpha.kubernetes.io/migrated-plugins"
_UNSPECIFIED = "UNSPECIFIED"
_AWS_ID = re.compile(r"vol-[^/]*")


class TranslationError(ValueError):
    """A disk that has no CSI volume of its own."""


@dataclass(frozen=True, slots=True)
class Migrated:
    """An in-tree plugin and its driver; `topology_key` is the driver's for zones.

    `handle` names the CSI volume of a disk with these labels. `is_on` tells whether nodes with a
    CSINode use the driver: always, or where the CSINode says so, or never.
    """

    name: str
    driver: str
    topology_key: str
    handle: Callable[[Any, dict[str, str]], str]
    always: bool = True
    when_named: bool = False

    def is_on(self, csi_node: CsiNode | None) -> bool:
        """Tell whether the node's volumes of this plugin are the driver's."""
        if csi_node is None:
            return False
        return self.always or (self.when_named and self.name in migrated_plugins(csi_node))


def migrated_plugins(csi_node: CsiNode) -> list[str]:
    """Return the in-tree plugins that a node says are served by drivers."""
    text = csi_node.annotations.get(_MIGRATED_ANNOTATION, "")
    return text.split(",") if text else []


def _gce_handle(disk: GcePersistentDisk, labels: dict[str, str]) -> str:
    zones = (labels.get(ZONE) or labels.get(ZONE_BETA, "")).split(DELIMITER)
    if len(zones) > 1:
        regions = {zone.rpartition("-")[0] for zone in zones}
        if len(regions) != 1:
            raise TranslationError(f"multiple or no regions gotten from zones, got: {zones}")
        return f"projects/{_UNSPECIFIED}/regions/{regions.pop()}/disks/{disk.pd_name}"
    return f"projects/{_UNSPECIFIED}/zones/{zones[0] or _UNSPECIFIED}/disks/{disk.pd_name}"


def _aws_handle(disk: AwsElasticBlockStore, labels: dict[str, str]) -> str:  # noqa: ARG001 - no zone in it
    prefix = "aws://"
    if not disk.volume_id.startswith(prefix):
        return disk.volume_id
    _, _, path = disk.volume_id.removeprefix(prefix).partition("/")
    found = path.strip("/")
    if not _AWS_ID.fullmatch(found):
        raise TranslationError(f"invalid format for AWS volume ({disk.volume_id})")
    return found


_PLUGINS: dict[type, Migrated] = {
    GcePersistentDisk: Migrated(
        "kubernetes.io/gce-pd", "pd.csi.storage.gke.io", "topology.gke.io/zone", _gce_handle
    ),
    AwsElasticBlockStore: Migrated(
        "kubernetes.io/aws-ebs",
        "ebs.csi.aws.com",
        "topology.ebs.csi.aws.com/zone",
        _aws_handle,
    ),
    AzureDisk: Migrated(
        "kubernetes.io/azure-disk",
        "disk.csi.azure.com",
        "topology.disk.csi.azure.com/zone",
        lambda disk, _: disk.disk_uri,
    ),
    CinderDisk: Migrated(
        "kubernetes.io/cinder",
        "cinder.csi.openstack.org",
        "topology.cinder.csi.openstack.org/zone",
        lambda disk, _: disk.volume_id,
    ),
    PortworxVolume: Migrated(
        "kubernetes.io/portworx-volume",
        "pxd.portworx.com",
        "",
        lambda disk, _: disk.volume_id,
        always=False,
        when_named=True,
    ),
    AzureFile: Migrated(
        "kubernetes.io/azure-file", "file.csi.azure.com", "", lambda _, __: "", always=False
    ),
    VsphereDisk: Migrated(
        "kubernetes.io/vsphere-volume", "csi.vsphere.vmware.com", "", lambda _, __: "", always=False
    ),
}
_BY_NAME = {plugin.name: plugin for plugin in _PLUGINS.values()}


def migrated(source: object) -> Migrated | None:
    """Return the plugin of an in-tree disk, None for anything else."""
    return _PLUGINS.get(type(source))


def migrated_provisioner(name: str) -> Migrated | None:
    """Return the plugin of a provisioner's name, None for a driver's own."""
    return _BY_NAME.get(name)


def affinity_on(volume: PersistentVolume, csi_node: CsiNode | None) -> NodeSelector | None:
    """Return the nodes that reach a volume, by the driver's labels where the node migrated it."""
    plugin = migrated(volume.source)
    if plugin is None or not plugin.topology_key or csi_node is None:
        return volume.node_affinity
    if plugin.name not in migrated_plugins(csi_node):
        return volume.node_affinity
    return _translated(volume, plugin.topology_key)


def _translated(volume: PersistentVolume, topology_key: str) -> NodeSelector | None:
    """Put the driver's key for that of zones, or add the zones that the volume's labels name."""
    terms = volume.node_affinity.terms if volume.node_affinity is not None else ()
    zone, region = _topology_labels(terms, volume)
    if any(each.key == zone and each.values for term in terms for each in term.match_expressions):
        terms = _renamed(terms, zone, topology_key)
    else:
        named = volume.labels.get(zone)
        zones = tuple(sorted({each for each in (named or "").split(DELIMITER) if each}))
        if named is not None and zones:
            added = Requirement(key=topology_key, operator=Operator.IN, values=zones)
            terms = tuple(_with(term, added) for term in terms or (NodeSelectorTerm(),))
    if region == REGION_BETA:
        terms = _renamed(terms, REGION_BETA, REGION)
    if volume.node_affinity is None and not terms:
        return None
    return NodeSelector(terms=terms)


def _topology_labels(
    terms: tuple[NodeSelectorTerm, ...], volume: PersistentVolume
) -> tuple[str, str]:
    in_terms = {each.key for term in terms for each in term.match_expressions}
    for keys in (in_terms, set(volume.labels)):
        if keys & {ZONE, REGION}:
            return ZONE, REGION
        if keys & {ZONE_BETA, REGION_BETA}:
            return ZONE_BETA, REGION_BETA
    return ZONE, REGION


def _renamed(
    terms: tuple[NodeSelectorTerm, ...], old: str, new: str
) -> tuple[NodeSelectorTerm, ...]:
    return tuple(
        NodeSelectorTerm(
            match_expressions=tuple(
                Requirement(key=new, operator=each.operator, values=each.values)
                if each.key == old
                else each
                for each in term.match_expressions
            ),
            match_fields=term.match_fields,
        )
        for term in terms
    )


def _with(term: NodeSelectorTerm, added: Requirement) -> NodeSelectorTerm:
    return NodeSelectorTerm(
        match_expressions=(*term.match_expressions, added), match_fields=term.match_fields
    )
