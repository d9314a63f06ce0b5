"""A plugin's result: a code, the plugin that returned it, and its reasons.

Unschedulable is a result, not an error: statuses are values and nothing here raises.

Source: kubernetes v1.34 staging/src/k8s.io/kube-scheduler/framework/interface.go, Code, Status.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class Code(IntEnum):
    """The kind of a status; the numbers are upstream's and are used in columns.

    Upstream's Wait is `Wait` in waiting_pods.py, which has the time-out, too.
    """

    SUCCESS = 0
    ERROR = 1
    UNSCHEDULABLE = 2
    UNSCHEDULABLE_AND_UNRESOLVABLE = 3
    SKIP = 5
    PENDING = 6

    @property
    def label(self) -> str:
        """Return upstream's spelling, such as "UnschedulableAndUnresolvable"."""
        return _LABELS[self]

    @property
    def is_rejected(self) -> bool:
        """Return whether the status refuses the pod (which an error does not)."""
        return self in _REJECTED


_LABELS = {
    Code.SUCCESS: "Success",
    Code.ERROR: "Error",
    Code.UNSCHEDULABLE: "Unschedulable",
    Code.UNSCHEDULABLE_AND_UNRESOLVABLE: "UnschedulableAndUnresolvable",
    Code.SKIP: "Skip",
    Code.PENDING: "Pending",
}
_REJECTED = frozenset({Code.UNSCHEDULABLE, Code.UNSCHEDULABLE_AND_UNRESOLVABLE, Code.PENDING})


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """The result of `plugin` ("" where no plugin returned it), reasons in the plugin's order."""

    code: Code
    plugin: str = ""
    reasons: tuple[str, ...] = ()

    @property
    def message(self) -> str:
        """Return the reasons as one text, joined as upstream joins them."""
        return ", ".join(self.reasons)


SUCCESS = Status(code=Code.SUCCESS)
SKIPPED = Status(code=Code.SKIP)
