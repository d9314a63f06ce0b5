"""A plugin for tests: pods of a group are let in together, or not at all.

A pod names its group by the labels `group` and `members`, the number of pods that must have a node.
Permit holds a pod until so many of its group are on nodes, bound or waiting; the last one lets the
others go on. Where one of them has to give its place back, all that wait do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from services.scheduler.core.plugin_api import (
    PermitPlugin,
    Pod,
    ReservePlugin,
    Snapshot,
    Status,
    Wait,
)

TIMEOUT_NS = 30_000_000_000


class PodGroups(PermitPlugin, ReservePlugin):
    """Holds the pods of a group for 30 s at most, until there are enough of them."""

    name = "PodGroups"

    def __init__(self, args: Mapping[str, Any]) -> None:
        del args

    def permit(self, pod: Pod, row: int, snapshot: Snapshot) -> Status | Wait | None:  # noqa: ARG002 - any row
        """Wait for the others, or let them go on."""
        group = pod.labels.get("group")
        if group is None:
            return None
        placed = sum(
            other.labels.get("group") == group
            for listed in snapshot.listed_rows()
            for other in snapshot.pods_on(listed)
        )
        if placed < int(pod.labels["members"]):
            return Wait(TIMEOUT_NS)
        for waiting in self.waiting:
            if waiting.pod.labels.get("group") == group:
                self.waiting.allow(waiting.pod.uid, self.name)
        return None

    def reserve(self, pod: Pod, row: int, snapshot: Snapshot) -> Status | None:  # noqa: ARG002 - unused
        """Reserve nothing."""
        return None

    def unreserve(self, pod: Pod, row: int, snapshot: Snapshot) -> None:  # noqa: ARG002 - unused
        """Send the others of the group away."""
        for waiting in self.waiting:
            if waiting.pod.labels.get("group") == pod.labels.get("group"):
                self.waiting.reject(waiting.pod.uid, self.name, "its group gives up")
