"""VolumeBinding: a node must reach the pod's bound volumes, and have or get the unbound ones.

A claim that waits for its first consumer gets a volume when the pod is assumed: an existing volume
is reserved for the claim, or the node of a volume to be provisioned is fixed. Both changes stay in
the scheduler's own view until the object itself changes, or the pod is not bound after all.

Source: kubernetes v1.34 plugins/volumebinding/volume_binding.go, PreFilter, Filter, Reserve;
binder.go, GetPodVolumeClaims, FindPodVolumes, AssumePodVolumes.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace

from services.framework.columns.columns import Int64s
from services.framework.plugin import (
    FilterPlugin,
    Plain,
    PreBindPlugin,
    PreFiltered,
    ReservePlugin,
    Scope,
    ScorePlugin,
    StatefulPlugin,
)
from services.framework.plugins.volume_binding.arguments import ARGUMENTS, VolumeBindingArgs
from services.framework.snapshot.catalog import Catalog
from services.framework.snapshot.node_view import NodeView
from services.framework.snapshot.snapshot import Snapshot
from services.framework.status import Code, Status
from services.framework.volumes.claims import (
    SELECTED_NODE,
    base_key,
    claim_of,
    is_bound,
    not_found,
    not_owned,
    waits_for_consumer,
)
from services.framework.volumes.matching import (
    Provision,
    ReservedObject,
    class_of,
    from_plain,
    is_of,
    matching_volume,
    provision,
    reaches,
    rows_of,
    stands,
    to_plain,
)
from services.framework.volumes.migration import TranslationError, affinity_on, translation_problem
from services.kube.node import Node
from services.kube.pod import Pod, PodSpec
from services.kube.storage import ClaimPhase, ClaimRef, PersistentVolume, PersistentVolumeClaim
from services.kube.volumes import claim_names

_NODE, _BIND, _SPACE, _GONE = 1, 2, 4, 8
_UNTRANSLATED = 16
"""Added to the place of a volume that a node migrated and that cannot be translated."""
_REASONS = {
    _NODE: "node(s) didn't match PersistentVolume's node affinity",
    _BIND: "node(s) didn't find available persistent volumes to bind",
    _SPACE: "node(s) did not have enough free storage",
    _GONE: "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)",
}
_DEFAULTS = VolumeBindingArgs()


@dataclass(frozen=True, slots=True, kw_only=True)
class PodClaims:
    """A pod's claims: fully bound ones, and those that wait for the first consumer.

    `volumes` are those of the bound claims, None for one that has gone. `candidates` are the
    volumes of the classes that wait, by name. `problem` is why the
    pod cannot be scheduled anywhere, "" where nothing is.
    """

    volumes: tuple[PersistentVolume | None, ...] = ()
    waiting: tuple[PersistentVolumeClaim, ...] = ()
    candidates: tuple[PersistentVolume, ...] = ()
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodVolumes:
    """A node's volumes for a pod: existing ones for claims, claims to provision; or `code`."""

    code: int = 0
    taken: tuple[tuple[PersistentVolume, PersistentVolumeClaim], ...] = ()
    made: tuple[PersistentVolumeClaim, ...] = ()


_NOTHING_MORE = {code: PodVolumes(code=code) for code in (0, _NODE, _GONE)}


