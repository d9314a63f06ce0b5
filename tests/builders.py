"""Fluent builders of the kube values, for tests: make_pod("p").req(cpu="1").obj().

Quantities are Kubernetes texts ("500m", "1Gi"). Dots and slashes do not fit keyword names, so
resources and labels may also be given as a mapping.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Self

from services.kube import quantity
from services.kube.node import ContainerImage, Node
from services.kube.pod import (
    Condition,
    Container,
    ContainerPort,
    NodeAffinity,
    OwnerReference,
    Pod,
    PodPhase,
    PodSpec,
    PreemptionPolicy,
    PreferredSchedulingTerm,
    PriorityClass,
)
from services.kube.selector import (
    LabelSelector,
    NodeSelector,
    NodeSelectorTerm,
    Operator,
    Requirement,
)
from services.kube.taints import Taint, TaintEffect, Toleration
from services.kube.workloads import IntOrPercent, PodDisruptionBudget


def make_pod(name: str = "pod", namespace: str = "default") -> PodBuilder:
    """Start a pod; its UID is "uid-<namespace>-<name>" unless `uid` is called."""
    return PodBuilder(name, namespace)


def make_node(name: str = "node") -> NodeBuilder:
    """Start a node with room for 110 pods and nothing else."""
    return NodeBuilder(name)


def make_budget(name: str = "budget", namespace: str = "default") -> BudgetBuilder:
    """Start a budget that selects nothing and allows no disruption."""
    return BudgetBuilder(name, namespace)


def make_priority_class(name: str, value: int, *, global_default: bool = False) -> PriorityClass:
    """Return a priority class."""
    return PriorityClass(name=name, value=value, global_default=global_default)


def resources(
    amounts: Mapping[str, str | int] | None = None, /, **named: str | int
) -> dict[str, int]:
    """Return amounts in Kubernetes' units: "cpu" in thousandths of a core, else whole units."""
    texts = {**(amounts or {}), **named}
    return {
        key: quantity.milli(str(text)) if key == "cpu" else quantity.value(str(text))
        for key, text in texts.items()
    }


def requirement(key: str, operator: str, *values: str) -> Requirement:
    """Return one condition on a label: its key, an operator such as "In", and values."""
    return Requirement(key=key, operator=Operator(operator), values=values)


