"""Measures how full the nodes of a run were over its time, from its history alone.

Nothing here depends on what a scheduler says of itself. A value is what it is at the end of an
instant and holds until the next one, so that integrals over time are exact sums of integers.
Fragmentation depends on what pods request, which is known only at the end of a history; so what is
free is kept at evenly spaced moments and weighed when the figure is read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from replay.results.run.cluster import ChangeType, ClusterState, NodeUse, ObjectChange
from replay.results.run.device_use import ClassUse, DeviceTally
from replay.world.api.pod_record import controller_of
from reprieve.kube.v1beta1 import node_pb2, pod_pb2
from services.kube.devices import IMPLICIT_EXTENDED_RESOURCE_PREFIX
from services.kube.pod import TERMINAL_PHASES

MOMENTS = 64
"""Moments at which fragmentation is measured: the middles of so many equal parts of the time."""
TYPICAL_PODS = 64
"""Requests that stand for those of all pods, where pods have more different ones."""
_MIRROR = "kubernetes.io/config.mirror"

Requests = tuple[tuple[str, int], ...]
"""What a pod requests, by resource and in their order, one of `pods` included."""


@dataclass(frozen=True, slots=True)
class FreeNodes:
    """The free amounts at some of the moments, by resource: int64[nodes], in one order of nodes.

    times: the number of the moments.
    """

    times: int
    amounts: Mapping[str, NDArray[np.int64]]

    def fits(self, requests: Requests) -> NDArray[np.bool_]:
        """Return for each node whether it has room for a pod with these requests."""
        fits = np.ones(len(next(iter(self.amounts.values()), ())), dtype=np.bool_)
        for name, amount in requests:
            fits &= self.amounts[name] >= amount if name in self.amounts else np.False_
        return fits


@dataclass(slots=True, kw_only=True)
class Occupancy:
    """The allocatable and the requested amounts of nodes over the time of a run.

    length_ns: that time. allocatable_ns, allocated_ns: the integral over it by resource, amount
    times ns. peaks: the largest share of allocatable that was requested, percent. nodes_ns: the
    time of all nodes together. empty_ns: of those without a pod that a drain would move, that is
    with none but pods of DaemonSets and mirror pods; as the Cluster Autoscaler has it
    (simulator/cluster.go, FindEmptyNodesToRemove). blocked_ns: the time of free devices whose parts
    are in use, by the resource of their class (resources_of). free: at the moments. pods: how many
    pods have each requests; pods that follow each other under one name count once.
    """

    length_ns: int = 0
    allocatable_ns: Counter[str] = field(default_factory=Counter)
    allocated_ns: Counter[str] = field(default_factory=Counter)
    peaks: dict[str, float] = field(default_factory=dict)
    nodes_ns: int = 0
    empty_ns: int = 0
    blocked_ns: Counter[str] = field(default_factory=Counter)
    free: list[FreeNodes] = field(default_factory=list)
    pods: Counter[Requests] = field(default_factory=Counter)

    def mean(self, resource: str) -> float | None:
        """Return the requested part of allocatable, percent, over all of the time."""
        have = self.allocatable_ns[resource]
        return 100 * self.allocated_ns[resource] / have if have else None

    def fragmentation(self, resource: str) -> float | None:
        """Return the part of allocatable that is free where pods do not fit, percent, over time.

        What is free on a node counts by the share of the pods that do not fit there, judged by
        requests alone. Pods that request nothing of the resource are left out; without any other
        pod there is no value. Of a device class: the part of its devices that are blocked
        (replay/results/run/device_use.py).
        Source: Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with
        Fragmentation Gradient Descent", USENIX ATC 2023, which weighs free GPUs by the typical
        tasks that cannot use them; here of any resource, and without its kinds of partial GPUs.
        """
        if resource in self.blocked_ns:
            blocked, have = self.blocked_ns[resource], self.allocatable_ns[resource]
            return 100 * blocked / have if have else None
        pods, have = typical(self.pods, resource), self.allocatable_ns[resource]
        if not (pods and have):
            return None
        scattered = sum(
            nodes.times
            * count
            * float(nodes.amounts[resource][~nodes.fits(requests)].sum(dtype=np.float64))
            for nodes in self.free
            if resource in nodes.amounts
            for requests, count in pods.items()
        )
        mean_scattered = scattered / MOMENTS / sum(pods.values())
        return 100 * mean_scattered * self.length_ns / have


def resources_of(devices: DeviceTally) -> dict[str, ClassUse]:
    """Return the devices of each class by the class's implicit extended resource."""
    return {f"{IMPLICIT_EXTENDED_RESOURCE_PREFIX}{name}": use for name, use in devices.uses.items()}


def typical(pods: Mapping[Requests, int], resource: str) -> dict[Requests, int]:
    """Return requests that stand for those of the pods that request a resource, with their weights.

    Where there are more than TYPICAL_PODS different ones, these are a sample: evenly spaced among
    the pods, which are sorted by what they request of the resource.
    """
    asking = {requests: n for requests, n in pods.items() if dict(requests).get(resource)}
    if len(asking) <= TYPICAL_PODS:
        return asking
    ordered = sorted(asking, key=lambda requests: (dict(requests)[resource], requests))
    ends = np.cumsum([asking[requests] for requests in ordered])
    places = (np.arange(TYPICAL_PODS) + 0.5) * float(ends[-1]) / TYPICAL_PODS
    chosen = np.searchsorted(ends, places, side="right").tolist()
    return dict(Counter(ordered[index] for index in chosen))


