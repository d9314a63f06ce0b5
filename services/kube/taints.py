"""Taints and tolerations.

Source: kubernetes v1.34 api/core/v1/toleration.go, ToleratesTaint; well_known_taints.go (keys).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"
UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
NETWORK_UNAVAILABLE = "node.kubernetes.io/network-unavailable"
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
MEMORY_PRESSURE = "node.kubernetes.io/memory-pressure"
DISK_PRESSURE = "node.kubernetes.io/disk-pressure"
PID_PRESSURE = "node.kubernetes.io/pid-pressure"

UNSERVED_OPERATORS = frozenset({"Gt", "Lt"})
"""Operators of tolerations that compare numbers; with the default gates, they tolerate no taint.

Source: kubernetes v1.35 pkg/features, TaintTolerationComparisonOperators (alpha, off).
"""


class TaintEffect(Enum):
    """The effect of a taint on pods that do not tolerate it."""

    NO_SCHEDULE = "NoSchedule"
    PREFER_NO_SCHEDULE = "PreferNoSchedule"
    NO_EXECUTE = "NoExecute"


@dataclass(frozen=True, slots=True, kw_only=True)
class Taint:
    """A taint of a node; `time_added_ns` is when it was added, None if unknown."""

    key: str
    effect: TaintEffect
    value: str = ""
    time_added_ns: int | None = None

    def __str__(self) -> str:
        """Print it as upstream's messages do: {key: value}."""
        return f"{{{self.key}: {self.value}}}"


CORDON = Taint(key=UNSCHEDULABLE, effect=TaintEffect.NO_SCHEDULE)
"""The taint of a cordoned node; the scheduler assumes it if spec.unschedulable is set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Toleration:
    """A toleration of a pod.

    An empty `key` with the operator "Exists" matches every taint. An empty operator means "Equal";
    operators in UNSERVED_OPERATORS match nothing. `effect` None means every effect. `seconds`
    limits how long a NoExecute taint is tolerated (None: forever).
    """

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: TaintEffect | None = None
    seconds: int | None = None

    def tolerates(self, taint: Taint) -> bool:
        """Return whether the toleration matches `taint`; an empty key matches any key."""
        if self.effect is not None and self.effect is not taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        if self.operator in {"", "Equal"}:
            return self.value == taint.value
        return self.operator == "Exists"


def repels(taint: Taint, tolerations: Iterable[Toleration]) -> bool:
    """Return whether `taint` keeps a pod with `tolerations` from being scheduled to the node."""
    return taint.effect is not TaintEffect.PREFER_NO_SCHEDULE and not tolerated(taint, tolerations)


def tolerated(taint: Taint, tolerations: Iterable[Toleration]) -> bool:
    """Return whether one of `tolerations` matches `taint`."""
    return any(toleration.tolerates(taint) for toleration in tolerations)