class PodBuilder:
    """Builds a Pod; each method returns the builder."""

    def __init__(self, name: str, namespace: str) -> None:
        self._pod = Pod(
            uid=f"uid-{namespace}-{name}", namespace=namespace, name=name, spec=PodSpec()
        )

    def obj(self) -> Pod:
        """Return the pod."""
        return self._pod

    def uid(self, uid: str) -> Self:
        """Set the UID."""
        return self._with(uid=uid)

    def spec(self, spec: PodSpec) -> Self:
        """Use an existing spec, so that pods share one shape; call it before what changes it."""
        return self._with(spec=spec)

    def req(self, amounts: Mapping[str, str | int] | None = None, /, **named: str | int) -> Self:
        """Add a container with these requests."""
        return self.container(requests=resources(amounts, **named))

    def container(
        self,
        *,
        image: str = "",
        requests: Mapping[str, int] | None = None,
        limits: Mapping[str, int] | None = None,
        ports: tuple[ContainerPort, ...] = (),
    ) -> Self:
        """Add a container; requests and limits as `resources` returns them."""
        containers = self._pod.spec.containers
        added = Container(
            name=f"c{len(containers)}",
            image=image,
            requests=requests or {},
            limits=limits or {},
            ports=ports,
        )
        return self._with_spec(containers=(*containers, added))

    def init_req(
        self,
        amounts: Mapping[str, str | int] | None = None,
        /,
        *,
        sidecar: bool = False,
        **named: str | int,
    ) -> Self:
        """Add an init container with these requests, or a sidecar."""
        containers = self._pod.spec.init_containers
        added = Container(
            name=f"i{len(containers)}",
            requests=resources(amounts, **named),
            restart_policy="Always" if sidecar else "",
        )
        return self._with_spec(init_containers=(*containers, added))

    def image(self, image: str) -> Self:
        """Add a container of that image, without requests."""
        return self.container(image=image)

    def host_port(self, port: int, *, protocol: str = "TCP", ip: str = "") -> Self:
        """Add a container that asks for a port on the host."""
        added = ContainerPort(container_port=port, host_port=port, protocol=protocol, host_ip=ip)
        return self.container(ports=(added,))

    def overhead(
        self, amounts: Mapping[str, str | int] | None = None, /, **named: str | int
    ) -> Self:
        """Set the overhead."""
        return self._with_spec(overhead=resources(amounts, **named))

    def pod_req(
        self, amounts: Mapping[str, str | int] | None = None, /, **named: str | int
    ) -> Self:
        """Set pod-level requests."""
        return self._with_spec(resources=resources(amounts, **named))

    def priority(self, priority: int, *, class_name: str = "") -> Self:
        """Set the priority."""
        return self._with_spec(priority=priority, priority_class_name=class_name)

    def never_preempts(self) -> Self:
        """Set preemptionPolicy Never."""
        return self._with_spec(preemption_policy=PreemptionPolicy.NEVER)

    def scheduler(self, name: str) -> Self:
        """Set schedulerName."""
        return self._with_spec(scheduler_name=name)

    def gates(self, *names: str) -> Self:
        """Set the scheduling gates."""
        return self._with_spec(scheduling_gates=names)

    def grace_period(self, seconds: int) -> Self:
        """Set terminationGracePeriodSeconds."""
        return self._with_spec(termination_grace_period_s=seconds)

    def node_selector(self, labels: Mapping[str, str] | None = None, /, **named: str) -> Self:
        """Set nodeSelector."""
        return self._with_spec(node_selector={**(labels or {}), **named})

    def node_affinity_in(self, key: str, *values: str) -> Self:
        """Require a node whose label `key` has one of `values`."""
        return self.required_terms(
            NodeSelectorTerm(match_expressions=(requirement(key, "In", *values),))
        )

    def required_terms(self, *terms: NodeSelectorTerm) -> Self:
        """Require a node that one of `terms` matches."""
        affinity = self._pod.spec.node_affinity or NodeAffinity()
        return self._with_spec(node_affinity=replace(affinity, required=NodeSelector(terms=terms)))

    def preferred(self, weight: int, *requirements: Requirement) -> Self:
        """Prefer nodes that meet all `requirements`."""
        affinity = self._pod.spec.node_affinity or NodeAffinity()
        term = PreferredSchedulingTerm(
            weight=weight, term=NodeSelectorTerm(match_expressions=requirements)
        )
        return self._with_spec(
            node_affinity=replace(affinity, preferred=(*affinity.preferred, term))
        )

    def toleration(
        self, key: str = "", value: str = "", *, operator: str = "", effect: str = ""
    ) -> Self:
        """Add a toleration."""
        added = Toleration(
            key=key,
            operator=operator,
            value=value,
            effect=TaintEffect(effect) if effect else None,
        )
        return self._with_spec(tolerations=(*self._pod.spec.tolerations, added))

    def label(self, key: str, value: str) -> Self:
        """Add a label."""
        return self._with(labels={**self._pod.labels, key: value})

    def annotation(self, key: str, value: str) -> Self:
        """Add an annotation."""
        return self._with(annotations={**self._pod.annotations, key: value})

    def owner(self, kind: str, name: str, uid: str = "") -> Self:
        """Add a controlling owner."""
        added = OwnerReference(kind=kind, name=name, uid=uid or f"uid-{name}", controller=True)
        return self._with(owners=(*self._pod.owners, added))

    def node(self, name: str) -> Self:
        """Assign the pod to a node."""
        return self._with(node_name=name)

    def nominated(self, name: str) -> Self:
        """Set status.nominatedNodeName."""
        return self._with(nominated_node_name=name)

    def phase(self, phase: PodPhase) -> Self:
        """Set the phase."""
        return self._with(phase=phase)

    def condition(self, type_: str, status: str = "True", reason: str = "") -> Self:
        """Add a condition."""
        added = Condition(type=type_, status=status, reason=reason)
        return self._with(conditions=(*self._pod.conditions, added))

    def created(self, at_ns: int) -> Self:
        """Set the creation time."""
        return self._with(creation_ns=at_ns)

    def started(self, at_ns: int | None) -> Self:
        """Set status.startTime."""
        return self._with(start_time_ns=at_ns)

    def terminating(self, deletion_ns: int = 1, *, preempted: bool = False) -> Self:
        """Ask for deletion; `preempted` adds the condition that preemption leaves."""
        self._with(deletion_ns=deletion_ns)
        if preempted:
            self.condition("DisruptionTarget", "True", "PreemptionByScheduler")
        return self

    def resource_version(self, version: str) -> Self:
        """Set metadata.resourceVersion."""
        return self._with(resource_version=version)

    def _with(self, **changes: object) -> Self:
        self._pod = replace(self._pod, **changes)  # type: ignore[arg-type] # keyed by field name
        return self

    def _with_spec(self, **changes: object) -> Self:
        return self._with(spec=replace(self._pod.spec, **changes))  # type: ignore[arg-type] # as above


