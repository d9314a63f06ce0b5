"""The steps of the queue as operations of its contract."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from reprieve.kube.v1beta1 import meta_pb2, pod_pb2
from reprieve.queue.v1beta1 import queue_pb2
from reprieve.session.v1beta1 import session_pb2
from services.kube.devices import ResourceClaim
from services.kube.node import Node
from services.kube.pod import Pod
from services.rpc.kube.devices import observed_claim_to_message
from services.rpc.kube.messages import node_to_message, pod_to_message, put
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
    Move,
    Nominate,
    PopId,
    QueueAdd,
    QueueDelete,
    QueueStep,
    QueueUpdate,
    SetGates,
    WhyFailed,
)


class StepEncoder:
    """Queue steps to operations; `messages` holds the pods as they came, by UID.

    `sort_key` returns QueueSort's key of a pending pod, `namespace_labels` a namespace's labels.
    `old` is a pod's message before the change that caused the step. A move carries its objects only
    where `reads_objects` returns that a hint may read them. `class_resources` returns the extended
    resources that device classes serve.
    """

    def __init__(
        self,
        messages: Mapping[str, pod_pb2.Pod],
        sort_key: Callable[[Pod], bytes],
        namespace_labels: Callable[[str], Mapping[str, str]],
        reads_objects: Callable[[EventLabel], bool],
        class_resources: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        self._messages = messages
        self._sort_key = sort_key
        self._namespace_labels = namespace_labels
        self._class_resources = class_resources
        self._reads_objects = reads_objects
        self._encode: dict[type, Callable[[Any, queue_pb2.Operation], None]] = {
            QueueAdd: self._add,
            QueueDelete: self._delete,
            SetGates: self._set_gates,
            AssignedPodAdd: self._assigned_add,
            AssignedPodUpdate: self._assigned_update,
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
        """Return the operation of `step` at `at_ns`; `old` is the changed pod before the step."""
        operation = queue_pb2.Operation(time_ns=at_ns)
        if isinstance(step, Move):
            self._move(step, operation, old)
        elif isinstance(step, QueueUpdate):
            if old is not None and old.metadata.uid == step.new.uid:
                operation.update.old_pod.CopyFrom(old)
            operation.update.pod.CopyFrom(self._messages[step.new.uid])
            operation.update.sort_key = self._sort_key(step.new)
            operation.update.gates.extend(step.gates)
        else:
            self._encode[type(step)](step, operation)
        return operation

    def ref(self, uid: str) -> meta_pb2.ObjectReference:
        """Return a reference to a pod; for a removed pod, only with its UID."""
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

    def _set_gates(self, step: SetGates, operation: queue_pb2.Operation) -> None:
        _put_ref(step.pod, operation.set_gates.pod)
        operation.set_gates.gates.extend(step.gates)

    def _assigned_add(self, step: AssignedPodAdd, operation: queue_pb2.Operation) -> None:
        self._put_metadata(step.pod.uid, operation.assigned_pod_add.pod)

    def _assigned_update(self, step: AssignedPodUpdate, operation: queue_pb2.Operation) -> None:
        self._put_metadata(step.new.uid, operation.assigned_pod_update.pod)

    def _put_metadata(self, uid: str, out: pod_pb2.Pod) -> None:
        """Write the metadata of an assigned pod: a queue reads its labels and namespace."""
        out.metadata.CopyFrom(self._messages[uid].metadata)

    def _nominate(self, step: Nominate, operation: queue_pb2.Operation) -> None:
        operation.nominate.pod.CopyFrom(self.ref(step.uid))
        operation.nominate.node_name = step.node_name

    def _delete_nomination(self, step: DeleteNomination, operation: queue_pb2.Operation) -> None:
        operation.delete_nomination.CopyFrom(self.ref(step.uid))

    def _move(self, step: Move, operation: queue_pb2.Operation, old: pod_pb2.Pod | None) -> None:
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
                received = self._messages.get(value.uid) if value is step.new else old
                out.pod.CopyFrom(_pod(value, received))
                event.namespace_labels.update(self._namespace_labels(value.namespace))
            elif isinstance(value, Node):
                out.node.CopyFrom(node_to_message(value))
                event.class_resources[:] = self._class_resources()
            elif isinstance(value, ResourceClaim):
                out.resource_claim.CopyFrom(observed_claim_to_message(value))

    def _activate(self, step: Activate, operation: queue_pb2.Operation) -> None:
        operation.activate.pods.append(self.ref(step.uid))


def _pod(pod: Pod, received: pod_pb2.Pod | None) -> pod_pb2.Pod:
    """Return a pod's message: as it was received, if that is this version of the pod."""
    named = (pod.uid, pod.node_name)
    if received is not None and named == (received.metadata.uid, received.spec.node_name):
        return received
    return pod_to_message(pod)


def _commit_pop(step: CommitPop, operation: queue_pb2.Operation) -> None:
    _put_pop(step.pop, operation.commit_pop.pop)


def _done(step: Done, operation: queue_pb2.Operation) -> None:
    _put_pop(step.pop, operation.done)


def _add_unschedulable(step: AddUnschedulable, operation: queue_pb2.Operation) -> None:
    message = operation.add_unschedulable
    _put_pop(step.pop, message.pop)
    put_why(step.why, message.failure)
    message.cycle = step.cycle


def _flush(step: Flush, operation: queue_pb2.Operation) -> None:
    (operation.flush_leftover if step.leftover else operation.flush_backoff).SetInParent()


def _put_pop(pop: PopId, message: session_pb2.PopId) -> None:
    message.uid, message.cycle = pop.uid, pop.cycle


def put_why(why: WhyFailed, out: queue_pb2.Failure) -> None:
    """Write why an attempt failed: its refusing and pending plugins, or that it was an error."""
    out.unschedulable_plugins.extend(why.plugins)
    out.pending_plugins.extend(why.pending_plugins)
    out.error = why.is_error
    if why.spread_selector is not None:
        put(why.spread_selector, out.default_spread_selector)


def _put_ref(pod: Pod, out: meta_pb2.ObjectReference) -> None:
    out.uid, out.namespace, out.name = pod.uid, pod.namespace, pod.name
