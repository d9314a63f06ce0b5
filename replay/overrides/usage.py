"""`--usage 'SELECTOR RESOURCE VALUE'`: what pods use, in place of what the trace tells of them.

A pod is meant by its labels, or as NAMESPACE/NAME. It is matched when its containers run, so that
pods which controllers make are meant, too.

Arrivals only: the pods without their times, shuffled, until enough of a resource is asked for.

A sparse recording fills no cluster. To see how full a policy can make one, its pods all come at the
beginning, in an order of the seed; where they ask for less than wanted, more of them are drawn with
replacement, and where they ask for more, some are left out. None of them ever ends.

Source: the arrivals of "Beware of Fragmentation" (Weng et al., USENIX ATC 2023, section 6.1);
hkust-adsl/kubernetes-scheduler-simulator pkg/simulator/simulator.go, TunePodsByNodeTotalResource.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from replay.generate.draw import Draw
from replay.kube.identity import object_uid
from replay.overrides.assignment import (
    Inventory,
    OverrideError,
    known_labels,
    listed,
    parse_selector,
)
from replay.trace.validate import pod_template
from replay.world.kubelet.annotations import RESOURCES, USAGE, UsageRule, parse_growth
from reprieve.kube.v1beta1 import meta_pb2, object_pb2, pod_pb2
from reprieve.trace.v1beta1 import trace_pb2
from services.kube.requests import pod_requests
from services.rpc.errors import FieldError
from services.rpc.kube.spec import PodSpecInterner

_POD = re.compile(r"(?P<namespace>[a-z0-9]([-a-z0-9]*[a-z0-9])?)/(?P<name>[a-z0-9][-a-z0-9.]*)")
_OF_CONTROLLERS = frozenset(
    {
        "apps.kubernetes.io/pod-index",
        "batch.kubernetes.io/controller-uid",
        "batch.kubernetes.io/job-completion-index",
        "batch.kubernetes.io/job-name",
        "controller-revision-hash",
        "controller-uid",
        "job-name",
        "pod-template-hash",
        "statefulset.kubernetes.io/pod-name",
    }
)
"""Labels that controllers give to the pods that they make."""


def parse_usage(text: str) -> UsageRule:
    """Return the rule. Raises OverrideError, naming what cannot be read."""
    parts = text.rsplit(maxsplit=2)
    if len(parts) != 3:
        problem = "write a selector, a resource and a value: 'app=web memory +50Mi/m'"
        raise OverrideError(f"--usage {text!r}: {problem}")
    selector, resource, value = parts
    if resource not in RESOURCES:
        known = " or ".join(RESOURCES)
        raise OverrideError(
            f"--usage {text!r}: {resource!r} is nothing that nodes run short of in a replay: "
            f"write {known}"
        )
    try:
        rule = UsageRule(resource=resource, growth=parse_growth(value))
        if pod := _POD.fullmatch(selector):
            return replace(rule, namespace=pod["namespace"], name=pod["name"])
        return replace(rule, selector=parse_selector(selector))
    except ValueError as error:
        raise OverrideError(f"--usage {text!r}: {error}") from error


def refuse_untouched(rules: Mapping[str, UsageRule], records: Iterable[trace_pb2.Record]) -> None:
    """Raise OverrideError where a rule, by its text, matches no pod that may come of `records`."""
    open_rules = dict(rules)
    labels: set[frozenset[tuple[str, str]]] = set()
    names: set[str] = set()
    for pod, is_made in _pods(records):
        meta = pod.metadata
        labels.add(frozenset(meta.labels.items()))
        if any(rule.name for rule in rules.values()):
            names.add(f"{meta.namespace}/{meta.name}" + ("-..." if is_made else ""))
        for text in [text for text, rule in open_rules.items() if _may_match(rule, pod, is_made)]:
            del open_rules[text]
    for text, rule in open_rules.items():
        told = (
            f"there are {listed(names, 'no pods')}"
            if rule.name
            else f"the pods have {known_labels(rule.selector, map(dict, labels))}"
        )
        raise OverrideError(f"--usage {text!r} touches nothing: {told}")


def tells_usage(records: Iterable[trace_pb2.Record]) -> bool:
    """Tell whether a trace holds what any pod or node uses: a profile, or an annotation."""
    return any(
        record.HasField("usage") or any(name in USAGE for name in _annotations(record))
        for record in records
    )


def _annotations(record: trace_pb2.Record) -> Iterator[str]:
    """Yield the names of annotations of a record's pod, or of what a controller makes pods by."""
    match record.WhichOneof("record"):
        case "template" | "pod_create" as case:
            yield from getattr(record, case).pod.metadata.annotations
        case "create" | "update" as case:
            message = getattr(record, case)
            template = pod_template(message)
            if template is not None:
                yield from template.metadata.annotations
            elif message.HasField("pod"):
                yield from message.pod.metadata.annotations


