"""Whether each workload was whole: its ready pods against the desired ones and against its budgets.

A workload is a Deployment, a StatefulSet, a DaemonSet, a Job, a ReplicationController, or a
ReplicaSet without a controller in the run. Its desired and ready pods are those of kubectl's READY
column; a Job, whose column shows completions, wants the pods that should run now. All follows from
the changes of objects, as a run records them, so that it can be counted while the run goes and
again from its files. What is kept is bounded by what is in the cluster: a workload that is removed
takes its verdict along.

A workload is judged at the end of each instant: what lasts no time does not count. Nor does a
workload's start, from no ready pod until it is first whole, unless it never was.

Source: kubernetes v1.34 pkg/controller/replicaset/replica_set_utils.go, calculateStatus;
deployment/sync.go, calculateStatus; statefulset/stateful_set_control.go, updateStatus;
daemon/daemon_controller.go, updateDaemonSetStatus; job/job_controller.go, manageJob;
disruption/disruption.go, updatePdbStatus.
"""

from __future__ import annotations

import contextlib
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from replay.results.durations import simulated
from replay.results.run.cluster import TERMINAL_PHASES
from replay.world.api.admission import AdmissionError, PriorityAdmission
from replay.world.api.cluster import replicas
from replay.world.api.pod_record import controller_uid
from replay.world.controllers.daemon_sets import NodeShouldRun, ShouldRun, target, tolerant
from replay.world.controllers.job_state import TRACKING, JobState
from reprieve.kube.v1beta1 import meta_pb2, node_pb2, pod_pb2, policy_pb2, workloads_pb2
from reprieve.scheduler.v1beta1 import scheduler_pb2
from services.kube.selector import LabelSelector, LabelSelectors
from services.rpc.kube.codec import budget_from_message

