"""Annotations for a replay: how long a pod runs, what it uses, and when a node drains or fails.

A manifest has no times; these annotations add them. On a pod, or in a controller's pod template:
`reprieve/service-time` (how long its containers run), `reprieve/exit-code` (their exit code; 0
where only the time is set), `reprieve/ready-delay` (from Running to Ready, or `never`),
`reprieve/usage-memory` and `reprieve/usage-ephemeral-storage`; `reprieve/usage-memory.CONTAINER` is
the memory of one container. On a
node: `reprieve/drain-at`, `reprieve/fail-at` and `reprieve/recover-at`, counted from its creation.

Usage is written `200Mi` (from the start on), `+50Mi/m` (growth, added to the pod's recorded usage
if it has any) or `200Mi+50Mi/m` (an amount that grows). Growth counts from when the containers run,
or from the creation here of a pod that was running before.

Amounts change every 10 s, the kubelet's interval, up to what the node has.
Source: kubernetes v1.32 pkg/kubelet/kubelet.go, evictionMonitoringPeriod.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING

from replay.durations import duration_ns
from replay.world.kubelet.usage_curves import Line, as_changes
from reprieve.kube.v1beta1 import pod_pb2
from reprieve.trace.v1beta1 import trace_pb2
from services.kube import quantity
from services.kube.selector import LabelSelector
from services.kube.time import SECOND_NS
from services.rpc.errors import FieldError

if TYPE_CHECKING:
    from replay.world.kubelet.usage_curves import Int64s

MEMORY, STORAGE = "memory", "ephemeral-storage"
RESOURCES = (MEMORY, STORAGE)
"""The resources whose usage a replay models."""

_INTERVAL_NS = 10 * SECOND_NS
_AMOUNT = r"\d[\dA-Za-z.]*"
_FORM = re.compile(rf"(?P<start>{_AMOUNT})?(\+(?P<more>{_AMOUNT})/(?P<period>[\da-z.]+))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """`start_bytes` (None: the pod's recorded usage) and `more_bytes` in each `period_ns`."""

    start_bytes: int | None = None
    more_bytes: int = 0
    period_ns: int = 1

    def at(self, offset_ns: int) -> int:
        """Return the bytes used at an offset from the start, without recorded usage."""
        return self.after(max(0, offset_ns) // _INTERVAL_NS)

    def after(self, intervals: int) -> int:
        """Return the bytes used after so many intervals of 10 s."""
        grown_bytes = intervals * _INTERVAL_NS * self.more_bytes // self.period_ns
        return (self.start_bytes or 0) + grown_bytes

    def intervals_below(self, most_bytes: int) -> int:
        """Return the intervals of 10 s until `most_bytes` are used; 0 if they are at once."""
        lacking = most_bytes - (self.start_bytes or 0)
        if not self.more_bytes or lacking <= 0:
            return 0
        return -(-lacking * self.period_ns // (self.more_bytes * _INTERVAL_NS))


def parse_growth(text: str) -> Growth:
    """Return the growth that a text states. Raises ValueError, with a text for users."""
    match = _FORM.fullmatch(text)
    problem = f"{text!r} is not a usage; write 200Mi, +50Mi/m or 200Mi+50Mi/m"
    if match is None or not text:
        raise ValueError(problem)
    start, more, period = match["start"], match["more"], match["period"]
    if not more:
        return Growth(start_bytes=quantity.value(start))
    period_ns = duration_ns(period if period[0].isdigit() else f"1{period}")
    if not period_ns:
        raise ValueError(problem)
    return Growth(
        start_bytes=quantity.value(start) if start else None,
        more_bytes=quantity.value(more),
        period_ns=period_ns,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GrowthCurve:
    """A growth as a `UsageCurve`: it begins with a step and ends at the node's `most_bytes`."""

    growth: Growth
    most_bytes: int

    def used(self, offset_ns: int) -> int:
        """Return the bytes used, at most the node's."""
        return min(self.growth.at(offset_ns), self.most_bytes) if offset_ns >= 0 else 0

    def most(self, offset_ns: int, until_ns: int) -> int:
        """Return the use at the interval's end: a growth never shrinks."""
        return self.used(max(offset_ns, until_ns))

    def next_change_ns(self, offset_ns: int) -> int | None:
        """Return the next multiple of 10 s, None once the node's amount is used."""
        if offset_ns < 0:
            return 0
        following = offset_ns // _INTERVAL_NS + 1
        return following * _INTERVAL_NS if following <= self._last else None

    def changes(self, offset_ns: int, until_ns: int) -> tuple[Int64s, Int64s]:
        """Return the multiples of 10 s in the interval, and what each adds."""
        first = max(-1, offset_ns // _INTERVAL_NS) + 1
        last = min(until_ns // _INTERVAL_NS, self._last)
        offsets = [number * _INTERVAL_NS for number in range(first, last + 1)]
        return as_changes(offsets, [self.used(offset) for offset in offsets], self.used(offset_ns))

    def line(self, offset_ns: int) -> Line:
        """Return the growth as a line: between the kubelet's samples it continues."""
        growth = self.growth
        start = growth.start_bytes or 0
        if offset_ns < 0:
            return Line(0, 0, 0)
        rate = Fraction(growth.more_bytes, growth.period_ns)
        full_ns = math.ceil((self.most_bytes - start) / rate) if rate else 0
        if offset_ns >= full_ns:
            return Line(min(start, self.most_bytes) if not rate else self.most_bytes, 0, None)
        return Line(start + offset_ns * rate, rate, full_ns)

    @property
    def _last(self) -> int:
        return self.growth.intervals_below(self.most_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageRule:
    """The usage of a resource by pods: those that a label selector matches, or one pod by name.

    `container` is the only container that the rule is about; "": the pod, but for containers with a
    rule of their own.
    """

    resource: str
    growth: Growth
    container: str = ""
    selector: LabelSelector = field(default_factory=LabelSelector)
    namespace: str = ""
    name: str = ""

    @property
    def selects_all(self) -> bool:
        """Return whether the rule is for all pods."""
        return not self.name and not self.selector.requirements

    def matches(self, pod: pod_pb2.Pod) -> bool:
        """Return whether the rule is for a pod."""
        meta = pod.metadata
        if self.name:
            return (meta.namespace, meta.name) == (self.namespace, self.name)
        return self.selector.matches(meta.labels)


SERVICE_TIME = "reprieve/service-time"
EXIT_CODE = "reprieve/exit-code"
READY_DELAY = "reprieve/ready-delay"
NEVER = "never"
NODE_ACTION_ANNOTATIONS: Mapping[str, trace_pb2.NodeActionType.ValueType] = {
    "reprieve/drain-at": trace_pb2.NODE_ACTION_TYPE_DRAIN,
    "reprieve/fail-at": trace_pb2.NODE_ACTION_TYPE_FAIL,
    "reprieve/recover-at": trace_pb2.NODE_ACTION_TYPE_RECOVER,
}
_USAGE_PREFIX = "reprieve/usage-"
_CODE_MAX = 255


def annotate_life(annotations: Mapping[str, str], life: trace_pb2.PodLife) -> None:
    """Fill in a life's fields that the trace leaves out. Raises FieldError for a bad annotation."""
    if SERVICE_TIME in annotations and not life.HasField("service_duration_ns"):
        life.service_duration_ns = _duration_ns(annotations, SERVICE_TIME)
        life.exit_code = 0
    if READY_DELAY in annotations and life.WhichOneof("readiness") is None:
        if annotations[READY_DELAY] == NEVER:
            life.never_ready.SetInParent()
        else:
            life.ready_delay_duration_ns = _duration_ns(annotations, READY_DELAY)
    if EXIT_CODE in annotations and not life.fails:
        text = annotations[EXIT_CODE]
        if not (text.isascii() and text.isdigit()) or len(text) > 3 or int(text) > _CODE_MAX:
            problem = f"{text!r} is not an exit code; write 0 to {_CODE_MAX}"
            raise FieldError(f"metadata.annotations[{EXIT_CODE}]", problem)
        life.exit_code = int(text)


def annotated_usage(annotations: Mapping[str, str]) -> dict[tuple[str, str], Growth]:
    """Return what a pod uses, by resource and container ("": the pod's). Raises FieldError."""
    growths = {}
    for name in annotations:
        if named := usage_annotation(name):
            try:
                growths[named] = parse_growth(annotations[name])
            except ValueError as error:
                raise FieldError(f"metadata.annotations[{name}]", str(error)) from error
    return growths


def usage_annotation(name: str) -> tuple[str, str] | None:
    """Return the resource and the container ("": the pod) of an annotation, None for another."""
    if not name.startswith(_USAGE_PREFIX):
        return None
    return usage_subject(name.removeprefix(_USAGE_PREFIX))


def usage_subject(text: str) -> tuple[str, str] | None:
    """Return the resource and the container that "memory" or "memory.CONTAINER" names.

    None for any other text. Only memory is by container.
    """
    resource, dot, container = text.partition(".")
    is_one = resource == MEMORY and bool(container) if dot else resource in RESOURCES
    return (resource, container) if is_one else None


def node_actions(
    annotations: Mapping[str, str],
) -> list[tuple[int, trace_pb2.NodeActionType.ValueType]]:
    """Return a node's actions with their times since its creation, ns. Raises FieldError."""
    return [
        (_duration_ns(annotations, name), action)
        for name, action in NODE_ACTION_ANNOTATIONS.items()
        if name in annotations
    ]


def _duration_ns(annotations: Mapping[str, str], name: str) -> int:
    try:
        return duration_ns(annotations[name])
    except ValueError as error:
        raise FieldError(f"metadata.annotations[{name}]", str(error)) from error
