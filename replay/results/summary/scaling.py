"""The node groups that an autoscaler scales in a run: their nodes over time, and their cost.

A node belongs to the group named in its annotation, for which it was created, or else to the group
whose selector matches it (replay/world/controllers/autoscaling/node_groups.py). A node costs money
from its request on, as clouds bill an instance from its launch on; a node that could not be created
costs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from replay.world.controllers.autoscaling.node_groups import Autoscaling
from reprieve.scheduler.v1beta1 import scheduler_pb2
from reprieve.trace.v1beta1 import trace_pb2

_HOUR = 3600e9


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaledGroup:
    """A node group over the time of a run.

    price: the price of a node for an hour, None if unknown. first, last, peak: the number of nodes
    at the beginning, at the end, and at most. node_ns: the sum of its nodes' lifetimes. cost: None
    without a price. scale_ups: how often the autoscaler increased the group. added, failed,
    removed: nodes that the autoscaler added, could not add, and removed.
    """

    group: str
    min: int
    max: int
    price: float | None
    first: int
    last: int
    peak: int
    node_ns: int
    cost: float | None
    scale_ups: int
    added: int
    failed: int
    removed: int


@dataclass(slots=True)
class _GroupTally:
    """The counts of a group; `since_ns` has the start of the lifetime of each node, by name."""

    since_ns: dict[str, int] = field(default_factory=dict)
    first: int = 0
    peak: int = 0
    node_ns: int = 0
    provisioning_ns: int = 0
    scale_ups: int = 0
    added: int = 0
    failed: int = 0
    removed: int = 0


@dataclass(slots=True)
class ScalingTally:
    """Counts a run's groups from its events and its decisions, both in order of time."""

    _first_ns: int | None = None
    _groups: dict[str, _GroupTally] = field(default_factory=dict)
    _group_of: dict[str, str] = field(default_factory=dict)

    def sent(self, event: scheduler_pb2.Event, autoscaling: Autoscaling) -> None:
        """Take an event that was sent to the scheduler."""
        if self._first_ns is None:
            self._first_ns = event.time_ns
        if event.HasField("add") and event.add.HasField("node"):
            node = event.add.node
            group = autoscaling.group_of(node)
            if group is not None:
                tally = self._groups.setdefault(group.name, _GroupTally())
                name = node.metadata.name
                tally.since_ns[name] = event.time_ns
                tally.peak = max(tally.peak, len(tally.since_ns))
                tally.first += event.time_ns == self._first_ns
                self._group_of[name] = group.name
        elif event.remove.kind == "Node":
            name = event.remove.name
            group_name = self._group_of.pop(name, None)
            if group_name is not None:
                tally = self._groups[group_name]
                tally.node_ns += event.time_ns - tally.since_ns.pop(name)

    def decided(self, observed: trace_pb2.Observed) -> None:
        """Take a decision that was carried out."""
        match observed.WhichOneof("observed"):
            case "scaled_up":
                self._of(observed.object.name).scale_ups += 1
            case "node_provisioned":
                provisioned = observed.node_provisioned
                tally = self._of(provisioned.group)
                if provisioned.message:
                    tally.failed += 1
                else:
                    tally.added += 1
                    tally.provisioning_ns += provisioned.elapsed_duration_ns
            case "node_removal" if observed.node_removal.step == "Deleted":
                self._of(observed.node_removal.group).removed += 1

    def _of(self, group: str) -> _GroupTally:
        return self._groups.setdefault(group, _GroupTally())

    def groups(self, autoscaling: Autoscaling, end_ns: int) -> Sequence[ScaledGroup]:
        """Return the groups of a run that ended at `end_ns`, in the order of their definition."""
        rows = []
        for group in autoscaling.groups:
            tally = self._groups.get(group.name, _GroupTally())
            node_ns = tally.node_ns + sum(end_ns - since_ns for since_ns in tally.since_ns.values())
            hours = (node_ns + tally.provisioning_ns) / _HOUR
            rows.append(
                ScaledGroup(
                    group=group.name,
                    min=group.min_size,
                    max=group.max_size,
                    price=group.price,
                    first=tally.first,
                    last=len(tally.since_ns),
                    peak=tally.peak,
                    node_ns=node_ns,
                    cost=None if group.price is None else group.price * hours,
                    scale_ups=tally.scale_ups,
                    added=tally.added,
                    failed=tally.failed,
                    removed=tally.removed,
                )
            )
        return rows
