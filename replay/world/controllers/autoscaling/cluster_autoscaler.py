"""The cluster autoscaler's loop: it receives what changes, scans, and its calls are carried out.

A scan comes every scan interval from the beginning on, at the end of its instant: pods' and nodes'
steps come first, then rounds, then background work that is due, then the scan; its effects belong
to the next round. A step of the service that needs something done returns a call, which is carried
out at once, by the cloud or the API server.

A scan is left out where the service has said that it would come to the same, and nothing has
changed since then: it counts as one with the last report.

The service receives nodes, pods, disruption budgets and DaemonSets, as they change; and the
controllers that pods have, for a trace need not have these. A scan does not keep a replay running
unless it may lead to something: instances are being made, a node is not needed and its time is not
over, a node is being removed, or a group backs off while pods wait.

Source: kubernetes/autoscaler 1.36 main.go and loop/run.go, RunAutoscalerOnce; core/scaledown/
actuation/drain.go, evictPod; utils/taints/taints.go, AddTaints, CleanTaints.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from replay.world.api.cluster import Changed, replicas
from replay.world.api.node_health import ready_condition
from replay.world.api.pod_record import PodRecord, controller_of
from replay.world.controller import Controller, Ending
from replay.world.controllers.autoscaling.cloud import Cloud, CloudRefusal, provider_id
from replay.world.controllers.autoscaling.node_groups import Autoscaling
from replay.world.controllers.disruption import EvictionApi
from replay.world.controllers.node_lifecycle import NodeLifecycle
from replay.world.response_checks import ContractError, check_autoscaler
from replay.world.state import WorldState
from replay.world.timeline import Action, ActionKind
from reprieve.autoscaler.v1beta1 import autoscaler_pb2
from reprieve.autoscaler.v1beta1 import autoscaler_service_pb2 as service_pb2
from reprieve.kube.v1beta1 import meta_pb2, object_pb2
from reprieve.trace.v1beta1 import trace_pb2
from services.kube.time import HOUR_NS, SECOND_NS, DurationError, parse_duration_ns
from services.kube.workloads import WORKLOAD_KINDS
from services.rpc.kube.fields import time_ns

CALLS_MAX = 1_000_000
"""The largest number of calls of one step: a drain of 5,000 nodes with 110 pods has 560,000."""
PATIENCE_NS = HOUR_NS
"""How long scale-ups that all fail keep a replay running."""
_POD_DELAY = "cluster-autoscaler.kubernetes.io/pod-scale-up-delay"
_TIMED = frozenset({"NotUnneededLongEnough", "NotUnreadyLongEnough"})
_FIELDS = {kind: field for field, kind in WORKLOAD_KINDS.items()}
_REPLICATED = frozenset({"ReplicaSet", "ReplicationController", "StatefulSet", "Job"})
_NO_FIT = "the pod would not fit a new node"
_TRIED_LONG = (
    "scale-ups have failed for an hour while pods waited: that does not keep a replay running; use "
    "--until to replay it"
)
_RECENTLY = "RecentlyUnremovable"
"""Upstream's reason of a node that an earlier scan has found unremovable, for another one."""
_STAYS = "nodes that the last scan would not remove"
_NO_DAEMONS = (
    "new nodes get no pods of DaemonSets that the trace does not have, of which its nodes have pods"
)


class AutoscalerBackend(Protocol):
    """A service that decides which groups of nodes grow and shrink."""

    def apply(
        self, changes: Sequence[service_pb2.Change], step: service_pb2.Step
    ) -> service_pb2.ApplyResponse:
        """Apply changes in order, run a step, and return its result."""


@dataclass(slots=True, kw_only=True)
class _SentOwner:
    """A controller of pods that the service has been sent: its kind, key and replicas."""

    kind: str
    namespace: str
    name: str
    replicas: int


