"""Builders of Kubernetes objects, for tests: make_pod("p").req(cpu="1").obj().

A builder holds a message. `message` returns it, `obj` the scheduler's value and `eviction` the
kubelet's, both by the codecs that read requests, and `json` the object as an API server sends it.
Quantities are Kubernetes texts ("500m", "1Gi"). Dots and slashes do not fit keyword names, so
resources and labels may also be passed as a mapping.

Source: kubernetes v1.34 pkg/scheduler/testing/wrappers.go.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from reprieve.kube.v1beta1.affinity_pb2 import NodeAffinity
from reprieve.kube.v1beta1.node_pb2 import Node as NodeMessage
from reprieve.kube.v1beta1.pod_pb2 import Container
from reprieve.kube.v1beta1.pod_pb2 import Pod as PodMessage
from reprieve.kube.v1beta1.policy_pb2 import PodDisruptionBudget as BudgetMessage
from services.eviction.codec import operations as eviction_codec
from services.eviction.core.pod import EvictionPod
from services.kube.node import Node
from services.kube.pod import Pod, PodPhase, PreemptionPolicy, PreferredSchedulingTerm
from services.kube.selector import NodeSelectorTerm, Operator, Requirement
from services.kube.workloads import PodDisruptionBudget
from services.rpc.kube import codec
from services.rpc.kube.fields import set_time
from services.rpc.kube.messages import put_all
from services.rpc.kube.spec import PodSpecInterner

Amounts = Mapping[str, str | int]


def make_pod(name: str = "pod", namespace: str = "default") -> PodBuilder:
    """Start a pod; its UID is "uid-<namespace>-<name>" unless `uid` is called."""
    return PodBuilder(name, namespace)


def make_node(name: str = "node") -> NodeBuilder:
    """Start a node with room for 110 pods and nothing else."""
    return NodeBuilder(name)


def make_budget(name: str = "budget", namespace: str = "default") -> BudgetBuilder:
    """Start a budget that selects nothing and allows no disruption."""
    return BudgetBuilder(name, namespace)


def requirement(key: str, operator: str, *values: str) -> Requirement:
    """Return one condition on a label: its key, an operator such as "In", and values."""
    return Requirement(key=key, operator=Operator(operator), values=values)


def _texts(amounts: Amounts | None, named: Amounts) -> dict[str, str]:
    return {name: str(amount) for name, amount in {**(amounts or {}), **named}.items()}


class PodBuilder:
    """Builds a pod; each method but the last ones returns the builder."""

    def __init__(self, name: str, namespace: str) -> None:
        self._pod = PodMessage()
        self._meta, self._spec, self._status = self._pod.metadata, self._pod.spec, self._pod.status
        self._meta.name, self._meta.namespace = name, namespace
        self._meta.uid = f"uid-{namespace}-{name}"
        self._interner = PodSpecInterner()

    def message(self) -> PodMessage:
        """Return the message itself, not a copy."""
        return self._pod

    def obj(self) -> Pod:
        """Return the scheduler's value; pods of one builder share their spec while it is equal."""
        return codec.pod_from_message(self._pod, self._interner)

    def eviction(self) -> EvictionPod:
        """Return the kubelet's value."""
        return eviction_codec.pod_from_message(self._pod, field="pod")

    def json(self) -> dict[str, Any]:
        """Return the object with its apiVersion and kind."""
        return codec.object_to_json(self._pod)

    def uid(self, uid: str) -> Self:
        """Set the UID."""
        self._meta.uid = uid
        return self

    def req(self, amounts: Amounts | None = None, /, **named: str | int) -> Self:
        """Add a container with these requests."""
        return self.container(requests=_texts(amounts, named))

    def container(
        self,
        name: str = "",
        *,
        image: str = "",
        requests: Amounts | None = None,
        limits: Amounts | None = None,
    ) -> Self:
        """Add a container, named "c" and its number unless `name` is passed."""
        added = self._add_container(name)
        added.image = image
        added.resources.requests.update(_texts(requests, {}))
        added.resources.limits.update(_texts(limits, {}))
        return self

    def init_req(
        self, amounts: Amounts | None = None, /, *, sidecar: bool = False, **named: str | int
    ) -> Self:
        """Add an init container with these requests, or a sidecar; named "i" and its number."""
        added = self._spec.init_containers.add(name=f"i{len(self._spec.init_containers)}")
        added.resources.requests.update(_texts(amounts, named))
        if sidecar:
            added.restart_policy = "Always"
        return self

    def image(self, image: str) -> Self:
        """Add a container of that image, without requests."""
        return self.container(image=image)

    def host_port(self, port: int, *, protocol: str = "TCP", ip: str = "") -> Self:
        """Add a container that requests a port of the host."""
        ports = self._add_container().ports
        ports.add(container_port=port, host_port=port, protocol=protocol, host_ip=ip)
        return self

    def empty_dir(self, name: str = "scratch", *, size_limit: str = "") -> Self:
        """Add a volume on the node's disk."""
        volume = self._spec.volumes.add(name=name)
        volume.empty_dir.SetInParent()
        if size_limit:
            volume.empty_dir.size_limit = size_limit
        return self

    def overhead(self, amounts: Amounts | None = None, /, **named: str | int) -> Self:
        """Set the overhead."""
        self._spec.overhead.update(_texts(amounts, named))
        return self

    def pod_req(self, amounts: Amounts | None = None, /, **named: str | int) -> Self:
        """Set pod-level requests."""
        self._spec.resources.requests.update(_texts(amounts, named))
        return self

    def priority(self, priority: int, *, class_name: str = "") -> Self:
        """Set the priority."""
        self._spec.priority, self._spec.priority_class_name = priority, class_name
        return self

    def never_preempts(self) -> Self:
        """Set preemptionPolicy Never."""
        self._spec.preemption_policy = PreemptionPolicy.NEVER.value
        return self

    def scheduler(self, name: str) -> Self:
        """Set schedulerName."""
        self._spec.scheduler_name = name
        return self

    def gates(self, *names: str) -> Self:
        """Add scheduling gates."""
        for name in names:
            self._spec.scheduling_gates.add(name=name)
        return self

    def grace_period(self, seconds: int | None) -> Self:
        """Set terminationGracePeriodSeconds; None leaves it absent."""
        if seconds is not None:
            self._spec.termination_grace_period_seconds = seconds
        return self

    def node_selector(self, labels: Mapping[str, str] | None = None, /, **named: str) -> Self:
        """Add labels to nodeSelector."""
        self._spec.node_selector.update(labels or {}, **named)
        return self

    def node_affinity_in(self, key: str, *values: str) -> Self:
        """Require a node whose label `key` has one of `values`."""
        return self.required_terms(
            NodeSelectorTerm(match_expressions=(requirement(key, "In", *values),))
        )

    def required_terms(self, *terms: NodeSelectorTerm) -> Self:
        """Require a node that one of `terms` matches."""
        required = self._node_affinity.required_during_scheduling_ignored_during_execution
        required.SetInParent()
        del required.node_selector_terms[:]
        put_all(terms, required.node_selector_terms)
        return self

    def preferred(self, weight: int, *requirements: Requirement) -> Self:
        """Prefer nodes that meet all `requirements`."""
        term = NodeSelectorTerm(match_expressions=requirements)
        preferred = self._node_affinity.preferred_during_scheduling_ignored_during_execution
        put_all([PreferredSchedulingTerm(weight=weight, term=term)], preferred)
        return self

    def toleration(
        self, key: str = "", value: str = "", *, operator: str = "", effect: str = ""
    ) -> Self:
        """Add a toleration."""
        self._spec.tolerations.add(key=key, operator=operator, value=value, effect=effect)
        return self

    def label(self, key: str, value: str) -> Self:
        """Add a label."""
        self._meta.labels[key] = value
        return self

    def labels(self, labels: Mapping[str, str] | None) -> Self:
        """Add labels."""
        self._meta.labels.update(labels or {})
        return self

    def annotations(self, annotations: Mapping[str, str] | None) -> Self:
        """Add annotations."""
        self._meta.annotations.update(annotations or {})
        return self

    def owner(self, kind: str, name: str, uid: str = "") -> Self:
        """Add a controlling owner; its UID is "uid-<name>" unless `uid` is passed."""
        uid = uid or f"uid-{name}"
        self._meta.owner_references.add(kind=kind, name=name, uid=uid, controller=True)
        return self

    def node(self, name: str) -> Self:
        """Assign the pod to a node."""
        self._spec.node_name = name
        return self

    def nominated(self, name: str) -> Self:
        """Set status.nominatedNodeName."""
        self._status.nominated_node_name = name
        return self

    def phase(self, phase: PodPhase) -> Self:
        """Set the phase."""
        self._status.phase = phase.value
        return self

    def condition(self, type_: str, status: str = "True", reason: str = "") -> Self:
        """Add a condition."""
        self._status.conditions.add(type=type_, status=status, reason=reason)
        return self

    def created(self, at_ns: int) -> Self:
        """Set the creation time."""
        set_time(self._meta.creation_timestamp, at_ns)
        return self

    def started(self, at_ns: int | None) -> Self:
        """Set status.startTime; None leaves it absent."""
        if at_ns is not None:
            set_time(self._status.start_time, at_ns)
        return self

    def terminating(self, deletion_ns: int = 1, *, preempted: bool = False) -> Self:
        """Request deletion; `preempted` adds the condition that preemption leaves."""
        set_time(self._meta.deletion_timestamp, deletion_ns)
        if preempted:
            self.condition("DisruptionTarget", "True", "PreemptionByScheduler")
        return self

    def resource_version(self, version: str) -> Self:
        """Set metadata.resourceVersion."""
        self._meta.resource_version = version
        return self

    @property
    def _node_affinity(self) -> NodeAffinity:
        return self._spec.affinity.node_affinity

    def _add_container(self, name: str = "") -> Container:
        return self._spec.containers.add(name=name or f"c{len(self._spec.containers)}")


