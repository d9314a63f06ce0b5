"""Selects the daemon pods that a rolling update of a DaemonSet replaces next, node by node.

Without a surge an old pod is deleted first, as many at once as may be unavailable; an old pod that
is not available is deleted in any case. With a surge a node gets its new pod beside the old one,
which is deleted when the new one is available; the surge limits the nodes on which an old pod that
is available has a new one beside it that is not.

Source: kubernetes v1.34 pkg/controller/daemon/update.go, rollingUpdate, findUpdatedPodsOnNode,
updatedDesiredNodeCounts; daemon/util/daemonset_util.go, UnavailableCount, SurgeCount, AllowsSurge.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from replay.world.api.pod_record import PodRecord
from replay.world.controllers.workloads.rolling_update import scaled
from reprieve.kube.v1beta1 import workloads_pb2
from services.kube.workloads import IntOrPercent
from services.rpc.kube import fields


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """A DaemonSet's maxUnavailable and maxSurge; percentages round up."""

    unavailable: IntOrPercent
    surge: IntOrPercent

    @property
    def allows_surge(self) -> bool:
        """Return whether a node may have a new pod beside its old one."""
        return scaled(self.surge, 1, rounds_up=True) > 0

    def counts(self, desired: int) -> tuple[int, int]:
        """Return maxUnavailable and maxSurge in pods; if both are 0, one may be unavailable."""
        unavailable = scaled(self.unavailable, desired, rounds_up=True)
        surge = scaled(self.surge, desired, rounds_up=True)
        return (unavailable if unavailable or surge else 1), surge


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonNode:
    """A node's daemon pods that are not terminating: of the current template (`new`), and not.

    `should_run`: a pod should be started on the node. `is_excess`: it has two of one template.
    """

    should_run: bool
    new: PodRecord | None = None
    old: PodRecord | None = None
    is_excess: bool = False
    new_available: bool = False
    old_available: bool = False


def bounds_of(spec: workloads_pb2.DaemonSetSpec) -> Bounds:
    """Return maxUnavailable and maxSurge of a DaemonSet. Raises FieldError for bad values."""
    rolling, where = spec.update_strategy.rolling_update, "spec.updateStrategy.rollingUpdate"
    unavailable, surge = IntOrPercent(amount=1), IntOrPercent(amount=0)
    if rolling.HasField("max_unavailable"):
        unavailable = fields.int_or_percent(rolling.max_unavailable, f"{where}.maxUnavailable")
    if rolling.HasField("max_surge"):
        surge = fields.int_or_percent(rolling.max_surge, f"{where}.maxSurge")
    return Bounds(unavailable=unavailable, surge=surge)


def node_of(
    pods: Iterable[PodRecord],
    *,
    should_run: bool,
    outdated: Mapping[str, object],
    available: Mapping[str, object],
) -> DaemonNode:
    """Return a node with its daemon pods; `outdated` and `available` are by the UIDs of pods."""
    present = [pod for pod in pods if not pod.is_terminating]
    new = [pod for pod in present if pod.uid not in outdated]
    old = [pod for pod in present if pod.uid in outdated]
    if len(new) > 1 or len(old) > 1:
        return DaemonNode(should_run=should_run, is_excess=True)
    return DaemonNode(
        should_run=should_run,
        new=new[0] if new else None,
        old=old[0] if old else None,
        new_available=bool(new) and new[0].uid in available,
        old_available=bool(old) and old[0].uid in available,
    )


def deleted_first(nodes: Iterable[DaemonNode], max_unavailable: int) -> list[PodRecord]:
    """Return the old pods to delete in an update without a surge."""
    unavailable = 0
    deleted, candidates = [], []
    for node in nodes:
        if node.is_excess or (node.old is None) == (node.new is None):
            unavailable += 1
        elif node.old is None:
            unavailable += not node.new_available
        elif node.old_available:
            candidates.append(node.old)
        else:
            deleted.append(node.old)
            unavailable += 1
    candidates.sort(key=lambda pod: pod.message.metadata.name)
    return deleted + candidates[: max(0, max_unavailable - unavailable)]


def surged(nodes: Mapping[str, DaemonNode], max_surge: int) -> tuple[list[PodRecord], list[str]]:
    """Return the old pods to delete in an update with a surge, and the nodes that get a new pod."""
    desired = sum(node.should_run for node in nodes.values())
    available = surge = 0
    deleted, leaving = list[PodRecord](), list[PodRecord]()
    allowed, candidates = list[str](), list[str]()
    for name, node in nodes.items():
        if node.is_excess:
            surge += 1
            continue
        available += node.new_available if node.old is None else node.old_available
        if node.old is None:
            continue
        if node.new is not None:
            surge += not node.new_available
            deleted += [node.old] if node.new_available else []
        elif node.should_run:
            (candidates if node.old_available else allowed).append(name)
        else:
            (leaving if node.old_available else deleted).append(node.old)
    deleted += leaving[: max(0, available - desired)]
    return deleted, allowed + candidates[: max(0, max_surge - surge)]
