"""A kubelet's own check of a pod that was bound to its node, before it runs it.

A binding is the scheduler's word, and the scheduler may be wrong or late. So a kubelet looks again
at what it knows best: the resources and host ports of the pods that it has admitted itself, its
node's labels, and its NoExecute taints. A pod that does not fit is rejected: it fails at once and
for good, without a container having run, and its controller makes another one. What other pods or
objects decide (pod affinity, topology spread, volumes) and taints NoSchedule a kubelet does not
check.

The pods that count are those that the kubelet has seen and whose containers have not stopped, so
also those that terminate, but none that was bound and not looked at yet. A pod that runs already
when a recording begins was admitted before; so was a mirror pod, which a kubelet only shows.

Of several reasons the first one is the pod's: another operating system, resources, then
NodeAffinity, NodePorts and TaintToleration. A critical pod for which only resources are missing is
admitted over others (critical_pods.py). A device that a device plugin serves is allocated before
this check upstream, and a pod without one is rejected as UnexpectedAdmissionError there; a trace
does not tell such resources from others, so here it is OutOf and the resource's name.

Source: kubernetes v1.34 pkg/kubelet/lifecycle/predicate.go, predicateAdmitHandler.Admit,
generalFilter, removeMissingExtendedResources, rejectPodAdmissionBasedOnOSSelector,
rejectPodAdmissionBasedOnOSField;
pkg/scheduler/scheduler.go, AdmissionCheck; plugins/noderesources/fit.go, fitsRequest;
pkg/kubelet/kubelet_pods.go, filterOutInactivePods.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from replay.world.api.cluster import Cluster
from replay.world.api.pod_record import PodRecord
from replay.world.kubelet.critical_pods import NodePod, NotEnough, is_preemptable, victims
from replay.world.kubelet.memory_limits import qos_class
from reprieve.kube.v1beta1 import node_pb2, pod_pb2
from services.kube.node import Node
from services.kube.pod import PodSpec
from services.kube.requests import (
    CPU,
    EPHEMERAL_STORAGE,
    MEMORY,
    PODS,
    HostPort,
    conflicts,
    hold,
    host_ports,
    is_counted,
    is_extended,
    pod_requests,
    release,
    spec_in_force,
)
from services.kube.taints import TaintEffect, tolerated
from services.rpc.kube.codec import pod_from_message
from services.rpc.kube.fields import container_resources, resources, strings, taints
from services.rpc.kube.spec import PodSpecInterner

MIRROR_ANNOTATION = "kubernetes.io/config.mirror"
OS_LABEL = "kubernetes.io/os"
OUT_OF = "OutOf"
"""How the reason of a lack of resources begins; the resource's name follows."""
PREDICATES = {
    "NodeAffinity": "node(s) didn't match Pod's node affinity/selector",
    "NodePorts": "node(s) didn't have free ports for the requested pod ports",
    "TaintToleration": "node(s) had taints that the pod didn't tolerate",
}
"""The other reasons, with the text of the plugin of the same name."""
OS_REASONS = {
    "PodOSSelectorNodeLabelDoesNotMatch": (
        "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label"
    ),
    "PodOSNotSupported": "Failed to admit pod as the OS field doesn't match node OS",
}
"""The reasons of another operating system, by the pod's label and by its spec, with their texts."""
_SPECS_MAX = 65_536
_FIRST = (CPU, MEMORY, EPHEMERAL_STORAGE)


class Rejection(NamedTuple):
    """The reason and message of a pod's status when its kubelet does not admit it."""

    reason: str
    message: str


class Shortage(NamedTuple):
    """A resource that is insufficient on a node: the pod's request, others' requests, the capacity.

    CPU is in thousandths of a core, everything else in whole units.
    """

    resource: str
    requested: int
    used: int
    capacity: int

    @property
    def missing(self) -> int:
        """Return the amount that other pods would have to free."""
        return self.requested - (self.capacity - self.used)

    def rejection(self) -> Rejection:
        """Return the rejection of the pod for this shortage."""
        return Rejection(
            OUT_OF + self.resource,
            f"Node didn't have enough resource: {self.resource}, requested: {self.requested}, "
            f"used: {self.used}, capacity: {self.capacity}",
        )


class Unfit(NamedTuple):
    """The reasons for which a pod does not fit its node: shortages, and other predicates."""

    shortages: tuple[Shortage, ...]
    predicates: tuple[str, ...]

    def rejection(self) -> Rejection:
        """Return the first reason, the only one that the pod's status has."""
        if self.shortages:
            return self.shortages[0].rejection()
        name = self.predicates[0]
        if name in OS_REASONS:
            return Rejection(name, OS_REASONS[name])
        return Rejection(name, f"Predicate {name} failed: {PREDICATES[name]}")


class Claim(NamedTuple):
    """The amounts by resource, and the host ports, that a pod of one spec takes from a node."""

    amounts: Mapping[str, int]
    ports: tuple[HostPort, ...]


