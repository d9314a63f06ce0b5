"""Decodes parts that Kubernetes messages share: times, quantities, selectors, taints, conditions.

A function that checks a field receives the field's path, for FieldError.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from functools import lru_cache
from typing import Any, TypeVar

from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from reprieve.kube.v1beta1 import affinity_pb2, meta_pb2, node_pb2, pod_pb2
from services.kube.pod import (
    EMPTY,
    NO_RESOURCES,
    Condition,
    ContainerResources,
    OwnerReference,
    PreemptionPolicy,
)
from services.kube.quantity import AMOUNT_MAX, Quantity, QuantityError, parse
from services.kube.requests import CPU
from services.kube.selector import (
    LabelSelector,
    NodeSelector,
    NodeSelectorTerm,
    Operator,
    Requirement,
    as_int64,
)
from services.kube.taints import UNSERVED_OPERATORS, Taint, TaintEffect, Toleration
from services.kube.time import SECOND_NS
from services.kube.workloads import IntOrPercent
from services.rpc.errors import FieldError

_INT32_MAX = 2**31 - 1
_TIME_NS_MAX = (2**63 // SECOND_NS - 1) * SECOND_NS
_PERCENT = re.compile(r"[0-9]{1,18}%")
_T = TypeVar("_T")
_E = TypeVar("_E", bound=Enum)
_FIELD_OPERATORS = frozenset({Operator.IN, Operator.NOT_IN})
_LABEL_OPERATORS = frozenset(
    {Operator.IN, Operator.NOT_IN, Operator.EXISTS, Operator.DOES_NOT_EXIST}
)


def time_ns(stamp: Timestamp, field: str = "creation_timestamp") -> int:
    """Return the time in ns since the Unix epoch; 0 for an absent time.

    Raises FieldError for a time that does not fit into 64 bits: before 1678 or after 2261.
    """
    at_ns = stamp.seconds * SECOND_NS + stamp.nanos
    if not -_TIME_NS_MAX <= at_ns <= _TIME_NS_MAX:
        raise FieldError(field, f"{stamp.seconds} s is not a time from 1678 to 2261")
    return at_ns


def optional_time_ns(message: Message, name: str) -> int | None:
    """Return the time in the field `name`, ns since the Unix epoch; None if it is absent."""
    return time_ns(getattr(message, name), name) if message.HasField(name) else None


def optional(message: Message, name: str) -> Any:
    """Return the field `name`; None if it is absent."""
    return getattr(message, name) if message.HasField(name) else None


def optional_part(
    message: Message, name: str, read: Callable[[Any, str], _T], field: str
) -> _T | None:
    """Return the field `name` decoded by `read`; None if it is absent. `field` is its path."""
    return read(getattr(message, name), field) if message.HasField(name) else None


def timestamp(at_ns: int) -> Timestamp:
    """Return ns since the Unix epoch as a Timestamp."""
    seconds, nanos = divmod(at_ns, SECOND_NS)
    return Timestamp(seconds=seconds, nanos=nanos)


def set_time(stamp: Timestamp, at_ns: int) -> None:
    """Set a Timestamp in place to ns since the Unix epoch; faster than copying a new message."""
    stamp.seconds, stamp.nanos = at_ns // SECOND_NS, at_ns % SECOND_NS


def strings(messages: Mapping[str, str]) -> Mapping[str, str]:
    """Return a map of strings as a dict; an empty one is a shared object."""
    return dict(messages.items()) if messages else EMPTY


def choice(kind: type[_E], text: str, field: str) -> _E:
    """Return the member of `kind` with this value. Raises FieldError that lists the values."""
    try:
        return kind(text)
    except ValueError:
        values = ", ".join(f'"{member.value}"' for member in kind)
        raise FieldError(field, f'unknown value "{text}": use one of {values}') from None


def preemption_policy(text: str, field: str) -> PreemptionPolicy:
    """Return the policy; an absent one is PreemptLowerPriority."""
    return (
        choice(PreemptionPolicy, text, field) if text else PreemptionPolicy.PREEMPT_LOWER_PRIORITY
    )


def resources(quantities: Mapping[str, str], field: str) -> Mapping[str, int]:
    """Return amounts by resource name: "cpu" in thousandths, others in whole units, rounded up.

    An amount is at most AMOUNT_MAX. Raises FieldError for invalid and for negative quantities.
    Source: kubernetes v1.34 pkg/scheduler/framework/types.go, Resource.Add.
    """
    if not quantities:
        return NO_RESOURCES
    amounts: dict[str, int] = {}
    for name, text in quantities.items():
        try:
            amounts[name] = _amount(text, name == CPU)
        except QuantityError as error:
            raise FieldError(f"{field}[{name}]", str(error)) from None
    return amounts


@lru_cache(maxsize=65536)
def _amount(text: str, is_cpu: bool) -> int:
    parsed = parse(text)
    amount = parsed.milli_value() if is_cpu else parsed.value()
    if amount < 0:
        raise QuantityError(f"{text!r} is negative")
    return min(amount, AMOUNT_MAX)


def quantity(text: str, field: str) -> Quantity:
    """Return the exact quantity. Raises FieldError."""
    try:
        return parse(text)
    except QuantityError as error:
        raise FieldError(field, str(error)) from None


def int_or_percent(value: meta_pb2.IntOrString, field: str) -> IntOrPercent:
    """Return a count or a percentage such as "50%". Raises FieldError, also for negative values."""
    match value.WhichOneof("value"):
        case "string_value":
            text = value.string_value
            if _PERCENT.fullmatch(text):
                return IntOrPercent(amount=int(text[:-1]), percent=True)
            problem = f'"{text}" is not a percentage: write a number, or one such as "50%"'
            raise FieldError(field, problem)
        case "int_value" if value.int_value >= 0:
            return IntOrPercent(amount=value.int_value)
    raise FieldError(field, 'write a whole number from 0, or a percentage such as "50%"')


def label_selector(message: meta_pb2.LabelSelector, field: str) -> LabelSelector:
    """Return the selector; matchLabels become In requirements, sorted, before matchExpressions."""
    requirements = [
        Requirement(key=key, operator=Operator.IN, values=(text,))
        for key, text in sorted(message.match_labels.items())
    ]
    for index, expression in enumerate(message.match_expressions):
        requirements.append(_label_requirement(expression, f"{field}.matchExpressions[{index}]"))
    return LabelSelector(requirements=tuple(requirements))


def optional_selector(message: Message, name: str, field: str) -> LabelSelector | None:
    """Return the selector in the field `name`; None if it is absent. `field` is its path."""
    return optional_part(message, name, label_selector, field)


def _label_requirement(message: meta_pb2.LabelSelectorRequirement, field: str) -> Requirement:
    operator = choice(Operator, message.operator, f"{field}.operator")
    if operator not in _LABEL_OPERATORS:
        raise FieldError(f"{field}.operator", f'"{operator.value}" is for node selectors only')
    wants_values = operator in {Operator.IN, Operator.NOT_IN}
    if wants_values != bool(message.values):
        need = "needs values" if wants_values else "takes no values"
        raise FieldError(f"{field}.values", f'operator "{operator.value}" {need}')
    return Requirement(key=message.key, operator=operator, values=tuple(message.values))


def node_selector(message: affinity_pb2.NodeSelector, field: str) -> NodeSelector:
    """Return the node selector; a selector without terms matches no node."""
    return NodeSelector(
        terms=tuple(
            node_selector_term(term, f"{field}.nodeSelectorTerms[{index}]")
            for index, term in enumerate(message.node_selector_terms)
        )
    )


def node_selector_term(message: affinity_pb2.NodeSelectorTerm, field: str) -> NodeSelectorTerm:
    """Return one term; a term without requirements matches no node.

    If upstream cannot parse a requirement (a wrong number of values, a field with an operator other
    than In and NotIn), the term matches no node: it is returned without requirements.
    Source: kubernetes v1.34 component-helpers/scheduling/corev1/nodeaffinity/nodeaffinity.go,
    nodeSelectorRequirementsAsSelector and nodeSelectorRequirementsAsFieldSelector.
    """
    labels = _node_requirements(message.match_expressions, f"{field}.matchExpressions")
    fields = _node_requirements(message.match_fields, f"{field}.matchFields")
    if not all(map(_label_parses, labels)) or not all(map(_field_parses, fields)):
        return NodeSelectorTerm()
    return NodeSelectorTerm(match_expressions=labels, match_fields=fields)


def _label_parses(requirement: Requirement) -> bool:
    match requirement.operator:
        case Operator.IN | Operator.NOT_IN:
            return bool(requirement.values)
        case Operator.EXISTS | Operator.DOES_NOT_EXIST:
            return not requirement.values
        case Operator.GT | Operator.LT:
            return len(requirement.values) == 1 and as_int64(requirement.values[0]) is not None


def _field_parses(requirement: Requirement) -> bool:
    return requirement.operator in _FIELD_OPERATORS and len(requirement.values) == 1


def _node_requirements(
    messages: Iterable[affinity_pb2.NodeSelectorRequirement], field: str
) -> tuple[Requirement, ...]:
    return tuple(
        Requirement(
            key=expression.key,
            operator=choice(Operator, expression.operator, f"{field}[{index}].operator"),
            values=tuple(expression.values),
        )
        for index, expression in enumerate(messages)
    )


def taints(messages: Iterable[node_pb2.Taint], field: str) -> tuple[Taint, ...]:
    """Return a node's taints. Raises FieldError for an unknown effect."""
    return tuple(
        Taint(
            key=taint.key,
            value=taint.value,
            effect=choice(TaintEffect, taint.effect, f"{field}[{index}].effect"),
            time_added_ns=optional_time_ns(taint, "time_added"),
        )
        for index, taint in enumerate(messages)
    )


