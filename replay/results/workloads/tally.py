"""Counts each workload's ready pods against the desired ones and against its budgets.

A workload is a Deployment, a StatefulSet, a DaemonSet, a Job, a ReplicationController, or a
ReplicaSet without a controller in the run. Its desired and ready pods are the numbers in kubectl's
READY column; for a Job, whose column shows completions, the desired pods are those that should run
now. The verdicts depend only on the object changes that a run records, so they can be computed
while the run goes and again from its files. Memory is bounded by the size of the cluster: a removed
workload and its verdict are dropped.

A workload is judged at the end of each instant, so a shortage that lasts no time does not count.
The start of a workload, from its first judgement without a ready pod until all desired pods are
ready for the first time, does not count either, unless that never happens.

Source: kubernetes v1.34 pkg/controller/replicaset/replica_set_utils.go, calculateStatus;
deployment/sync.go, calculateStatus; statefulset/stateful_set_control.go, updateStatus;
daemon/daemon_controller.go, updateDaemonSetStatus; job/job_controller.go, manageJob;
disruption/disruption.go, updatePdbStatus.
"""

from __future__ import annotations

import contextlib
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any

from replay.results.workloads.budgets import Budgets
from replay.results.workloads.daemon_nodes import DaemonNodes
from replay.results.workloads.verdict import Numbers, WorkloadVerdict, worst_first
from replay.results.workloads.workload import (
    NO_PODS,
    OwnedPod,
    PodCounts,
    Workload,
    WorkloadChange,
    workload_change,
)
from replay.world.api.admission.priority import PriorityAdmission
from replay.world.api.admission.refusal import AdmissionError
from replay.world.api.pod_record import JOB_TRACKING, controller_of
from replay.world.controllers.workloads.daemon_sets import NodeShouldRun, target, tolerant
from reprieve.kube.v1beta1 import meta_pb2, node_pb2, pod_pb2, workloads_pb2
from reprieve.scheduler.v1beta1 import scheduler_pb2


