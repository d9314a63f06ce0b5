"""`--usage 'SELECTOR RESOURCE VALUE'`: what pods use, in place of what the trace tells of them.

A pod is meant by its labels, or as NAMESPACE/NAME. It is matched when its containers run, so that
pods which controllers make are meant, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from replay.overrides.assignment import OverrideError, known_labels, listed, parse_selector
from replay.trace.validate import pod_template
from replay.world.annotations import USAGE
from replay.world.growth import RESOURCES, UsageRule, parse_growth
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