class _Admitted(NamedTuple):
    """A pod that a kubelet counts, by the message that its claim was read from."""

    message: pod_pb2.Pod
    claim: Claim


@dataclass(slots=True, kw_only=True)
class _Node:
    """A node as its kubelet sees it, with the sums over the pods that it has admitted.

    `node` was read from `message` at the resourceVersion `version`; both may be replaced.
    """

    message: node_pb2.Node
    version: str
    node: Node
    admitted: dict[str, _Admitted] = field(default_factory=dict)
    amounts: dict[str, int] = field(default_factory=dict)
    ports: dict[HostPort, int] = field(default_factory=dict)


class KubeletAdmission:
    """The admission checks of all kubelets; its state can be derived from the cluster.

    Sums by node are brought up to date when a pod is checked, which costs one look at each of the
    node's pods that changed since the last check. `specs` makes one value of equal specs.
    """

    def __init__(self, cluster: Cluster, specs: PodSpecInterner) -> None:
        self._cluster = cluster
        self._specs = specs
        self._nodes: dict[str, _Node] = {}
        self._claims: dict[PodSpec, Claim] = {}

    def unfit(self, pod: PodRecord) -> Unfit | None:
        """Return why a pod that its kubelet sees for the first time does not fit, None if it does.

        A pod that fits is admitted and counts from now on. A node that does not exist has no
        kubelet that checks.
        """
        message = self._cluster.nodes.get(pod.node_name)
        if message is None or MIRROR_ANNOTATION in pod.message.metadata.annotations:
            return None
        seen = self._up_to_date(message)
        spec = self._specs.spec(pod.message.spec)
        if reason := _other_os(pod.message, seen.node):
            return Unfit((), (reason,))
        claim = self._claim_of(spec)
        shortages = tuple(_shortages(claim.amounts, seen))
        predicates = tuple(_predicates(spec, claim.ports, seen))
        if shortages or predicates:
            return Unfit(shortages, predicates)
        _put(seen, pod.uid, _Admitted(pod.message, claim))
        return None

    def victims(self, pod: PodRecord, unfit: Unfit) -> list[PodRecord] | Rejection:
        """Return the pods to preempt for a critical pod, or its rejection if they are not enough.

        `unfit` is why it does not fit, for want of resources alone.
        """
        admitted = self._nodes[pod.node_name].admitted
        active = self._cluster.active_by_node[pod.node_name]
        others = [(active[uid], admitted[uid].claim) for uid in active if uid in admitted]
        candidates = [
            NodePod(
                other.uid,
                other.message.status.qos_class or qos_class(other.message.spec),
                {**claim.amounts, PODS: 1},
            )
            for other, claim in others
            if is_preemptable(other.priority, pod.priority)
        ]
        missing = {shortage.resource: shortage.missing for shortage in unfit.shortages}
        chosen = victims(missing, candidates)
        if isinstance(chosen, NotEnough):
            return _not_enough(chosen.missing)
        return [self._cluster.pods[victim.uid] for victim in chosen]

    def claim(self, pod: PodRecord) -> Claim:
        """Return the claim of a pod on its node; a resize counts as the scheduler counts it.

        Raises FieldError for a status that cannot be read.
        """
        message = pod.kubelet_message
        if container_resources(message.status, "status"):
            return _claim(spec_in_force(pod_from_message(message, self._specs)))
        return self._claim_of(self._specs.spec(message.spec))

    def requests(self, message: pod_pb2.Pod) -> Mapping[str, int]:
        """Return what the spec of a pod requests."""
        return self._claim_of(self._specs.spec(message.spec)).amounts

    def forget(self, pod: PodRecord) -> None:
        """Read a pod's claim anew at the next check."""
        seen = self._nodes.get(pod.node_name)
        if seen is not None and pod.uid in seen.admitted:
            _take_out(seen, pod.uid)
            self._cluster.changed_by_node[pod.node_name][pod.uid] = None

    def unfit_resized(self, pod: PodRecord) -> Unfit | None:
        """Return why a pod that its kubelet runs does not fit with the resources of its spec."""
        seen = self._up_to_date(self._cluster.nodes[pod.node_name])
        self.forget(pod)
        spec = self._specs.spec(pod.message.spec)
        claim = self._claim_of(spec)
        shortages = tuple(_shortages(claim.amounts, seen))
        predicates = tuple(_predicates(spec, claim.ports, seen))
        return Unfit(shortages, predicates) if shortages or predicates else None

    def _claim_of(self, spec: PodSpec) -> Claim:
        claim = self._claims.get(spec)
        if claim is None:
            if len(self._claims) >= _SPECS_MAX:
                self._claims.clear()
            claim = self._claims[spec] = _claim(spec)
        return claim

    def _up_to_date(self, message: node_pb2.Node) -> _Node:
        """Return a node with the sums over the pods that its kubelet has admitted by now."""
        name, version = message.metadata.name, message.metadata.resource_version
        active = self._cluster.active_by_node.get(name, {})
        seen = self._nodes.get(name)
        if seen is None:
            seen = self._nodes[name] = _Node(message=message, version=version, node=_node(message))
            self._cluster.changed_by_node[name] = dict.fromkeys(active)
        elif seen.message is not message or seen.version != version:
            seen.message, seen.version = message, version
            seen.node = _node(message)
        changed = self._cluster.changed_by_node[name]
        for uid in changed:
            self._count(seen, uid, active.get(uid))
        changed.clear()
        return seen

    def _count(self, seen: _Node, uid: str, pod: PodRecord | None) -> None:
        """Bring a node's sums up to date for one of its pods, None if it has ended or gone."""
        former = seen.admitted.get(uid)
        if former is not None:
            if pod is not None and former.message is pod.message:
                return
            _take_out(seen, uid)
        elif pod is None or not _is_known(pod):
            return
        if pod is not None:
            _put(seen, uid, _Admitted(pod.message, self.claim(pod)))


