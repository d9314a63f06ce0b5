"""The table of operations: how each message is checked, and which core method applies it.

Checking detects every possible error of an operation, so applying never refuses one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import NoneType
from typing import Any, NamedTuple

from reprieve.kube.v1beta1 import meta_pb2
from reprieve.queue.v1beta1 import queue_pb2
from services.framework.cluster_event import ASSIGNED_POD_ADD, ASSIGNED_POD_UPDATE, ObjectEvent
from services.kube.selector import LabelSelector
from services.queue import codec
from services.queue.codec import head_message
from services.queue.core.queued_pod import (
    AssignedPod,
    FailedPod,
    Failure,
    InFlightPod,
    PodRef,
    PopId,
    QueuedPod,
)
from services.queue.core.results import (
    AlreadyPresent,
    NotInFlight,
    NotNext,
    QueueClosed,
    Requeued,
    SubQueue,
    WouldBlock,
)
from services.queue.core.rules.base import PreEnqueueCheck
from services.queue.core.scheduling_queue import SchedulingQueue
from services.queue.reader import QueueReader
from services.rpc.errors import FieldError, UnservedError

_NO_TEXT: Mapping[type, queue_pb2.OutcomeCode.ValueType] = {
    WouldBlock: queue_pb2.OUTCOME_CODE_WOULD_BLOCK,
    NotInFlight: queue_pb2.OUTCOME_CODE_UNKNOWN_POP,
}
OperationOutcome = (
    InFlightPod
    | WouldBlock
    | QueueClosed
    | NotNext
    | Requeued
    | AlreadyPresent
    | NotInFlight
    | SubQueue
    | int
    | None
)
"""The results of the core's methods; None, a count and a sub-queue mean APPLIED."""

_PLAIN: frozenset[type] = frozenset({NoneType, int, SubQueue, Requeued})


@dataclass(frozen=True, slots=True)
class OperationKind:
    """One row: `read` checks a message and returns the argument that `apply` takes.

    `read` receives the session's reader and the message, `apply` the queue, the argument and the
    time in ns. An outcome whose type is in `unreported` gets no OperationResult. The type of the
    argument differs from row to row.
    """

    read: Callable[[QueueReader, Any], Any]
    apply: Callable[[SchedulingQueue, Any, int], OperationOutcome]
    unreported: frozenset[type] = _PLAIN


CheckedOperation = tuple[OperationKind, Any, int]
"""A checked operation: its row, its argument, and its time in ns."""


def read_operation(message: queue_pb2.Operation, reader: QueueReader) -> tuple[OperationKind, Any]:
    """Return an operation's row and argument. Raises FieldError, relative to the operation."""
    name = message.WhichOneof("operation")
    if name is None:
        raise FieldError("operation", "is required")
    kind = _KINDS[name]
    try:
        return kind, kind.read(reader, getattr(message, name))
    except FieldError as error:
        path = f"{name}.{error.field}" if error.field else name
        raise FieldError(path, error.problem) from None


def _read_add(reader: QueueReader, message: queue_pb2.Add) -> QueuedPod:
    return reader.pod(message.pod, field="pod", sort_key=message.sort_key, gates=message.gates)


def _read_update(
    reader: QueueReader, message: queue_pb2.Update
) -> tuple[QueuedPod | None, QueuedPod]:
    key, gates = message.sort_key, message.gates
    new = reader.pod(message.pod, field="pod", sort_key=key, gates=gates, compared=True)
    if not message.HasField("old_pod"):
        return None, new
    old = reader.pod(message.old_pod, field="old_pod", compared=True)
    if old.key != new.key:
        raise FieldError(
            "old_pod.metadata", f"is {'/'.join(old.key)}, another pod than {'/'.join(new.key)}"
        )
    return old, new


def _named_ref(message: meta_pb2.ObjectReference, path: str = "") -> PodRef:
    pod = codec.pod_ref(message, path)
    if not pod.name:
        raise FieldError(f"{path}name", "is required: pods are found by namespace and name")
    return pod


class _FailedPods(NamedTuple):
    first_cycle: int
    pods: list[FailedPod]


