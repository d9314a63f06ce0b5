"""The binpacking estimator: fills copies of a group's template with pods, and counts them.

The groups of pods that want most of a node come first. Each pod goes to a node that was added
already, and else to the last one; where that refuses it, a node is added. A node that refuses a pod
while it is empty would do so again: no further nodes are added for that group of pods. Where the
limiter permits no more nodes, the later groups of pods still fill what is there.

The last node is the only one that a pod beyond the first refused one of its group is tried on. A
spread constraint by hostname is the exception: it may refuse the last node because it has most
pods, so that any other node is tried, of the cluster, too.

Where nothing but requests decides on which copies a pod fits, all this is a loop over numbers
(packing_kernel.py): a copy is what it has left, and neither nodes nor pods are objects. A group of
which more decides (constraints between pods, host ports, volumes, the name of a node) is placed on
the simulated cluster pod by pod, which then gets all nodes and pods that were placed before.

With `fastpath`, the group of pods that saves most trials comes last, and only its first node is
simulated; the others are taken to hold as many pods as that one.

Source: kubernetes/autoscaler 1.36 estimator/binpacking_estimator.go; decreasing_pod_orderer.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from math import ceil

import numpy as np

from services.autoscaler.core.equivalence import EquivalenceGroup
from services.autoscaler.core.estimator.limits import NodeLimiter
from services.autoscaler.core.estimator.packing_kernel import NO_HOST, pack
from services.autoscaler.core.objects import ClusterNode, ClusterPod
from services.autoscaler.core.simulator.snapshot import ClusterSnapshot
from services.autoscaler.core.simulator.templates import NodeTemplate
from services.framework.columns.columns import Int64s
from services.framework.plugins.pod_topology_spread.plugin import CONSTRAINTS_NOT_MATCH
from services.framework.status import Status
from services.kube.node import LABEL_HOSTNAME
from services.kube.pod import PodSpec
from services.kube.requests import CPU, MEMORY


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """The number of nodes that hold a pod, and the placed pods, in order."""

    node_count: int
    pods: tuple[ClusterPod, ...]
    placements: tuple[tuple[ClusterPod, str], ...] = ()


def estimate(
    snapshot: ClusterSnapshot,
    template: NodeTemplate,
    groups: Sequence[EquivalenceGroup],
    limiter: NodeLimiter,
    *,
    fastpath: bool = False,
) -> Estimate:
    """Return how many copies of `template` the pods of `groups` need; the snapshot is kept.

    The first pod of each group passes the filters on a copy, but maybe that of resources.
    """
    ordered = [groups[index] for index in order(groups, template.node)]
    last = _fastest(ordered, template.node) if fastpath else None
    extrapolated = None if last is None else ordered.pop(last)
    snapshot.fork()
    packing = _Packing(snapshot, template, limiter)
    packing.place(ordered)
    if extrapolated is not None:
        packing.extrapolate(extrapolated)
    snapshot.revert()
    placements = tuple(packing.placements)
    return Estimate(
        node_count=len(packing.nodes_with_pods),
        pods=tuple(pod for pod, _ in placements),
        placements=placements,
    )


def order(groups: Sequence[EquivalenceGroup], node: ClusterNode) -> list[int]:
    """Return the indices of `groups`, those first whose pods request the largest share of a node.

    The share is that of CPU and that of memory together.
    """
    allocatable = node.node.allocatable

    def share(index: int) -> float:
        requests = groups[index].requests
        total = 0.0
        for name in (CPU, MEMORY):
            if allocatable.get(name, 0) > 0:
                total += requests.get(name, 0) / allocatable[name]
        return total

    return sorted(range(len(groups)), key=share, reverse=True)


class _Packing:
    """The nodes that were added, and the pods on them; `nodes_with_pods` are names.

    What is there is numbers first: `_free` has what is left of each added node. The snapshot gets
    it (`_show`) when a group comes of which more decides than what its pods request.
    """

    def __init__(
        self, snapshot: ClusterSnapshot, template: NodeTemplate, limiter: NodeLimiter
    ) -> None:
        self.placements: list[tuple[ClusterPod, str]] = []
        self.nodes_with_pods: set[str] = set()
        self._snapshot = snapshot
        self._template = template
        self._limiter = limiter
        self._places_before = len(snapshot)
        self._may_add = True
        self._names: list[str] = []
        self._shown = 0
        # The first copy is in the snapshot from the beginning: what decides about a group may
        # follow from the pods that come with it.
        self._empty = snapshot.free([self._node(0)])[0]
        self._free = np.zeros((0, len(self._empty)), dtype=np.int64)

    def place(self, groups: Iterable[EquivalenceGroup]) -> None:
        """Place the pods of groups in their order."""
        plain: list[tuple[EquivalenceGroup, Int64s]] = []
        for group in groups:
            requests = self._snapshot.requests_that_decide(group.sample)
            if requests is not None:
                plain.append((group, requests))
                continue
            self._place_by_requests(plain)
            plain = []
            self._show()
            rest = self._fill_added_nodes(group.pods)
            if self._may_add:
                self._may_add = self._add_nodes_for(rest)
            self._free = self._snapshot.free(self._names)
        self._place_by_requests(plain)

    def extrapolate(self, group: EquivalenceGroup) -> None:
        """Fill the added nodes, put pods on one new node, and count as many on each further one."""
        may_add, self._may_add = self._may_add, False
        requests = self._snapshot.requests_that_decide(group.sample)
        pods: Sequence[ClusterPod]
        if requests is not None:
            pods = group.pods[self._place_by_requests([(group, requests)]) :]
        else:
            self._show()
            pods = self._fill_added_nodes(group.pods)
        if not may_add or not pods or not self._limiter.permits_another():
            return
        last = self._add_node()
        pods_a_node = 0
        while pods_a_node < len(pods) and self._snapshot.schedule(pods[pods_a_node], last) is None:
            self._note(pods[pods_a_node], last)
            pods_a_node += 1
        if not pods_a_node:
            return
        for number, first in enumerate(range(pods_a_node, len(pods), pods_a_node), 1):
            if not self._limiter.permits_another():
                return
            for pod in pods[first : first + pods_a_node]:
                self._note(pod, f"{last}-{number}")

    def _place_by_requests(self, plain: Sequence[tuple[EquivalenceGroup, Int64s]]) -> int:
        """Place the pods of groups of which only requests decide; return how many found a node."""
        if not plain:
            return 0
        ends = np.cumsum([len(group.pods) for group, _ in plain])
        hosts = np.full(int(ends[-1]), NO_HOST, dtype=np.int64)
        # A resource that nothing had before may have come with a group.
        width = max(len(self._empty), *(len(requests) for _, requests in plain))
        limiter, nodes = self._limiter, len(self._names)
        most = len(hosts) + 1
        if limiter.limit:
            most = min(most, max(limiter.limit - limiter.permitted, 0))
        requests = _stacked([amounts for _, amounts in plain], width)
        empty = _stacked([self._empty], width)[0]
        free = np.zeros((nodes + most, width), dtype=np.int64)
        free[:nodes, : self._free.shape[1]] = self._free
        has_pods = np.zeros(nodes + most, dtype=np.int8)
        has_pods[:nodes] = [name in self.nodes_with_pods for name in self._names]
        state = np.array(
            [nodes, self._snapshot.last_place, limiter.permitted, self._may_add], dtype=np.int64
        )
        pack(
            hosts,
            ends,
            requests,
            empty,
            free,
            has_pods,
            state,
            limiter.limit,
            self._places_before,
            not self._template.node.node.unschedulable,
        )
        nodes, self._snapshot.last_place, limiter.permitted, may_add = state.tolist()
        self._may_add = bool(may_add)
        self._free = free[:nodes]
        names = self._names
        names += [f"{self._template.node.name}-e-{index}" for index in range(len(names), nodes)]
        pods = chain.from_iterable(group.pods for group, _ in plain)
        placements = [
            (pod, names[host])
            for pod, host in zip(pods, hosts.tolist(), strict=True)
            if host != NO_HOST
        ]
        self.nodes_with_pods.update(name for _, name in placements)
        self.placements += placements
        return len(placements)

    def _fill_added_nodes(self, pods: Sequence[ClusterPod]) -> Sequence[ClusterPod]:
        """Place pods on the added nodes, and return those from the first on that fits none."""
        if not self._names:
            return pods
        added = set(self._names)
        for index, pod in enumerate(pods):
            name = self._snapshot.schedule_anywhere(pod, added.__contains__)
            if name is None:
                return pods[index:]
            self._note(pod, name)
        return ()

    def _add_nodes_for(self, pods: Sequence[ClusterPod]) -> bool:
        """Place pods on the last node, and on new ones; return whether more may be added."""
        for pod in pods:
            if self._fits_without_a_new_node(pod):
                continue
            if self._names and self._names[-1] not in self.nodes_with_pods:
                return True  # it refuses the pod although it is empty: so would another one
            if not self._limiter.permits_another():
                return False
            last = self._add_node()
            if self._snapshot.schedule(pod, last) is not None:
                return True
            self._note(pod, last)
        return True

    def _fits_without_a_new_node(self, pod: ClusterPod) -> bool:
        if not self._names:
            return False
        last = self._names[-1]
        refusal = self._snapshot.schedule(pod, last)
        if refusal is None:
            self._note(pod, last)
            return True
        if not (_spreads_by_hostname(pod.pod.spec) and _is_for_spreading(refusal)):
            return False
        name = self._snapshot.schedule_anywhere(pod, lambda other: other != last)
        if name is None:
            return False
        self._note(pod, name)
        return True

    def _add_node(self) -> str:
        name = self._node(len(self._names))
        self._names.append(name)
        return name

    def _node(self, index: int) -> str:
        """Return the name of a copy, which is in the snapshot then."""
        copy = self._template.named(f"e-{index}")
        name = copy.node.name
        if name not in self._snapshot:
            self._snapshot.add(copy.node, copy.pods)
        return name

    def _show(self) -> None:
        """Add the pods that were placed by requests to the snapshot."""
        for index in range(len(self._names)):
            self._node(index)
        for pod, name in self.placements[self._shown :]:
            self._snapshot.put(pod, name)
        self._shown = len(self.placements)

    def _note(self, pod: ClusterPod, name: str) -> None:
        """Note the node of a pod that is in the snapshot."""
        self.nodes_with_pods.add(name)
        self.placements.append((pod, name))
        self._shown = len(self.placements)


def _stacked(vectors: Sequence[Int64s], width: int) -> Int64s:
    """Return vectors as rows of that width, with zeros after them."""
    stacked = np.zeros((len(vectors), width), dtype=np.int64)
    for row, vector in zip(stacked, vectors, strict=True):
        row[: len(vector)] = vector
    return stacked


def _spreads_by_hostname(spec: PodSpec) -> bool:
    return any(
        constraint.topology_key == LABEL_HOSTNAME for constraint in spec.topology_spread_constraints
    )


def _is_for_spreading(refusal: Status) -> bool:
    return CONSTRAINTS_NOT_MATCH in refusal.reasons


def _fastest(groups: Sequence[EquivalenceGroup], node: ClusterNode) -> int | None:
    """Return the index of the group of pods that saves most trials, the last of equals.

    None where no group can be extrapolated. Source: determineBestPEGToFastpath, shouldUseFastPath.
    """
    best, most = None, 0
    for index, group in enumerate(groups):
        pods, spec = len(group.pods), group.sample.pod.spec
        nodes = max(_nodes_by_anti_affinity(group), _nodes_by_requests(spec, pods, node))
        saved = pods - pods // nodes if nodes else 0
        if saved >= most and not _depends_on_other_nodes(spec):
            best, most = index, saved
    return best


def _nodes_by_anti_affinity(group: EquivalenceGroup) -> int:
    """Return one node for each pod where these refuse each other a host, else 0."""
    pod = group.sample.pod
    terms = pod.spec.pod_anti_affinity.required if pod.spec.pod_anti_affinity else ()
    apart = any(
        term.topology_key == LABEL_HOSTNAME
        and term.selector is not None
        and term.selector.matches(pod.labels)
        for term in terms
    )
    return len(group.pods) if apart else 0


def _nodes_by_requests(spec: PodSpec, pods: int, node: ClusterNode) -> int:
    """Return how many nodes the requests of the pods' first containers fill."""
    if not spec.containers:
        return 0
    requests, capacity = spec.containers[0].requests, node.node.capacity
    # As floats, in cores and bytes, because upstream rounds their quotient up.
    units = {CPU: 1000, MEMORY: 1}
    return max(
        ceil(pods * (requests.get(name, 0) / unit) / (capacity[name] / unit))
        if capacity.get(name)
        else 0
        for name, unit in units.items()
    )


def _depends_on_other_nodes(spec: PodSpec) -> bool:
    terms = spec.pod_anti_affinity.required if spec.pod_anti_affinity else ()
    return bool(spec.topology_spread_constraints) or any(
        term.topology_key != LABEL_HOSTNAME for term in terms
    )