class NodeBuilder:
    """Builds a node; each method but the first ones returns the builder."""

    def __init__(self, name: str) -> None:
        self._node = NodeMessage()
        self._node.metadata.name, self._node.metadata.uid = name, f"uid-{name}"
        self.capacity()

    def message(self) -> NodeMessage:
        """Return the message itself, not a copy."""
        return self._node

    def obj(self) -> Node:
        """Return the scheduler's value."""
        return codec.node_from_message(self._node)

    def json(self) -> dict[str, Any]:
        """Return the object with its apiVersion and kind."""
        return codec.object_to_json(self._node)

    def capacity(self, amounts: Amounts | None = None, /, **named: str | int) -> Self:
        """Set capacity and allocatable, with 110 pods unless "pods" is among the amounts."""
        for held in (self._node.status.capacity, self._node.status.allocatable):
            held.clear()
            held.update({"pods": "110", **_texts(amounts, named)})
        return self

    def label(self, key: str, value: str) -> Self:
        """Add a label."""
        self._node.metadata.labels[key] = value
        return self

    def zone(self, zone: str, region: str = "") -> Self:
        """Set the zone label, and the region's unless it is empty."""
        if region:
            self.label("topology.kubernetes.io/region", region)
        return self.label("topology.kubernetes.io/zone", zone)

    def taint(self, key: str, value: str = "", effect: str = "NoSchedule") -> Self:
        """Add a taint."""
        self._node.spec.taints.add(key=key, value=value, effect=effect)
        return self

    def unschedulable(self) -> Self:
        """Cordon the node."""
        self._node.spec.unschedulable = True
        return self

    def image(self, size_bytes: int, *names: str) -> Self:
        """Add an image."""
        self._node.status.images.add(names=names, size_bytes=size_bytes)
        return self

    def condition(self, type_: str, status: str = "True") -> Self:
        """Add a condition."""
        self._node.status.conditions.add(type=type_, status=status)
        return self


