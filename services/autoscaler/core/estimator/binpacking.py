"""The binpacking estimator: fills copies of a group's template with pods, and counts them.

The groups of pods that want most of a node come first. Each pod goes to a node that was added
already, and else to the last one; where that refuses it, a node is added. A node that refuses a pod
while it is empty would do so again: no further nodes are added for that group of pods. Where the
limiter permits no more nodes, the later groups of pods still fill what is there.

The last node is the only one that a pod beyond the first refused one of its group is tried on. A
spread constraint by hostname is the exception: it may refuse the last node because it has most
pods, so that any other node is tried, of the cluster, too.

With `fastpath`, the group of pods that saves most trials comes last, and only its first node is
simulated; the others are taken to hold as many pods as that one.

Source: kubernetes/autoscaler 1.36 estimator/binpacking_estimator.go; decreasing_pod_orderer.go.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil

from services.autoscaler.core.equivalence import EquivalenceGroup
from services.autoscaler.core.estimator.limits import NodeLimiter
from services.autoscaler.core.objects import ClusterNode, ClusterPod
from services.autoscaler.core.simulator.snapshot import ClusterSnapshot
from services.autoscaler.core.simulator.templates import NodeTemplate
from services.framework.plugins.pod_topology_spread.plugin import CONSTRAINTS_NOT_MATCH
from services.framework.status import Status
from services.kube.node import LABEL_HOSTNAME
from services.kube.pod import PodSpec
from services.kube.requests import CPU, MEMORY, pod_requests


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """The number of nodes that got a pod, and the pods that found a place, in order."""

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
    """Return how many copies of `template` the pods of `groups` need; the snapshot is kept."""
    ordered = [groups[index] for index in order(groups, template.node)]
    last = _fastest(ordered, template.node) if fastpath else None
    if last is not None:
        ordered.append(ordered.pop(last))
    snapshot.fork()
    packing = _Packing(snapshot, template, limiter)
    may_add = True
    for index, group in enumerate(ordered):
        rest = packing.fill_added_nodes(group.pods)
        if not may_add:
            continue
        if last is not None and index == len(ordered) - 1:
            packing.extrapolate(rest)
        else:
            may_add = packing.add_nodes_for(rest)
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
        requests = pod_requests(groups[index].sample.pod.spec)
        total = 0.0
        for name in (CPU, MEMORY):
            if allocatable.get(name, 0) > 0:
                total += requests.get(name, 0) / allocatable[name]
        return total

    return sorted(range(len(groups)), key=share, reverse=True)


@dataclass(slots=True)
class _Packing:
    """The nodes that were added, and the pods on them."""

    snapshot: ClusterSnapshot
    template: NodeTemplate
    limiter: NodeLimiter
    placements: list[tuple[ClusterPod, str]] = field(default_factory=list)
    nodes_with_pods: set[str] = field(default_factory=set)
    added: set[str] = field(default_factory=set)
    last: str = ""

    def fill_added_nodes(self, pods: Sequence[ClusterPod]) -> Sequence[ClusterPod]:
        """Place pods on the added nodes, and return those from the first on that fits none."""
        if not self.added:
            return pods
        for index, pod in enumerate(pods):
            name = self.snapshot.schedule_anywhere(pod, self.added.__contains__)
            if name is None:
                return pods[index:]
            self._note(pod, name)
        return ()

    def add_nodes_for(self, pods: Sequence[ClusterPod]) -> bool:
        """Place pods on the last node, and on new ones; return whether more may be added."""
        for pod in pods:
            if self._fits_without_a_new_node(pod):
                continue
            if self.last and self.last not in self.nodes_with_pods:
                return True  # it refuses the pod although it is empty: so would another one
            if not self.limiter.permits_another():
                return False
            self._add_node()
            if self.snapshot.schedule(pod, self.last) is not None:
                return True
            self._note(pod, self.last)
        return True

    def extrapolate(self, pods: Sequence[ClusterPod]) -> None:
        """Place pods on one new node, and count as many on each further one."""
        if not pods or not self.limiter.permits_another():
            return
        self._add_node()
        each = 0
        while each < len(pods) and self.snapshot.schedule(pods[each], self.last) is None:
            self._note(pods[each], self.last)
            each += 1
        if not each:
            return
        for number, first in enumerate(range(each, len(pods), each), 1):
            if not self.limiter.permits_another():
                return
            for pod in pods[first : first + each]:
                self._note(pod, f"{self.last}-{number}")

    def _fits_without_a_new_node(self, pod: ClusterPod) -> bool:
        if not self.last:
            return False
        refusal = self.snapshot.schedule(pod, self.last)
        if refusal is None:
            self._note(pod, self.last)
            return True
        if not (_spreads_by_hostname(pod.pod.spec) and _is_for_spreading(refusal)):
            return False
        name = self.snapshot.schedule_anywhere(pod, lambda other: other != self.last)
        if name is None:
            return False
        self._note(pod, name)
        return True

    def _add_node(self) -> None:
        copy = self.template.named(f"e-{len(self.added)}")
        self.snapshot.add(copy.node, copy.pods)
        self.last = copy.node.name
        self.added.add(self.last)

    def _note(self, pod: ClusterPod, name: str) -> None:
        self.nodes_with_pods.add(name)
        self.placements.append((pod, name))


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