@dataclass(slots=True)
class WorkloadTally:
    """Judges the workloads of a run by its changes, in the order of their times.

    The scheduler receives some changes late, such as a confirmed binding; by then, later changes of
    workloads may have been recorded. `_ahead` holds changes of workloads until the events sent to
    the scheduler have reached their time.
    """

    _now_ns: int = 0
    _ahead: deque[WorkloadChange] = field(default_factory=deque)
    _workloads: dict[str, Workload] = field(default_factory=dict)
    _children: dict[str, dict[str, None]] = field(default_factory=dict)
    _counts: dict[str, PodCounts] = field(default_factory=dict)
    _pods: dict[str, OwnedPod] = field(default_factory=dict)
    _nodes: dict[str, node_pb2.Node] = field(default_factory=dict)
    _daemon_sets: dict[str, DaemonNodes] = field(default_factory=dict)
    _budgets: Budgets = field(default_factory=Budgets)
    _admission: PriorityAdmission = field(default_factory=PriorityAdmission)
    _refused: Counter[str] = field(default_factory=Counter)
    _changed: dict[str, None] = field(default_factory=dict)
    _short: dict[str, None] = field(default_factory=dict)

    def object_changed(self, event: scheduler_pb2.Event) -> None:
        """Take a change of an object that the scheduler does not receive in full."""
        self._note_class(event)
        change = workload_change(event)
        if change is not None:
            self._ahead.append(change)

    def sent(self, event: scheduler_pb2.Event) -> None:
        """Take an event that was sent to the scheduler."""
        at_ns = event.time_ns
        if at_ns > self._now_ns or self._ahead:
            self._reach(at_ns)
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
        """Return kind and name of the workload of a pod's controller; None for an unknown one.

        For a ReplicaSet of a Deployment, the workload is the Deployment.
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
        """Apply the waiting changes up to `at_ns`, and judge at the end of each earlier instant."""
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
        """Judge the changed workloads at the end of an instant."""
        for uid in self._changed:
            workload = self._workloads.get(uid)
            if workload is None or self._has_parent(workload):
                self._short.pop(uid, None)
                continue
            numbers = self._numbers(uid, workload)
            is_short = numbers.ready < numbers.desired
            budgets = self._budgets.below(workload.namespace, workload.labels) if is_short else []
            came_ready = any(
                self._counts[part].came_ready
                for part in (uid, *self._children.get(uid, ()))
                if part in self._counts
            )
            workload.judge(self._now_ns, numbers, budgets, came_ready=came_ready)
            self.judged(self._now_ns, workload, numbers)
            if is_short:
                self._short[uid] = None
            else:
                self._short.pop(uid, None)
        self._changed.clear()

    def judged(self, now_ns: int, workload: Workload, numbers: Numbers) -> None:
        """Receive a workload's numbers at the end of an instant; for subclasses to override."""

    # Workloads

    def _apply(self, change: WorkloadChange) -> None:
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
        made = self._daemon_sets[uid] = DaemonNodes(NodeShouldRun(tolerant(template)))
        if former is not None:
            made.pods, made.ready = former.pods, former.ready
        else:
            for pod in self._pods.values():
                if pod.owner_uid == uid and not pod.is_over:
                    made.count(pod, 1)
        for node in self._nodes.values():
            made.put(node)

    def _has_parent(self, workload: Workload) -> bool:
        return workload.owner_uid in self._workloads

    def _numbers(self, uid: str, workload: Workload) -> Numbers:
        counts = self._counts.get(uid) or NO_PODS
        match workload.kind:
            case "Deployment":
                parts = [
                    self._counts.get(child) or NO_PODS for child in self._children.get(uid, {})
                ]
                pods, ready = (sum(part.pods for part in parts), sum(part.ready for part in parts))
                return Numbers(workload.wanted, pods, ready)
            case "StatefulSet":
                return Numbers(workload.wanted, counts.pods, counts.ready_also_terminating)
            case "DaemonSet":
                nodes = self._daemon_sets[uid]
                return Numbers(nodes.desired, counts.pods, nodes.ready_nodes)
            case "Job":
                return Numbers(workload.job_pods(counts), counts.pods, counts.ready)
        return Numbers(workload.wanted, counts.pods, counts.ready)

    def _verdict(self, uid: str, workload: Workload, end_ns: int) -> WorkloadVerdict:
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
            refused=sum(self._refused[part] for part in (uid, *self._children.get(uid, {}))),
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

    def _admitted(self, workload: Workload) -> pod_pb2.PodSpec:
        """Return the spec, with class and priority, of a pod that the workload would create now."""
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
        owner = controller_of(message.metadata)
        if owner is None:
            return
        pod = self._pods[uid] = OwnedPod(
            owner_uid=owner.uid,
            node_name=target(message) if owner.kind == "DaemonSet" else "",
            is_terminating=message.metadata.HasField("deletion_timestamp"),
        )
        pod.take(message.status)
        self._count(pod, 1)
        self._counts[pod.owner_uid].came_ready |= is_new and pod.is_ready
        # As JobState.count: a pod that had ended when it was first seen was counted before.
        was_counted = is_new and JOB_TRACKING not in message.metadata.finalizers
        has_succeeded = before is not None and before.has_succeeded
        if pod.has_succeeded and not has_succeeded and not was_counted:
            self._counts[pod.owner_uid].succeeded += 1

    def _patch(self, pod: OwnedPod, patch: scheduler_pb2.PodPatch) -> None:
        if not (patch.HasField("status") or patch.HasField("deletion_time_ns")):
            return
        self._count(pod, -1)
        had_succeeded = pod.has_succeeded
        pod.is_terminating |= patch.HasField("deletion_time_ns")
        if patch.HasField("status"):
            pod.take(patch.status)
        self._count(pod, 1)
        if pod.has_succeeded and not had_succeeded:
            self._counts[pod.owner_uid].succeeded += 1

    def _count(self, pod: OwnedPod, sign: int) -> None:
        counts = self._counts.get(pod.owner_uid)
        if counts is None:
            counts = self._counts[pod.owner_uid] = PodCounts()
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