class BudgetBuilder:
    """Builds a PodDisruptionBudget; each method but the first ones returns the builder."""

    def __init__(self, name: str, namespace: str) -> None:
        self._budget = BudgetMessage()
        meta = self._budget.metadata
        meta.name, meta.namespace, meta.uid = name, namespace, f"uid-{name}"

    def message(self) -> BudgetMessage:
        """Return the message itself, not a copy."""
        return self._budget

    def obj(self) -> PodDisruptionBudget:
        """Return the scheduler's value."""
        return codec.budget_from_message(self._budget)

    def match_labels(self, labels: Mapping[str, str] | None = None, /, **named: str) -> Self:
        """Select the pods with all these labels; all pods without any label."""
        self._budget.spec.selector.SetInParent()
        self._budget.spec.selector.match_labels.update(labels or {}, **named)
        return self

    def min_available(self, amount: int | str | None) -> Self:
        """Set minAvailable: a number, or a text such as "50%"; None leaves it absent."""
        return self._bound("min_available", amount)

    def max_unavailable(self, amount: int | str | None) -> Self:
        """Set maxUnavailable as `min_available` does."""
        return self._bound("max_unavailable", amount)

    def allowed(self, disruptions: int) -> Self:
        """Set status.disruptionsAllowed."""
        self._budget.status.disruptions_allowed = disruptions
        return self

    def disrupted(self, pod_name: str, at_ns: int = 0) -> Self:
        """Add a pod to status.disruptedPods."""
        set_time(self._budget.status.disrupted_pods[pod_name], at_ns)
        return self

    def _bound(self, name: str, amount: int | str | None) -> Self:
        if amount is not None:
            kind = "string_value" if isinstance(amount, str) else "int_value"
            setattr(getattr(self._budget.spec, name), kind, amount)
        return self
