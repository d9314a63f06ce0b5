"""Encodes values of services.kube as Kubernetes messages.

A value has only the fields that the cores read, so an encoded message has fewer fields than the
message from which the value was decoded. Decoding it again gives an equal value. The fields of a
value have the names of the message's fields, except those in `_NAMES`. Separate functions encode
parts that have another layout in the message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from enum import Enum
from functools import cache
from typing import Any

from google.protobuf.descriptor import Descriptor
from google.protobuf.timestamp_pb2 import Timestamp

from reprieve.kube.v1beta1 import meta_pb2, node_pb2, pod_pb2, policy_pb2, volume_pb2
from services.kube.node import Node
from services.kube.pod import Container, ContainerResources, Pod, PodSpec, PreferredSchedulingTerm
from services.kube.quantity import NANO, Quantity
from services.kube.selector import WeightedPodAffinityTerm
from services.kube.volumes import EphemeralSource, Volume
from services.kube.workloads import IntOrPercent, PodDisruptionBudget
from services.rpc.kube.fields import set_time
from services.rpc.kube.storage import SOURCES

_NAMES: Mapping[str, str] = {
    "creation_ns": "creation_timestamp",
    "deletion_ns": "deletion_timestamp",
    "last_transition_ns": "last_transition_time",
    "owners": "owner_references",
    "preferred": "preferred_during_scheduling_ignored_during_execution",
    "required": "required_during_scheduling_ignored_during_execution",
    "requirements": "match_expressions",
    "seconds": "toleration_seconds",
    "selector": "label_selector",
    "start_time_ns": "start_time",
    "terms": "node_selector_terms",
    "termination_grace_period_s": "termination_grace_period_seconds",
    "time_added_ns": "time_added",
}
_TERMS = {PreferredSchedulingTerm: "preference", WeightedPodAffinityTerm: "pod_affinity_term"}
_SCALARS = frozenset({bool, int, str})
_AMOUNTS = frozenset({"allocatable", "capacity", "overhead"})
_ABSENT_IF_EMPTY = frozenset({"controller", "creation_ns", "restart_policy"})
_LAID_OUT = frozenset({"disrupted_pods", "resources", "scheduling_gates"})
"""Fields whose name means something else in the message; separate functions write them."""
_FIELDS = {kind: name for name, kind in SOURCES.items()}


def pod_to_message(pod: Pod) -> pod_pb2.Pod:
    """Return the pod as a message."""
    message = pod_pb2.Pod(spec=pod_spec_to_message(pod.spec, node_name=pod.node_name))
    put(pod, message.metadata)
    put(pod, message.status)
    put_all(pod.container_resources, message.status.container_statuses)
    if pod.pod_resources is not None:
        _put_status_resources(pod.pod_resources, message.status)
    for name, claim_name in pod.claim_names:
        message.status.resource_claim_statuses.add(name=name, resource_claim_name=claim_name)
    return message


def pod_spec_to_message(spec: PodSpec, *, node_name: str = "") -> pod_pb2.PodSpec:
    """Return the spec as a message, bound to `node_name`."""
    gates = [pod_pb2.PodSchedulingGate(name=name) for name in spec.scheduling_gates]
    message = pod_pb2.PodSpec(node_name=node_name, scheduling_gates=gates)
    put(spec, message)
    for claim in spec.device_claims:
        # The template's name is not kept; the pod's status has the name of the claim made from it.
        template = "" if claim.from_template else None
        message.resource_claims.add(
            name=claim.name,
            resource_claim_name=claim.claim_name,
            resource_claim_template_name=template,
        )
    if spec.resources is not None:
        message.resources.requests.update(quantities(spec.resources))
        message.resources.SetInParent()
    for name in ("node_affinity", "pod_affinity", "pod_anti_affinity"):
        if getattr(spec, name) is not None:
            put(getattr(spec, name), getattr(message.affinity, name))
    return message


def node_to_message(node: Node) -> node_pb2.Node:
    """Return the node as a message, always with its allocatable."""
    message = node_pb2.Node()
    for part in (message.metadata, message.spec, message.status):
        put(node, part)
    return message


def budget_to_message(budget: PodDisruptionBudget) -> policy_pb2.PodDisruptionBudget:
    """Return the budget as a message, with matchLabels as matchExpressions."""
    message = policy_pb2.PodDisruptionBudget()
    for part in (message.metadata, message.spec, message.status):
        put(budget, part)
    for name, granted_ns in budget.disrupted_pods.items():
        set_time(message.status.disrupted_pods[name], granted_ns)
    return message


def quantities(resources: Mapping[str, int]) -> dict[str, str]:
    """Return amounts by resource name ("cpu" in thousandths) as an API server prints them."""
    return {
        name: str(Quantity(amount * (NANO // 1000) if name == "cpu" else amount * NANO))
        for name, amount in resources.items()
    }


def put(value: Any, out: Any) -> None:
    """Write those fields of a value that the empty message `out` has."""
    out.SetInParent()
    for attribute, name, is_time in _columns(value.__class__, out.DESCRIPTOR):
        held = getattr(value, attribute)
        if not held and (held is None or attribute in _ABSENT_IF_EMPTY):
            continue
        if is_time:
            set_time(getattr(out, name), held)
            getattr(out, name).SetInParent()
        elif type(held) in _SCALARS:
            setattr(out, name, held)
        elif isinstance(held, Enum):
            setattr(out, name, held.value)
        elif isinstance(held, tuple):
            if held:
                put_all(held, getattr(out, name))
        elif isinstance(held, Mapping):
            if held:
                getattr(out, name).update(quantities(held) if attribute in _AMOUNTS else held)
        else:
            _PUT.get(type(held), put)(held, getattr(out, name))


def put_all(values: Iterable[Any], out: Any) -> None:
    """Write values, or texts, into a repeated field."""
    for value in values:
        if isinstance(value, str):
            out.append(value)
        else:
            _PUT.get(type(value), put)(value, out.add())


@cache
def _columns(kind: type, descriptor: Descriptor) -> tuple[tuple[str, str, bool], ...]:
    """Return (name, name in the message, whether it is a time) of the fields that both have."""
    has = descriptor.fields_by_name
    named = [(field.name, _NAMES.get(field.name, _TERMS.get(kind, ""))) for field in fields(kind)]
    pairs = [(attribute, attribute if attribute in has else name) for attribute, name in named]
    return tuple(
        (attribute, name, has[name].message_type is Timestamp.DESCRIPTOR)
        for attribute, name in pairs
        if name in has and attribute not in _LAID_OUT
    )


def _put_container(container: Container, out: pod_pb2.Container) -> None:
    put(container, out)
    out.resources.requests.update(quantities(container.requests))
    out.resources.limits.update(quantities(container.limits))
    out.resources.SetInParent()
    for action in container.restart_actions:
        out.restart_policy_rules.add(action=action)


def _put_container_resources(resources: ContainerResources, out: pod_pb2.ContainerStatus) -> None:
    out.name = resources.name
    _put_status_resources(resources, out)


def _put_status_resources(
    resources: ContainerResources, out: pod_pb2.ContainerStatus | pod_pb2.PodStatus
) -> None:
    out.resources.requests.update(quantities(dict(resources.actual)))
    out.resources.SetInParent()
    out.allocated_resources.update(quantities(dict(resources.allocated)))


def _put_volume(volume: Volume, out: volume_pb2.Volume) -> None:
    """Write a pod's volume; of an ephemeral volume's template, only the class is written."""
    out.name = volume.name
    part = getattr(out, _FIELDS[type(volume.source)])
    if isinstance(volume.source, EphemeralSource):
        part = part.volume_claim_template.spec
    put(volume.source, part)


def _put_bound(bound: IntOrPercent, out: meta_pb2.IntOrString) -> None:
    if bound.percent:
        out.string_value = f"{bound.amount}%"
    else:
        out.int_value = bound.amount


_PUT: Mapping[type, Callable[[Any, Any], None]] = {
    Container: _put_container,
    ContainerResources: _put_container_resources,
    Volume: _put_volume,
    IntOrPercent: _put_bound,
}