class ClusterAutoscaler(Controller):
    """Runs the autoscaler of a cluster.

    `_pods`, `_nodes`, `_owners` have changed since the last step. `_sent_pods` and `_sent_nodes`
    are the versions that the service has, the former by UID with the pod's key. `_removing` are the
    nodes being removed, with their groups, `_failed` those whose removal has failed.
    `_report` is the last scan's; `_may_differ_ns`: when a scan may first come to something else if
    nothing changes. `_stay`: why nodes stay, at the last scan. `_failing_since_ns`: since when all
    scale-ups have failed, None if none has.
    """

    watches = frozenset({"DaemonSet"})
    actions = frozenset({ActionKind.SCAN, ActionKind.AUTOSCALER})
    _started: bool
    _scan_due: bool
    _work_due: bool
    _next_scan_ns: int
    _may_differ_ns: int
    _report: autoscaler_pb2.ScanReport
    _pods: dict[str, None]
    _nodes: dict[str, None]
    _owners: dict[str, None]
    _sent_pods: dict[str, tuple[str, str]]
    _sent_nodes: dict[str, str]
    _sent_owners: dict[str, _SentOwner]
    _sent_budgets: dict[str, str]
    _daemon_sets: dict[str, object_pb2.KubernetesObject]
    _gone_daemon_sets: dict[str, None]
    _known_daemon_sets: dict[str, None]
    _removing: dict[str, str]
    _failed: dict[str, None]
    _unneeded: dict[str, int]
    _stay: dict[str, str]
    _failing_since_ns: int | None
    _refusals: dict[str, trace_pb2.NoScaleUp]
    _asked: dict[str, list[str]]

    def __init__(
        self,
        state: WorldState,
        nodes: NodeLifecycle,
        eviction_api: EvictionApi,
        cloud: Cloud,
        backend: AutoscalerBackend,
        autoscaling: Autoscaling,
    ) -> None:
        super().__init__(state)
        self._node_lifecycle = nodes
        self._eviction_api = eviction_api
        self._cloud = cloud
        self._backend = backend
        self._interval_ns = autoscaling.scan_interval_ns
        self._pod_delay_ns = autoscaling.pod_delay_ns
        self._report = autoscaler_pb2.ScanReport()

    # What has changed

    def put(self, _now_ns: int, message: object_pb2.KubernetesObject) -> None:
        """Follow a DaemonSet."""
        kept = object_pb2.KubernetesObject()
        kept.CopyFrom(message)
        meta = kept.daemon_set.metadata
        meta.namespace = meta.namespace or "default"
        key = f"{meta.namespace}/{meta.name}"
        self._daemon_sets[key] = kept
        self._known_daemon_sets[key] = None
        self._gone_daemon_sets.pop(key, None)

    def remove(self, _now_ns: int, ref: meta_pb2.ObjectReference) -> None:
        """Forget a DaemonSet."""
        key = f"{ref.namespace or 'default'}/{ref.name}"
        self._daemon_sets.pop(key, None)
        self._gone_daemon_sets[key] = None

    def reconcile(self, _now_ns: int, changed: Changed) -> None:
        """Keep the changes for the next step; the next scan may have another result then."""
        self._keep(changed)
        if self._started and not self._scan_due and (changed.pods or changed.nodes):
            self._timeline.plan(self._next_scan_ns, ActionKind.SCAN, "")

    def _keep(self, changed: Changed) -> None:
        self._pods.update(dict.fromkeys(changed.pods))
        self._nodes.update(changed.nodes)
        self._owners.update(changed.owners)

    def act(self, _now_ns: int, action: Action) -> None:
        """Note the due work; it is done when the instant's rounds are over."""
        if action.kind is ActionKind.SCAN:
            self._scan_due = True
        else:
            self._work_due = True

    def concerns(self, _pod: PodRecord) -> bool:
        """Return whether a step is due at this instant, whose effects cannot be foreseen.

        Later ones are on the timeline, where look-ahead ends.
        """
        return self._scan_due or self._work_due

    def settle(self, now_ns: int) -> bool:
        """Start, do the background work that is due, or scan."""
        if not self._started:
            self._started = True
            step = service_pb2.Step(time_ns=now_ns, start=service_pb2.Start())
            self._take(step, list(self._changes()))
            self._plan_scan(now_ns, is_idle=False)
            return False
        if self._work_due:
            self._work_due = False
            work = service_pb2.BackgroundWork()
            step = service_pb2.Step(time_ns=now_ns, background_work=work)
            self._take(step, list(self._changes()))
            return True
        if self._scan_due:
            self._scan_due = False
            changes = list(self._changes())
            is_left_out = not changes and now_ns < self._may_differ_ns
            if not is_left_out:
                step = service_pb2.Step(time_ns=now_ns, scan=service_pb2.Scan())
                self._report = self._take(step, changes).report
                self._record(now_ns, self._report)
            self._plan_scan(now_ns, is_idle=not self._leads_on(now_ns, self._report))
            return not is_left_out
        return False

    def conclude(self, _ending: Ending) -> None:
        """Note why nodes are not removed, and what new nodes lack."""
        owners = (
            controller_of(pod.message.metadata)
            for pod in self._cluster.pods.values()
            if pod.node_name
        )
        daemons = {
            owner.name for owner in owners if owner is not None and owner.kind == "DaemonSet"
        }
        known = {key.partition("/")[2] for key in self._known_daemon_sets}
        for why, count in Counter(self._stay.values()).items():
            self._journal.notes["autoscaler", f"{_STAYS}: {why}"] = count
        if self._cloud.last_made_ns and daemons - known:
            names = ", ".join(sorted(daemons - known))
            self._journal.note("autoscaler", f"{_NO_DAEMONS}: {names}")

    # Steps

    def _plan_scan(self, now_ns: int, *, is_idle: bool) -> None:
        self._next_scan_ns = now_ns + self._interval_ns
        self._timeline.plan(self._next_scan_ns, ActionKind.SCAN, "", idle=is_idle)

    def _take(
        self, step: service_pb2.Step, changes: Sequence[service_pb2.Change]
    ) -> service_pb2.ApplyResponse:
        """Take a step after changes to its end, and carry out its calls."""
        now_ns = step.time_ns
        answer = self._backend.apply(changes, step)
        check_autoscaler(answer, step)
        calls = 0
        while answer.HasField("call"):
            calls += 1
            if calls > CALLS_MAX:
                problem = f"is call {calls:,} of one step, which ends after {CALLS_MAX:,} at most"
                raise ContractError("autoscaler", "call", problem, time_ns=now_ns)
            outcome = self._carry_out(now_ns, answer.call)
            answer = self._backend.apply(
                list(self._changes()), service_pb2.Step(time_ns=now_ns, outcome=outcome)
            )
            check_autoscaler(answer, step)
        if answer.HasField("next_due_time_ns"):
            due_ns = max(answer.next_due_time_ns, now_ns)
            self._timeline.plan(due_ns, ActionKind.AUTOSCALER, "", idle=not self._removing)
        else:
            self._timeline.cancel(ActionKind.AUTOSCALER, "")
        self._may_differ_ns = answer.next_scan_time_ns
        return answer

    def _changes(self) -> Iterator[service_pb2.Change]:
        """Yield the changes not sent to the service yet, effects of its calls included."""
        if self._cluster.has_changed:
            self._keep(self._cluster.changed)
        pods, self._pods = self._pods, {}
        nodes, self._nodes = self._nodes, {}
        owners, self._owners = self._owners, {}
        for message in self._cloud.take_changed():
            yield service_pb2.Change(node_group=message)
        for name in nodes:
            yield from self._node_change(name)
        yield from self._daemon_set_changes()
        yield from self._budget_changes()
        existing = []
        for uid in pods:
            pod = self._cluster.pods.get(uid)
            if pod is not None and not pod.is_terminal:
                existing.append(pod)
            elif uid in self._sent_pods:
                namespace, _, name = self._sent_pods.pop(uid)[0].partition("/")
                yield _removed("Pod", namespace, name)
        for pod in existing:
            sent = pod.key, pod.message.metadata.resource_version
            if self._sent_pods.get(pod.uid) != sent:
                self._sent_pods[pod.uid] = sent
                yield from self._owner_change(pod)
                yield service_pb2.Change(object=object_pb2.KubernetesObject(pod=pod.message))
        for uid in owners:
            owner = self._sent_owners.get(uid)
            if owner is not None and owner.replicas != self._replicas(uid):
                owner.replicas = self._replicas(uid)
                yield _owner(uid, owner)

    def _node_change(self, name: str) -> Iterator[service_pb2.Change]:
        node = self._cluster.nodes.get(name)
        if node is None:
            if self._sent_nodes.pop(name, None) is not None:
                yield _removed("Node", "", name)
            return
        version = node.metadata.resource_version
        if self._sent_nodes.get(name) == version:
            return
        self._sent_nodes[name] = version
        change = service_pb2.Change()
        shown = change.object.node
        shown.CopyFrom(node)
        shown.spec.provider_id = provider_id(node)
        if ready_condition(node) is None:  # It counts as ready, as in node_health.py.
            ready = shown.status.conditions.add(type="Ready", status="True")
            ready.last_transition_time.CopyFrom(node.metadata.creation_timestamp)
        yield change

    def _daemon_set_changes(self) -> Iterator[service_pb2.Change]:
        gone, self._gone_daemon_sets = self._gone_daemon_sets, {}
        for key in gone:
            namespace, _, name = key.partition("/")
            yield _removed("DaemonSet", namespace, name)
        put, self._daemon_sets = self._daemon_sets, {}
        for message in put.values():
            yield service_pb2.Change(object=message)

    def _budget_changes(self) -> Iterator[service_pb2.Change]:
        budgets = self._cluster.budgets
        for key in [key for key in self._sent_budgets if key not in budgets]:
            del self._sent_budgets[key]
            namespace, _, name = key.partition("/")
            yield _removed("PodDisruptionBudget", namespace, name)
        for key, budget in budgets.items():
            version = budget.metadata.resource_version
            if self._sent_budgets.get(key) != version:
                self._sent_budgets[key] = version
                message = object_pb2.KubernetesObject(pod_disruption_budget=budget)
                yield service_pb2.Change(object=message)

    def _owner_change(self, pod: PodRecord) -> Iterator[service_pb2.Change]:
        """Yield the controller of a pod if the service has not been sent it.

        It counts as one that exists, for a list of pods need not have it.
        """
        owner = controller_of(pod.message.metadata)
        if owner is None or owner.kind not in _REPLICATED or owner.uid in self._sent_owners:
            return
        sent = self._sent_owners[owner.uid] = _SentOwner(
            kind=owner.kind,
            namespace=pod.message.metadata.namespace,
            name=owner.name,
            replicas=self._replicas(owner.uid),
        )
        yield _owner(owner.uid, sent)

    def _replicas(self, uid: str) -> int:
        """Return the replicas of a controller; the number of its pods if it states none."""
        replica_set = self._cluster.replica_sets.get(uid)
        if replica_set is not None:
            return replicas(replica_set.spec)
        scale = self._cluster.scales.get(uid)
        return len(self._cluster.pods_by_owner.get(uid, ())) if scale is None else scale

    # Calls

    def _carry_out(self, now_ns: int, call: autoscaler_pb2.Call) -> service_pb2.Outcome:
        match call.WhichOneof("request"):
            case "increase_size":
                return self._increase(now_ns, call.increase_size)
            case "decrease_target_size":
                decrease = call.decrease_target_size
                if not self._cloud.has(decrease.group):
                    return _refused(f"there is no group {decrease.group}", gone=True)
                return _outcome(self._cloud.decrease_target(decrease.group, decrease.delta))
            case "delete_nodes":
                return self._delete(now_ns, call.delete_nodes)
            case "evict_pod":
                return self._evict(now_ns, call.evict_pod)
            case "mark_node":
                mark = call.mark_node
                if mark.node_name not in self._cluster.nodes:
                    return _refused(f'nodes "{mark.node_name}" not found', gone=True)
                self._node_lifecycle.mark(now_ns, mark.node_name, mark.taint, cordon=mark.cordon)
                return service_pb2.Outcome()
            case _:
                unmark = call.unmark_node
                if unmark.node_name not in self._cluster.nodes:
                    return _refused(f'nodes "{unmark.node_name}" not found', gone=True)
                self._node_lifecycle.unmark(
                    now_ns, unmark.node_name, unmark.taint_key, uncordon=unmark.uncordon
                )
                return service_pb2.Outcome()

    def _increase(self, now_ns: int, call: autoscaler_pb2.IncreaseSize) -> service_pb2.Outcome:
        if not self._cloud.has(call.group):
            return _refused(f"there is no group {call.group}", gone=True)
        names = self._cloud.increase(now_ns, call.group, call.delta)
        if isinstance(names, CloudRefusal):
            size = self._cloud.target(call.group)
            self._journal.scaled_up(
                now_ns, call.group, (size, size + call.delta), refused=names.message
            )
            return _outcome(names)
        self._asked.setdefault(call.group, []).extend(names)
        return service_pb2.Outcome()

    def _delete(self, now_ns: int, call: autoscaler_pb2.DeleteNodes) -> service_pb2.Outcome:
        if not self._cloud.has(call.group):
            return _refused(f"there is no group {call.group}", gone=True)
        names = self._cloud.node_names(call.group, call.provider_ids)
        refusal = self._cloud.delete(now_ns, call.group, call.provider_ids, force=call.force)
        if refusal is None:
            for name in dict.fromkeys(names):
                self._failed.pop(name, None)
                if name in self._sent_nodes:
                    self._removing.pop(name, None)
                    self._journal.node_removal(now_ns, name, "Deleted", call.group)
        return _outcome(refusal)

    def _evict(self, now_ns: int, call: autoscaler_pb2.EvictPod) -> service_pb2.Outcome:
        pod = self._pod(f"{call.namespace}/{call.name}")
        if pod is None:
            return _refused(f'pods "{call.name}" not found', gone=True)
        grace_s = call.grace_period_duration_ns // SECOND_NS
        refusal = self._eviction_api.evict(now_ns, pod, "scaled-down", grace_s)
        return service_pb2.Outcome() if refusal is None else _refused(refusal.text)

    def _pod(self, key: str) -> PodRecord | None:
        return self._cluster.pods.get(self._cluster.pod_uids.get(key, ""))

    # Reports

    def _record(self, now_ns: int, report: autoscaler_pb2.ScanReport) -> None:
        """Record the decisions of a scan in the log."""
        for scale_up in (report.min_size_scale_up, report.scale_up):
            for increase in scale_up.groups:
                self._journal.scaled_up(
                    now_ns,
                    increase.group,
                    (increase.from_size, increase.to_size),
                    nodes=self._asked.pop(increase.group, ()),
                    pods=self._refs(scale_up.triggered),
                )
        self._asked = {}
        self._record_refusals(now_ns, report.scale_up.remaining)
        for name, result in sorted(report.delete_results.items()):
            group = self._removing.pop(name, "")
            if result != "ok":
                self._failed[name] = None
                self._journal.node_removal(now_ns, name, "Failed", group, message=result)
        for deletion in report.deletions:
            name = deletion.node_name
            group = self._cloud.group_name(name)
            if group:  # Else it is gone already.
                self._removing[name] = group
            self._journal.node_removal(
                now_ns,
                name,
                "Started",
                group,
                since_ns=self._unneeded.get(name),
                pods=self._refs(deletion.evicted_pods),
            )
        self._unneeded = {node.node_name: node.since_time_ns for node in report.unneeded}
        before = self._stay
        self._stay = {
            name: before.get(name, why) if why == _RECENTLY else why
            for name, why in ((node.node_name, _why(node)) for node in report.unremovable)
        }

    def _record_refusals(
        self, now_ns: int, remaining: Iterable[autoscaler_pb2.RemainingPod]
    ) -> None:
        refusals = {}
        for waiting in remaining:
            message = trace_pb2.NoScaleUp()
            for group in waiting.rejected_groups:
                message.groups.add(group=group, reasons=[_NO_FIT])
            for skipped in waiting.skipped_groups:
                message.groups.add(group=skipped.group, reasons=skipped.reasons)
            refusals[waiting.pod] = message
            pod = self._pod(waiting.pod)
            if pod is not None and self._refusals.get(waiting.pod) != message:
                self._journal.no_scale_up(now_ns, pod.object_ref(), message)
        self._refusals = refusals

    def _refs(self, keys: Iterable[str]) -> list[meta_pb2.ObjectReference]:
        return [pod.object_ref() for key in keys if (pod := self._pod(key)) is not None]

    def _leads_on(self, now_ns: int, report: autoscaler_pb2.ScanReport) -> bool:
        """Return whether a later scan may do more though nothing else happens."""
        made_ns, failing_ns = self._cloud.last_made_ns, self._failing_since_ns
        if report.backoff and (failing_ns is None or failing_ns < made_ns):
            self._failing_since_ns = now_ns
        if self._cloud.has_upcoming or self._removing or report.scale_up.result == "InCooldown":
            return True
        reasons = {node.node_name: node.reason for node in report.unremovable}
        if any(
            node.node_name not in self._failed
            and reasons.get(node.node_name, "NotUnneededLongEnough") in _TIMED
            for node in report.unneeded
        ):
            return True
        if self._is_too_young(now_ns):
            return True
        if self._failing_since_ns is None or not (report.pods_to_help and report.backoff):
            return False
        if now_ns - self._failing_since_ns < PATIENCE_NS:
            return True
        self._journal.notes["autoscaler", _TRIED_LONG] = 1
        return False

    def _is_too_young(self, now_ns: int) -> bool:
        """Return whether a pod waits that counts only once it is older."""
        for pod in self._cluster.pending.values():
            delay_ns = max(self._pod_delay_ns, _delay_ns(pod))
            created_ns = time_ns(pod.message.metadata.creation_timestamp)
            if delay_ns and now_ns - created_ns <= delay_ns:
                return True
        return False


