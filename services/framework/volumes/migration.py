"""In-tree disks that a CSI driver serves: their drivers, handles and topology.

Only GCE and AWS disks may be refused: by zones that are not all in one region, and by an id in the
form of a URL that names no volume.

Source: kubernetes v1.34 staging/src/k8s.io/csi-translation-lib/plugins/ (gce_pd.go, aws_ebs.go,
azure_disk.go, openstack_cinder.go, portworx.go, vsphere_volume.go, in_tree_volume.go);
pkg/scheduler/framework/plugins/nodevolumelimits/utils.go, isCSIMigrationOn;
volumebinding/binder.go, tryTranslatePVToCSI.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from services.kube.node import LABEL_REGION, LABEL_REGION_BETA, LABEL_ZONE, LABEL_ZONE_BETA
from services.kube.selector import NodeSelector, NodeSelectorTerm, Operator, Requirement
from services.kube.storage import ZONE_DELIMITER, CsiNode, PersistentVolume
from services.kube.volumes import (
    AwsElasticBlockStore,
    AzureDisk,
    AzureFile,
    CinderDisk,
    GcePersistentDisk,
    PortworxVolume,
    VsphereDisk,
)

MIGRATED_ANNOTATION = "storage.alpha.kubernetes.io/migrated-plugins"
_UNSPECIFIED = "UNSPECIFIED"
_REGIONAL_ZONE = re.compile(r"([^-]*-[^-]*)-[^-]*")
_AWS_SCHEME = "aws://"
_AWS_ID = re.compile(r"vol-[^/]*")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_USER = re.compile(r"[-A-Za-z0-9._:~!$&'()*+,;=%@]*")
_IN_NAME = r"""(?:[-A-Za-z0-9_.~!$&'()*+,;=\[\]<>"]|[^\x00-\x7f]|%25|%[89A-Fa-f][0-9A-Fa-f])"""
_IN_HOST = rf"(?:{_IN_NAME}|:)"
_HOST = re.compile(rf"\[{_IN_HOST}*\](:[0-9]*)?|(?!\[)({_IN_NAME}*|{_IN_HOST}*:[0-9]*)")


class TranslationError(ValueError):
    """Raised for a disk that has no CSI volume."""


@dataclass(frozen=True, slots=True)
class Migrated:
    """An in-tree plugin and its driver.

    `topology_key` is the driver's for zones, "" where the translation leaves the topology alone;
    `region_key` is the one for regions of a driver that has one. `handle` names the CSI volume of
    a disk with these labels, or raises TranslationError. `is_on` says whether nodes with a
    CSINode use the driver: always, or where the CSINode says so, or never.
    """

    name: str
    driver: str
    topology_key: str
    handle: Callable[[Any, dict[str, str]], str]
    always: bool = True
    when_named: bool = False
    region_key: str = ""

    def is_on(self, csi_node: CsiNode | None) -> bool:
        """Return whether the node's volumes of this plugin are the driver's."""
        if csi_node is None:
            return False
        return self.always or (self.when_named and self.name in migrated_plugins(csi_node))


def migrated_plugins(csi_node: CsiNode) -> list[str]:
    """Return the in-tree plugins that CSI drivers serve according to the node."""
    text = csi_node.annotations.get(MIGRATED_ANNOTATION, "")
    return text.split(",") if text else []


def _gce_handle(disk: GcePersistentDisk, labels: dict[str, str]) -> str:
    zones = (labels.get(LABEL_ZONE_BETA) or labels.get(LABEL_ZONE, "")).split(ZONE_DELIMITER)
    if len(zones) > 1:
        region = _region_of(zones)
        return f"projects/{_UNSPECIFIED}/regions/{region}/disks/{disk.pd_name}"
    return f"projects/{_UNSPECIFIED}/zones/{zones[0] or _UNSPECIFIED}/disks/{disk.pd_name}"


def _region_of(zones: list[str]) -> str:
    """Return the one region that all zones, such as "us-west1-a", are in."""
    failed = "failed to get region from zones:"
    regions: set[str] = set()
    for zone in zones:
        parts = _REGIONAL_ZONE.fullmatch(zone)
        if parts is None:
            raise TranslationError(
                f"{failed} zone in unexpected format, "
                f"expected: {{locale}}-{{region}}-{{zone}}, got: {zone}"
            )
        regions.add(parts[1])
    if len(regions) != 1:
        listed = " ".join(f"{region}:{{}}" for region in sorted(regions))
        raise TranslationError(
            f"{failed} multiple or no regions gotten from zones, got: map[{listed}]"
        )
    return regions.pop()


def _aws_handle(disk: AwsElasticBlockStore, labels: dict[str, str]) -> str:  # noqa: ARG001 - no zone in it
    if not disk.volume_id.startswith(_AWS_SCHEME):
        return disk.volume_id
    path = _url_path(disk.volume_id)
    handle = None if path is None else path.strip("/")
    if handle is None or not _AWS_ID.fullmatch(handle):
        problem = "invalid disk name" if handle is None else "invalid format for AWS volume"
        raise TranslationError(
            f"failed to translate Kubernetes ID to EBS Volume ID {problem} ({disk.volume_id})"
        )
    return handle


def _url_path(text: str) -> str | None:
    """Return the path of a URL with an authority, decoded; None for any other text.

    Source: Go's net/url, Parse.
    """
    whole, _, fragment = text.partition("#")
    authority, slash, rest = whole.partition("?")[0].removeprefix(_AWS_SCHEME).partition("/")
    user, _, host = authority.rpartition("@")
    path = slash + rest
    escaped = (user, path, fragment)
    if _CONTROL.search(whole) or any(_BAD_ESCAPE.search(text) for text in escaped):
        return None
    if not _USER.fullmatch(user) or not _HOST.fullmatch(host):
        return None
    return unquote(path)


_PLUGINS: dict[type, Migrated] = {
    GcePersistentDisk: Migrated(
        "kubernetes.io/gce-pd", "pd.csi.storage.gke.io", "topology.gke.io/zone", _gce_handle
    ),
    AwsElasticBlockStore: Migrated(
        "kubernetes.io/aws-ebs", "ebs.csi.aws.com", "topology.ebs.csi.aws.com/zone", _aws_handle
    ),
    AzureDisk: Migrated(
        "kubernetes.io/azure-disk", "disk.csi.azure.com", "", lambda disk, _: disk.disk_uri
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
        "kubernetes.io/vsphere-volume",
        "csi.vsphere.vmware.com",
        "topology.csi.vmware.com/zone",
        lambda disk, _: disk.volume_path,
        always=False,
        region_key="topology.csi.vmware.com/region",
    ),
}
_BY_NAME = {plugin.name: plugin for plugin in _PLUGINS.values()}


def migrated(source: object) -> Migrated | None:
    """Return the plugin of an in-tree disk, None for anything else."""
    return _PLUGINS.get(type(source))


def migrated_provisioner(name: str) -> Migrated | None:
    """Return the plugin of a provisioner's name, None for a driver's own."""
    return _BY_NAME.get(name)


def translation_problem(volume: PersistentVolume) -> str:
    """Return why an in-tree volume cannot be translated, "" where it can."""
    plugin = migrated(volume.source)
    try:
        if plugin is not None:
            plugin.handle(volume.source, dict(volume.labels))
    except TranslationError as error:
        return str(error)
    return ""


def affinity_on(volume: PersistentVolume, csi_node: CsiNode | None) -> NodeSelector | None:
    """Return the nodes that reach a volume, by the driver's labels where the node migrated it.

    Raises TranslationError where it did and the volume cannot be translated.
    """
    plugin = migrated(volume.source)
    if plugin is None or csi_node is None or plugin.name not in migrated_plugins(csi_node):
        return volume.node_affinity
    plugin.handle(volume.source, dict(volume.labels))
    return _translated(volume, plugin) if plugin.topology_key else volume.node_affinity


def _translated(volume: PersistentVolume, plugin: Migrated) -> NodeSelector | None:
    terms = volume.node_affinity.terms if volume.node_affinity is not None else ()
    zone, region = _topology_labels(terms, volume)
    zones, regions = volume.labels.get(zone, ""), volume.labels.get(region, "")
    if plugin.region_key:
        terms = _carried(terms, zone, plugin.topology_key, [zones])
        terms = _carried(terms, region, plugin.region_key, [regions])
    else:
        terms = _carried(terms, zone, plugin.topology_key, zones.split(ZONE_DELIMITER))
        if region == LABEL_REGION_BETA:
            terms = _renamed(terms, LABEL_REGION_BETA, LABEL_REGION)
    if volume.node_affinity is None and not terms:
        return None
    return NodeSelector(terms=terms)


def _carried(
    terms: tuple[NodeSelectorTerm, ...], label: str, key: str, labelled: list[str]
) -> tuple[NodeSelectorTerm, ...]:
    """Put the driver's key for the label, or add what the volume's own label names."""
    if any(
        expression.key == label and expression.values
        for term in terms
        for expression in term.match_expressions
    ):
        return _renamed(terms, label, key)
    values = tuple(sorted({zone.strip() for zone in labelled} - {""}))
    if not values:
        return terms
    added = Requirement(key=key, operator=Operator.IN, values=values)
    return tuple(_with(term, added) for term in terms or (NodeSelectorTerm(),))


def _topology_labels(
    terms: tuple[NodeSelectorTerm, ...], volume: PersistentVolume
) -> tuple[str, str]:
    """Return the labels for zone and region: those of the zone that is named first anywhere."""
    in_terms = {expression.key for term in terms for expression in term.match_expressions}
    for keys in (in_terms, volume.labels):
        if LABEL_ZONE in keys:
            return LABEL_ZONE, LABEL_REGION
        if LABEL_ZONE_BETA in keys:
            return LABEL_ZONE_BETA, LABEL_REGION_BETA
    return LABEL_ZONE, LABEL_REGION


def _renamed(
    terms: tuple[NodeSelectorTerm, ...], old: str, new: str
) -> tuple[NodeSelectorTerm, ...]:
    return tuple(
        NodeSelectorTerm(
            match_expressions=tuple(
                Requirement(key=new, operator=expression.operator, values=expression.values)
                if expression.key == old
                else expression
                for expression in term.match_expressions
            ),
            match_fields=term.match_fields,
        )
        for term in terms
    )


def _with(term: NodeSelectorTerm, added: Requirement) -> NodeSelectorTerm:
    return NodeSelectorTerm(
        match_expressions=(*term.match_expressions, added), match_fields=term.match_fields
    )
