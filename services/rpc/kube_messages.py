"""Values of services.kube back to Kubernetes messages.

A value holds what the cores read, so a message made here says less than the one that the value
came from; decoding it again gives an equal value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from google.protobuf.struct_pb2 import Value
from google.protobuf.timestamp_pb2 import Timestamp

from reprieve.kube.v1alpha1 import (
    affinity_pb2,
    meta_pb2,
    node_pb2,
    pod_pb2,
    policy_pb2,
    scheduling_pb2,
)
from services.kube.budget import IntOrPercent, PodDisruptionBudget
from services.kube.node import Node
from services.kube.pod import (
    Condition,
    Container,
    ContainerResources,
    NodeAffinity,
    OwnerReference,
    Pod,
    PodSpec,
)
from services.kube.priority_class import PriorityClass
from services.kube.quantity import NANO, Quantity
from services.kube.selector import NodeSelector, NodeSelectorTerm, Requirement
from services.kube.taints import Taint, Toleration
from services.rpc import kube_affinity, kube_volumes
from services.rpc.kube_fields import label_selector_to_message, timestamp


def pod_to_message(pod: Pod) -> pod_pb2.Pod:
    """Return the pod as a message."""
    return pod_pb2.Pod(
        metadata=meta_pb2.ObjectMeta(
            uid=pod.uid,
            namespace=pod.namespace,
            name=pod.name,
            labels=pod.labels,
            annotations=pod.annotations,
            owner_references=[_owner(each) for each in pod.owners],
            creation_timestamp=timestamp(pod.creation_ns) if pod.creation_ns else None,
            deletion_timestamp=_timestamp_or_none(pod.deletion_ns),
            resource_version=pod.resource_version,
        ),
        spec=pod_spec_to_message(pod.spec, node_name=pod.node_name),
        status=pod_pb2.PodStatus(
            phase=pod.phase.value,
            nominated_node_name=pod.nominated_node_name,
            conditions=[pod_condition_to_message(each) for each in pod.conditions],
            start_time=_timestamp_or_none(pod.start_time_ns),
            container_statuses=[_given(each) for each in pod.given],
        ),
    )


def pod_spec_to_message(spec: PodSpec, *, node_name: str = "") -> pod_pb2.PodSpec:
    """Return the spec as a message, bound to `node_name`."""
    return pod_pb2.PodSpec(
        node_name=node_name,
        containers=[_container(each) for each in spec.containers],
        init_containers=[_container(each) for each in spec.init_containers],
        overhead=quantities(spec.overhead),
        resources=(
            None
            if spec.resources is None
            else pod_pb2.ResourceRequirements(requests=quantities(spec.resources))
        ),
        node_selector=spec.node_selector,
        affinity=_affinity(spec),
        topology_spread_constraints=[
            kube_affinity.spread_constraint_to_message(each)
            for each in spec.topology_spread_constraints
        ],
        volumes=[kube_volumes.pod_volume_to_message(each) for each in spec.volumes],
        tolerations=[_toleration(each) for each in spec.tolerations],
        priority=spec.priority,
        priority_class_name=spec.priority_class_name,
        preemption_policy=spec.preemption_policy.value,
        scheduler_name=spec.scheduler_name,
        scheduling_gates=[pod_pb2.PodSchedulingGate(name=name) for name in spec.scheduling_gates],
        termination_grace_period_seconds=spec.termination_grace_period_s,
        host_network=spec.host_network,
    )


def pod_condition_to_message(condition: Condition) -> pod_pb2.PodCondition:
    """Return a pod's condition as a message."""
    return pod_pb2.PodCondition(
        type=condition.type,
        status=condition.status,
        reason=condition.reason,
        message=condition.message,
        last_transition_time=_timestamp_or_none(condition.last_transition_ns),
    )


def node_to_message(node: Node) -> node_pb2.Node:
    """Return the node as a message, its allocatable spelt out."""
    return node_pb2.Node(
        metadata=meta_pb2.ObjectMeta(
            name=node.name,
            uid=node.uid,
            labels=node.labels,
            annotations=node.annotations,
            resource_version=node.resource_version,
        ),
        spec=node_pb2.NodeSpec(
            unschedulable=node.unschedulable, taints=[_taint(each) for each in node.taints]
        ),
        status=node_pb2.NodeStatus(
            capacity=quantities(node.capacity),
            allocatable=quantities(node.allocatable),
            conditions=[node_condition_to_message(each) for each in node.conditions],
            images=[
                node_pb2.ContainerImage(names=each.names, size_bytes=each.size_bytes)
                for each in node.images
            ],
        ),
    )


def node_condition_to_message(condition: Condition) -> node_pb2.NodeCondition:
    """Return a node's condition as a message."""
    return node_pb2.NodeCondition(
        type=condition.type,
        status=condition.status,
        reason=condition.reason,
        message=condition.message,
        last_transition_time=_timestamp_or_none(condition.last_transition_ns),
    )