KINDS = ("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "ReplicationController", "Job")
_FIELDS = {
    "deployment": "Deployment",
    "stateful_set": "StatefulSet",
    "daemon_set": "DaemonSet",
    "replica_set": "ReplicaSet",
    "replication_controller": "ReplicationController",
    "job": "Job",
}
"""The kinds by their fields of KubernetesObject."""
_JOB_ENDS = frozenset({"Complete", "Failed"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortfall:
    """When a workload was below a number of pods: how often, and how long in total, ns.

    longest_from_ns, longest_ns: when the longest time began, since the Unix epoch, and how long it
    was. lasts: it is below at the run's end.
    """

    times: int = 0
    total_ns: int = 0
    longest_from_ns: int = 0
    longest_ns: int = 0
    lasts: bool = False

    def text(self, start_ns: int) -> str:
        """Return it for people, such as "from 12m4s for 5m"; times are since the run's start."""
        if not self.times:
            return ""
        if not self.total_ns:
            return "at the end"
        since, lasted = simulated(self.longest_from_ns - start_ns), simulated(self.longest_ns)
        text = f"from {since} for {lasted}"
        if self.times > 1:
            return f"{self.times:,} times, longest {text}"
        return f"{text}, to the end" if self.lasts else text


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadVerdict:
    """How whole a workload was over a run.

    priority: of its pods, as admission resolves it. desired, pods, ready: its numbers of pods at
    the run's end; pods exist and do not terminate. refused: pods that admission refused.
    least_ready of least_desired: when most pods were missing; of several such moments the first.
    below: the times with fewer ready pods than desired; below_budget: those in which it also had
    fewer healthy pods than its budgets require, which `budgets` names.
    """

    kind: str
    namespace: str
    name: str
    priority_class: str = ""
    priority: int = 0
    desired: int
    pods: int
    ready: int
    least_ready: int
    least_desired: int
    refused: int = 0
    below: Shortfall = Shortfall()
    below_budget: Shortfall = Shortfall()
    budgets: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Return its name, such as "StatefulSet shop/kafka"."""
        return f"{self.kind} {self.namespace}/{self.name}"

    @property
    def unavailable(self) -> int:
        """Return how many desired pods are not ready at the run's end."""
        return max(0, self.desired - self.ready)

    @property
    def not_created(self) -> int:
        """Return how many desired pods do not exist at the run's end since they were refused."""
        return max(0, self.desired - self.pods) if self.refused else 0

    @property
    def was_whole(self) -> bool:
        """Return whether it had its desired pods all the time."""
        return not (self.below.times or self.unavailable)

    def sentence(self, start_ns: int) -> str:
        """Return it for people, such as "2 of 3, below its budget from 12m4s for 5m"."""
        text = f"{self.ready:,} of {self.desired:,}"
        if self.below_budget.times:
            return f"{text}, below its budget {self.below_budget.text(start_ns)}"
        if self.below.times:
            return f"{text}, below desired {self.below.text(start_ns)}"
        return text


def worst_first(verdicts: Iterable[WorkloadVerdict]) -> list[WorkloadVerdict]:
    """Return verdicts: below a budget at the end, by missing pods, by the time below, by name."""
    return sorted(
        verdicts,
        key=lambda each: (
            not each.below_budget.lasts,
            -each.unavailable,
            -each.below_budget.total_ns,
            -each.below.total_ns,
            each.namespace,
            each.name,
            each.kind,
        ),
    )


class WorkloadTally:
    """Judges the workloads of a run, from its changes in the order of their times.

    Changes of what the scheduler receives late, such as a confirmed binding, come after changes of
    workloads that happened later. So the latter wait here until the former have come.
    """

    def __init__(self) -> None:
        self._now_ns = 0
        self._ahead: deque[_WorkloadChange] = deque()
        self._workloads: dict[str, _Workload] = {}
        self._children: dict[str, dict[str, None]] = {}
        self._counts: dict[str, _Counts] = {}
        self._pods: dict[str, _Pod] = {}
        self._nodes: dict[str, node_pb2.Node] = {}
        self._daemon_sets: dict[str, _DaemonNodes] = {}
        self._budgets = _Budgets()
        self._admission = PriorityAdmission()
        self._refused: Counter[str] = Counter()
        self._changed: dict[str, None] = {}
        self._short: dict[str, None] = {}

    def object_changed(self, event: scheduler_pb2.Event) -> None:
        """Take a change of an object that the scheduler does not receive in full."""
        self._note_class(event)
        change = _workload_change(event)
        if change is not None:
            self._ahead.append(change)

    def sent(self, event: scheduler_pb2.Event) -> None:
        """Take an event that was sent to the scheduler."""
        self._reach(event.at_ns)
        match event.WhichOneof("event"):
            case "patch":
                pod = self._pods.get(event.patch.pod.uid)
                if pod is not None:
                    self._patch(pod, event.patch)
            case "add":
                self._put(event.add, is_new=True)
            case "update":
                self._put(event.update, is_new=False)
            case "remove":
                self._remove(event.remove)

    def refused(self, owner_uid: str, pods: int) -> None:
        """Count a controller's pods that admission refused."""
        self._refused[owner_uid] += pods

    def top_of(self, owner_uid: str) -> tuple[str, str] | None:
        """Return kind and name of the workload that a pod's controller belongs to, None for none.

        Of a ReplicaSet that is its Deployment.
        """
        workload = self._workloads.get(owner_uid)
        if workload is None:
            return None
        top = self._workloads.get(workload.owner_uid, workload)
        return top.kind, top.name

    def verdicts(self, end_ns: int) -> list[WorkloadVerdict]:
        """Return the verdicts on all workloads that exist at the run's end, worst first."""
        self._reach(max(end_ns, self._now_ns))
        self._judge()
        return worst_first(
            self._verdict(uid, workload, end_ns)
            for uid, workload in self._workloads.items()
            if not self._has_parent(workload)
        )

    # Time

    def _reach(self, at_ns: int) -> None:
        """Apply the changes of workloads up to a moment, and judge each instant before it."""
        while self._ahead and self._ahead[0].at_ns <= at_ns:
            change = self._ahead.popleft()
            self._advance(change.at_ns)
            self._apply(change)
        self._advance(at_ns)

    def _advance(self, at_ns: int) -> None:
        if at_ns > self._now_ns:
            self._judge()
            self._now_ns = at_ns

    def _judge(self) -> None:
        """Judge what has changed, at the end of an instant."""
        for uid in self._changed:
            workload = self._workloads.get(uid)
            if workload is None or self._has_parent(workload):
                self._short.pop(uid, None)
                continue
            numbers = self._numbers(uid, workload)
            is_short = numbers.ready < numbers.desired
            budgets = self._budgets.below(workload.namespace, workload.labels) if is_short else []
            workload.judge(self._now_ns, numbers, budgets)
            if is_short:
                self._short[uid] = None
            else:
                self._short.pop(uid, None)
        self._changed.clear()

    # Workloads

    def _apply(self, change: _WorkloadChange) -> None:
        uid, workload = change.uid, change.workload
        self._forget_parent(uid)
        before = self._workloads.pop(uid, None)
        if workload is None:
            self._changed |= self._children.get(uid, {})
            self._daemon_sets.pop(uid, None)
            self._short.pop(uid, None)
            self._refused.pop(uid, None)
            if uid in self._counts and not self._counts[uid].all:
                del self._counts[uid]
            return
        if before is not None:
            workload.history = before.history
        self._workloads[uid] = workload
        if workload.owner_uid:
            self._children.setdefault(workload.owner_uid, {})[uid] = None
            self._changed[workload.owner_uid] = None
        if workload.template is not None:
            self._put_daemon_set(uid, workload.template)
        self._changed[uid] = None

    def _forget_parent(self, uid: str) -> None:
        before = self._workloads.get(uid)
        if before is None or not before.owner_uid:
            return
        siblings = self._children.get(before.owner_uid, {})
        siblings.pop(uid, None)
        if not siblings:
            self._children.pop(before.owner_uid, None)
        self._changed[before.owner_uid] = None

    def _put_daemon_set(self, uid: str, template: workloads_pb2.PodTemplateSpec) -> None:
        former = self._daemon_sets.get(uid)
        made = self._daemon_sets[uid] = _DaemonNodes(NodeShouldRun(tolerant(template)))
        if former is not None:
            made.pods, made.ready = former.pods, former.ready
        else:
            for pod in self._pods.values():
                if pod.owner_uid == uid and not pod.is_over:
                    made.count(pod, 1)
        for node in self._nodes.values():
            made.put(node)

    def _has_parent(self, workload: _Workload) -> bool:
        return workload.owner_uid in self._workloads

    def _numbers(self, uid: str, workload: _Workload) -> _Numbers:
        counts = self._counts.get(uid) or _NOTHING
        match workload.kind:
            case "Deployment":
                parts = [self._counts.get(each) or _NOTHING for each in self._children.get(uid, {})]
                pods, ready = (sum(each.pods for each in parts), sum(each.ready for each in parts))
                return _Numbers(workload.wanted, pods, ready)
            case "StatefulSet":
                return _Numbers(workload.wanted, counts.pods, counts.ready_also_terminating)
            case "DaemonSet":
                nodes = self._daemon_sets[uid]
                return _Numbers(nodes.desired, counts.pods, nodes.ready_nodes)
            case "Job":
                return _Numbers(workload.job_pods(counts), counts.pods, counts.ready)
        return _Numbers(workload.wanted, counts.pods, counts.ready)

    def _verdict(self, uid: str, workload: _Workload, end_ns: int) -> WorkloadVerdict:
        numbers, history = self._numbers(uid, workload), workload.history
        admitted = self._admitted(workload)
        return WorkloadVerdict(
            kind=workload.kind,
            namespace=workload.namespace,
            name=workload.name,
            priority_class=admitted.priority_class_name,
            priority=admitted.priority,
            desired=numbers.desired,
            pods=numbers.pods,
            ready=numbers.ready,
            refused=sum(self._refused[each] for each in (uid, *self._children.get(uid, {}))),
            least_ready=history.least.ready if history.least else numbers.ready,
            least_desired=history.least.desired if history.least else numbers.desired,
            below=history.below.shortfall(end_ns),
            below_budget=history.below_budget.shortfall(end_ns),
            budgets=tuple(history.budgets),
        )

    def _note_class(self, event: scheduler_pb2.Event) -> None:
        case = event.WhichOneof("event")
        if case == "remove" and event.remove.kind == "PriorityClass":
            self._admission.remove_class(event.remove.name)
        elif case in ("add", "update") and getattr(event, case).HasField("priority_class"):
            self._admission.put_class(getattr(event, case).priority_class)

    def _admitted(self, workload: _Workload) -> pod_pb2.PodSpec:
        """Return class and priority of the pods that the workload would create now."""
        pod = pod_pb2.Pod()
        pod.spec.priority_class_name = workload.priority_class
        if workload.priority is not None:
            pod.spec.priority = workload.priority
        with contextlib.suppress(AdmissionError):
            self._admission.admit(pod)
        return pod.spec

    # Pods, nodes and budgets

    def _put(self, holder: Any, *, is_new: bool) -> None:
        match holder.WhichOneof("object"):
            case "pod":
                self._put_pod(holder.pod, is_new=is_new)
            case "node":
                self._put_node(holder.node)
            case "pod_disruption_budget":
                flipped = self._budgets.put(holder.pod_disruption_budget)
                self._changed |= self._short if flipped else {}

    def _remove(self, ref: meta_pb2.ObjectReference) -> None:
        match ref.kind:
            case "Pod":
                pod = self._pods.pop(ref.uid, None)
                if pod is not None:
                    self._count(pod, -1)
            case "Node":
                self._nodes.pop(ref.name, None)
                for uid, nodes in self._daemon_sets.items():
                    if nodes.remove(ref.name):
                        self._changed[uid] = None
            case "PodDisruptionBudget":
                self._budgets.remove(ref.namespace, ref.name)
                self._changed |= self._short

    def _put_pod(self, message: pod_pb2.Pod, *, is_new: bool) -> None:
        uid = message.metadata.uid
        before = self._pods.pop(uid, None)
        if before is not None:
            self._count(before, -1)
        owner = next((each for each in message.metadata.owner_references if each.controller), None)
        if owner is None:
            return
        pod = self._pods[uid] = _Pod(
            owner_uid=owner.uid,
            node_name=target(message) if owner.kind == "DaemonSet" else "",
            is_terminating=message.metadata.HasField("deletion_timestamp"),
        )
        pod.take(message.status)
        self._count(pod, 1)
        # As JobState.count: a pod that had ended when it was first seen was counted before.
        was_counted = is_new and TRACKING not in message.metadata.finalizers
        has_succeeded = before is not None and before.has_succeeded
        if pod.has_succeeded and not has_succeeded and not was_counted:
            self._counts[pod.owner_uid].succeeded += 1

    def _patch(self, pod: _Pod, patch: scheduler_pb2.PodPatch) -> None:
        if not (patch.HasField("status") or patch.HasField("deletion_ns")):
            return
        self._count(pod, -1)
        had_succeeded = pod.has_succeeded
        pod.is_terminating |= patch.HasField("deletion_ns")
        if patch.HasField("status"):
            pod.take(patch.status)
        self._count(pod, 1)
        if pod.has_succeeded and not had_succeeded:
            self._counts[pod.owner_uid].succeeded += 1

    def _count(self, pod: _Pod, sign: int) -> None:
        counts = self._counts.get(pod.owner_uid)
        if counts is None:
            counts = self._counts[pod.owner_uid] = _Counts()
        counts.all += sign
        if not pod.is_over:
            counts.pods += sign * (not pod.is_terminating)
            counts.ready += sign * (pod.is_ready and not pod.is_terminating)
            counts.ready_also_terminating += sign * pod.is_ready
            nodes = self._daemon_sets.get(pod.owner_uid)
            if nodes is not None:
                nodes.count(pod, sign)
        workload = self._workloads.get(pod.owner_uid)
        if workload is None:
            if not counts.all:
                del self._counts[pod.owner_uid]
            return
        self._changed[pod.owner_uid] = None
        if workload.owner_uid:
            self._changed[workload.owner_uid] = None

    def _put_node(self, message: node_pb2.Node) -> None:
        node = node_pb2.Node()
        node.metadata.name = message.metadata.name
        node.metadata.labels.update(message.metadata.labels)
        node.spec.taints.extend(message.spec.taints)
        if self._nodes.get(node.metadata.name) == node:
            return
        self._nodes[node.metadata.name] = node
        for uid, nodes in self._daemon_sets.items():
            if nodes.put(node):
                self._changed[uid] = None


@dataclass(frozen=True, slots=True)
class _Numbers:
    desired: int
    pods: int
    ready: int


@dataclass(slots=True)
class _Counts:
    """Pods of one controller; `pods` and `ready` neither terminate nor are over."""

    all: int = 0
    pods: int = 0
    ready: int = 0
    ready_also_terminating: int = 0
    succeeded: int = 0


_NOTHING = _Counts()


@dataclass(slots=True, kw_only=True)
class _Pod:
    """A pod with a controller; node_name: of a DaemonSet's, where it is or should be."""

    owner_uid: str
    node_name: str = ""
    is_terminating: bool = False
    is_over: bool = False
    has_succeeded: bool = False
    is_ready: bool = False

    def take(self, status: pod_pb2.PodStatus) -> None:
        """Take a new status."""
        self.is_over = status.phase in TERMINAL_PHASES
        self.has_succeeded = status.phase == "Succeeded"
        self.is_ready = not self.is_over and any(
            each.type == "Ready" and each.status == "True" for each in status.conditions
        )


@dataclass(slots=True)
class _Spells:
    """The times during which a condition held; since_ns: of the present one, None for none."""

    since_ns: int | None = None
    times: int = 0
    total_ns: int = 0
    longest_from_ns: int = 0
    longest_ns: int = 0

    def note(self, now_ns: int, *, holds: bool) -> None:
        """Note whether the condition holds from now on."""
        if holds and self.since_ns is None:
            self.since_ns = now_ns
        elif not holds and self.since_ns is not None:
            self._add(self.since_ns, now_ns)
            self.since_ns = None

    def drop(self) -> None:
        """Forget the present time."""
        self.since_ns = None

    def _add(self, since_ns: int, now_ns: int) -> None:
        lasted_ns = now_ns - since_ns
        self.times += 1
        self.total_ns += lasted_ns
        if self.times == 1 or lasted_ns > self.longest_ns:
            self.longest_from_ns, self.longest_ns = since_ns, lasted_ns

    def shortfall(self, end_ns: int) -> Shortfall:
        """Return the times until the run's end, the present one included."""
        whole = _Spells(None, self.times, self.total_ns, self.longest_from_ns, self.longest_ns)
        if self.since_ns is not None:
            whole._add(self.since_ns, max(end_ns, self.since_ns))
        return Shortfall(
            times=whole.times,
            total_ns=whole.total_ns,
            longest_from_ns=whole.longest_from_ns,
            longest_ns=whole.longest_ns,
            lasts=self.since_ns is not None,
        )


@dataclass(slots=True)
class _History:
    """What a workload has been through; starts: it has not been whole yet, and begins from nothing.

    least: its numbers when most pods were missing.
    """

    starts: bool | None = None
    least: _Numbers | None = None
    below: _Spells = field(default_factory=_Spells)
    below_budget: _Spells = field(default_factory=_Spells)
    budgets: dict[str, None] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class _Workload:
    """A workload as its object has it: `wanted` replicas, of a Job those that may run at once.

    completions: of a Job, None where one success completes it. succeeded: of a Job, those that its
    status had. is_idle: a Job that is over or suspended. template: a DaemonSet's.
    """

    kind: str
    namespace: str
    name: str
    owner_uid: str
    labels: dict[str, str]
    priority_class: str
    priority: int | None
    wanted: int = 0
    completions: int | None = None
    succeeded: int = 0
    is_idle: bool = False
    template: workloads_pb2.PodTemplateSpec | None = None
    history: _History = field(default_factory=_History)

    def job_pods(self, counts: _Counts) -> int:
        """Return how many pods of a Job should run, as replay.world.controllers.jobs has it."""
        if self.is_idle:
            return 0
        succeeded = self.succeeded + counts.succeeded
        if self.completions is None:
            return counts.pods if succeeded else self.wanted
        return max(0, min(self.completions - succeeded, self.wanted))

    def judge(self, now_ns: int, numbers: _Numbers, budgets: list[str]) -> None:
        """Note the numbers from now on, and the budgets that it is below."""
        history, is_short = self.history, numbers.ready < numbers.desired
        if history.starts is None:
            history.starts = is_short and not numbers.ready
        elif history.starts and not is_short:
            history.starts = False
            history.least = None
            history.below.drop()
            history.below_budget.drop()
            history.budgets.clear()
        history.below.note(now_ns, holds=is_short)
        history.below_budget.note(now_ns, holds=bool(budgets))
        history.budgets |= dict.fromkeys(budgets)
        least = history.least
        missing = numbers.desired - numbers.ready
        if is_short and (least is None or missing > least.desired - least.ready):
            history.least = numbers


@dataclass(frozen=True, slots=True)
class _WorkloadChange:
    """A workload that was put, or removed where `workload` is None."""

    at_ns: int
    uid: str
    workload: _Workload | None


def _workload_change(event: scheduler_pb2.Event) -> _WorkloadChange | None:
    case = event.WhichOneof("event")
    if case == "remove":
        if event.remove.kind not in KINDS:
            return None
        return _WorkloadChange(event.at_ns, event.remove.uid, None)
    if case not in ("add", "update"):
        return None
    holder = getattr(event, case)
    name = holder.WhichOneof("object") or ""
    if name not in _FIELDS:
        return None
    message: Any = getattr(holder, name)
    meta, template = message.metadata, message.spec.template
    workload = _Workload(
        kind=_FIELDS[name],
        namespace=meta.namespace,
        name=meta.name,
        owner_uid=controller_uid(meta),
        labels=dict(template.metadata.labels),
        priority_class=template.spec.priority_class_name,
        priority=template.spec.priority if template.spec.HasField("priority") else None,
    )
    match message:
        case workloads_pb2.Job():
            job = JobState.of(message)
            workload.wanted, workload.completions = job.parallelism, job.completions
            workload.succeeded = len(job.completed_indexes) if job.is_indexed else job.succeeded
            workload.is_idle = bool(job.condition) or message.spec.suspend
        case workloads_pb2.DaemonSet():
            workload.template = workloads_pb2.PodTemplateSpec()
            workload.template.CopyFrom(template)
        case _:
            workload.wanted = replicas(message.spec)
    return _WorkloadChange(event.at_ns, meta.uid, workload)


class _DaemonNodes:
    """The nodes on which a DaemonSet's pods should run, and its pods on them.

    desired: nodes that should have a pod, or have one that may stay. ready_nodes: those of them
    with a ready one.
    """

    def __init__(self, should_run: NodeShouldRun) -> None:
        self._should_run = should_run
        self._nodes: dict[str, ShouldRun] = {}
        self._parts: dict[str, tuple[bool, bool]] = {}
        self.pods: Counter[str] = Counter()
        self.ready: Counter[str] = Counter()
        self.desired = 0
        self.ready_nodes = 0

    def put(self, node: node_pb2.Node) -> bool:
        """Add or replace a node; return whether a number has changed."""
        self._nodes[node.metadata.name] = self._should_run.on(node)
        return self._recount(node.metadata.name)

    def remove(self, name: str) -> bool:
        """Remove a node; return whether a number has changed."""
        self._nodes.pop(name, None)
        return self._recount(name)

    def count(self, pod: _Pod, sign: int) -> None:
        """Count a pod that is not over, or no longer."""
        for counter, amount in ((self.pods, 1), (self.ready, int(pod.is_ready))):
            counter[pod.node_name] += sign * amount
            if not counter[pod.node_name]:
                del counter[pod.node_name]
        self._recount(pod.node_name)

    def _recount(self, name: str) -> bool:
        should_run = self._nodes.get(name, ShouldRun.NO)
        stays = should_run is ShouldRun.CONTINUE and name in self.pods
        is_desired = should_run is ShouldRun.YES or stays
        was = self._parts.get(name, (False, False))
        now = is_desired, is_desired and name in self.ready
        if was == now:
            return False
        self.desired += now[0] - was[0]
        self.ready_nodes += now[1] - was[1]
        if any(now):
            self._parts[name] = now
        else:
            del self._parts[name]
        return True


class _Budgets:
    """The disruption budgets, by namespace and name, and which have too few healthy pods."""

    def __init__(self) -> None:
        self._selectors: dict[str, LabelSelectors[str]] = {}
        self._selector_of: dict[tuple[str, str], LabelSelector | None] = {}
        self._below: dict[tuple[str, str], None] = {}

    def put(self, message: policy_pb2.PodDisruptionBudget) -> bool:
        """Add or replace a budget; return whether a workload may be judged otherwise for it."""
        key = message.metadata.namespace, message.metadata.name
        status = message.status
        is_below = bool(status.expected_pods) and status.current_healthy < status.desired_healthy
        was_below, selector = key in self._below, budget_from_message(message).selector
        is_new = key not in self._selector_of or self._selector_of[key] != selector
        if is_new:
            self._selectors.setdefault(key[0], LabelSelectors()).put(key[1], selector)
            self._selector_of[key] = selector
        if is_below:
            self._below[key] = None
        else:
            self._below.pop(key, None)
        return is_new or was_below != is_below

    def remove(self, namespace: str, name: str) -> None:
        """Remove a budget; an unknown one is accepted."""
        self._selector_of.pop((namespace, name), None)
        self._below.pop((namespace, name), None)
        if namespace in self._selectors:
            self._selectors[namespace].remove(name)

    def below(self, namespace: str, labels: dict[str, str]) -> list[str]:
        """Return the names of the budgets that cover pods with these labels and are not met."""
        selectors = self._selectors.get(namespace)
        if selectors is None or not self._below:
            return []
        return [name for name in selectors.matching(labels) if (namespace, name) in self._below]
