"""Carries out deletions: taints the nodes, drains them, deletes their instances.

`start` belongs to a scan: it crops what may go to what may go at once, and taints. `act` is the
background work: it takes every deletion that is due to its next stage (see deletions.py), all of
one stage at an instant before those of the next, so that what is drained together is judged
together.

Source: kubernetes/autoscaler 1.36 core/scaledown/actuation: actuator.go, StartDeletion;
group_deletion_scheduler.go; delete_in_batch.go; drain.go, initiateEviction, waitPodsToDisappear;
delay.go, WaitForDelayDeletion; utils/daemonset/daemonset.go, PodsToEvict.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from services.autoscaler.core.calls import (
    Call,
    Calls,
    DeleteNodes,
    Done,
    Evict,
    MarkNode,
    UnmarkNode,
)
from services.autoscaler.core.cluster import Cluster
from services.autoscaler.core.groups import Cloud
from services.autoscaler.core.now import Now
from services.autoscaler.core.objects import ClusterNode, ClusterPod
from services.autoscaler.core.options import Options
from services.autoscaler.core.scale_down.deletions import DeleteResult, Deletion, Deletions, Stage
from services.autoscaler.core.scale_down.disruptions import RemainingBudgets
from services.autoscaler.core.scale_down.drainability import (
    DEFAULT_GRACE_S,
    Controllers,
    Draining,
    pods_to_move,
)
from services.autoscaler.core.scale_down.parallelism import Bucket, Parallelism
from services.kube.taints import Taint, TaintEffect
from services.kube.time import SECOND_NS

TO_BE_DELETED = "ToBeDeletedByClusterAutoscaler"
EVICT_DAEMON_POD = "cluster-autoscaler.kubernetes.io/enable-ds-eviction"
DELAY_DELETION = "delay-deletion.cluster-autoscaler.kubernetes.io/"
EVICTION_RETRY_NS = 10 * SECOND_NS
LOOK_NS = 5 * SECOND_NS
"""How often it is looked whether pods, or an annotation, are gone."""
HEADROOM_NS = 30 * SECOND_NS
"""How much longer than their grace period pods may take."""


_STAGES = list(Stage)


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A node whose deletion began; `evict` are the keys of its pods, None without a drain."""

    node: str
    evict: tuple[str, ...] | None = None


