"""One node, hypothetically changed: what preemption asks the framework.

A dry run begins as the node stands in the snapshot. Pods taken from it or put on it change the
dry run only, never the snapshot, and `refusal` tells whether the pending pod would fit then.

Source: kubernetes v1.34 pkg/scheduler/framework/preemption/preemption.go and
plugins/defaultpreemption/default_preemption.go, SelectVictimsOnNode (removePod, addPod).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from services.kube.pod import Pod
from services.scheduler.core.status import Status


class DryRun(Protocol):
    """The pending pod's view of one node while candidates for victims come and go."""

    def pods(self) -> Sequence[Pod]:
        """Return the node's assigned and assumed pods as they stand now, in upstream's order.

        Upstream appends a pod that comes and moves the last one into the gap of one that goes.
        """

    def remove(self, pod: Pod) -> None:
        """Take `pod`, found by its UID, off the node; it must be there."""

    def add(self, pod: Pod) -> None:
        """Put `pod` on the node, after all others."""

    def refusal(self) -> Status | None:
        """Run the filters; None where the pending pod fits.

        As upstream does, the filters run with the node's nominated pods of equal or higher
        priority added, and then again without them.
        """