@dataclass(frozen=True, slots=True)
class _Node:
    """The contribution of a node to the sums."""

    allocatable: Mapping[str, int]
    requested: Mapping[str, int]
    is_empty: bool


class OccupancyMeter:
    """Measures a run while its events are applied to `state`, from `start_ns` to `end_ns`.

    It alone reads and clears `state.changed_nodes`.
    """

    def __init__(self, state: ClusterState, *, start_ns: int, end_ns: int) -> None:
        self._state = state
        self._start_ns = self._now_ns = start_ns
        self._end_ns = end_ns
        self._measured = Occupancy(length_ns=end_ns - start_ns)
        self._nodes: dict[str, _Node] = {}
        self._allocatable, self._allocated = Counter[str](), Counter[str]()
        self._empty = 0
        self._movable_pods = Counter[str]()
        self._node_of: dict[str, str] = {}
        self._seen: set[str] = set()
        self._next_moment = 0
        self._devices = DeviceTally()

    def reach(self, at_ns: int) -> None:
        """Add the time since the last event; called before an event of `at_ns` is applied."""
        if at_ns <= self._now_ns:
            return
        self._settle()
        measured, lasted_ns = self._measured, at_ns - self._now_ns
        for name, have in self._allocatable.items():
            used = self._allocated[name]
            measured.allocatable_ns[name] += have * lasted_ns
            measured.allocated_ns[name] += used * lasted_ns
            if have:
                measured.peaks[name] = max(measured.peaks.get(name, 0.0), 100 * used / have)
        for name, use in resources_of(self._devices).items():
            measured.allocatable_ns[name] += use.devices * lasted_ns
            measured.allocated_ns[name] += use.in_use * lasted_ns
            measured.blocked_ns[name] += use.blocked * lasted_ns
            if use.devices:
                share = 100 * use.in_use / use.devices
                measured.peaks[name] = max(measured.peaks.get(name, 0.0), share)
        measured.nodes_ns += len(self._nodes) * lasted_ns
        measured.empty_ns += self._empty * lasted_ns
        self._keep_free(at_ns)
        self._now_ns = at_ns

    def applied(self, change: ObjectChange) -> None:
        """Note a change that was applied to the state."""
        message = change.message
        self._devices.take(change)
        if isinstance(message, pod_pb2.Pod):
            self._note_pod(message, is_there=change.type is not ChangeType.DELETED)
        elif isinstance(message, node_pb2.Node) and change.type is ChangeType.DELETED:
            self._forget(message.metadata.name)

    def measured(self) -> Occupancy:
        """Return the measures up to the end."""
        self.reach(self._end_ns)
        return self._measured

    def devices_at_end(self) -> Mapping[str, ClassUse]:
        """Return the devices of each class after the last change, by the class's resource."""
        return resources_of(self._devices)

    def _note_pod(self, pod: pod_pb2.Pod, *, is_there: bool) -> None:
        meta = pod.metadata
        key = f"{meta.namespace}/{meta.name}"
        active = self._state.pods.get(meta.uid)
        if active is not None and key not in self._seen:
            self._seen.add(key)
            self._measured.pods[tuple(sorted(active.requests.items()))] += 1
        is_active = is_there and pod.status.phase not in TERMINAL_PHASES
        node_name = pod.spec.node_name if is_active and _is_movable(pod) else ""
        before = self._node_of.pop(meta.uid, "")
        if before:
            self._movable_pods[before] -= 1
        if node_name:
            self._node_of[meta.uid] = node_name
            self._movable_pods[node_name] += 1

    def _settle(self) -> None:
        """Bring the sums up to date with the nodes that changed in this instant."""
        for name in self._state.changed_nodes:
            self._forget(name)
            use = self._state.nodes[name]
            node = _Node(
                use.node.allocatable, dict(use.requested), is_empty=not self._movable_pods[name]
            )
            self._nodes[name] = node
            self._add(node, 1)
        self._state.changed_nodes.clear()

    def _forget(self, name: str) -> None:
        node = self._nodes.pop(name, None)
        if node is not None:
            self._add(node, -1)

    def _add(self, node: _Node, sign: int) -> None:
        for name, amount in node.allocatable.items():
            self._allocatable[name] += sign * amount
            self._allocated[name] += sign * node.requested.get(name, 0)
        self._empty += sign * node.is_empty

    def _keep_free(self, until_ns: int) -> None:
        """Keep the free amounts if one of the moments lies between the last event and this one."""
        first = self._next_moment
        while self._next_moment < MOMENTS and self._moment_ns(self._next_moment) < until_ns:
            self._next_moment += 1
        if self._next_moment == first:
            return
        uses = [self._state.nodes[name] for name in self._nodes]
        amounts = {name: _free(uses, name) for name in self._allocatable}
        self._measured.free.append(FreeNodes(self._next_moment - first, amounts))

    def _moment_ns(self, number: int) -> int:
        length_ns = self._measured.length_ns
        return self._start_ns + (2 * number + 1) * length_ns // (2 * MOMENTS)


def _free(uses: list[NodeUse], resource: str) -> NDArray[np.int64]:
    return np.array([use.free(resource) for use in uses], dtype=np.int64)


def _is_movable(pod: pod_pb2.Pod) -> bool:
    """Return whether a drain of its node would move the pod."""
    owner = controller_of(pod.metadata)
    is_daemon = owner is not None and owner.kind == "DaemonSet"
    return not is_daemon and _MIRROR not in pod.metadata.annotations