def _read_commit_unschedulable(
    reader: QueueReader, message: queue_pb2.CommitUnschedulable
) -> _FailedPods:
    uids, failed_by = message.uids, message.failure_indexes
    if not all(uids):
        raise FieldError("uids", "no uid may be empty")
    first_cycle = codec.scheduling_cycle(message.first_cycle, "first_cycle")
    failures = [
        _failure_at(reader, f"failures[{index}]", failure)
        for index, failure in enumerate(message.failures)
    ]
    if len(failed_by) != len(uids) or max(failed_by) >= len(failures):
        raise FieldError("failure_indexes", "must name one of `failures` for each of `uids`")
    pods = [FailedPod(uid, *failures[index]) for uid, index in zip(uids, failed_by, strict=True)]
    return _FailedPods(first_cycle, pods)


def _failure_at(
    reader: QueueReader, path: str, message: queue_pb2.Failure
) -> tuple[Failure, LabelSelector | None]:
    try:
        return reader.failure(message), reader.spread_selector(message)
    except FieldError as error:
        raise FieldError(f"{path}.{error.field}", error.problem) from None


def _read_pass_through(reader: QueueReader, message: queue_pb2.PassThrough) -> tuple[int, int]:
    if not reader.version.passes_through:
        raise UnservedError(
            "pass_through: these rules keep backoffs by pod name; send Add and Pop instead"
        )
    first_cycle = codec.scheduling_cycle(message.first_cycle, "first_cycle")
    if not message.pods:
        raise FieldError("pods", "is required: the number of pods that have passed through")
    return first_cycle, message.pods


class _FailedPop(NamedTuple):
    pop_id: PopId
    failure: Failure
    cycle: int | None
    pod: QueuedPod | None
    gates: tuple[str, ...]
    spread_selector: LabelSelector | None


def _read_add_unschedulable(reader: QueueReader, message: queue_pb2.AddUnschedulable) -> _FailedPop:
    pop = codec.pop_id(message.pop)
    cycle = codec.scheduling_cycle(message.cycle, "cycle") if message.HasField("cycle") else None
    gates, pod = reader.gates(message.gates), None
    if message.HasField("pod"):
        pod = reader.pod(message.pod, field="pod", gates=gates)
        if pod.uid != pop.uid:
            raise FieldError("pod.metadata.uid", f"{pod.uid!r} is not the pop's {pop.uid!r}")
    failure, selector = _failure_at(reader, "failure", message.failure)
    return _FailedPop(pop, failure, cycle, pod, gates, selector)


class _MoveArguments(NamedTuple):
    object_event: ObjectEvent
    pre_check: PreEnqueueCheck


def _read_move(reader: QueueReader, message: queue_pb2.Move) -> _MoveArguments:
    object_event = reader.object_event(message.event, field="event")
    priority = message.priority_at_most if message.HasField("priority_at_most") else None
    if message.HasField("all_but"):
        codec.pod_ref(message.all_but, "all_but.")
    pre_check = PreEnqueueCheck(priority_at_most=priority, all_but_uid=message.all_but.uid)
    return _MoveArguments(object_event, pre_check)


_Assigned = tuple[AssignedPod, ObjectEvent]


def _read_assigned_add(reader: QueueReader, message: queue_pb2.AssignedPodAdd) -> _Assigned:
    return reader.assigned(ASSIGNED_POD_ADD, None, message.pod, message.namespace_labels)


def _read_assigned_update(reader: QueueReader, message: queue_pb2.AssignedPodUpdate) -> _Assigned:
    old = message.old_pod if message.HasField("old_pod") else None
    return reader.assigned(
        ASSIGNED_POD_UPDATE, old, message.pod, message.namespace_labels, label=message.label
    )


def _read_nominate(_reader: QueueReader, message: queue_pb2.Nominate) -> tuple[PodRef, str]:
    if message.HasField("node_name") and not message.node_name:
        raise FieldError("node_name", "is empty: leave it out for the node in the pod's status")
    return codec.pod_ref(message.pod, "pod."), message.node_name


def _read_activate(reader: QueueReader, message: queue_pb2.Activate) -> list[PodRef]:
    if not reader.version.has_activate:
        raise FieldError("pods", "these rules have no Activate: it came with v1.34")
    return [_named_ref(pod, f"pods[{index}].") for index, pod in enumerate(message.pods)]


def _read_owner(_reader: QueueReader, owner: str) -> str:
    if not owner:
        raise FieldError("", "is required: the owner's name")
    return owner


def _nothing(_reader: QueueReader, _message: object) -> None:
    return None


