"""The state of the cluster's groups, brought up to date at the start of a scan.

The cloud's listing of instances is the slow part of this, so it is cached: all groups are listed
anew every two minutes, and one that is scaling up at every scan. What a group is expected to have
comes from the target sizes, which are always read fresh.

A scale-up opens the group's request, or extends one that is open and moves its end. While a request
is open and the group does not back off, the nodes that the target promises and the cluster does not
have are *upcoming*: pods may be placed on them. The request closes when none is upcoming; when
its end is past, the group backs off and its target is decreased by the whole increase, which the
cloud may refuse. An instance that could not be created takes itself off the request at once.

Source: kubernetes/autoscaler 1.36 clusterstate/clusterstate.go; clusterstate/utils/
node_instances_cache.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields

from services.autoscaler.core.calls import Calls, DecreaseTargetSize
from services.autoscaler.core.cluster_state.backoff import BackedOff, GroupBackoff
from services.autoscaler.core.cluster_state.readiness import Readiness, is_ready
from services.autoscaler.core.groups import Cloud, Instance, InstanceState, NodeGroup
from services.autoscaler.core.now import Now
from services.autoscaler.core.objects import ClusterNode
from services.autoscaler.core.options import Options
from services.kube.time import MINUTE_NS

REFRESH_NS = 2 * MINUTE_NS
"""How often all groups' instances are listed anew."""
MAX_NODE_STARTUP_NS = 15 * MINUTE_NS
TIMEOUT = "timeout"
"""The code of the failure of a scale-up whose nodes did not come in time."""
_SUSPENDED = "Suspended"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleUpRequest:
    """A scale-up request to a group: its time, its deadline, and the number of nodes."""

    time_ns: int
    expected_ns: int
    increase: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WrongSize:
    """A group's registered nodes differ from its target, in the same way since `since_ns`."""

    expected: int
    registered: int
    since_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Unregistered:
    """An instance that was listed for a group and has no node, since `since_ns`.

    A listing is old at times: the cloud itself may not know the instance any more.
    """

    provider_id: str
    group: str
    since_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterStateSnapshot:
    """The state of a ClusterState between scans, without backoffs; the fields have its names."""

    requests: dict[str, ScaleUpRequest]
    listed: dict[str, tuple[Instance, ...]]
    instances: dict[str, tuple[Instance, ...]]
    unregistered: dict[str, Unregistered]
    targets: dict[str, int]
    wrong_sizes: dict[str, WrongSize]
    by_group: dict[str, Readiness]
    total: Readiness
    expected_min: dict[str, int]
    last_scale_up: dict[str, int]