def _may_match(rule: UsageRule, pod: pod_pb2.Pod, is_made: bool) -> bool:
    """Tell whether a rule may match a pod, or one that a controller makes by that pattern."""
    if not is_made:
        return rule.matches(pod)
    meta = pod.metadata
    if rule.name:
        return meta.namespace == rule.namespace and rule.name.startswith(f"{meta.name}-")
    return all(
        requirement.key in _OF_CONTROLLERS or requirement.matches(meta.labels)
        for requirement in rule.selector.requirements
    )


def _pods(records: Iterable[trace_pb2.Record]) -> Iterator[tuple[pod_pb2.Pod, bool]]:
    """Yield the metadata of pods, and of what controllers make theirs by: whether it is that."""
    templates: dict[int, pod_pb2.Pod] = {}
    for record in records:
        match record.WhichOneof("record"):
            case "template":
                templates[record.template.id] = record.template.pod
            case "pod_create":
                create = record.pod_create
                template = templates.get(create.template_id)
                labels = [template.metadata.labels] if template is not None else []
                yield _pattern(create.pod.metadata, [*labels, create.pod.metadata.labels]), False
            case "create" | "update" as case:
                yield from _of_object(getattr(record, case))


def _of_object(message: object_pb2.KubernetesObject) -> Iterator[tuple[pod_pb2.Pod, bool]]:
    template = pod_template(message)
    if template is not None:
        held = getattr(message, message.WhichOneof("object") or "")
        yield _pattern(held.metadata, [template.metadata.labels]), True
    elif message.HasField("pod"):
        yield _pattern(message.pod.metadata, [message.pod.metadata.labels]), False


def _pattern(meta: meta_pb2.ObjectMeta, labels: Sequence[Mapping[str, str]]) -> pod_pb2.Pod:
    pod = pod_pb2.Pod()
    pod.metadata.namespace = meta.namespace or "default"
    pod.metadata.name = meta.name
    for each in labels:
        pod.metadata.labels.update(each)
    return pod


_FORM = re.compile(r"(?P<resource>[^=]+)=(?P<ratio>\d+(\.\d+)?)")
_RATIO_MAX = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrivals:
    """What is to be asked for in all: `wanted` of `resource` ("cpu" in thousandths of a core)."""

    resource: str
    wanted: int


def arrivals(text: str, inventory: Inventory) -> Arrivals:
    """Return what "RESOURCE=RATIO" asks for, the ratio of what the nodes have in all.

    Raises OverrideError where the nodes have nothing of the resource.
    """
    match = _FORM.fullmatch(text)
    if match is None or not 0 < float(match["ratio"]) <= _RATIO_MAX:
        raise OverrideError(f"--arrivals {text}: write RESOURCE=RATIO, such as cpu=1.3")
    resource = match["resource"]
    capacity = inventory.allocatable[resource]
    if not capacity:
        known = listed((name for name, n in inventory.allocatable.items() if n), "nothing")
        raise OverrideError(f"--arrivals {text}: the nodes have no {resource}, but {known}")
    return Arrivals(resource=resource, wanted=round(float(match["ratio"]) * capacity))


