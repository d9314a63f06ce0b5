"""Overrides of what pods use (`--usage`) and of when they are created (`--arrivals`).

`--usage 'SELECTOR RESOURCE VALUE'` replaces the usage in the trace. It selects pods by their
labels, or one as NAMESPACE/NAME, when their containers run: pods of controllers, too. Where a trace
has no usage, the other pods use nothing: a kubelet has statistics of every pod that runs, and would
evict pods without any before the one that leaks.

`--arrivals` shows how full a policy can make a cluster, which a sparse recording does not. All pods
are created at the start in an order of the seed, and never end. Where they request less than the
target, more pods are drawn with replacement; where they request more, some are left out.

Source: the arrivals of "Beware of Fragmentation" (Weng et al., USENIX ATC 2023, section 6.1);
hkust-adsl/kubernetes-scheduler-simulator pkg/simulator/simulator.go, TunePodsByNodeTotalResource.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from replay.hashing import KeyedRandom, object_uid
from replay.overrides.errors import OverrideError
from replay.overrides.inventory import TraceInventory
from replay.overrides.names import shown_names
from replay.overrides.selector import existing_labels, parse_selector
from replay.trace.validate import pod_template
from replay.world.kubelet.annotations import (
    RESOURCES,
    Growth,
    UsageRule,
    parse_growth,
    usage_annotation,
    usage_subject,
)
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
    """Return the rule of "SELECTOR RESOURCE VALUE". Raises OverrideError for any other text."""
    parts = text.rsplit(maxsplit=2)
    if len(parts) != 3:
        problem = "write a selector, a resource and a value: 'app=web memory +50Mi/m'"
        raise OverrideError(f"--usage {text!r}: {problem}")
    selector, named, value = parts
    subject = usage_subject(named)
    if subject is None:
        problem = f"{named!r} does not cause node pressure in a replay"
        known = ", ".join((*RESOURCES, "memory.CONTAINER"))
        raise OverrideError(f"--usage {text!r}: {problem}; write one of {known}")
    resource, container = subject
    try:
        rule = UsageRule(resource=resource, growth=parse_growth(value), container=container)
        if pod := _POD.fullmatch(selector):
            return replace(rule, namespace=pod["namespace"], name=pod["name"])
        return replace(rule, selector=parse_selector(selector))
    except ValueError as error:
        raise OverrideError(f"--usage {text!r}: {error}") from error


def refuse_unmatched(rules: Mapping[str, UsageRule], records: Iterable[trace_pb2.Record]) -> None:
    """Raise OverrideError where a rule matches no pod of `records` or of their controllers."""
    open_rules = dict(rules)
    containers: dict[str, set[str]] = {
        text: set() for text, rule in rules.items() if rule.container
    }
    labels: set[frozenset[tuple[str, str]]] = set()
    names: set[str] = set()
    for pod, is_made in _pods(records):
        meta = pod.metadata
        labels.add(frozenset(meta.labels.items()))
        if any(rule.name for rule in rules.values()):
            names.add(f"{meta.namespace}/{meta.name}" + ("-..." if is_made else ""))
        for text in [text for text, rule in open_rules.items() if _may_match(rule, pod, is_made)]:
            del open_rules[text]
        for text in containers:
            if _may_match(replace(rules[text], container=""), pod, is_made):
                containers[text] |= _containers(pod)
    for text, rule in open_rules.items():
        if known := containers.get(text):
            problem = f"the containers of these pods are {shown_names(known, 'none')}"
            raise OverrideError(f"--usage {text!r} has no effect: {problem}")
        problem = (
            f"there are {shown_names(names, 'no pods')}"
            if rule.name
            else f"the pods have {existing_labels(rule.selector, map(dict, labels))}"
        )
        raise OverrideError(f"--usage {text!r} has no effect: {problem}")


def with_other_pods(rules: Collection[UsageRule]) -> tuple[UsageRule, ...]:
    """Return the rules, after others by which pods that they do not select use nothing."""
    of_all = {rule.resource for rule in rules if rule.selects_all and not rule.container}
    resources = sorted({rule.resource for rule in rules} - of_all)
    nothing = Growth(start_bytes=0)
    return (*(UsageRule(resource=resource, growth=nothing) for resource in resources), *rules)


def leave_pods_out(rules: Collection[UsageRule], records: Iterable[trace_pb2.Record]) -> bool:
    """Return whether a trace or its controllers have a pod of which no rule sets a resource."""
    by_resource: dict[str, list[UsageRule]] = {}
    for rule in rules:
        by_resource.setdefault(rule.resource, []).append(rule)
    return any(
        not any(_may_match(rule, pod, is_made) for rule in same)
        for pod, is_made in _pods(records)
        for same in by_resource.values()
    )


def has_usage(records: Iterable[trace_pb2.Record]) -> bool:
    """Return whether a trace has usage of a pod or a node: a profile or an annotation."""
    return any(
        record.HasField("usage") or any(map(usage_annotation, _annotations(record)))
        for record in records
    )


def _annotations(record: trace_pb2.Record) -> Iterator[str]:
    """Yield the names of the annotations of a record's pod or pod template."""
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
    """Return whether a rule may match a pod, or a pod that a controller makes of that template."""
    if rule.container and rule.container not in _containers(pod):
        return False
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
    """Yield pods and pod templates of controllers, metadata and containers, and which it is."""
    templates: dict[int, pod_pb2.Pod] = {}
    for record in records:
        match record.WhichOneof("record"):
            case "template":
                templates[record.template.id] = record.template.pod
            case "pod_create":
                create = record.pod_create
                template = templates.get(create.template_id)
                labels = [template.metadata.labels] if template is not None else []
                spec = create.pod.spec if template is None else template.spec
                made = _pattern(create.pod.metadata, [*labels, create.pod.metadata.labels], spec)
                yield made, False
            case "create" | "update" as case:
                yield from _of_object(getattr(record, case))