_KINDS: Mapping[str, OperationKind] = {
    "add": OperationKind(_read_add, lambda queue, pod, at_ns: queue.add(pod, now_ns=at_ns)),
    "update": OperationKind(
        _read_update, lambda queue, versions, at_ns: queue.update(*versions, now_ns=at_ns)
    ),
    "delete_pod": OperationKind(
        lambda _, message: _named_ref(message),
        lambda queue, pod, at_ns: queue.delete(pod, now_ns=at_ns),
    ),
    "pop": OperationKind(
        lambda _, message: message.owner,
        lambda queue, owner, at_ns: queue.pop(now_ns=at_ns, owner=owner),
    ),
    "commit_pop": OperationKind(
        lambda _, message: (codec.pop_id(message.pop), message.owner),
        lambda queue, request, at_ns: queue.commit_pop(request[0], now_ns=at_ns, owner=request[1]),
        unreported=_PLAIN | {InFlightPod},
    ),
    "commit_unschedulable": OperationKind(
        _read_commit_unschedulable,
        lambda queue, failed, at_ns: queue.commit_unschedulable(
            failed.pods, first_cycle=failed.first_cycle, now_ns=at_ns
        ),
    ),
    "pass_through": OperationKind(
        _read_pass_through,
        lambda queue, passed, at_ns: queue.pass_through(
            passed[1], first_cycle=passed[0], now_ns=at_ns
        ),
    ),
    "add_unschedulable": OperationKind(
        _read_add_unschedulable,
        lambda queue, failed, at_ns: queue.add_unschedulable(now_ns=at_ns, **failed._asdict()),
    ),
    "done": OperationKind(
        lambda _, message: codec.pop_id(message, ""), lambda queue, pop, _: queue.done(pop)
    ),
    "move": OperationKind(
        _read_move,
        lambda queue, move, at_ns: queue.move_all(
            move.object_event, now_ns=at_ns, pre_check=move.pre_check
        ),
    ),
    "assigned_pod_add": OperationKind(
        _read_assigned_add,
        lambda queue, assigned, at_ns: queue.assigned_pod_added(
            assigned[0], now_ns=at_ns, object_event=assigned[1]
        ),
    ),
    "assigned_pod_update": OperationKind(
        _read_assigned_update,
        lambda queue, assigned, at_ns: queue.assigned_pod_updated(
            assigned[0], now_ns=at_ns, object_event=assigned[1]
        ),
    ),
    "nominate": OperationKind(
        _read_nominate, lambda queue, nomination, _: queue.nominate(*nomination)
    ),
    "delete_nomination": OperationKind(
        lambda _, message: codec.pod_ref(message, "").uid,
        lambda queue, uid, _: queue.delete_nomination(uid),
    ),
    "activate": OperationKind(
        _read_activate, lambda queue, pods, at_ns: queue.activate(pods, now_ns=at_ns)
    ),
    "set_gates": OperationKind(
        lambda reader, message: (_named_ref(message.pod, "pod."), reader.gates(message.gates)),
        lambda queue, held, at_ns: queue.set_gates(*held, now_ns=at_ns),
    ),
    "renew_leases": OperationKind(
        _read_owner, lambda queue, owner, at_ns: queue.renew_leases(owner, now_ns=at_ns)
    ),
    "release_owner": OperationKind(
        _read_owner, lambda queue, owner, at_ns: queue.release_owner(owner, now_ns=at_ns)
    ),
    "flush_backoff": OperationKind(
        _nothing, lambda queue, _, at_ns: queue.flush_backoff(now_ns=at_ns)
    ),
    "flush_leftover": OperationKind(
        _nothing, lambda queue, _, at_ns: queue.flush_leftover(now_ns=at_ns)
    ),
    "close": OperationKind(_nothing, lambda queue, _, _at_ns: queue.close()),
}


def result_message(outcome: OperationOutcome, index: int) -> queue_pb2.OperationResult:
    """Return an outcome as a message; the code is APPLIED unless the outcome has another."""
    code, text, popped, pods = queue_pb2.OUTCOME_CODE_APPLIED, "", None, 0
    match outcome:
        case InFlightPod():
            popped = head_message(outcome)
        case NotNext():
            code, pods = queue_pb2.OUTCOME_CODE_NOT_NEXT, outcome.committed
        case QueueClosed():
            code, text = queue_pb2.OUTCOME_CODE_CLOSED, outcome.text
        case AlreadyPresent():
            code, text = queue_pb2.OUTCOME_CODE_ALREADY_PRESENT, outcome.text
        case _:
            code = _NO_TEXT.get(type(outcome), code)
    return queue_pb2.OperationResult(index=index, code=code, text=text, popped=popped, pods=pods)