@dataclass(slots=True, kw_only=True)
class Actuator:
    """Carries out the deletions; see the module.

    `last_deleted` and `last_failed` are when a group's nodes last were deleted, or could not be.
    """

    cluster: Cluster
    cloud: Cloud
    options: Options
    deletions: Deletions = field(default_factory=Deletions)
    last_deleted: dict[str, int] = field(default_factory=dict)
    last_failed: dict[str, int] = field(default_factory=dict)

    def start(
        self,
        empty: Iterable[ClusterNode],
        to_drain: Iterable[ClusterNode],
        *,
        registered: list[ClusterNode],
        pods_of: Callable[[str], Iterable[ClusterPod] | None],
        now_ns: int,
    ) -> Calls[list[Started] | None]:
        """Taint the nodes that may be deleted now, and return them; None: tainting a node failed.

        `pods_of` are a node's pods in the scan's snapshot, None for a node that is not in it.
        """
        running = self.deletions
        running.failed_groups.clear()
        parallelism = Parallelism(
            cloud=self.cloud,
            registered=registered,
            left=self.options.max_scale_down_parallelism - len(running.running),
            drains_left=self.options.max_drain_parallelism - len(running.drained()),
        )
        chosen_empty, chosen_drain = parallelism.crop(empty, to_drain)
        started: list[Started] = []
        for buckets, drain in ((chosen_empty, False), (chosen_drain, True)):
            tainted = yield from self._taint(buckets, now_ns)
            if not tainted:
                return None
            for bucket in buckets:
                for node in bucket.nodes:
                    pods = pods_of(node.name)
                    if pods is not None:
                        evict = tuple(pod.key for pod in _others(pods)) if drain else None
                        started.append(Started(node=node.name, evict=evict))
                    running.running[node.name] = Deletion(
                        node=node,
                        group=bucket.group.name,
                        drain=drain,
                        batch_size=bucket.batch_size,
                        due_ns=now_ns + self.options.node_delete_delay_after_taint_ns,
                    )
        return started

    def act(self, now_ns: int) -> Calls[None]:
        """Advance all deletions as far as possible at this instant."""
        while True:
            due = [
                deletion
                for deletion in self.deletions.running.values()
                if deletion.due_ns is not None and deletion.due_ns <= now_ns
            ]
            if not due:
                return
            stage = min((deletion.stage for deletion in due), key=_STAGES.index)
            for deletion in due:
                is_running = self.deletions.running.get(deletion.node.name) is deletion
                if is_running and deletion.stage is stage:
                    yield from self._advance(deletion, now_ns)

    def _taint(self, buckets: Iterable[Bucket], now_ns: int) -> Calls[bool]:
        """Taint nodes, and remove the taints again if not all can be set."""
        taint = Taint(
            key=TO_BE_DELETED, value=str(now_ns // SECOND_NS), effect=TaintEffect.NO_SCHEDULE
        )
        cordon = self.options.cordon_node_before_terminating
        tainted: list[str] = []
        failed = False
        for bucket in buckets:
            for node in bucket.nodes:
                outcome = yield MarkNode(node=node.name, taint=taint, cordon=cordon)
                if isinstance(outcome, Done):
                    tainted.append(node.name)
                else:
                    failed = True
        if failed:
            for name in tainted:
                yield self._untainted(name)
        return not failed

    def _advance(self, deletion: Deletion, now_ns: int) -> Calls[None]:
        match deletion.stage:
            case Stage.WAITING:
                yield from self._begin(deletion, now_ns)
            case Stage.EVICTING:
                yield from self._evict(deletion, now_ns)
            case Stage.LEAVING:
                yield from self._look(deletion, now_ns)
            case Stage.DELAYED:
                yield from self._wait_for_annotation(deletion, now_ns)
            case Stage.QUEUED:
                yield from self._queue(deletion, now_ns)
            case Stage.BATCHED:
                yield from self._delete(
                    deletion.group, self.deletions.batched.pop(deletion.group), now_ns
                )

    def _begin(self, deletion: Deletion, now_ns: int) -> Calls[None]:
        """Read the node's pods again: they may have changed since the scan.

        Source: deleteNodesAsync; podsToEvict.
        """
        name = deletion.node.name
        pods = [
            pod
            for pod in self.cluster.pods()
            if pod.pod.node_name == name and not self._is_expendable(pod)
        ]
        drain = deletion.drain
        moved = pods_to_move(
            pods,
            Draining(
                now=Now(now_ns),
                options=self.options,
                budgets=RemainingBudgets(self.cluster.budgets() if drain else ()),
                controllers=controllers_of(self.cluster) if drain else None,
            ),
        )
        not_empty = not drain and (moved.pods or moved.on_completion)
        if moved.blocking is not None or not_empty:
            yield from self._abort(deletion, DeleteResult.INTERNAL)
            return
        by_default = (
            self.options.daemonset_eviction_for_occupied_nodes
            if drain
            else self.options.daemonset_eviction_for_empty_nodes
        )
        deletion.evicted = _others(pods) if drain else []
        daemons = [pod for pod in pods if not pod.is_mirror and pod.is_daemon]
        daemons = [pod for pod in daemons if _evicts_daemon(pod, by_default)]
        deletion.to_evict = sorted([*deletion.evicted, *daemons], key=lambda pod: pod.key)
        deletion.stage = Stage.EVICTING if deletion.to_evict else Stage.DELAYED
        deletion.until_ns = 0
        if deletion.to_evict:
            deletion.until_ns = now_ns + self.options.max_pod_eviction_ns
            yield from self._evict(deletion, now_ns, is_first=True)

    def _evict(self, deletion: Deletion, now_ns: int, *, is_first: bool = False) -> Calls[None]:
        """Try the evictions not accepted yet; continue when all were, or the time is over."""
        if is_first or now_ns < deletion.until_ns:
            refused: list[ClusterPod] = []
            for pod in deletion.to_evict:
                outcome = yield self._eviction(pod)
                if not isinstance(outcome, Done) and not outcome.gone:
                    refused.append(pod)
            deletion.to_evict = refused
            if refused:
                deletion.due_ns = now_ns + EVICTION_RETRY_NS
                return
        kept = {pod.key for pod in deletion.evicted}
        if any(pod.key in kept for pod in deletion.to_evict):
            yield from self._abort(deletion, DeleteResult.FAILED_TO_EVICT)
            return
        limit_ns = self.options.max_graceful_termination_s * SECOND_NS + HEADROOM_NS
        deletion.stage, deletion.due_ns = Stage.LEAVING, now_ns
        deletion.until_ns = now_ns + limit_ns

    def _look(self, deletion: Deletion, now_ns: int) -> Calls[None]:
        """Continue when the pods are removed, fail when their time is over."""
        if now_ns >= deletion.until_ns:
            yield from self._abort(deletion, DeleteResult.FAILED_TO_EVICT)
            return
        pods = (self.cluster.pod(pod.key) for pod in deletion.evicted)
        name = deletion.node.name
        if any(pod is not None and pod.pod.node_name == name for pod in pods):
            deletion.due_ns = now_ns + LOOK_NS
        else:
            deletion.stage, deletion.until_ns = Stage.DELAYED, 0

    def _wait_for_annotation(self, deletion: Deletion, now_ns: int) -> Calls[None]:
        """Wait while an annotation requests it, up to a limit. Source: WaitForDelayDeletion."""
        timeout_ns = self.options.node_deletion_delay_timeout_ns
        node = self.cluster.by_name.get(deletion.node.name)
        if not deletion.until_ns:
            if timeout_ns and _asks_for_delay(deletion.node):
                deletion.until_ns = now_ns + timeout_ns
                deletion.due_ns = min(now_ns + LOOK_NS, deletion.until_ns)
                return
        elif node is None:
            yield from self._abort(deletion, DeleteResult.FAILED_TO_DELETE)
            return
        elif _asks_for_delay(node) and now_ns < deletion.until_ns:
            deletion.due_ns = min(now_ns + LOOK_NS, deletion.until_ns)
            return
        deletion.stage = Stage.QUEUED

    def _queue(self, deletion: Deletion, now_ns: int) -> Calls[None]:
        """Delete the node's instance or batch it, with those that wait for it.

        Source: addToBatcher; NodeDeletionBatcher.AddNodes.
        """
        group, name = deletion.group, deletion.node.name
        deletion.due_ns = None
        queue = self.deletions.queued.setdefault(group, [])
        queue.append(name)
        known = self.cloud.by_name.get(group)
        if known is not None and known.options.zero_or_max_node_scaling:
            if group in self.deletions.failed_groups:
                del self.deletions.queued[group]
                yield from self._fail(deletion, DeleteResult.FAILED_TO_DELETE)
                return
            if len(queue) < deletion.batch_size:
                return
        del self.deletions.queued[group]
        interval_ns = self.options.node_deletion_batcher_interval_ns
        if not interval_ns:
            yield from self._delete(group, queue, now_ns)
            return
        batch = self.deletions.batched.setdefault(group, [])
        first = self.deletions.running[batch[0]] if batch else None
        for other in (self.deletions.running[name] for name in queue):
            other.stage = Stage.BATCHED
            other.due_ns = now_ns + interval_ns if first is None else first.due_ns
        batch += queue

    def _delete(self, group: str, names: list[str], now_ns: int) -> Calls[None]:
        """Delete the instances of nodes of one group by one call."""
        together = [self.deletions.running[name] for name in names]
        ids = tuple(other.node.provider_id for other in together)
        outcome = yield DeleteNodes(group=group, provider_ids=ids)
        times = self.last_deleted if isinstance(outcome, Done) else self.last_failed
        times[group] = now_ns
        for other in together:
            if isinstance(outcome, Done):
                self.deletions.end(other.node.name, DeleteResult.OK)
            else:
                yield from self._fail(other, DeleteResult.FAILED_TO_DELETE)

    def _abort(self, deletion: Deletion, result: DeleteResult) -> Calls[None]:
        """Abort a deletion, and those of the group's nodes that wait to be deleted with it.

        Source: AbortNodeDeletion.
        """
        self.deletions.failed_groups.add(deletion.group)
        yield from self._fail(deletion, result)
        for name in self.deletions.queued.pop(deletion.group, ()):
            waiting = self.deletions.running[name]
            yield from self._fail(waiting, DeleteResult.FAILED_TO_DELETE)

    def _fail(self, deletion: Deletion, result: DeleteResult) -> Calls[None]:
        yield self._untainted(deletion.node.name)
        self.deletions.end(deletion.node.name, result)

    def _untainted(self, node: str) -> Call:
        uncordon = self.options.cordon_node_before_terminating
        return UnmarkNode(node=node, taint_key=TO_BE_DELETED, uncordon=uncordon)

    def _eviction(self, pod: ClusterPod) -> Call:
        grace_s = pod.pod.spec.termination_grace_period_s
        grace_s = DEFAULT_GRACE_S if grace_s is None else grace_s
        limit_s = self.options.max_graceful_termination_s
        grace_s = min(grace_s, limit_s) if limit_s > 0 else grace_s
        return Evict(namespace=pod.pod.namespace, name=pod.pod.name, grace_s=grace_s)

    def _is_expendable(self, pod: ClusterPod) -> bool:
        return pod.has_priority and pod.pod.priority < self.options.expendable_pods_priority_cutoff


def controllers_of(cluster: Cluster) -> Controllers:
    """Return the controllers that exist, for the drainability rules."""
    return Controllers(
        daemon_sets=frozenset(cluster.daemon_sets_by_key),
        by_kind=cluster.controllers,
        changes=cluster.controller_changes,
    )


def _others(pods: Iterable[ClusterPod]) -> list[ClusterPod]:
    """Return the pods that a drain waits for: all but mirror and daemon pods."""
    return [pod for pod in pods if not pod.is_mirror and not pod.is_daemon]


def _evicts_daemon(pod: ClusterPod, by_default: bool) -> bool:
    asked = pod.pod.annotations.get(EVICT_DAEMON_POD)
    return by_default if asked is None else asked == "true"


def _asks_for_delay(node: ClusterNode) -> bool:
    return any(name.startswith(DELAY_DELETION) for name in node.node.annotations)
