"""The scheduler's messages to values and back (cluster events: cluster_events.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from reprieve.kube.v1beta1 import meta_pb2, pod_pb2
from reprieve.queue.v1beta1 import queue_pb2
from reprieve.scheduler.v1beta1 import scheduler_pb2
from reprieve.session.v1beta1 import session_pb2
from services.framework.preemption.outcome import Nominate as Nomination
from services.framework.runtime.diagnosis import Refused
from services.kube.node import Node
from services.kube.pod import Pod
from services.rpc.kube.messages import node_to_message, pod_to_message
from services.scheduler.core.decisions import Binding, Decision, Failed, MayWait, Stage
from services.scheduler.core.queueing.steps import (
    Activate,
    AddUnschedulable,
    AssignedPodAdd,
    AssignedPodUpdate,
    CommitPop,
    DeleteNomination,
    Done,
    EventLabel,
    Flush,
    Head,
    Move,
    Nominate,
    PopId,
    QueueAdd,
    QueueDelete,
    QueueStep,
    QueueUpdate,
)

STAGES = {
    scheduler_pb2.REFUSAL_STAGE_UNSPECIFIED: None,
    scheduler_pb2.REFUSAL_STAGE_BIND: Stage.BIND,
    scheduler_pb2.REFUSAL_STAGE_NOMINATE: Stage.NOMINATE,
    scheduler_pb2.REFUSAL_STAGE_DELETE_VICTIM: Stage.DELETE_VICTIM,
}
MAY_WAIT = {
    MayWait.NOTHING: scheduler_pb2.MAY_WAIT_UNSPECIFIED,
    MayWait.STATUS: scheduler_pb2.MAY_WAIT_STATUS,
    MayWait.ALL: scheduler_pb2.MAY_WAIT_ALL,
}
PHASES = {
    "PreFilter": "RunPreFilterPlugins",
    "Filter": "RunFilterPlugins",
    "Score": "RunScorePlugins",
    "PostFilter": "RunPostFilterPlugins",
}

Messages = Mapping[str, pod_pb2.Pod]


def head_from_message(message: queue_pb2.Head) -> Head:
    """Return a head's value."""
    pop = message.pop
    # By place: by keyword this takes longer, and there is one for each attempt.
    return Head(
        PopId(pop.uid, pop.cycle), message.attempts, message.first_enqueued_ns, message.queued_ns
    )


class StepEncoder:
    """Queue steps to operations; `messages` holds the pods as they came, by UID.

    `sort_key` returns QueueSort's key of a pending pod, `namespace_labels` a namespace's labels.
    `old` is a pod's message before the change that caused the step. A move carries its objects only
    where `reads_objects` returns that a hint may read them.
    """

    def __init__(
        self,
        messages: Messages,
        sort_key: Callable[[Pod], bytes],
        namespace_labels: Callable[[str], Mapping[str, str]],
        reads_objects: Callable[[EventLabel], bool],
    ) -> None:
        self._messages = messages
        self._sort_key = sort_key
        self._namespace_labels = namespace_labels
        self._reads_objects = reads_objects
        self._encode: dict[type, Callable[[Any, queue_pb2.Operation], None]] = {
            QueueAdd: self._add,
            QueueDelete: self._delete,
            AssignedPodAdd: self._assigned_add,
            AssignedPodUpdate: self._assigned_update,
            Move: self._move,
            CommitPop: _commit_pop,
            AddUnschedulable: _add_unschedulable,
            Done: _done,
            Nominate: self._nominate,
            DeleteNomination: self._delete_nomination,
            Activate: self._activate,
            Flush: _flush,
        }

    def operation(
        self, step: QueueStep, at_ns: int, old: pod_pb2.Pod | None = None
    ) -> queue_pb2.Operation:
        """Return the operation of `step` at `at_ns`."""
        operation = queue_pb2.Operation(at_ns=at_ns)
        if isinstance(step, QueueUpdate):
            if old is not None:
                operation.update.old_pod.CopyFrom(old)
            operation.update.pod.CopyFrom(self._messages[step.new.uid])
            operation.update.sort_key = self._sort_key(step.new)
            operation.update.gates.extend(step.gates)
        else:
            self._encode[type(step)](step, operation)
        return operation

    def ref(self, uid: str) -> meta_pb2.ObjectReference:
        """Return a pod's name; a pod that has gone has its UID only."""
        message = self._messages.get(uid)
        if message is None:
            return meta_pb2.ObjectReference(uid=uid)
        meta = message.metadata
        return meta_pb2.ObjectReference(uid=uid, namespace=meta.namespace, name=meta.name)

    def _add(self, step: QueueAdd, operation: queue_pb2.Operation) -> None:
        operation.add.pod.CopyFrom(self._messages[step.pod.uid])
        operation.add.sort_key = self._sort_key(step.pod)
        operation.add.gates.extend(step.gates)

    def _delete(self, step: QueueDelete, operation: queue_pb2.Operation) -> None:
        _put_ref(step.pod, operation.delete_pod)

    def _assigned_add(self, step: AssignedPodAdd, operation: queue_pb2.Operation) -> None:
        self._put_metadata(step.pod.uid, operation.assigned_pod_add.pod)

    def _assigned_update(self, step: AssignedPodUpdate, operation: queue_pb2.Operation) -> None:
        self._put_metadata(step.new.uid, operation.assigned_pod_update.pod)

    def _put_metadata(self, uid: str, out: pod_pb2.Pod) -> None:
        """Write what a queue reads of an assigned pod: its labels and its namespace."""
        out.metadata.CopyFrom(self._messages[uid].metadata)

    def _nominate(self, step: Nominate, operation: queue_pb2.Operation) -> None:
        operation.nominate.pod.CopyFrom(self.ref(step.uid))
        operation.nominate.node_name = step.node_name

    def _delete_nomination(self, step: DeleteNomination, operation: queue_pb2.Operation) -> None:
        operation.delete_nomination.CopyFrom(self.ref(step.uid))

    def _move(self, step: Move, operation: queue_pb2.Operation) -> None:
        event = operation.move.event
        event.label = step.label
        if step.priority_at_most is not None:
            operation.move.priority_at_most = step.priority_at_most
        if step.all_but_uid:
            operation.move.all_but.uid = step.all_but_uid
        if not self._reads_objects(step.event):
            return
        for value, out in ((step.old, event.old_object), (step.new, event.new_object)):
            if isinstance(value, Pod):
                out.pod.CopyFrom(self._pod(value, is_new=value is step.new))
                event.namespace_labels.update(self._namespace_labels(value.namespace))
            elif isinstance(value, Node):
                out.node.CopyFrom(node_to_message(value))

    def _pod(self, pod: Pod, *, is_new: bool) -> pod_pb2.Pod:
        """Return a pod's message: as it came, where that is the pod as it is now."""
        message = self._messages.get(pod.uid) if is_new else None
        return message if message is not None else pod_to_message(pod)

    def _activate(self, step: Activate, operation: queue_pb2.Operation) -> None:
        operation.activate.pods.append(self.ref(step.uid))