class VolumeBinding(
    FilterPlugin[PodClaims], ScorePlugin[None], ReservePlugin, PreBindPlugin, StatefulPlugin
):
    """Filters by volumes; its score is off, as upstream's feature is by default."""

    name = "VolumeBinding"
    arguments = ARGUMENTS
    scope = Scope.NODE
    can_fail = True
    needs_pre_filter = True
    keys_follow_pod = True

    def __init__(self, args: VolumeBindingArgs = _DEFAULTS) -> None:
        self.args = args
        self._assumed: dict[str, list[ReservedObject]] = {}

    def skips(self, spec: PodSpec) -> bool:
        return not spec.volumes

    def filter_key(self, pod: Pod, snapshot: Snapshot) -> Hashable | None:
        """Return the pod's claims, None where it has none."""
        if not pod.spec.volumes or next(claim_names(pod.name, pod.spec.volumes), None) is None:
            return None
        return base_key(pod, snapshot)

    def pre_filter(self, pod: Pod, snapshot: Snapshot) -> PreFiltered[PodClaims]:
        """Sort the pod's claims; refuse it for one that cannot be used."""
        claims = _pod_claims(pod, snapshot.catalog)
        if not claims.problem:
            return PreFiltered(data=claims)
        code = Code.UNSCHEDULABLE_AND_UNRESOLVABLE
        refusal = Status(code=code, plugin=self.name, reasons=(claims.problem,))
        return PreFiltered(data=claims, refusal=refusal)

    def filter_node(self, data: PodClaims, view: NodeView) -> int:
        """Return the problems of one node as bits, or which volume cannot be translated."""
        return find(data, view.node, view.snapshot.catalog).code

    def filter(self, data: PodClaims, snapshot: Snapshot, rows: Int64s, codes: Int64s) -> None:
        alive = snapshot.columns.alive
        for row in rows.tolist():
            if alive[row]:
                codes[row] = find(data, snapshot.node(row), snapshot.catalog).code

    def filter_status(self, data: PodClaims, code: int) -> Status:
        if code >= _UNTRANSLATED:
            volume = data.volumes[code - _UNTRANSLATED]
            assert volume is not None
            reason = f"could not translate pv: {translation_problem(volume)}"
            return Status(code=Code.ERROR, plugin=self.name, reasons=(reason,))
        reasons = tuple(text for bit, text in _REASONS.items() if code & bit)
        code_ = Code.UNSCHEDULABLE_AND_UNRESOLVABLE
        return Status(code=code_, plugin=self.name, reasons=reasons)

    def score_key(self, pod: Pod, snapshot: Snapshot) -> Hashable | None:  # noqa: ARG002 - unused
        """Return None: scoring by capacity is off."""
        return None

    def pre_score(self, pod: Pod, snapshot: Snapshot) -> None:
        """Prepare nothing."""

    def score(self, data: None, snapshot: Snapshot, rows: Int64s, scores: Int64s) -> None:  # noqa: ARG002 - every row
        scores[rows] = 0

    def reserve(self, pod: Pod, row: int, snapshot: Snapshot) -> Status | None:
        if self.filter_key(pod, snapshot) is None:
            return None
        claims = _pod_claims(pod, snapshot.catalog)
        node = snapshot.node(row)
        choice = find(claims, node, snapshot.catalog)
        changes = [ReservedObject(volume, _taken(volume, claim)) for volume, claim in choice.taken]
        changes += [ReservedObject(claim, _selected(claim, node.name)) for claim in choice.made]
        changes = [change for change in changes if change.after is not change.before]
        for change in changes:
            snapshot.catalog.put(change.after)
        if changes:
            self._assumed[pod.uid] = changes
        return None

    def unreserve(self, pod: Pod, row: int, snapshot: Snapshot) -> None:  # noqa: ARG002 - wherever it was
        """Restore the objects, unless they have changed since."""
        for change in reversed(self._assumed.pop(pod.uid, [])):
            if stands(change, snapshot.catalog):
                snapshot.catalog.put(change.before)

    def pre_bind(self, pod: Pod, node_name: str) -> Status | None:  # noqa: ARG002 - takes no time
        """Return success without waiting for volumes: reserved ones count as bound."""
        return None

    def saved_state(self, snapshot: Snapshot) -> Plain:
        """Return the reserved volumes and claims that have not changed in the catalog, by pod.

        Of an object only what a reservation changes is written: a volume's claim, a claim's
        annotations. An object that has changed since is no longer reserved.
        """
        return [
            [uid, [to_plain(change) for change in changes if stands(change, snapshot.catalog)]]
            for uid, changes in self._assumed.items()
        ]

    def restore_state(self, saved: Plain, snapshot: Snapshot) -> None:
        """Reserve the saved volumes and claims again."""
        for uid, changes in rows_of(saved):
            restored = [from_plain(change, snapshot.catalog) for change in changes]
            for change in restored:
                snapshot.catalog.put(change.after)
            self._assumed[str(uid)] = restored


