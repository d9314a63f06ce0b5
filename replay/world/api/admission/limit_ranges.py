"""The LimitRanger admission: defaults and bounds of a namespace for containers and pods.

Source: kubernetes v1.34 plugin/pkg/admission/limitranger/admission.go, PodMutateLimitFunc,
PodValidateLimitFunc, minConstraint, maxConstraint, limitRequestRatioConstraint;
pkg/apis/core/v1/defaults.go, SetDefaults_LimitRangeItem. Upstream goes through the resources of a
LimitRange in no order, here they are sorted.
"""

from __future__ import annotations

from collections.abc import Iterator

from replay.world.api.admission.refusal import AdmissionError
from replay.world.api.admission.resources import ZERO, Amounts, amounts, of_pod
from reprieve.kube.v1beta1 import admission_pb2, pod_pb2
from services.kube.quantity import NANO, Quantity

_CONTAINER, _POD = "Container", "Pod"


class LimitRanges:
    """The LimitRanges by namespace, and their effect on new pods."""

    _ranges: dict[str, dict[str, admission_pb2.LimitRange]]

    def __init__(self) -> None:
        self._ranges = {}

    def put(self, message: admission_pb2.LimitRange) -> None:
        """Create or update a LimitRange; its own defaults are filled in."""
        for item in message.spec.limits:
            _fill_in(item)
        ranges = self._ranges.setdefault(message.metadata.namespace, {})
        ranges[message.metadata.name] = message

    def remove(self, namespace: str, name: str) -> None:
        """Delete a LimitRange; an unknown one is accepted."""
        self._ranges.get(namespace, {}).pop(name, None)

    def fill_in(self, pod: pod_pb2.Pod) -> None:
        """Fill in the defaults of the pod's namespace."""
        for limits in self._of(pod):
            _set_defaults(limits, pod.spec)

    def check(self, pod: pod_pb2.Pod) -> None:
        """Check the bounds of the pod's namespace. Raises AdmissionError."""
        for limits in self._of(pod):
            problems = list(dict.fromkeys(_problems(limits, pod.spec)))
            if problems:
                text = f"[{', '.join(problems)}]" if len(problems) > 1 else problems[0]
                raise AdmissionError(text)

    def _of(self, pod: pod_pb2.Pod) -> Iterator[admission_pb2.LimitRange]:
        ranges = self._ranges.get(pod.metadata.namespace, {})
        return (ranges[name] for name in sorted(ranges))


def _fill_in(item: admission_pb2.LimitRangeItem) -> None:
    """Fill in the defaults of containers from the bounds."""
    if item.type != _CONTAINER:
        return
    for default, source in (
        (item.default, item.max),
        (item.default_request, item.default),
        (item.default_request, item.min),
    ):
        for name in source:
            if name not in default:
                default[name] = source[name]


def _set_defaults(limit_range: admission_pb2.LimitRange, spec: pod_pb2.PodSpec) -> None:
    limits: dict[str, str] = {}
    requests: dict[str, str] = {}
    for item in limit_range.spec.limits:
        if item.type == _CONTAINER:
            limits.update(item.default)
            requests.update(item.default_request)
    for container in (*spec.containers, *spec.init_containers):
        for defaults, of_container in (
            (limits, container.resources.limits),
            (requests, container.resources.requests),
        ):
            for name, amount in defaults.items():
                if name not in of_container:
                    of_container[name] = amount


def _problems(limit_range: admission_pb2.LimitRange, spec: pod_pb2.PodSpec) -> Iterator[str]:
    for item in limit_range.spec.limits:
        if item.type == _CONTAINER:
            for container in (*spec.containers, *spec.init_containers):
                resources = container.resources
                yield from _out_of_bounds(
                    item, amounts(resources.requests), amounts(resources.limits)
                )
        elif item.type == _POD:
            requests = of_pod(spec, "requests", overhead=False)
            limits = of_pod(spec, "limits", overhead=False)
            yield from _out_of_bounds(item, requests, limits)


def _out_of_bounds(
    item: admission_pb2.LimitRangeItem, requests: Amounts, limits: Amounts
) -> Iterator[str]:
    for name, bound in sorted(amounts(item.min).items()):
        what = f"minimum {name} usage per {item.type} is {bound}"
        if name not in requests:
            yield f"{what}.  No request is specified"
        elif requests[name].nano < bound.nano:
            yield f"{what}, but request is {requests[name]}"
        elif name in limits and limits[name].nano < bound.nano:
            yield f"{what}, but limit is {limits[name]}"
    for name, bound in sorted(amounts(item.max).items()):
        what = f"maximum {name} usage per {item.type} is {bound}"
        if name not in limits:
            yield f"{what}.  No limit is specified"
        elif limits[name].nano > bound.nano:
            yield f"{what}, but limit is {limits[name]}"
        elif name in requests and requests[name].nano > bound.nano:
            yield f"{what}, but request is {requests[name]}"
    for name, bound in sorted(amounts(item.max_limit_request_ratio).items()):
        what = f"{name} max limit to request ratio per {item.type} is {bound}"
        yield from _above_ratio(what, bound, requests.get(name, ZERO), limits.get(name, ZERO))


def _above_ratio(what: str, bound: Quantity, request: Quantity, limit: Quantity) -> Iterator[str]:
    if not request.nano:
        yield f"{what}, but no request is specified or request is 0"
    elif not limit.nano:
        yield f"{what}, but no limit is specified or limit is 0"
    elif limit.nano * NANO > bound.nano * request.nano:
        yield f"{what}, but provided ratio is {limit.nano / request.nano:f}"