def _commit_pop(step: CommitPop, operation: queue_pb2.Operation) -> None:
    _put_pop(step.pop, operation.commit_pop.pop)


def _done(step: Done, operation: queue_pb2.Operation) -> None:
    _put_pop(step.pop, operation.done)


def _add_unschedulable(step: AddUnschedulable, operation: queue_pb2.Operation) -> None:
    message = operation.add_unschedulable
    _put_pop(step.pop, message.pop)
    message.failure.error, message.cycle = True, step.cycle


def _flush(step: Flush, operation: queue_pb2.Operation) -> None:
    (operation.flush_leftover if step.leftover else operation.flush_backoff).SetInParent()


def _put_pop(pop: PopId, message: session_pb2.PopId) -> None:
    message.uid, message.cycle = pop.uid, pop.cycle


def pod_ref(pod: Pod) -> meta_pb2.ObjectReference:
    """Return a pod's name."""
    return meta_pb2.ObjectReference(uid=pod.uid, namespace=pod.namespace, name=pod.name)


def _put_ref(pod: Pod, out: meta_pb2.ObjectReference) -> None:
    out.uid, out.namespace, out.name = pod.uid, pod.namespace, pod.name


def put_outcome(decision: Decision, at_ns: int, wall_ns: int, out: scheduler_pb2.Outcome) -> None:
    """Write a decision; `wall_ns` is what its whole cycle took."""
    head, verdict = decision.head, decision.verdict
    _put_pop(head.pop, out.pop)
    out.at_ns = at_ns
    out.attempts = head.attempts
    out.first_enqueued_ns = head.first_enqueued_ns
    out.queued_ns = head.queued_ns
    match verdict:
        case Binding():
            _put_binding(verdict, out.bind)
        case Refused():
            put_refused(verdict, out.unschedulable)
            if verdict.nomination is not None:
                _put_preemption(verdict.nomination, out.unschedulable.preemption)
        case Failed():
            out.failure.message = verdict.message
            if verdict.nominated_node_name is not None:
                out.failure.nominated_node_name = verdict.nominated_node_name
    out.warnings.extend(decision.warnings)
    out.phases.add(name="schedulingCycle", wall_ns=wall_ns)
    for name, taken_ns in decision.phases_ns.items():
        out.phases.add(name=PHASES.get(name, name), wall_ns=taken_ns)


def _put_binding(binding: Binding, out: scheduler_pb2.Bind) -> None:
    out.node_name = binding.node_name
    out.evaluated_nodes = binding.evaluated
    out.feasible_nodes = binding.feasible
    out.tied_nodes = binding.tied
    if binding.total is not None:
        out.score = binding.total


def put_refused(refused: Refused, out: scheduler_pb2.Unschedulable) -> None:
    """Write why a pod fits nowhere."""
    out.message = refused.message
    out.unschedulable_plugins.extend(refused.plugins)
    out.preemption_message = refused.preemption_message
    if refused.nominated_node_name is not None:
        out.nominated_node_name = refused.nominated_node_name
    for reason, nodes in refused.reasons:
        out.reasons.add(reason=reason, nodes=nodes)


def _put_preemption(nomination: Nomination, out: scheduler_pb2.Preemption) -> None:
    out.node_name = nomination.node
    out.budget_violations = nomination.budget_violations
    out.decided_by = nomination.decided_by.value
    out.candidates = nomination.candidates
    out.victims.extend(victims(nomination.victims, nomination.violating))
    out.clears_last = nomination.clears_last
    out.cleared_nominations.extend(pod_ref(pod) for pod in nomination.cleared_nominations)
    out.reprieved.extend(pod_ref(pod) for pod in nomination.reprieved)


def victims(pods: tuple[Pod, ...], violating: tuple[Pod, ...]) -> Iterator[scheduler_pb2.Victim]:
    """Return victims' messages, those that violate a budget marked."""
    marked = {pod.uid for pod in violating}
    for pod in pods:
        yield scheduler_pb2.Victim(
            pod=pod_ref(pod), priority=pod.priority, violates_budget=pod.uid in marked
        )
