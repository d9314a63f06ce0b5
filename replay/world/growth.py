"""What pods use by somebody's word, in place of a record: an amount, a growth, or both.

`200Mi` is used from the start on, `+50Mi/m` grows on what is known of the pod otherwise (nothing,
where nothing is), and `200Mi+50Mi/m` begins with an amount and grows. A growth counts from when the
containers run; those that ran before the replay knew of the pod grow from then.

Amounts change every 10 s, as often as a kubelet looks (kubernetes v1.32
pkg/kubelet/kubelet.go, evictionMonitoringPeriod), and nobody uses more than the node has.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from replay.world.lookahead import arranged
from replay.world.models import SECOND_NS, duration_ns
from reprieve.kube.v1beta1 import pod_pb2
from services.kube import quantity
from services.kube.selector import LabelSelector

if TYPE_CHECKING:
    from replay.world.lookahead import Int64s

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
