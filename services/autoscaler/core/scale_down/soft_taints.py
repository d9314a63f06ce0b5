"""Marks unneeded nodes so that a scheduler prefers others, a few nodes a scan.

Nodes that are needed again are unmarked first. A node that is put to deletion is left alone; what
the node has is read as of the beginning of the scan.

Source: kubernetes/autoscaler 1.36 core/scaledown/actuation/softtaint.go; core/static_autoscaler.go,
updateSoftDeletionTaints.
"""

from __future__ import annotations

from collections.abc import Container, Iterable

from services.autoscaler.core.calls import Calls, MarkNode, UnmarkNode
from services.autoscaler.core.objects import ClusterNode
from services.autoscaler.core.scale_down.actuation import TO_BE_DELETED
from services.kube.taints import Taint, TaintEffect
from services.kube.time import SECOND_NS

DELETION_CANDIDATE = "DeletionCandidateOfClusterAutoscaler"


def update_soft_taints(
    nodes: Iterable[ClusterNode], unneeded: Container[str], *, limit: int, now_ns: int
) -> Calls[None]:
    """Unmark nodes that are not unneeded, then mark those that are, `limit` in all."""
    free = [node for node in nodes if not _has(node, TO_BE_DELETED)]
    taint = Taint(
        key=DELETION_CANDIDATE,
        value=str(now_ns // SECOND_NS),
        effect=TaintEffect.PREFER_NO_SCHEDULE,
    )
    for node in free:
        if limit and node.name not in unneeded and _has(node, DELETION_CANDIDATE):
            limit -= 1
            yield UnmarkNode(node=node.name, taint_key=DELETION_CANDIDATE)
    for node in free:
        if limit and node.name in unneeded and not _has(node, DELETION_CANDIDATE):
            limit -= 1
            yield MarkNode(node=node.name, taint=taint)


def _has(node: ClusterNode, taint_key: str) -> bool:
    return any(taint.key == taint_key for taint in node.node.taints)
