"""The nodes that are not needed, since when, and which of them may go.

A node is unneeded since the first scan of an unbroken series. It may go when that is longer ago
than its group's unneeded time (unready time for an unready node), strictly.

Source: kubernetes/autoscaler 1.36 core/scaledown/unneeded/nodes.go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from services.autoscaler.core.cluster_state.readiness import is_ready
from services.autoscaler.core.groups import Cloud
from services.autoscaler.core.now import Now
from services.autoscaler.core.objects import ClusterNode, ClusterPod
from services.autoscaler.core.scale_down.reasons import Reason

SCALE_DOWN_DISABLED = "cluster-autoscaler.kubernetes.io/scale-down-disabled"


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovableNode:
    """A node whose pods have other places; `is_risky`: budgets do not allow all moves at once."""

    node: ClusterNode
    pods: tuple[ClusterPod, ...] = ()
    on_completion: tuple[ClusterPod, ...] = ()
    is_risky: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class UnneededNode:
    """A node that is unneeded since `since_ns`, and how long it must be to be removed."""

    removable: RemovableNode
    since_ns: int
    threshold_ns: int


@dataclass(slots=True)
class UnneededNodes:
    """The unneeded nodes by name."""

    by_name: dict[str, UnneededNode] = field(default_factory=dict)

    def update(self, nodes: Iterable[RemovableNode], cloud: Cloud, now_ns: int) -> None:
        """Replace the nodes; those that were unneeded before stay so since then."""
        updated: dict[str, UnneededNode] = {}
        for removable in nodes:
            node = removable.node
            last = self.by_name.get(node.name)
            group = cloud.group_of(node.provider_id)
            threshold_ns = 0
            if group is not None:
                options = group.options
                threshold_ns = (
                    options.scale_down_unneeded_ns
                    if is_ready(node.node)
                    else options.scale_down_unready_ns
                )
            updated[node.name] = UnneededNode(
                removable=removable,
                since_ns=now_ns if last is None else last.since_ns,
                threshold_ns=threshold_ns,
            )
        self.by_name = updated

    def forget(self) -> None:
        """Forget all unneeded nodes."""
        self.by_name = {}


@dataclass(slots=True, kw_only=True)
class MayGo:
    """Decides which unneeded nodes may be removed at an instant; `sizes` decrease with each node.

    `deletions` are the numbers of running deletions by group. `take_resources` takes a node off
    what the cluster may lose, and returns whether there was enough.
    """

    cloud: Cloud
    deletions: dict[str, int]
    take_resources: Callable[[ClusterNode], bool]
    sizes: dict[str, int] = field(default_factory=dict)

    def divide(
        self, unneeded: UnneededNodes, now: Now
    ) -> tuple[list[RemovableNode], list[RemovableNode], dict[str, Reason]]:
        """Return the nodes that may be removed, empty or to drain, and the reasons for the others.

        By name; empty nodes are asked first. Source: RemovableAt.
        """
        self.sizes = {group.name: group.target for group in self.cloud.groups()}
        empty: list[RemovableNode] = []
        to_drain: list[RemovableNode] = []
        reasons: dict[str, Reason] = {}
        by_name = sorted(unneeded.by_name.items())
        by_name.sort(key=lambda item: bool(item[1].removable.pods))
        for name, node in by_name:
            reason = self._reason(node, now)
            if reason is not None:
                reasons[name] = reason
            else:
                (to_drain if node.removable.pods else empty).append(node.removable)
        return empty, to_drain, reasons

    def _reason(self, unneeded: UnneededNode, now: Now) -> Reason | None:
        """Source: unremovableReason and verifyMinSize."""
        node = unneeded.removable.node
        if is_kept(node):
            return Reason.SCALE_DOWN_DISABLED_ANNOTATION
        threshold_ns = unneeded.threshold_ns
        if threshold_ns > 0 and not now.is_after(unneeded.since_ns + threshold_ns):
            ready = is_ready(node.node)
            return Reason.NOT_UNNEEDED_LONG_ENOUGH if ready else Reason.NOT_UNREADY_LONG_ENOUGH
        group = self.cloud.group_of(node.provider_id)
        if group is None:
            return Reason.NOT_AUTOSCALED
        if self.sizes[group.name] - self.deletions.get(group.name, 0) <= group.min_size:
            return Reason.NODE_GROUP_MIN_SIZE_REACHED
        if not self.take_resources(node):
            return Reason.MINIMAL_RESOURCE_LIMIT_EXCEEDED
        self.sizes[group.name] -= 1
        return None


def is_kept(node: ClusterNode) -> bool:
    """Return whether an annotation keeps the node."""
    return node.node.annotations.get(SCALE_DOWN_DISABLED) == "true"
