"""Limits how many nodes are deleted at once.

All running deletions count against one number, and drains among them against another one. Groups
that go as one come first: all of their nodes or none, and one such group may exceed the numbers,
so that it does not wait for ever.

Source: kubernetes/autoscaler 1.36 core/scaledown/budgets/budgets.go, CropNodes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from services.autoscaler.core.groups import Cloud, NodeGroup
from services.autoscaler.core.objects import ClusterNode


@dataclass(slots=True, kw_only=True)
class Bucket:
    """Nodes of a group; `batch_size` is the number deleted together, 0 if each goes alone."""

    group: NodeGroup
    nodes: list[ClusterNode] = field(default_factory=list)
    batch_size: int = 0


@dataclass(slots=True, kw_only=True)
class Parallelism:
    """The remaining numbers of deletions, and of drains among them; see the module.

    `registered` are the nodes of the cluster, without upcoming ones.
    """

    cloud: Cloud
    registered: list[ClusterNode]
    left: int
    drains_left: int
    may_overflow: bool = True

    def crop(
        self, empty: Iterable[ClusterNode], to_drain: Iterable[ClusterNode]
    ) -> tuple[list[Bucket], list[Bucket]]:
        """Return which empty nodes may be deleted now, and which may be drained."""
        empty_alone, empty_as_one = self._buckets(empty)
        drain_alone, drain_as_one = self._buckets(to_drain)
        chosen_empty, chosen_drain = self._crop_atomic(empty_as_one, drain_as_one)
        chosen = self._crop_alone(empty_alone, self.left)
        chosen_empty += chosen
        self.left -= sum(len(bucket.nodes) for bucket in chosen)
        self.drains_left = min(self.left, self.drains_left)
        chosen_drain += self._crop_alone(drain_alone, self.drains_left)
        return chosen_empty, chosen_drain

    def _buckets(self, nodes: Iterable[ClusterNode]) -> tuple[list[Bucket], list[Bucket]]:
        """Return the nodes by group: those that go alone, and those that go as one."""
        buckets: dict[str, Bucket] = {}
        for node in nodes:
            group = self.cloud.group_of(node.provider_id)
            if group is not None:
                buckets.setdefault(group.name, Bucket(group=group)).nodes.append(node)
        alone = [b for b in buckets.values() if not b.group.options.zero_or_max_node_scaling]
        as_one = [b for b in buckets.values() if b.group.options.zero_or_max_node_scaling]
        return alone, as_one

    def _crop_atomic(
        self, empty: list[Bucket], to_drain: list[Bucket]
    ) -> tuple[list[Bucket], list[Bucket]]:
        chosen_empty: list[Bucket] = []
        chosen_drain: list[Bucket] = []
        drains = {bucket.group.name: bucket for bucket in to_drain}
        for bucket in empty:
            drain = drains.get(bucket.group.name)
            number = len(drain.nodes) if drain is not None else 0
            total = len(bucket.nodes) + number
            if self.left < total or self.drains_left < number:
                none_left = self.left == 0 or (number > 0 and self.drains_left == 0)
                if none_left or not self.may_overflow:
                    break
            if not self._is_whole(bucket, total):
                continue
            chosen_empty.append(bucket)
            if drain is not None:
                drain.batch_size = bucket.batch_size
                chosen_drain.append(drain)
            self._spend(total, number)
        self.drains_left = min(self.left, self.drains_left)
        with_empty = {bucket.group.name for bucket in empty}
        for bucket in to_drain:
            if bucket.group.name in with_empty:
                continue
            number = len(bucket.nodes)
            if self.drains_left < number and (self.drains_left == 0 or not self.may_overflow):
                break
            if self._is_whole(bucket, number):
                chosen_drain.append(bucket)
                self._spend(number, number)
        return chosen_empty, chosen_drain

    def _is_whole(self, bucket: Bucket, total: int) -> bool:
        """Return whether that many nodes are all of a group, and note how many go as one.

        Instances that failed to register do not hold up the others.
        """
        target = bucket.group.target
        current = number_registered(bucket.group, self.registered)
        bucket.batch_size = current if len(bucket.nodes) == current else target
        return total in {target, current}

    def _spend(self, total: int, drains: int) -> None:
        self.left -= total
        self.drains_left -= drains
        self.may_overflow = False

    def _crop_alone(self, buckets: Iterable[Bucket], limit: int) -> list[Bucket]:
        chosen: list[Bucket] = []
        for bucket in buckets:
            if limit < 1:
                break
            bucket.nodes = bucket.nodes[:limit]
            chosen.append(bucket)
            limit -= len(bucket.nodes)
        return chosen


def number_registered(group: NodeGroup, nodes: Iterable[ClusterNode]) -> int:
    """Return how many of the nodes are instances of the group."""
    listed = {instance.provider_id for instance in group.instances}
    return sum(node.provider_id in listed for node in nodes)
