"""Filters out nodes whose removal need not be simulated, by properties of the node alone.

Source: kubernetes/autoscaler 1.36 core/scaledown/eligibility/eligibility.go; actuation/
delete_in_batch.go, IsNodeBeingDeleted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from services.autoscaler.core.cluster_state.readiness import is_ready
from services.autoscaler.core.groups import Cloud
from services.autoscaler.core.now import Now
from services.autoscaler.core.objects import ClusterNode
from services.autoscaler.core.options import Options
from services.autoscaler.core.scale_down.actuation import TO_BE_DELETED
from services.autoscaler.core.scale_down.per_node import PerNode
from services.autoscaler.core.scale_down.reasons import Reason
from services.autoscaler.core.scale_down.unneeded import is_kept
from services.autoscaler.core.scale_down.unremovable import UnremovableNodes
from services.autoscaler.core.scale_down.utilization import Utilization, utilization
from services.autoscaler.core.simulator.snapshot import ClusterSnapshot
from services.kube.time import MINUTE_NS, SECOND_NS

DELETION_NS_MAX = 5 * MINUTE_NS
"""How long a node counts as being deleted after it was tainted for that."""


@dataclass(slots=True, kw_only=True)
class Eligibility:
    """The eligible nodes in order, the reasons for the others, and all measured utilizations."""

    nodes: list[ClusterNode] = field(default_factory=list)
    ineligible: dict[str, Reason] = field(default_factory=dict)
    utilizations: dict[str, Utilization] = field(default_factory=dict)


def eligible(
    nodes: Iterable[ClusterNode],
    snapshot: ClusterSnapshot,
    cloud: Cloud,
    *,
    options: Options,
    unremovable: UnremovableNodes,
    measured: PerNode[Utilization | None],
    now: Now,
) -> Eligibility:
    """Divide candidates into those whose removal is simulated, and others with reasons.

    `measured` is kept from scan to scan, with the same options.
    """
    result = Eligibility()
    for node in nodes:
        name = node.name
        if name not in snapshot:
            result.ineligible[name] = Reason.UNEXPECTED_ERROR
        elif unremovable.is_recent(name):
            result.ineligible[name] = Reason.RECENTLY_UNREMOVABLE
        else:
            reason, share = _judged(snapshot, name, cloud, options, measured, now)
            if share is not None:
                result.utilizations[name] = share
            if reason is not None:
                result.ineligible[name] = reason
            else:
                result.nodes.append(node)
    measured.forget_old()
    return result


def _judged(
    snapshot: ClusterSnapshot,
    name: str,
    cloud: Cloud,
    options: Options,
    kept: PerNode[Utilization | None],
    now: Now,
) -> tuple[Reason | None, Utilization | None]:
    """Source: unremovableReasonAndNodeUtilization."""
    node = snapshot.node(name)
    if is_being_deleted(node, now):
        return Reason.CURRENTLY_BEING_DELETED, None
    if is_kept(node):
        return Reason.SCALE_DOWN_DISABLED_ANNOTATION, None
    group = cloud.group_of(node.provider_id)
    if group is None:
        return Reason.NOT_AUTOSCALED, None
    skip_daemon_pods = group.options.ignore_daemonsets_utilization

    def measure(now: Now) -> Utilization | None:
        return utilization(
            node,
            snapshot.pods_on(name),
            gpu_label=cloud.gpu_label,
            skip_daemon_pods=skip_daemon_pods,
            skip_mirror_pods=options.ignore_mirror_pods_utilization,
            now=now,
        )

    measured = kept.get(name, (snapshot.stamp(name), skip_daemon_pods), now, measure)
    if measured is None:
        return Reason.UNEXPECTED_ERROR, None
    if not options.scale_down_unready_enabled and not is_ready(node.node):
        return Reason.SCALE_DOWN_UNREADY_DISABLED, None
    has_gpu = cloud.gpu_label and cloud.gpu_label in node.node.labels
    threshold = (
        group.options.scale_down_gpu_utilization_threshold
        if has_gpu
        else group.options.scale_down_utilization_threshold
    )
    return (Reason.NOT_UNDERUTILIZED if measured.share > threshold else None), measured


def is_being_deleted(node: ClusterNode, now: Now) -> bool:
    """Return whether the node was tainted for its deletion not too long ago."""
    for taint in node.node.taints:
        if taint.key == TO_BE_DELETED:
            is_time = taint.value.lstrip("-").isdecimal()
            return is_time and now.is_before(int(taint.value) * SECOND_NS + DELETION_NS_MAX)
    return False
