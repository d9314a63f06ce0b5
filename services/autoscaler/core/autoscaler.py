"""One scan of the autoscaler, from its lists to its report, and all that it keeps between scans.

The autoscaler holds the objects that it has received (`apply`), and decides at instants that its
caller chooses: `scan` every scan interval, and `act`, the background work, whenever `next_due_ns`
says so. Both are generators of calls (calls.py). Between instants all state is values.

A scan reads top to bottom as upstream's does. Two results of one scan are used by the next: what
was placed (hints), and what was unneeded. What scale-up and scale-down see of the cluster is one
simulated snapshot, in which the nodes that are still to come are there, and pods that fit are
placed.

Source: kubernetes/autoscaler 1.36 core/static_autoscaler.go, RunOnce; processors/
actionablecluster/actionable_cluster_processor.go; processors/customresources/gpu_processor.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace

from services.autoscaler.core import pod_lists
from services.autoscaler.core.calls import (
    Calls,
    DecreaseTargetSize,
    DeleteNodes,
    Done,
    UnmarkNode,
    noting,
)
from services.autoscaler.core.cluster import Cluster, ClusterObject
from services.autoscaler.core.cluster_state.backoff import BackedOff, GroupBackoff
from services.autoscaler.core.cluster_state.readiness import is_ready
from services.autoscaler.core.cluster_state.registry import (
    REFRESH_NS,
    ClusterState,
    ClusterStateSnapshot,
)
from services.autoscaler.core.expander.options import Choose, ExpanderContext
from services.autoscaler.core.gpu import allocatable_gpus, requests_gpu
from services.autoscaler.core.groups import Cloud, NodeGroup
from services.autoscaler.core.now import Now
from services.autoscaler.core.objects import ClusterNode, ClusterPod
from services.autoscaler.core.options import Options
from services.autoscaler.core.reports import (
    RemainingPod,
    ScaleDownResult,
    ScaleUpReport,
    ScaleUpResult,
    ScanReport,
    Stopped,
)
from services.autoscaler.core.scale_down.actuation import TO_BE_DELETED, Actuator, controllers_of
from services.autoscaler.core.scale_down.candidates import candidates, without_recent
from services.autoscaler.core.scale_down.deletions import Deletions
from services.autoscaler.core.scale_down.disruptions import RemainingBudgets
from services.autoscaler.core.scale_down.planner import Planner
from services.autoscaler.core.scale_down.soft_taints import DELETION_CANDIDATE, update_soft_taints
from services.autoscaler.core.scale_down.unneeded import UnneededNode
from services.autoscaler.core.scale_up.orchestrator import ScaleUp
from services.autoscaler.core.simulator.hinting import HintingSimulator
from services.autoscaler.core.simulator.snapshot import ClusterSnapshot
from services.autoscaler.core.simulator.templates import NodeTemplate, Templates, is_startup_taint
from services.kube.pod import Condition
from services.kube.time import HOUR_NS, SECOND_NS

NEW_PODS_NS = 2 * SECOND_NS
"""How old the oldest pod must be, so that others like it have probably come."""
NEW_GPU_PODS_NS = 30 * SECOND_NS


@dataclass(frozen=True, slots=True, kw_only=True)
class Gone:
    """An object that was removed: a node or group by name, others by namespace/name.

    `kind` is Kubernetes' name of the kind, or "NodeGroup".
    """

    kind: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoscalerState:
    """The state of an autoscaler between instants, beside the objects that it has received."""

    has_scanned: bool
    last_scale_up_ns: int
    last_delete_ns: int
    last_failure_ns: int
    next_listing_ns: int | None
    last_place: int
    groups: ClusterStateSnapshot
    backoff: dict[str, BackedOff]
    examples: dict[str, NodeTemplate]
    pod_hints: HintingSimulator
    removal_hints: HintingSimulator
    unneeded: dict[str, UnneededNode]
    recently_unremovable: dict[str, int]
    last_update_ns: int | None
    interval_ns_min: int | None
    deletions: Deletions
    last_deleted: dict[str, int]
    last_failed: dict[str, int]


@dataclass(slots=True)
class _Scan:
    """The state that one scan passes from step to step."""

    now: Now
    report: ScanReport
    nodes: list[ClusterNode]
    may_delete: bool = True


class Autoscaler:
    """See the module's docstring."""

    def __init__(
        self, options: Options, choose: Choose, context: ExpanderContext | None = None
    ) -> None:
        """Create an autoscaler without a cluster; `choose` decides between equally good groups."""
        context = context or ExpanderContext()
        self.options = options
        self.choose = choose
        self.cluster = Cluster()
        self.cloud = Cloud(gpu_label=context.gpu_label)
        self.state = ClusterState(
            cloud=self.cloud,
            options=options,
            backoff=GroupBackoff(
                initial_ns=options.initial_node_group_backoff_ns,
                duration_ns_max=options.max_node_group_backoff_ns,
                reset_ns=options.node_group_backoff_reset_ns,
            ),
        )
        self.snapshot = ClusterSnapshot()
        self.templates = Templates()
        self.scale_up = ScaleUp(
            snapshot=self.snapshot,
            cloud=self.cloud,
            state=self.state,
            options=options,
            context=context,
        )
        self.pod_hints = HintingSimulator()
        self.planner = Planner(cloud=self.cloud, options=options)
        self.actuator = Actuator(cluster=self.cluster, cloud=self.cloud, options=options)
        self.last_scale_up_ns = self.last_delete_ns = self.last_failure_ns = 0
        self.next_listing_ns: int | None = None
        self.has_scanned = False
        self.same_until_ns: int | None = None

    def apply(self, change: ClusterObject | NodeGroup | Gone) -> None:
        """Apply an object that was added, changed or removed."""
        self.same_until_ns = None
        match change:
            case NodeGroup():
                self.cloud.put(change)
            case Gone(kind="NodeGroup"):
                self.cloud.remove(change.key)
            case Gone():
                self.cluster.remove(change.kind, change.key)
            case _:
                self.cluster.put(change)

    def start(self, now_ns: int) -> None:
        """Begin at that time, after the objects of the cluster were applied; no cooldown runs."""
        hour_ago_ns = now_ns - HOUR_NS
        self.last_scale_up_ns = self.last_delete_ns = self.last_failure_ns = hour_ago_ns
        self.state.refresh_listing()
        self.next_listing_ns = now_ns + REFRESH_NS

    def state_between_instants(self) -> AutoscalerState:
        """Return the kept state, which the next instant changes; no step may be under way."""
        planner, actuator = self.planner, self.actuator
        return AutoscalerState(
            has_scanned=self.has_scanned,
            last_scale_up_ns=self.last_scale_up_ns,
            last_delete_ns=self.last_delete_ns,
            last_failure_ns=self.last_failure_ns,
            next_listing_ns=self.next_listing_ns,
            last_place=self.snapshot.last_place,
            groups=self.state.snapshot(),
            backoff=self.state.backoff.failures,
            examples=self.templates.examples,
            pod_hints=self.pod_hints,
            removal_hints=planner.hints,
            unneeded=planner.unneeded.by_name,
            recently_unremovable=planner.unremovable.until_ns,
            last_update_ns=planner.last_update_ns,
            interval_ns_min=planner.interval_ns_min,
            deletions=actuator.deletions,
            last_deleted=actuator.last_deleted,
            last_failed=actuator.last_failed,
        )

    def restore(self, kept: AutoscalerState) -> None:
        """Restore the state of another autoscaler, whose objects were applied."""
        planner, actuator = self.planner, self.actuator
        self.has_scanned = kept.has_scanned
        self.last_scale_up_ns = kept.last_scale_up_ns
        self.last_delete_ns = kept.last_delete_ns
        self.last_failure_ns = kept.last_failure_ns
        self.next_listing_ns = kept.next_listing_ns
        self.snapshot.last_place = kept.last_place
        self.state.restore(kept.groups)
        self.state.backoff.failures = kept.backoff
        self.templates.examples = kept.examples
        self.pod_hints, planner.hints = kept.pod_hints, kept.removal_hints
        planner.unneeded.by_name = kept.unneeded
        planner.unremovable.until_ns = kept.recently_unremovable
        planner.last_update_ns = kept.last_update_ns
        planner.interval_ns_min = kept.interval_ns_min
        actuator.deletions = kept.deletions
        actuator.last_deleted, actuator.last_failed = kept.last_deleted, kept.last_failed

    def _kept(self) -> tuple[object, ...]:
        """Return a copy of the state that a scan reads from earlier ones, without the cluster.

        The time of the last scan is left out: only how far apart scans are is read of it.
        """
        kept = self.state_between_instants()
        left_out = {"next_listing_ns", "last_update_ns"}
        return tuple(_copied(getattr(kept, f.name)) for f in fields(kept) if f.name not in left_out)

    def _chosen(self, now: Now) -> Choose:
        """Return `choose` for this scan; it may choose differently at another time."""

        def choose(names: Sequence[str]) -> str:
            now.read()
            return self.choose(names)

        return choose

    def next_due_ns(self) -> int | None:
        """Return when the background work is next due; scans are their caller's."""
        dues = (self.next_listing_ns, self.actuator.deletions.next_due_ns())
        return min((due_ns for due_ns in dues if due_ns is not None), default=None)

    def act(self, now_ns: int) -> Calls[None]:
        """Do the background work that is due: list the instances again, continue deletions."""
        before = self._kept()
        if self.next_listing_ns is not None and self.next_listing_ns <= now_ns:
            self.state.refresh_listing()
            self.next_listing_ns += ((now_ns - self.next_listing_ns) // REFRESH_NS + 1) * REFRESH_NS
        yield from self.actuator.act(now_ns)
        if self._kept() != before:
            self.same_until_ns = now_ns

    def scan(self, now_ns: int) -> Calls[ScanReport]:
        """Scan the cluster: scale up, scale down, and report both."""
        before, now = self._kept(), Now(now_ns)
        report = ScanReport(now_ns=now_ns)
        yield from noting(self._steps(report, now), lambda _call: now.read())
        self.same_until_ns = now.until_ns if self._kept() == before else now_ns
        return report

    def _steps(self, report: ScanReport, now: Now) -> Calls[None]:
        yield from self._clean_up()
        yield from self._scan(report, now)
        report.upcoming = self.state.upcoming(now)
        groups = [group.name for group in self.cloud.groups()]
        backoffs = ((name, self.state.backed_off(name, now)) for name in groups)
        report.backoff = {name: failed.error_code for name, failed in backoffs if failed}
        report.unhealthy_groups = tuple(
            name for name in groups if not self.state.is_group_healthy(name)
        )

    def _scan(self, report: ScanReport, now: Now) -> Calls[None]:
        nodes, ready = self._list_nodes()
        if not self.options.scale_up_from_zero and not ready:
            self.planner.unneeded.forget()
            report.stopped = Stopped.NOT_ACTIONABLE
            return
        pods = pod_lists.arranged(self.cluster.pods())
        load = pod_lists.without_expendable([*pods.scheduled, *pods.nominated], self.options)
        self.snapshot.set_state(nodes, load)
        self.snapshot.fork()
        self.templates.recompute(
            self.snapshot, nodes, self.cloud, self.cluster.daemon_sets(), self.options, now
        )
        yield from self.state.update(nodes, now)
        report.scale_up = ScaleUpReport(result=ScaleUpResult.NOT_TRIED)
        yield from self._delete_long_unregistered(now)
        if not self.state.is_healthy:
            self.planner.unneeded.forget()
            report.stopped = Stopped.UNHEALTHY
        else:
            yield from self._delete_failed_instances()
            fixed = yield from self._fix_sizes(report, now)
            if fixed:
                report.stopped = Stopped.FIXED_GROUP_SIZE
        if report.stopped is None and not report.error:
            scan = _Scan(now, report, self._add_upcoming(nodes, now))
            yield from self._scale(scan, pods.unschedulable, len(ready))
        report.delete_results = self.actuator.deletions.take_results()

    def _scale(self, scan: _Scan, refused: list[ClusterPod], ready: int) -> Calls[None]:
        deletions = self.actuator.deletions
        simulated = self.snapshot.nodes()
        pods = pod_lists.to_help(
            refused,
            self.snapshot,
            self.pod_hints,
            draining=deletions.drained(),
            options=self.options,
        )
        pods = pod_lists.without_young(pods, self.options, scan.now)
        scan.report.pods_to_help = tuple(pod.key for pod in pods)
        yield from self._scale_up(scan, pods, simulated, ready)
        if self.options.scale_down_enabled:
            yield from self._scale_down(scan)
        if self.options.enforce_node_group_min_size and not scan.report.error:
            yield from self._raise_to_minimum(scan, simulated)

    def _scale_up(
        self, scan: _Scan, pods: list[ClusterPod], simulated: list[ClusterNode], ready: int
    ) -> Calls[None]:
        """Scale up, unless no pod needs it, the cluster is at its maximum, or all pods are new."""
        report, most = scan.report, self.options.max_nodes_total
        if not pods:
            tried = ScaleUpReport(result=ScaleUpResult.NOT_NEEDED)
        elif 0 < most <= ready:
            remain = tuple(RemainingPod(pod=pod.key) for pod in pods)
            result = ScaleUpResult.LIMITED_BY_MAX_NODES_TOTAL
            tried = ScaleUpReport(result=result, remain=remain)
        elif _are_new(pods, scan.now):
            scan.may_delete = False
            tried = ScaleUpReport(result=ScaleUpResult.IN_COOLDOWN)
        else:
            templates = self.templates.by_group
            report.scale_up = yield from self.scale_up.scale_up(
                pods, simulated, templates, self._chosen(scan.now), scan.now
            )
            if report.scale_up.result is ScaleUpResult.SUCCESSFUL:
                self.last_scale_up_ns = scan.now.ns
                report.scale_down = ScaleDownResult.IN_COOLDOWN
            return
        report.scale_up = None if self.options.enforce_node_group_min_size else tried

    def _scale_down(self, scan: _Scan) -> Calls[None]:
        """Find the unneeded nodes, and delete those that may be removed. Source: scaleDown."""
        report, now, options = scan.report, scan.now, self.options
        deletions = self.actuator.deletions
        chosen = candidates(
            scan.nodes,
            self.snapshot,
            self.cloud,
            options=options,
            unneeded=self.planner.unneeded.by_name,
            emptiness=self.planner.emptiness,
            now=now,
        )
        if options.scale_down_delay_type_local:
            chosen = without_recent(
                chosen,
                self.cloud,
                (
                    (self.state.last_scale_up, options.scale_down_delay_after_add_ns),
                    (self.actuator.last_deleted, options.scale_down_delay_after_delete_ns),
                    (self.actuator.last_failed, options.scale_down_delay_after_failure_ns),
                ),
                now,
            )
        self.planner.update(
            self.snapshot,
            scan.nodes,
            chosen,
            deleting=deletions.running,
            budgets=RemainingBudgets(self.cluster.budgets()),
            controllers=controllers_of(self.cluster),
            now=now,
        )
        if self._is_in_cooldown(scan):
            report.scale_down = ScaleDownResult.IN_COOLDOWN
        elif not chosen:
            report.scale_down = ScaleDownResult.NO_CANDIDATES
        else:
            yield from self._delete_unneeded(scan)
        self._report_scale_down(report)
        if options.max_bulk_soft_taint_count:
            in_groups = [n for n in scan.nodes if self.cloud.group_of(n.provider_id) is not None]
            yield from update_soft_taints(
                in_groups,
                self.planner.unneeded.by_name,
                limit=options.max_bulk_soft_taint_count,
                now_ns=now.ns,
            )

    def _delete_unneeded(self, scan: _Scan) -> Calls[None]:
        report, now, snapshot = scan.report, scan.now, self.snapshot
        registered = [node for node in scan.nodes if node.name in snapshot]
        by_group = self.actuator.deletions.by_group()
        empty, to_drain = self.planner.nodes_to_delete(snapshot, by_group, registered, now)
        started = yield from self.actuator.start(
            empty,
            to_drain,
            registered=registered,
            pods_of=lambda name: snapshot.pods_on(name) if name in snapshot else None,
            now_ns=now.ns,
        )
        if started is None:
            report.scale_down = ScaleDownResult.ERROR
            self.last_failure_ns = now.ns
            report.error = "nodes could not be tainted"
        elif started:
            report.scale_down = ScaleDownResult.NODE_DELETE_STARTED
            report.deleting = tuple(started)
            self.last_delete_ns = now.ns
            self.state.recalculate()
        else:
            report.scale_down = ScaleDownResult.NO_NODE_DELETED

    def _report_scale_down(self, report: ScanReport) -> None:
        planner = self.planner
        report.unneeded = {
            name: node.since_ns for name, node in sorted(planner.unneeded.by_name.items())
        }
        report.unremovable = dict(sorted(planner.unremovable.reasons.items()))
        report.utilizations = dict(sorted(planner.utilizations.items()))

    def _is_in_cooldown(self, scan: _Scan) -> bool:
        """Return whether a scale-up, a deletion or a failure is too recent for deletions."""
        options = self.options
        if not scan.may_delete or options.scale_down_delay_type_local:
            return not scan.may_delete
        return any(
            scan.now.is_before(last_ns + delay_ns)
            for last_ns, delay_ns in (
                (self.last_scale_up_ns, options.scale_down_delay_after_add_ns),
                (self.last_failure_ns, options.scale_down_delay_after_failure_ns),
                (self.last_delete_ns, options.scale_down_delay_after_delete_ns),
            )
        )

    def _list_nodes(self) -> tuple[list[ClusterNode], list[ClusterNode]]:
        """Return all nodes, and those that are ready and not cordoned.

        A node that has not got its GPU yet, or has a startup taint, is not ready whatever it says.
        """
        nodes: list[ClusterNode] = []
        ready: list[ClusterNode] = []
        for node in self.cluster.nodes():
            if not is_ready(node.node) or node.node.unschedulable:
                nodes.append(node)
            elif self._lacks_gpu(node) or self._is_starting(node):
                nodes.append(_unready(node))
            else:
                nodes.append(node)
                ready.append(node)
        return nodes, ready

    def _lacks_gpu(self, node: ClusterNode) -> bool:
        label = self.cloud.gpu_label
        return bool(label) and label in node.node.labels and not allocatable_gpus(node.node)

    def _is_starting(self, node: ClusterNode) -> bool:
        return any(is_startup_taint(taint.key, self.options) for taint in node.node.taints)

    def _clean_up(self) -> Calls[None]:
        """Before the first scan, remove the taints of an earlier process.

        Source: cleanUpIfRequired.
        """
        if self.has_scanned:
            return
        self.has_scanned = True
        for node in self.cluster.nodes():
            keys = {taint.key for taint in node.node.taints}
            if TO_BE_DELETED in keys and self.cloud.group_of(node.provider_id) is not None:
                cordon = self.options.cordon_node_before_terminating
                yield UnmarkNode(node=node.name, taint_key=TO_BE_DELETED, uncordon=cordon)
            if DELETION_CANDIDATE in keys and not self.options.max_bulk_soft_taint_count:
                yield UnmarkNode(node=node.name, taint_key=DELETION_CANDIDATE)

    def _delete_long_unregistered(self, now: Now) -> Calls[None]:
        """Delete instances that have had no node for too long, down to their group's minimum.

        Source: removeOldUnregisteredNodes.
        """
        force = self.options.force_delete_unregistered_nodes
        for name, ids in self.state.long_unregistered(now).items():
            group = self.cloud.by_name.get(name)
            if group is None:  # gone while a call waited
                continue
            spare = group.target - group.min_size
            if not force and spare <= 0:
                continue
            chosen = _whole_or_none(group, ids if force else ids[:spare])
            if not chosen:
                continue
            outcome = yield DeleteNodes(group=name, provider_ids=chosen, force=force)
            self.state.forget_listing(name)
            if not isinstance(outcome, Done):
                return

    def _delete_failed_instances(self) -> Calls[None]:
        """Delete instances that could not be created. Source: deleteCreatedNodesWithErrors."""
        deleted = False
        force = self.options.force_delete_failed_nodes
        for name, ids in self.state.creation_errors().items():
            group = self.cloud.by_name.get(name)
            chosen = () if group is None else _whole_or_none(group, sorted(ids))
            if not chosen:
                continue
            outcome = yield DeleteNodes(group=name, provider_ids=chosen, force=force)
            if isinstance(outcome, Done):
                deleted = True
                self.state.forget_listing(name)
        if deleted:
            self.state.recalculate()

    def _fix_sizes(self, report: ScanReport, now: Now) -> Calls[bool]:
        """Decrease target sizes that have exceeded the existing nodes for too long.

        Source: fixNodeGroupSize.
        """
        fixed = False
        for group in self.cloud.groups():
            wrong = self.state.wrong_sizes.get(group.name)
            if wrong is None:
                continue
            if not now.is_after(wrong.since_ns + group.options.max_node_provision_ns):
                continue
            missing = wrong.expected - wrong.registered
            if missing > 0:
                outcome = yield DecreaseTargetSize(group=group.name, delta=missing)
                if not isinstance(outcome, Done):
                    report.error = f"failed to decrease {group.name}: {outcome.message}"
                    return False
                fixed = True
        return fixed

    def _add_upcoming(self, nodes: list[ClusterNode], now: Now) -> list[ClusterNode]:
        """Add upcoming nodes to the snapshot, and remove those that have not started.

        Return the other nodes. Upcoming nodes are ready copies of their group's template.
        """
        upcoming = self.state.upcoming(now)
        for name, number in upcoming.items():
            template = self.templates.by_group.get(name)
            for place in range(number if template is not None else 0):
                assert template is not None, "the range is empty without one"
                fresh = template.named(f"upcoming-{place}")
                self.snapshot.add(fresh.node, fresh.pods)
        not_started = self.state.not_started(upcoming)
        for name in sorted(not_started):
            self.snapshot.remove(name)
        return [node for node in nodes if node.name not in not_started]

    def _raise_to_minimum(self, scan: _Scan, simulated: list[ClusterNode]) -> Calls[None]:
        """Scale groups up that are below their minimum."""
        templates = self.templates.by_group
        tried = yield from self.scale_up.scale_up_to_min_size(simulated, templates, scan.now)
        scan.report.min_size_scale_up = tried
        if tried.result is ScaleUpResult.SUCCESSFUL:
            self.last_scale_up_ns = scan.now.ns


def _copied(kept: object) -> object:
    """Return a copy of a part of the state which the next scan does not change."""
    match kept:
        case dict():
            return dict(kept)
        case HintingSimulator(current=current, old=old):
            return dict(current), dict(old)
        case ClusterStateSnapshot():
            return tuple(_copied(getattr(kept, f.name)) for f in fields(kept))
        case Deletions():
            return tuple(kept.running), dict(kept.results), frozenset(kept.failed_groups)
        case _:
            return kept


def _are_new(pods: Iterable[ClusterPod], now: Now) -> bool:
    """Return whether all pods, or all that request GPUs, are new. Source: allPodsAreNew."""
    ages = [pod.pod.creation_ns for pod in pods]
    gpu_ages = [pod.pod.creation_ns for pod in pods if requests_gpu(pod.pod.spec)]
    if now.is_before(min(ages) + NEW_PODS_NS):
        return True
    return bool(gpu_ages) and now.is_before(min(gpu_ages) + NEW_GPU_PODS_NS)


def _unready(node: ClusterNode) -> ClusterNode:
    """Return a copy of a node that says that it is not ready. Source: GetUnreadyNodeCopy."""
    ready = Condition(type="Ready", status="False", last_transition_ns=node.creation_ns)
    others = (condition for condition in node.node.conditions if condition.type != "Ready")
    return replace(node, node=replace(node.node, conditions=(ready, *others)))


def _whole_or_none(group: NodeGroup, ids: list[str]) -> tuple[str, ...]:
    """Return the instances to delete: of a group that is scaled atomically, all or none.

    Source: overrideNodesToDeleteForZeroOrMax.
    """
    options = group.options
    if not options.zero_or_max_node_scaling:
        return tuple(ids)
    everything = tuple(instance.provider_id for instance in group.instances)
    whole = len(everything) == len(ids) or not options.allow_non_atomic_scale_up_to_max
    return everything if whole else ()
