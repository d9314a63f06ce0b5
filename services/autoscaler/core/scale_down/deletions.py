"""The deletions that are under way, and how those that ended since the last scan ended.

A deletion goes through stages, each of which is due at a time of its own:

    waiting -> evicting -> leaving -> delayed -> queued (a group that goes as one)
            -> batched (with --node-deletion-batcher-interval) -> deleted

A node is *waiting* for a while after it was tainted, so that a scheduler sees the taint. Then its
pods are looked at afresh. *Evicting*: each pod is evicted, again and again where that is refused,
up to a time; daemon pods, too, but nobody minds if they stay. *Leaving*: it is looked whether the
pods are gone. *Delayed*: an annotation asks for time. A group that goes as one is deleted when its
last node is ready for it. *Batched*: an interval after the first node of a group was ready, all of
its nodes that are ready by then are deleted by one call.

Source: kubernetes/autoscaler 1.36 core/scaledown/deletiontracker/nodedeletiontracker.go; the stages
are those of actuation/actuator.go, deleteNodesAsync; group_deletion_scheduler.go, ScheduleDeletion;
drain.go; delay.go; delete_in_batch.go, AddNodes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from services.autoscaler.core.objects import ClusterNode, ClusterPod


class Stage(Enum):
    """The next stage of a deletion; stages at one instant are carried out in this order."""

    WAITING = "waiting"
    EVICTING = "evicting"
    LEAVING = "leaving"
    DELAYED = "delayed"
    QUEUED = "queued"
    BATCHED = "batched"


class DeleteResult(Enum):
    """The result of a deletion; the values are those of the conformance vectors."""

    OK = "ok"
    FAILED_TO_EVICT = "failed_to_evict"
    FAILED_TO_DELETE = "failed_to_delete"
    INTERNAL = "internal"


@dataclass(slots=True, kw_only=True)
class Deletion:
    """A node's deletion; `due_ns` None: it waits for other nodes of its group.

    `to_evict` are pods whose eviction was not accepted yet, `evicted` those that must be gone
    before the node is deleted. `until_ns` ends the stage.
    """

    node: ClusterNode
    group: str
    drain: bool
    batch_size: int
    due_ns: int | None
    stage: Stage = Stage.WAITING
    to_evict: list[ClusterPod] = field(default_factory=list)
    evicted: list[ClusterPod] = field(default_factory=list)
    until_ns: int = 0


@dataclass(slots=True)
class Deletions:
    """Deletions by node, in the order in which they began, and results by node.

    `queued` are nodes by group that wait to go as one, `batched` those that the next call for their
    group deletes, `failed_groups` the groups of which a deletion has failed since deletions last
    began.
    """

    running: dict[str, Deletion] = field(default_factory=dict)
    results: dict[str, DeleteResult] = field(default_factory=dict)
    queued: dict[str, list[str]] = field(default_factory=dict)
    batched: dict[str, list[str]] = field(default_factory=dict)
    failed_groups: set[str] = field(default_factory=set)

    def empty(self) -> list[str]:
        """Return the nodes that are deleted without a drain."""
        return [name for name, deletion in self.running.items() if not deletion.drain]

    def drained(self) -> list[str]:
        """Return the nodes that are being drained."""
        return [name for name, deletion in self.running.items() if deletion.drain]

    def by_group(self) -> dict[str, int]:
        """Return the number of deletions of each group that has any."""
        numbers: dict[str, int] = {}
        for deletion in self.running.values():
            numbers[deletion.group] = numbers.get(deletion.group, 0) + 1
        return numbers

    def next_due_ns(self) -> int | None:
        """Return when the next stage is due, None if nothing is under way."""
        dues = (deletion.due_ns for deletion in self.running.values())
        return min((due_ns for due_ns in dues if due_ns is not None), default=None)

    def end(self, node: str, result: DeleteResult) -> None:
        """End a deletion."""
        del self.running[node]
        self.results[node] = result

    def take_results(self) -> dict[str, DeleteResult]:
        """Return the results since the last time."""
        results, self.results = self.results, {}
        return results