def tolerations(messages: Iterable[pod_pb2.Toleration], field: str) -> tuple[Toleration, ...]:
    """Return a pod's tolerations. Raises FieldError for an unknown operator or effect."""
    return tuple(
        _toleration(message, f"{field}[{index}]") for index, message in enumerate(messages)
    )


def _toleration(message: pod_pb2.Toleration, field: str) -> Toleration:
    if message.operator not in {"", "Equal", "Exists", *UNSERVED_OPERATORS}:
        problem = f'unknown value "{message.operator}": use "Equal" or "Exists"'
        raise FieldError(f"{field}.operator", problem)
    return Toleration(
        key=message.key,
        operator=message.operator,
        value=message.value,
        effect=choice(TaintEffect, message.effect, f"{field}.effect") if message.effect else None,
        seconds=optional(message, "toleration_seconds"),
    )


def conditions(
    messages: Sequence[pod_pb2.PodCondition] | Sequence[node_pb2.NodeCondition],
) -> tuple[Condition, ...]:
    """Return a pod's or a node's conditions in their order."""
    if not messages:
        return ()
    return tuple(
        Condition(
            type=condition.type,
            status=condition.status,
            reason=condition.reason,
            message=condition.message,
            last_transition_ns=optional_time_ns(condition, "last_transition_time"),
        )
        for condition in messages
    )