def _of_object(message: object_pb2.KubernetesObject) -> Iterator[tuple[pod_pb2.Pod, bool]]:
    template = pod_template(message)
    if template is not None:
        held = getattr(message, message.WhichOneof("object") or "")
        yield _pattern(held.metadata, [template.metadata.labels], template.spec), True
    elif message.HasField("pod"):
        meta = message.pod.metadata
        yield _pattern(meta, [meta.labels], message.pod.spec), False


def _containers(pod: pod_pb2.Pod) -> set[str]:
    """Return the names of a pod's containers, init containers included."""
    return {container.name for container in (*pod.spec.containers, *pod.spec.init_containers)}


def _pattern(
    meta: meta_pb2.ObjectMeta, labels: Sequence[Mapping[str, str]], spec: pod_pb2.PodSpec
) -> pod_pb2.Pod:
    pod = pod_pb2.Pod()
    for container in (*spec.containers, *spec.init_containers):
        pod.spec.containers.add(name=container.name)
    pod.metadata.namespace = meta.namespace or "default"
    pod.metadata.name = meta.name
    for label in labels:
        pod.metadata.labels.update(label)
    return pod


_FORM = re.compile(r"(?P<resource>[^=]+)=(?P<ratio>\d+(\.\d+)?)")
_RATIO_MAX = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrivalTarget:
    """The sum of all pods' requests: `amount` of `resource` ("cpu" in millicores)."""

    resource: str
    amount: int


def parse_arrivals(text: str, inventory: TraceInventory) -> ArrivalTarget:
    """Return the target of "RESOURCE=RATIO", a ratio of the allocatable of all nodes.

    Raises OverrideError for any other text, and where the nodes do not have the resource.
    """
    match = _FORM.fullmatch(text)
    if match is None or not 0 < float(match["ratio"]) <= _RATIO_MAX:
        raise OverrideError(f"--arrivals {text}: write RESOURCE=RATIO, such as cpu=1.3")
    resource = match["resource"]
    capacity = inventory.allocatable[resource]
    if not capacity:
        names = shown_names((name for name, n in inventory.allocatable.items() if n), "nothing")
        raise OverrideError(f"--arrivals {text}: the nodes have no {resource}; they have {names}")
    return ArrivalTarget(resource=resource, amount=round(float(match["ratio"]) * capacity))


@dataclass(frozen=True, slots=True)
class _Arrival:
    template_id: int
    pod: pod_pb2.Pod
    amount: int


class _Requests:
    """The requests of pods for one resource."""

    def __init__(self, resource: str) -> None:
        self._resource = resource
        self._specs = PodSpecInterner()

    def of(self, message: pod_pb2.PodSpec) -> int:
        """Return the request; 0 for an invalid pod, which the replay refuses."""
        try:
            return pod_requests(self._specs.spec(message)).get(self._resource, 0)
        except FieldError:
            return 0


def arrivals_only(
    records: Iterable[trace_pb2.Record], target: ArrivalTarget, seed: int
) -> Iterator[trace_pb2.Record]:
    """Yield the other objects of a trace, and then its pods, all at the start of the trace.

    Updates, deletions and ends are left out. All pods are kept in memory. Raises OverrideError
    where no pod requests the resource.
    """
    pods: list[_Arrival] = []
    templates: dict[int, pod_pb2.Pod] = {}
    requests = _Requests(target.resource)
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
    for arrival in _drawn(pods, target, KeyedRandom(seed)):
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


def _drawn(
    pods: Sequence[_Arrival], target: ArrivalTarget, draw: KeyedRandom
) -> Iterator[_Arrival]:
    """Yield the pods in their order: as upstream does, all pods shuffled, then drawn ones."""
    total = sum(pod.amount for pod in pods)
    if not total:
        raise OverrideError(f"--arrivals {target.resource}: no pod of the trace requests it")
    order = sorted(range(len(pods)), key=lambda index: draw.share("order", index))
    if total > target.amount:
        left_out = set()
        for index in sorted(order, key=lambda index: draw.share("left out", index)):
            if total <= target.amount:
                break
            left_out.add(index)
            total -= pods[index].amount
        order = [index for index in order if index not in left_out]
    for index in order:
        yield pods[index]
    number = 0
    while total < target.amount:
        drawn = pods[draw.below(len(pods), "drawn", number)]
        if total + drawn.amount > target.amount:
            return
        total += drawn.amount
        yield _copied(drawn, number)
        number += 1


def _copied(drawn: _Arrival, number: int) -> _Arrival:
    """Return a copy of the pod with another name and UID."""
    pod = copy.deepcopy(drawn.pod)
    meta = pod.metadata
    meta.name = f"{meta.name}-again-{number}"
    meta.uid = object_uid("Pod", meta.namespace, meta.name)
    return _Arrival(drawn.template_id, pod, drawn.amount)
