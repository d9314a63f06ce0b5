"""What annotations state for a replay: how a pod lives, and what it uses.

`200Mi` is used from the start on, `+50Mi/m` grows on what is known of the pod otherwise (nothing,
where nothing is), and `200Mi+50Mi/m` begins with an amount and grows. A growth counts from when the
containers run; those that ran before the replay knew of the pod grow from then.

Amounts change every 10 s, as often as a kubelet looks (kubernetes v1.32
pkg/kubelet/kubelet.go, evictionMonitoringPeriod), and nobody uses more than the node has.

What a manifest may say of a replay: how a pod lives, and what befalls a node.

A manifest has no times, so it says them by annotations. A pod, or a controller's template:
`reprieve/service-time` (how long its containers run), `reprieve/exit-code` (what they exit with,
0 where only the time is given), `reprieve/usage-memory` and `reprieve/usage-ephemeral-storage`
(what they use, as above). A node: `reprieve/drain-at`, `reprieve/fail-at`
and `reprieve/recover-at`, counted from when the node comes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from replay.world.kubelet.look_ahead import arranged
from replay.world.models import SECOND_NS, duration_ns
from reprieve.kube.v1beta1 import pod_pb2
from reprieve.trace.v1beta1 import trace_pb2
from services.kube import quantity
from services.kube.selector import LabelSelector
from services.rpc.errors import FieldError

if TYPE_CHECKING:
    from replay.world.kubelet.look_ahead import Int64s

MEMORY, STORAGE = "memory", "ephemeral-storage"
RESOURCES = (MEMORY, STORAGE)
"""What nodes are short of where a replay evicts."""

_INTERVAL_NS = 10 * SECOND_NS
_AMOUNT = r"\d[\dA-Za-z.]*"
_FORM = re.compile(rf"(?P<start>{_AMOUNT})?(\+(?P<more>{_AMOUNT})/(?P<period>[\da-z.]+))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """`start_bytes` (None: what is known of the pod otherwise), `more_bytes` each `period_ns`."""

    start_bytes: int | None = None
    more_bytes: int = 0
    period_ns: int = 1

    def at(self, offset_ns: int) -> int:
        """Return the bytes that are used so long after the start, beside what is known."""
        return self.after(max(0, offset_ns) // _INTERVAL_NS)

    def after(self, intervals: int) -> int:
        """Return the bytes that are used after so many times 10 s."""
        return (
            self.start_bytes or 0
        ) + intervals * _INTERVAL_NS * self.more_bytes // self.period_ns

    def intervals_below(self, most_bytes: int) -> int:
        """Return how many times 10 s it takes to use `most_bytes`; 0 where that is used at once."""
        lacking = most_bytes - (self.start_bytes or 0)
        if not self.more_bytes or lacking <= 0:
            return 0
        return -(-lacking * self.period_ns // (self.more_bytes * _INTERVAL_NS))


def parse_growth(text: str) -> Growth:
    """Return the growth. Raises ValueError, with a text for people."""
    match = _FORM.fullmatch(text)
    problem = f"{text!r} is no usage; write 200Mi, +50Mi/m or 200Mi+50Mi/m"
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
class Rising:
    """A growth on a node with `most_bytes`, as `lookahead.Curve`; what is used at first is a step.

    It goes on where it stands once so much is used.
    """

    growth: Growth
    most_bytes: int

    def used(self, offset_ns: int) -> int:
        """Return the bytes."""
        return min(self.growth.at(offset_ns), self.most_bytes) if offset_ns >= 0 else 0

    def most(self, offset_ns: int, until_ns: int) -> int:
        """Return what is used at the end of the time."""
        return self.used(max(offset_ns, until_ns))

    def next_change_ns(self, offset_ns: int) -> int | None:
        """Return the next multiple of 10 s, until all is used."""
        if offset_ns < 0:
            return 0
        following = offset_ns // _INTERVAL_NS + 1
        return following * _INTERVAL_NS if following <= self._last else None

    def changes(self, offset_ns: int, until_ns: int) -> tuple[Int64s, Int64s]:
        """Return the multiples of 10 s in that time, and what each adds."""
        first = max(-1, offset_ns // _INTERVAL_NS) + 1
        last = min(until_ns // _INTERVAL_NS, self._last)
        offsets = [number * _INTERVAL_NS for number in range(first, last + 1)]
        return arranged(offsets, [self.used(each) for each in offsets], self.used(offset_ns))

    @property
    def _last(self) -> int:
        return self.growth.intervals_below(self.most_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageRule:
    """What the pods use of a resource that match: of a label selector, or one by its name."""

    resource: str
    growth: Growth
    selector: LabelSelector = field(default_factory=LabelSelector)
    namespace: str = ""
    name: str = ""

    def matches(self, pod: pod_pb2.Pod) -> bool:
        """Tell whether a pod is meant."""
        meta = pod.metadata
        if self.name:
            return (meta.namespace, meta.name) == (self.namespace, self.name)
        return self.selector.matches(meta.labels)


SERVICE_TIME = "reprieve/service-time"
EXIT_CODE = "reprieve/exit-code"
NODE_ACTIONS: Mapping[str, trace_pb2.NodeActionType.ValueType] = {
    "reprieve/drain-at": trace_pb2.NODE_ACTION_TYPE_DRAIN,
    "reprieve/fail-at": trace_pb2.NODE_ACTION_TYPE_FAIL,
    "reprieve/recover-at": trace_pb2.NODE_ACTION_TYPE_RECOVER,
}
USAGE: Mapping[str, str] = {f"reprieve/usage-{resource}": resource for resource in RESOURCES}
_CODE_MAX = 255


def annotate_life(annotations: Mapping[str, str], life: trace_pb2.PodLife) -> None:
    """Fill in what the trace does not tell of a life. Raises FieldError for what cannot be read."""
    if SERVICE_TIME in annotations and not life.HasField("service_time_ns"):
        life.service_time_ns = _duration_ns(annotations, SERVICE_TIME)
        life.exit_code = 0
    if EXIT_CODE in annotations and not life.fails:
        text = annotations[EXIT_CODE]
        if not (text.isascii() and text.isdigit()) or len(text) > 3 or int(text) > _CODE_MAX:
            problem = f"{text!r} is no exit code; write 0 to {_CODE_MAX}"
            raise FieldError(f"metadata.annotations[{EXIT_CODE}]", problem)
        life.exit_code = int(text)


def annotated_usage(annotations: Mapping[str, str]) -> dict[str, Growth]:
    """Return what a pod's containers use, by resource. Raises FieldError."""
    found = {}
    for name, resource in USAGE.items():
        if name in annotations:
            try:
                found[resource] = parse_growth(annotations[name])
            except ValueError as error:
                raise FieldError(f"metadata.annotations[{name}]", str(error)) from error
    return found


def node_actions(
    annotations: Mapping[str, str],
) -> list[tuple[int, trace_pb2.NodeActionType.ValueType]]:
    """Return what befalls a node and how long after its coming, ns. Raises FieldError."""
    return [
        (_duration_ns(annotations, name), action)
        for name, action in NODE_ACTIONS.items()
        if name in annotations
    ]


def _duration_ns(annotations: Mapping[str, str], name: str) -> int:
    try:
        return duration_ns(annotations[name])
    except ValueError as error:
        raise FieldError(f"metadata.annotations[{name}]", str(error)) from error