def owners(messages: Sequence[meta_pb2.OwnerReference]) -> tuple[OwnerReference, ...]:
    """Return an object's owners in their order."""
    if not messages:
        return ()
    return tuple(
        OwnerReference(
            api_version=owner.api_version,
            kind=owner.kind,
            name=owner.name,
            uid=owner.uid,
            controller=owner.controller,
        )
        for owner in messages
    )


def container_resources(status: pod_pb2.PodStatus, field: str) -> tuple[ContainerResources, ...]:
    """Return the resources in the statuses of containers and init containers.

    A status without `resources` is left out, even if it has allocated resources.
    Source: kubernetes v1.34 component-helpers/resource/helpers.go, AggregateContainerRequests.
    """
    if not status.container_statuses and not status.init_container_statuses:
        return ()
    statuses = [
        status
        for status in (*status.container_statuses, *status.init_container_statuses)
        if status.HasField("resources")
    ]
    return tuple(
        ContainerResources(
            name=status.name,
            actual=_pairs(status.resources.requests, f"{field}.containerStatuses.resources"),
            allocated=_pairs(status.allocated_resources, f"{field}.containerStatuses"),
        )
        for status in statuses
    )


def pod_resources(status: pod_pb2.PodStatus, field: str) -> ContainerResources | None:
    """Return the pod-level resources; None if the status has no `resources`."""
    if not status.HasField("resources"):
        return None
    return ContainerResources(
        name="",
        actual=_pairs(status.resources.requests, f"{field}.resources.requests"),
        allocated=_pairs(status.allocated_resources, f"{field}.allocatedResources"),
    )


def claim_names(status: pod_pb2.PodStatus) -> tuple[tuple[str, str | None], ...]:
    """Return (name in the pod's spec, name of the ResourceClaim created for it) of each claim."""
    if not status.resource_claim_statuses:
        return ()
    return tuple(
        (claim.name, optional(claim, "resource_claim_name"))
        for claim in status.resource_claim_statuses
    )


def _pairs(quantities: Mapping[str, str], field: str) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(resources(quantities, field).items()))
