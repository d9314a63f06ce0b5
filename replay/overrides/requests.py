"""Multiplies what pods request: `--set 'pods(SELECTOR).requests*=FACTOR'`.

It is as if the pods had always requested that: pods of the trace, and those that controllers make.
Only cpu, memory and ephemeral-storage are multiplied; other resources are counted as wholes. Limits
stay, except that one below the new request is raised to it, since an API server refuses such pods.
A container with a limit alone requests the limit. What a recorded status shows as allocated is
removed: it is of the former requests.
"""

from __future__ import annotations

import copy
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from math import ceil

from replay.overrides.assignment import Assignment
from replay.overrides.names import shown_names
from replay.overrides.selector import existing_labels, parse_selector
from replay.overrides.template_copies import TemplateCopies
from replay.overrides.timed import renumbered
from replay.trace.validate import pod_template
from reprieve.kube.v1beta1 import meta_pb2, object_pb2, pod_pb2
from reprieve.trace.v1beta1 import trace_pb2
from services.kube import quantity
from services.kube.quantity import Quantity
from services.kube.selector import LabelSelector

RESOURCES = ("cpu", "memory", "ephemeral-storage")
_FIELD = re.compile(r"requests(?:\.(?P<resource>.+))?\*")
_FACTOR = re.compile(r"\d+(\.\d+)?")
_FACTOR_MAX = 1000
_UNIT_NANO = {"cpu": 10**6}
"""What amounts are rounded up to: thousandths of a core, or else whole bytes."""
_BYTE_NANO = 10**9

