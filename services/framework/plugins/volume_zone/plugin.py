"""VolumeZone: a node in a zone takes only volumes of that zone, by the labels of both.

Source: kubernetes v1.34 plugins/volumezone/volume_zone.go.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from services.framework.columns.columns import Int64s
from services.framework.plugin import FilterPlugin, PreFiltered, Scope
from services.framework.snapshot.catalog import Catalog
from services.framework.snapshot.node_view import NodeView
from services.framework.snapshot.snapshot import Snapshot
from services.framework.status import Code, Status
from services.framework.volumes.claims import claim_of, not_found, waits_for_consumer
from services.kube.node import LABEL_REGION, LABEL_REGION_BETA, LABEL_ZONE, LABEL_ZONE_BETA, Node
from services.kube.pod import Pod, PodSpec
from services.kube.storage import TOPOLOGY_LABELS, PersistentVolumeClaim
from services.kube.volumes import ClaimSource

_GA = {LABEL_ZONE_BETA: LABEL_ZONE, LABEL_REGION_BETA: LABEL_REGION}
_MISMATCH, _UNUSABLE = 1, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class RequiredZones:
    """The node labels that the pod's volumes require; `problem` is why they cannot be read."""

    required: tuple[tuple[str, frozenset[str]], ...] = ()
    problem: str = ""


class VolumeZone(FilterPlugin[RequiredZones]):
    """Filters by zone and region labels."""

    name = "VolumeZone"
    scope = Scope.NODE
    keys_follow_pod = True

    def skips(self, spec: PodSpec) -> bool:
        return not spec.volumes

    def filter_key(self, pod: Pod, snapshot: Snapshot) -> Hashable | None:
        """Return the required labels, None if no volume requires any."""
        if not pod.spec.volumes:
            return None
        zones = _zones(pod, snapshot.catalog)
        return zones if zones.required or zones.problem else None

    def pre_filter(self, pod: Pod, snapshot: Snapshot) -> PreFiltered[RequiredZones]:
        """Read the labels of the pod's volumes; refuse the pod for a missing volume."""
        zones = _zones(pod, snapshot.catalog)
        refusal = self._unusable(zones) if zones.problem else None
        return PreFiltered(data=zones, refusal=refusal)

    def filter_node(self, data: RequiredZones, view: NodeView) -> int:
        return _code(data, view.node)

    def filter(self, data: RequiredZones, snapshot: Snapshot, rows: Int64s, codes: Int64s) -> None:
        alive = snapshot.columns.alive
        for row in rows.tolist():
            codes[row] = _code(data, snapshot.node(row)) if alive[row] else 0

    def filter_status(self, data: RequiredZones, code: int) -> Status:
        if code == _UNUSABLE:
            return self._unusable(data)
        reason = "node(s) had no available volume zone"
        code_ = Code.UNSCHEDULABLE_AND_UNRESOLVABLE
        return Status(code=code_, plugin=self.name, reasons=(reason,))

    def _unusable(self, zones: RequiredZones) -> Status:
        code = Code.UNSCHEDULABLE_AND_UNRESOLVABLE
        return Status(code=code, plugin=self.name, reasons=(zones.problem,))


def _code(zones: RequiredZones, node: Node) -> int:
    if zones.problem:
        return _UNUSABLE
    if not any(label in node.labels for label in TOPOLOGY_LABELS):
        return 0
    for label, values in zones.required:
        actual = node.labels.get(label)
        if actual is None:
            actual = node.labels.get(_GA.get(label, label))
        if actual is None or actual not in values:
            return _MISMATCH
    return 0


def _zones(pod: Pod, catalog: Catalog) -> RequiredZones:
    required: list[tuple[str, frozenset[str]]] = []
    for volume in pod.spec.volumes:
        if not isinstance(volume.source, ClaimSource):
            continue
        name = volume.source.claim_name
        if not name:
            return RequiredZones(problem="PersistentVolumeClaim had no name")
        claim = claim_of(pod, name, catalog)
        if claim is None:
            return RequiredZones(problem=not_found(name))
        if not claim.volume_name:
            problem = _unbound_problem(claim, catalog)
            if problem:
                return RequiredZones(problem=problem)
            continue
        held = catalog.volumes.get(claim.volume_name)
        if held is None:
            return RequiredZones(problem=f'persistentvolume "{claim.volume_name}" not found')
        required += held.zones
    return RequiredZones(required=tuple(required))


def _unbound_problem(claim: PersistentVolumeClaim, catalog: Catalog) -> str:
    name = claim.class_name
    if not name:
        return "PersistentVolumeClaim had no pv name and storageClass name"
    if name not in catalog.classes:
        return f'storageclass.storage.k8s.io "{name}" not found'
    return "" if waits_for_consumer(claim, catalog) else "PersistentVolume had no name"