def _node(message: node_pb2.Node) -> Node:
    """Return a node with the fields that decide an admission: a real one has 50 images, too."""
    meta, status = message.metadata, message.status
    return Node(
        name=meta.name,
        labels=strings(meta.labels),
        allocatable=resources(status.allocatable, "node.status.allocatable")
        or resources(status.capacity, "node.status.capacity"),
        taints=taints(message.spec.taints, "node.spec.taints"),
    )


def _not_enough(missing: Mapping[str, int]) -> Rejection:
    listed = "".join(f"(res: {name}, q: {amount}), " for name, amount in missing.items())
    return Rejection(
        "UnexpectedAdmissionError",
        "Unexpected error while attempting to recover from admission failure: preemption: error "
        "finding a set of pods to preempt: no set of running pods found to reclaim resources: "
        f"[{listed}]",
    )


def _is_known(pod: PodRecord) -> bool:
    """Return whether the pod's kubelet has processed it."""
    status = pod.message.status
    return status.phase == "Running" or status.HasField("start_time")


def _put(seen: _Node, uid: str, admitted: _Admitted) -> None:
    seen.admitted[uid] = admitted
    for name, amount in admitted.claim.amounts.items():
        seen.amounts[name] = seen.amounts.get(name, 0) + amount
    hold(seen.ports, admitted.claim.ports)


def _take_out(seen: _Node, uid: str) -> None:
    claim = seen.admitted.pop(uid).claim
    for name, amount in claim.amounts.items():
        seen.amounts[name] -= amount
    release(seen.ports, claim.ports)


def _claim(spec: PodSpec) -> Claim:
    amounts = pod_requests(spec)
    return Claim({name: amounts[name] for name in amounts if is_counted(name)}, host_ports(spec))


def _shortages(requests: Mapping[str, int], seen: _Node) -> Iterator[Shortage]:
    """Yield the insufficient resources: pods, CPU, memory, storage, then others by name.

    An extended resource that the node does not have at all is not checked: it may be one of the
    whole cluster. Upstream has the last group in any order.
    """
    allocatable = seen.node.allocatable
    places = allocatable.get(PODS, 0)
    if len(seen.admitted) + 1 > places:
        yield Shortage(PODS, 1, len(seen.admitted), places)
    for name in (*_FIRST, *sorted(requests.keys() - set(_FIRST))):
        amount = requests.get(name, 0)
        if not amount or (is_extended(name) and name not in allocatable):
            continue
        used, capacity = seen.amounts.get(name, 0), allocatable.get(name, 0)
        if amount > capacity - used:
            yield Shortage(name, amount, used, capacity)


def _other_os(pod: pod_pb2.Pod, node: Node) -> str:
    """Return the reason if a pod names another operating system than its node's, "" if it does not.

    A kubelet knows its own; here it is what the node's label says, and Linux without one.
    """
    os_label = pod.metadata.labels.get(OS_LABEL)
    by_label, by_spec = OS_REASONS
    node_os = node.labels.get(OS_LABEL, "linux")
    if os_label is not None and os_label != node_os:
        return by_label
    return by_spec if pod.spec.HasField("os") and pod.spec.os.name != node_os else ""


def _predicates(spec: PodSpec, ports: tuple[HostPort, ...], seen: _Node) -> Iterator[str]:
    node = seen.node
    required = spec.node_affinity.required if spec.node_affinity is not None else None
    if not node.matches(spec.node_selector.items(), required):
        yield "NodeAffinity"
    if ports and conflicts(ports, seen.ports):
        yield "NodePorts"
    if any(
        taint.effect is TaintEffect.NO_EXECUTE and not tolerated(taint, spec.tolerations)
        for taint in node.taints
    ):
        yield "TaintToleration"