_Labels = frozenset[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class RequestFactor:
    """A factor of the requests for some resources, of the pods that a selector matches."""

    selector: LabelSelector
    resources: tuple[str, ...]
    factor: Fraction


def request_factors(
    assignments: Iterable[Assignment], read: Callable[[], Iterable[trace_pb2.Record]]
) -> tuple[RequestFactor, ...]:
    """Return the factors of assignments but for those of 1, which change nothing.

    Raises OverrideError; NoEffectError where no pod of the trace meets an assignment.
    """
    factors = []
    for assignment in assignments:
        factor = _parsed(assignment)
        _refuse_unmet(assignment, factor, read())
        if factor.factor != 1:
            factors.append(factor)
    return tuple(factors)


def change_requests(
    records: Iterable[trace_pb2.Record], factors: Sequence[RequestFactor], numbers: Iterator[int]
) -> Iterator[trace_pb2.Record]:
    """Yield the records with the requests multiplied, renumbered.

    Changed pods of a template get a copy of it, which gets the next of `numbers`.
    """
    return renumbered(_Multiplying(factors, numbers).of(records))


def _parsed(given: Assignment) -> RequestFactor:
    field = _FIELD.fullmatch(given.field)
    if field is None:
        raise given.refused("write pods(SELECTOR).requests*=0.8, or .requests.cpu*=0.8")
    resources = RESOURCES if field["resource"] is None else (field["resource"],)
    if resources[0] not in RESOURCES:
        raise given.refused(
            f"{resources[0]} cannot be multiplied; resources are {shown_names(RESOURCES, '')}"
        )
    if not _FACTOR.fullmatch(given.value) or Fraction(given.value) > _FACTOR_MAX:
        raise given.refused(f"write a factor of 0 to {_FACTOR_MAX:,}, such as 0.8")
    try:
        selector = parse_selector(given.name)
    except ValueError as error:
        raise given.refused(str(error)) from error
    return RequestFactor(selector, resources, Fraction(given.value))


def _refuse_unmet(
    given: Assignment, factor: RequestFactor, records: Iterable[trace_pb2.Record]
) -> None:
    """Raise NoEffectError where no pod matches, or none of these requests the resources."""
    multiplying = _Multiplying([factor], itertools.count())
    for _ in multiplying.of(records):
        if multiplying.has_changed:
            return
    if any(factor.selector.matches(dict(labels)) for labels in multiplying.labels):
        named = " or ".join(factor.resources)
        raise given.without_effect(f"the pods that it selects request no {named}")
    labels = existing_labels(factor.selector, map(dict, multiplying.labels))
    raise given.without_effect(f"the pods have {labels}")


class _Multiplying:
    """One pass over a trace; `labels`: those of its pods and pod templates."""

    def __init__(self, factors: Sequence[RequestFactor], numbers: Iterator[int]) -> None:
        self._factors = factors
        self._copies = TemplateCopies(numbers)
        self.labels = set[_Labels]()
        self.has_changed = False

    def of(self, records: Iterable[trace_pb2.Record]) -> Iterator[trace_pb2.Record]:
        for record in records:
            self._copies.note(record)
            match record.WhichOneof("record"):
                case "pod_create":
                    yield from self._created(record)
                case "create" | "update" as case:
                    yield self._changed(record, case)
                case _:
                    yield record

    def _chosen(self, *metas: meta_pb2.ObjectMeta) -> tuple[RequestFactor, ...]:
        """Return the factors of a pod with the labels of `metas`."""
        labels = {key: value for meta in metas for key, value in meta.labels.items()}
        self.labels.add(frozenset(labels.items()))
        return tuple(factor for factor in self._factors if factor.selector.matches(labels))

    def _created(self, record: trace_pb2.Record) -> Iterator[trace_pb2.Record]:
        own, template = record.pod_create.pod.metadata, self._copies.of(record.pod_create)
        chosen = self._chosen(own) if template is None else self._chosen(template.metadata, own)
        if not chosen:
            yield record
            return
        changed = copy.deepcopy(record)
        _forget_allocated(changed.pod_create.pod.status)
        multiply = partial(self._multiply, chosen=chosen)
        yield from self._copies.with_spec(changed, chosen, multiply)

    def _changed(self, record: trace_pb2.Record, case: str) -> trace_pb2.Record:
        message: object_pb2.KubernetesObject = getattr(record, case)
        is_pod, template = message.HasField("pod"), pod_template(message)
        if not is_pod and template is None:
            return record
        chosen = self._chosen(message.pod.metadata if template is None else template.metadata)
        if not chosen:
            return record
        changed = copy.deepcopy(record)
        copied: object_pb2.KubernetesObject = getattr(changed, case)
        template = pod_template(copied)
        if template is None:
            _forget_allocated(copied.pod.status)
        self._multiply(copied.pod.spec if template is None else template.spec, chosen)
        return changed

    def _multiply(self, spec: pod_pb2.PodSpec, chosen: Iterable[RequestFactor]) -> None:
        holders = [container.resources for container in (*spec.containers, *spec.init_containers)]
        if spec.HasField("resources"):
            holders.append(spec.resources)
        for factor in chosen:
            for resources in holders:
                for resource in factor.resources:
                    self.has_changed |= _multiplied(resources, resource, factor.factor)


def _multiplied(resources: pod_pb2.ResourceRequirements, resource: str, factor: Fraction) -> bool:
    """Multiply a request; return whether there is one."""
    limit = resources.limits.get(resource)
    text = resources.requests.get(resource, limit)
    if text is None:
        return False
    amount = quantity.parse(text)
    unit = _UNIT_NANO.get(resource, _BYTE_NANO)
    nano = ceil(amount.nano * factor / unit) * unit
    resources.requests[resource] = str(Quantity(nano, amount.format))
    if limit is not None and quantity.parse(limit).nano < nano:
        resources.limits[resource] = resources.requests[resource]
    return True


def _forget_allocated(status: pod_pb2.PodStatus) -> None:
    status.ClearField("allocated_resources")
    status.ClearField("resources")
    for container in (*status.container_statuses, *status.init_container_statuses):
        container.ClearField("allocated_resources")
        container.ClearField("resources")