@dataclass(slots=True, kw_only=True)
class ClusterState:
    """The state of all node groups; instances and requests by group, in the order of names."""

    cloud: Cloud
    options: Options
    backoff: GroupBackoff
    requests: dict[str, ScaleUpRequest] = field(default_factory=dict)
    listed: dict[str, tuple[Instance, ...]] = field(default_factory=dict)
    instances: dict[str, tuple[Instance, ...]] = field(default_factory=dict)
    previous: dict[str, tuple[Instance, ...]] = field(default_factory=dict)
    unregistered: dict[str, Unregistered] = field(default_factory=dict)
    targets: dict[str, int] = field(default_factory=dict)
    wrong_sizes: dict[str, WrongSize] = field(default_factory=dict)
    by_group: dict[str, Readiness] = field(default_factory=dict)
    total: Readiness = field(default_factory=Readiness)
    expected_min: dict[str, int] = field(default_factory=dict)
    last_scale_up: dict[str, int] = field(default_factory=dict)

    def snapshot(self) -> ClusterStateSnapshot:
        """Return the state between scans, which the next one changes."""
        return ClusterStateSnapshot(
            **{kept.name: getattr(self, kept.name) for kept in fields(ClusterStateSnapshot)}
        )

    def restore(self, snapshot: ClusterStateSnapshot) -> None:
        """Restore the state of another one."""
        for kept in fields(snapshot):
            setattr(self, kept.name, getattr(snapshot, kept.name))

    def refresh_listing(self) -> None:
        """List the instances of all groups again."""
        self.listed = {group.name: group.instances for group in self.cloud.groups()}

    def forget_listing(self, group: str) -> None:
        """List the group's instances again when they are next needed."""
        self.listed.pop(group, None)

    def update(self, nodes: list[ClusterNode], now: Now) -> Calls[None]:
        """Bring the state up to date with the cluster's nodes, which are sorted by name.

        The order is upstream's, and matters: requests are judged by what was expected before the
        timed-out ones are dropped, errors of instances after that, and wrong sizes last.
        Source: updateClusterStateRegistry.
        """
        targets = {group.name: group.target for group in self.cloud.groups()}
        self.previous, self.instances = self.instances, self._list_instances()
        self._note_unregistered(nodes, now.ns)
        self._judge(nodes, now)
        self._expect(targets)
        yield from self._close_requests(now)
        self._note_creation_errors(now.ns)
        self._expect(targets)
        self._note_wrong_sizes(now.ns)

    def recalculate(self) -> None:
        """Apply changed target sizes and requests in the middle of a scan."""
        self._expect({group.name: group.target for group in self.cloud.groups()})

    def register_scale_up(self, group: NodeGroup, delta: int, now_ns: int) -> None:
        """Open or extend the group's request; a `delta` below 0 reduces an open one.

        Source: registerOrUpdateScaleUpNoLock.
        """
        if delta > 0:
            self.last_scale_up[group.name] = now_ns
        request = self.requests.get(group.name)
        increase = delta if request is None else request.increase + delta
        if increase <= 0:
            self.requests.pop(group.name, None)
            return
        if request is None or delta > 0:
            expected_ns = now_ns + group.options.max_node_provision_ns
            time_ns = now_ns
        else:
            time_ns, expected_ns = request.time_ns, request.expected_ns
        self.requests[group.name] = ScaleUpRequest(
            time_ns=time_ns, expected_ns=expected_ns, increase=increase
        )

    def register_failed_scale_up(self, group: str, error_code: str, now_ns: int) -> None:
        """Put a group whose scale-up failed into backoff."""
        self.backoff.back_off(group, error_code, now_ns)

    def backed_off(self, group: str, now: Now) -> BackedOff | None:
        """Return the backoff that the group is in, or None."""
        return self.backoff.active(group, now)

    @property
    def is_healthy(self) -> bool:
        """Return whether few enough of all nodes are unready.

        Source: IsClusterHealthy.
        """
        return not self._are_too_many(len(self.total.unready), len(self.total.registered))

    def is_group_healthy(self, group: str) -> bool:
        """Return whether few enough of the nodes that the group should have are missing.

        Source: IsNodeGroupHealthy.
        """
        if group not in self.targets:
            return False
        target, expected_min = self.targets[group], self.expected_min[group]
        state = self.by_group.get(group)
        if state is None:
            return target == 0 or (expected_min == 0 and target > 0)
        usable = len(state.ready) + len(state.suspended)
        missing = max(expected_min - usable, 0)
        return not self._are_too_many(missing, usable + len(state.unready) + len(state.not_started))

    def upcoming(self, now: Now) -> dict[str, int]:
        """Return how many nodes are upcoming, by group that has any.

        Source: GetUpcomingNodes.
        """
        return {
            group.name: number
            for group in self.cloud.groups()
            if (number := self._promised(group.name)) > 0
            and group.name in self.requests
            and self.backed_off(group.name, now) is None
        }

    def not_started(self, groups: Iterable[str]) -> set[str]:
        """Return the names of the groups' nodes that exist and have not started yet."""
        return {name for group in groups for name in self._readiness(group).not_started}

    def long_unregistered(self, now: Now) -> dict[str, list[str]]:
        """Return the provider IDs of instances that have had no node for too long, by group."""
        by_group: dict[str, list[str]] = {}
        for instance in self.unregistered.values():
            if self._is_long(instance, now):
                by_group.setdefault(instance.group, []).append(instance.provider_id)
        return dict(sorted(by_group.items()))

    def creation_errors(self) -> dict[str, list[str]]:
        """Return the provider IDs of instances that could not be created, by group."""
        failed = {
            group: [instance.provider_id for instance in instances if _creation_error(instance)]
            for group, instances in sorted(self.instances.items())
        }
        return {group: ids for group, ids in failed.items() if ids}

    def is_scaling_up(self, group: str) -> bool:
        """Return whether a request is open that still lacks nodes.

        Source: IsNodeGroupScalingUp.
        """
        return group in self.requests and self._lacks_nodes(group)

    def _list_instances(self) -> dict[str, tuple[Instance, ...]]:
        for group in self.cloud.groups():
            if self.is_scaling_up(group.name):
                self.forget_listing(group.name)
        for group in self.cloud.groups():
            self.listed.setdefault(group.name, group.instances)
        return {group.name: self.listed[group.name] for group in self.cloud.groups()}

    def _note_unregistered(self, nodes: Iterable[ClusterNode], now_ns: int) -> None:
        registered = {node.provider_id for node in nodes}
        since_ns = {id_: instance.since_ns for id_, instance in self.unregistered.items()}
        listed = sorted(
            (instance.provider_id, group)
            for group, instances in self.instances.items()
            for instance in instances
            if instance.provider_id not in registered
            and instance.state is not InstanceState.DELETING
            and not instance.error_code
        )
        self.unregistered = {
            id_: Unregistered(provider_id=id_, group=group, since_ns=since_ns.get(id_, now_ns))
            for id_, group in listed
        }

    def _judge(self, nodes: Iterable[ClusterNode], now: Now) -> None:
        """Divide nodes and instances by their state.

        A node of no group is judged by the start-up time of the last group before it, by name, as
        upstream does (one variable serves all nodes). Source: updateReadinessStats.
        """
        self.by_group, self.total = {}, Readiness()
        startup_ns = MAX_NODE_STARTUP_NS
        for node in nodes:
            group = self.cloud.group_of(node.provider_id)
            if group is not None:
                startup_ns = group.options.max_node_startup_ns
                state = self.by_group.setdefault(group.name, Readiness())
                self._sort_in(state, node, startup_ns, now)
            self._sort_in(self.total, node, startup_ns, now)
        for instance in self.unregistered.values():
            state = self.by_group.setdefault(instance.group, Readiness())
            is_long = self._is_long(instance, now)
            for readiness in (state, self.total):
                kind = readiness.long_unregistered if is_long else readiness.unregistered
                kind.append(instance.provider_id)

    def _is_long(self, instance: Unregistered, now: Now) -> bool:
        group = self.cloud.by_name.get(instance.group)  # a group can go while a call waits
        if group is None:
            return False
        return now.is_after(instance.since_ns + group.options.max_node_provision_ns)

    def _sort_in(self, state: Readiness, node: ClusterNode, startup_ns: int, now: Now) -> None:
        name = node.node.name
        state.registered.append(name)
        if not self.cloud.has_instance(node):
            state.deleted.append(name)
        elif _is_suspended(node):
            state.suspended.append(name)
        elif is_ready(node.node):
            state.ready.append(name)
        elif now.is_before(node.creation_ns + startup_ns):
            state.not_started.append(name)
        else:
            state.unready.append(name)

    def _expect(self, targets: Mapping[str, int]) -> None:
        """Note the targets, and the fewest ready nodes that each group should have.

        Source: updateAcceptableRanges.
        """
        self.targets = dict(targets)
        self.expected_min = {
            group: target - len(self._readiness(group).long_unregistered)
            for group, target in targets.items()
        }
        for group, request in self.requests.items():
            self.expected_min[group] = self.expected_min.get(group, 0) - request.increase

    def _close_requests(self, now: Now) -> Calls[None]:
        """Close requests that are fulfilled, and those that are overdue, which have failed.

        Source: updateScaleRequests.
        """
        self.backoff.forget_old(now)
        for group, request in sorted(self.requests.items()):
            if not self._lacks_nodes(group):
                del self.requests[group]
            elif now.is_after(request.expected_ns):
                self.register_failed_scale_up(group, TIMEOUT, now.ns)
                yield DecreaseTargetSize(group=group, delta=request.increase)
                del self.requests[group]

    def _note_creation_errors(self, now_ns: int) -> None:
        """Subtract newly failed instances from their group's request, and put it into backoff.

        Source: handleInstanceCreationErrorsForNodeGroup. Error codes are taken by code and class.
        """
        for group in self.cloud.groups():
            seen = {
                instance.provider_id
                for instance in self.previous.get(group.name, ())
                if _creation_error(instance)
            }
            failed: dict[tuple[str, str], int] = {}
            for instance in self.instances.get(group.name, ()):
                error = _creation_error(instance)
                if error is not None:
                    failed[error] = failed.get(error, 0) + (instance.provider_id not in seen)
            for error, number in sorted(failed.items()):
                if number and self.is_scaling_up(group.name):
                    self.register_scale_up(group, -number, now_ns)
                    self.register_failed_scale_up(group.name, error[0], now_ns)

    def _note_wrong_sizes(self, now_ns: int) -> None:
        """Note groups whose registered nodes differ from the target beyond unregistered ones.

        Source: updateIncorrectNodeGroupSizes.
        """
        wrong: dict[str, WrongSize] = {}
        for group, target in self.targets.items():
            state = self.by_group.get(group)
            if state is None:
                continue
            registered = len(state.registered)
            without_node = len(state.unregistered) + len(state.long_unregistered)
            if target - without_node <= registered <= target:
                continue
            last = self.wrong_sizes.get(group)
            same = last is not None and (last.expected, last.registered) == (target, registered)
            since_ns = last.since_ns if last is not None and same else now_ns
            wrong[group] = WrongSize(expected=target, registered=registered, since_ns=since_ns)
        self.wrong_sizes = wrong

    def _readiness(self, group: str) -> Readiness:
        return self.by_group.get(group) or Readiness()

    def _promised(self, group: str) -> int:
        """Return the upcoming nodes: the target size less the started and long unregistered ones.

        Source: calculateUpcomingNodesInNodeGroup.
        """
        state = self._readiness(group)
        there = len(state.ready) + len(state.unready) + len(state.suspended)
        return self.targets.get(group, 0) - there - len(state.long_unregistered)

    def _lacks_nodes(self, group: str) -> bool:
        return group in self.targets and self._promised(group) > 0

    def _are_too_many(self, number: int, of: int) -> bool:
        """Return whether that many missing nodes are too many: both limits must be exceeded."""
        options = self.options
        return number > options.ok_total_unready_count and (
            number > options.max_total_unready_percentage / 100.0 * of
        )


def _creation_error(instance: Instance) -> tuple[str, str] | None:
    """Return code and class of the error with which an instance could not be created, or None."""
    if instance.state is not InstanceState.CREATING or not instance.error_code:
        return None
    return instance.error_code, instance.error_class


def _is_suspended(node: ClusterNode) -> bool:
    return any(
        condition.type == _SUSPENDED and condition.status == "True"
        for condition in node.node.conditions
    )