def find(claims: PodClaims, node: Node, catalog: Catalog) -> PodVolumes:
    """Return a node's volumes for the claims, or its problems as a code."""
    code = _bound_code(claims, node, catalog)
    if code >= _UNTRANSLATED or not claims.waiting:
        return _NOTHING_MORE.get(code) or PodVolumes(code=code)
    provisioned: list[PersistentVolumeClaim] = []
    unmatched: list[PersistentVolumeClaim] = []
    for claim in claims.waiting:
        selected = claim.annotations.get(SELECTED_NODE)
        if selected is None:
            unmatched.append(claim)
        elif selected != node.name:
            return PodVolumes(code=code | _BIND)
        else:
            provisioned.append(claim)
    taken: list[tuple[PersistentVolume, PersistentVolumeClaim]] = []
    for claim in sorted(unmatched, key=lambda claim: claim.request_bytes):
        volumes = (
            candidate for candidate in claims.candidates if class_of(candidate) == claim.class_name
        )
        chosen = {volume.name for volume, _ in taken}
        volume = matching_volume(claim, volumes, node, chosen)
        if volume is None:
            provisioned.append(claim)
        else:
            taken.append((volume, claim))
    for claim in provisioned:
        match provision(claim, node, catalog):
            case Provision.IMPOSSIBLE:
                return PodVolumes(code=code | _BIND)
            case Provision.NO_SPACE:
                return PodVolumes(code=code | _SPACE)
            case Provision.POSSIBLE:
                pass
    return PodVolumes(code=code, taken=tuple(taken), made=tuple(provisioned))


def _bound_code(claims: PodClaims, node: Node, catalog: Catalog) -> int:
    csi_node = catalog.csi_nodes.get(node.name)
    for place, volume in enumerate(claims.volumes):
        if volume is None:
            return _GONE
        try:
            affinity = affinity_on(volume, csi_node)
        except TranslationError:
            return _UNTRANSLATED + place
        if not reaches(affinity, node):
            return _NODE
    return 0


def _pod_claims(pod: Pod, catalog: Catalog) -> PodClaims:
    bound_or_not: list[PersistentVolumeClaim] = []
    for name, made_for_pod in claim_names(pod.name, pod.spec.volumes):
        claim = claim_of(pod, name, catalog)
        problem = _unusable(pod, name, claim, made_for_pod=made_for_pod)
        if claim is None or problem:
            return PodClaims(problem=problem)
        bound_or_not.append(claim)
    held = tuple(
        catalog.volumes.get(claim.volume_name) for claim in bound_or_not if is_bound(claim)
    )
    unbound = [claim for claim in bound_or_not if not is_bound(claim)]
    if any(claim.volume_name or not waits_for_consumer(claim, catalog) for claim in unbound):
        return PodClaims(problem="pod has unbound immediate PersistentVolumeClaims")
    classes = {claim.class_name for claim in unbound}
    volumes = (catalog.volumes[name] for name in sorted(catalog.volumes)) if classes else ()
    return PodClaims(
        volumes=held,
        waiting=tuple(unbound),
        candidates=tuple(volume for volume in volumes if class_of(volume) in classes),
    )


def _unusable(
    pod: Pod, name: str, claim: PersistentVolumeClaim | None, *, made_for_pod: bool
) -> str:
    if claim is None:
        if made_for_pod:
            return (
                "waiting for ephemeral volume controller to create the persistentvolumeclaim "
                f'"{name}"'
            )
        return not_found(name)
    if claim.phase is ClaimPhase.LOST:
        return (
            f'persistentvolumeclaim "{claim.name}" bound to non-existent persistentvolume '
            f'"{claim.volume_name}"'
        )
    if claim.deletion_ns is not None:
        return f'persistentvolumeclaim "{claim.name}" is being deleted'
    return not_owned(pod, claim) if made_for_pod else ""


def _taken(volume: PersistentVolume, claim: PersistentVolumeClaim) -> PersistentVolume:
    if is_of(volume, claim):
        return volume
    ref = ClaimRef(namespace=claim.namespace, name=claim.name, uid=claim.uid)
    return replace(volume, claim_ref=ref)


def _selected(claim: PersistentVolumeClaim, node_name: str) -> PersistentVolumeClaim:
    if claim.annotations.get(SELECTED_NODE) == node_name:
        return claim
    return replace(claim, annotations={**claim.annotations, SELECTED_NODE: node_name})