@dataclass(frozen=True, slots=True)
class _Arrival:
    template_id: int
    pod: pod_pb2.Pod
    amount: int


class _Requests:
    """What pods request of one resource."""

    def __init__(self, resource: str) -> None:
        self._resource = resource
        self._specs = PodSpecInterner()

    def of(self, message: pod_pb2.PodSpec) -> int:
        """Return the amount; 0 for a pod that cannot be read, which the replay refuses."""
        try:
            return pod_requests(self._specs.spec(message)).get(self._resource, 0)
        except FieldError:
            return 0


def only_arrivals(
    records: Iterable[trace_pb2.Record], asked: Arrivals, seed: int
) -> Iterator[trace_pb2.Record]:
    """Yield a trace whose pods all come after its first instant's other objects, for good.

    What happens later in the trace is left out. All pods are held in memory. Raises OverrideError
    where no pod asks for the resource.
    """
    pods: list[_Arrival] = []
    templates: dict[int, pod_pb2.Pod] = {}
    requests = _Requests(asked.resource)
    sequence, start_ns = 0, None
    for record in records:
        start_ns = record.at_ns if start_ns is None else start_ns
        case = record.WhichOneof("record")
        if case == "template":
            templates[record.template.id] = record.template.pod
        if case == "pod_create":
            create = record.pod_create
            pods.append(_arrival(create.template_id, create.pod, templates, requests))
        elif case == "create" and record.create.HasField("pod"):
            pods.append(_arrival(0, record.create.pod, templates, requests))
        elif case in {"header", "template", "create", "issue"}:
            sequence += 1
            kept = copy.deepcopy(record)
            kept.sequence, kept.at_ns = sequence, start_ns
            if case == "header":
                kept.header.ClearField("window_end_ns")
                kept.header.ClearField("counts")
            yield kept
    for arrival in _drawn(pods, asked, Draw(seed)):
        sequence += 1
        create = trace_pb2.PodCreate(template_id=arrival.template_id, pod=arrival.pod)
        yield trace_pb2.Record(at_ns=start_ns or 0, sequence=sequence, pod_create=create)


def _arrival(
    template_id: int, given: pod_pb2.Pod, templates: dict[int, pod_pb2.Pod], requests: _Requests
) -> _Arrival:
    pod = copy.deepcopy(given)
    pod.spec.ClearField("node_name")
    pod.ClearField("status")
    pod.metadata.ClearField("creation_timestamp")
    spec = templates[template_id].spec if template_id in templates else pod.spec
    return _Arrival(template_id, pod, requests.of(spec))


def _drawn(pods: Sequence[_Arrival], asked: Arrivals, draw: Draw) -> Iterator[_Arrival]:
    """Yield the arrivals in their order.

    As upstream does, pods are first shuffled, then others drawn and put behind them.
    """
    total = sum(each.amount for each in pods)
    if not total:
        raise OverrideError(f"--arrivals {asked.resource}: no pod of the trace asks for it")
    order = sorted(range(len(pods)), key=lambda index: draw.share("order", index))
    if total > asked.wanted:
        left_out = set()
        for index in sorted(order, key=lambda index: draw.share("left out", index)):
            if total <= asked.wanted:
                break
            left_out.add(index)
            total -= pods[index].amount
        order = [index for index in order if index not in left_out]
    for index in order:
        yield pods[index]
    number = 0
    while total < asked.wanted:
        drawn = pods[draw.below(len(pods), "drawn", number)]
        if total + drawn.amount > asked.wanted:
            return
        total += drawn.amount
        yield _again(drawn, number)
        number += 1


def _again(drawn: _Arrival, number: int) -> _Arrival:
    """Return a pod of its own that asks for the same."""
    pod = copy.deepcopy(drawn.pod)
    meta = pod.metadata
    meta.name = f"{meta.name}-again-{number}"
    meta.uid = object_uid("Pod", meta.namespace, meta.name)
    return _Arrival(drawn.template_id, pod, drawn.amount)
