"""Overrides the resource usage of pods: `--usage`.

`--usage 'SELECTOR RESOURCE VALUE'` replaces the usage in the trace. The selector matches labels, or
names one pod as NAMESPACE/NAME; it is applied when containers start, so pods of controllers match,
too. If a trace has no usage, unselected pods use nothing: a real kubelet has statistics of every
running pod, and a pod without statistics would be evicted before the pod that leaks memory.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from replay.overrides.errors import OverrideError
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
"""Labels that controllers add to the pods that they create."""


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
    """Raise OverrideError if a rule matches no pod of `records` or of their controllers."""
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
    """Return the rules, preceded by rules that set the usage of unselected pods to 0."""
    of_all = {rule.resource for rule in rules if rule.selects_all and not rule.container}
    resources = sorted({rule.resource for rule in rules} - of_all)
    nothing = Growth(start_bytes=0)
    return (*(UsageRule(resource=resource, growth=nothing) for resource in resources), *rules)


def leave_pods_out(rules: Collection[UsageRule], records: Iterable[trace_pb2.Record]) -> bool:
    """Return whether some pod matches no rule for one of the resources that `rules` set."""
    by_resource: dict[str, list[UsageRule]] = {}
    for rule in rules:
        by_resource.setdefault(rule.resource, []).append(rule)
    return any(
        not any(_may_match(rule, pod, is_made) for rule in same)
        for pod, is_made in _pods(records)
        for same in by_resource.values()
    )


def has_usage(records: Iterable[trace_pb2.Record]) -> bool:
    """Return whether a trace has usage of any pod or node, as a profile or an annotation."""
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
    """Return whether a rule may match a pod, or a pod created from that pod template."""
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
    """Yield pods, and controllers' pod templates as pods; True marks a template."""
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