def _delay_ns(pod: PodRecord) -> int:
    """Return the delay that a pod's annotation requests, 0 without a valid one.

    Source: kubernetes/autoscaler 1.36 core/podlistprocessor, filterOutYoungPods.
    """
    try:
        return parse_duration_ns(pod.message.metadata.annotations.get(_POD_DELAY, "0"))
    except DurationError:
        return 0


def _why(node: autoscaler_pb2.UnremovableNode) -> str:
    """Return why a node stays: upstream's name of the reason, and the pod that blocks it."""
    if not node.blocking_pod:
        return node.reason
    return f"{node.reason} {node.blocking_pod} ({node.blocking_reason})"


def _removed(kind: str, namespace: str, name: str) -> service_pb2.Change:
    removed = service_pb2.RemovedObject(object_kind=kind, namespace=namespace, name=name)
    return service_pb2.Change(removed_object=removed)


def _owner(uid: str, owner: _SentOwner) -> service_pb2.Change:
    """Return a controller with the fields that the autoscaler reads."""
    change = service_pb2.Change()
    made = getattr(change.object, _FIELDS[owner.kind])
    made.metadata.namespace, made.metadata.name = owner.namespace, owner.name
    made.metadata.uid = uid
    if owner.kind == "Job":
        made.spec.parallelism = owner.replicas
    else:
        made.spec.replicas = owner.replicas
    return change


def _outcome(refusal: CloudRefusal | None) -> service_pb2.Outcome:
    return service_pb2.Outcome() if refusal is None else _refused(refusal.message)


def _refused(message: str, *, gone: bool = False) -> service_pb2.Outcome:
    return service_pb2.Outcome(refused=True, message=message, gone=gone)