class NodeBuilder:
    """Builds a Node; each method returns the builder."""

    def __init__(self, name: str) -> None:
        self._node = Node(
            name=name, uid=f"uid-{name}", allocatable={"pods": 110}, capacity={"pods": 110}
        )

    def obj(self) -> Node:
        """Return the node."""
        return self._node

    def capacity(
        self, amounts: Mapping[str, str | int] | None = None, /, **named: str | int
    ) -> Self:
        """Set capacity and allocatable; 110 pods unless "pods" is given."""
        held = {"pods": 110, **resources(amounts, **named)}
        return self._with(capacity=held, allocatable=held)

    def label(self, key: str, value: str) -> Self:
        """Add a label."""
        return self._with(labels={**self._node.labels, key: value})

    def zone(self, zone: str, region: str = "") -> Self:
        """Set the zone label, and the region's where given."""
        if region:
            self.label("topology.kubernetes.io/region", region)
        return self.label("topology.kubernetes.io/zone", zone)

    def taint(self, key: str, value: str = "", effect: str = "NoSchedule") -> Self:
        """Add a taint."""
        added = Taint(key=key, value=value, effect=TaintEffect(effect))
        return self._with(taints=(*self._node.taints, added))

    def unschedulable(self) -> Self:
        """Cordon the node."""
        return self._with(unschedulable=True)

    def image(self, size_bytes: int, *names: str) -> Self:
        """Add an image."""
        added = ContainerImage(names=names, size_bytes=size_bytes)
        return self._with(images=(*self._node.images, added))

    def condition(self, type_: str, status: str = "True") -> Self:
        """Add a condition."""
        return self._with(conditions=(*self._node.conditions, Condition(type=type_, status=status)))

    def _with(self, **changes: object) -> Self:
        self._node = replace(self._node, **changes)  # type: ignore[arg-type] # keyed by field name
        return self


class BudgetBuilder:
    """Builds a PodDisruptionBudget; each method returns the builder."""

    def __init__(self, name: str, namespace: str) -> None:
        self._budget = PodDisruptionBudget(namespace=namespace, name=name, uid=f"uid-{name}")

    def obj(self) -> PodDisruptionBudget:
        """Return the budget."""
        return self._budget

    def match_labels(self, labels: Mapping[str, str] | None = None, /, **named: str) -> Self:
        """Select the pods with all these labels."""
        pairs = {**(labels or {}), **named}
        found = tuple(requirement(key, "In", value) for key, value in pairs.items())
        return self._with(selector=LabelSelector(requirements=found))

    def min_available(self, amount: int, *, percent: bool = False) -> Self:
        """Set minAvailable."""
        return self._with(min_available=IntOrPercent(amount=amount, percent=percent))

    def max_unavailable(self, amount: int, *, percent: bool = False) -> Self:
        """Set maxUnavailable."""
        return self._with(max_unavailable=IntOrPercent(amount=amount, percent=percent))

    def allowed(self, disruptions: int) -> Self:
        """Set status.disruptionsAllowed."""
        return self._with(disruptions_allowed=disruptions)

    def disrupted(self, pod_name: str, at_ns: int = 0) -> Self:
        """Add a pod to status.disruptedPods."""
        return self._with(disrupted_pods={**self._budget.disrupted_pods, pod_name: at_ns})

    def _with(self, **changes: object) -> Self:
        self._budget = replace(self._budget, **changes)  # type: ignore[arg-type] # keyed by field name
        return self