def budget_to_message(budget: PodDisruptionBudget) -> policy_pb2.PodDisruptionBudget:
    """Return the budget as a message; matchLabels come back as matchExpressions."""
    return policy_pb2.PodDisruptionBudget(
        metadata=meta_pb2.ObjectMeta(
            namespace=budget.namespace,
            name=budget.name,
            uid=budget.uid,
            generation=budget.generation,
        ),
        spec=policy_pb2.PodDisruptionBudgetSpec(
            min_available=_int_or_string(budget.min_available),
            max_unavailable=_int_or_string(budget.max_unavailable),
            selector=None
            if budget.selector is None
            else label_selector_to_message(budget.selector),
        ),
        status=policy_pb2.PodDisruptionBudgetStatus(
            observed_generation=budget.observed_generation,
            disrupted_pods={
                name: timestamp(granted_ns) for name, granted_ns in budget.disrupted_pods.items()
            },
            disruptions_allowed=budget.disruptions_allowed,
            current_healthy=budget.current_healthy,
            desired_healthy=budget.desired_healthy,
            expected_pods=budget.expected_pods,
        ),
    )


def priority_class_to_message(each: PriorityClass) -> scheduling_pb2.PriorityClass:
    """Return the priority class as a message."""
    return scheduling_pb2.PriorityClass(
        metadata=meta_pb2.ObjectMeta(name=each.name),
        value=each.value,
        global_default=each.global_default,
        description=each.description,
        preemption_policy=each.preemption_policy.value,
    )


def quantities(resources: Mapping[str, int]) -> dict[str, str]:
    """Return amounts by resource name ("cpu" in thousandths) as an API server prints them."""
    return {
        name: str(Quantity(amount * (NANO // 1000) if name == "cpu" else amount * NANO))
        for name, amount in resources.items()
    }


def _timestamp_or_none(time_ns: int | None) -> Timestamp | None:
    return None if time_ns is None else timestamp(time_ns)


def _int_or_string(bound: IntOrPercent | None) -> Value | None:
    if bound is None:
        return None
    if bound.percent:
        return Value(string_value=f"{bound.amount}%")
    return Value(number_value=bound.amount)


def _owner(owner: OwnerReference) -> meta_pb2.OwnerReference:
    return meta_pb2.OwnerReference(
        api_version=owner.api_version,
        kind=owner.kind,
        name=owner.name,
        uid=owner.uid,
        controller=owner.controller or None,
    )


def _given(given: ContainerResources) -> pod_pb2.ContainerStatus:
    return pod_pb2.ContainerStatus(
        name=given.name,
        resources=pod_pb2.ResourceRequirements(requests=quantities(dict(given.actual))),
        allocated_resources=quantities(dict(given.allocated)),
    )


def _container(container: Container) -> pod_pb2.Container:
    return pod_pb2.Container(
        name=container.name,
        image=container.image,
        ports=[
            pod_pb2.ContainerPort(
                container_port=each.container_port,
                host_port=each.host_port,
                host_ip=each.host_ip,
                protocol=each.protocol,
            )
            for each in container.ports
        ],
        resources=pod_pb2.ResourceRequirements(
            requests=quantities(container.requests), limits=quantities(container.limits)
        ),
        restart_policy=container.restart_policy or None,
    )


def _affinity(spec: PodSpec) -> affinity_pb2.Affinity | None:
    near, away = spec.pod_affinity, spec.pod_anti_affinity
    if spec.node_affinity is None and near is None and away is None:
        return None
    return affinity_pb2.Affinity(
        node_affinity=None if spec.node_affinity is None else _node_affinity(spec.node_affinity),
        pod_affinity=kube_affinity.pod_affinity_to_message(near),
        pod_anti_affinity=kube_affinity.pod_anti_affinity_to_message(away),
    )


def _node_affinity(affinity: NodeAffinity) -> affinity_pb2.NodeAffinity:
    return affinity_pb2.NodeAffinity(
        required_during_scheduling_ignored_during_execution=(
            None if affinity.required is None else _node_selector(affinity.required)
        ),
        preferred_during_scheduling_ignored_during_execution=[
            affinity_pb2.PreferredSchedulingTerm(
                weight=each.weight, preference=_node_selector_term(each.term)
            )
            for each in affinity.preferred
        ],
    )


def _node_selector(selector: NodeSelector) -> affinity_pb2.NodeSelector:
    return affinity_pb2.NodeSelector(
        node_selector_terms=[_node_selector_term(each) for each in selector.terms]
    )


def _node_selector_term(term: NodeSelectorTerm) -> affinity_pb2.NodeSelectorTerm:
    return affinity_pb2.NodeSelectorTerm(
        match_expressions=_node_requirements(term.match_expressions),
        match_fields=_node_requirements(term.match_fields),
    )


def _node_requirements(
    requirements: Iterable[Requirement],
) -> list[affinity_pb2.NodeSelectorRequirement]:
    return [
        affinity_pb2.NodeSelectorRequirement(
            key=each.key, operator=each.operator.value, values=each.values
        )
        for each in requirements
    ]


def _taint(taint: Taint) -> node_pb2.Taint:
    return node_pb2.Taint(
        key=taint.key,
        value=taint.value,
        effect=taint.effect.value,
        time_added=_timestamp_or_none(taint.time_added_ns),
    )


def _toleration(toleration: Toleration) -> pod_pb2.Toleration:
    return pod_pb2.Toleration(
        key=toleration.key,
        operator=toleration.operator,
        value=toleration.value,
        effect=toleration.effect.value if toleration.effect else "",
        toleration_seconds=toleration.seconds,
    )
