"""The operations as a table: how each is read, and which call of the core it is.

The unary RPCs and the stream read the same table. Reading checks everything that can be wrong
with a request, so that nothing is refused once the core has begun to change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import NoneType
from typing import Any, NamedTuple

from reprieve.queue.v1alpha1 import queue_pb2
from services.queue import codec
from services.queue.core.entry import Failure, PopId, Popped
from services.queue.core.incoming import SubQueue
from services.queue.core.outcome import (
    AlreadyPresent,
    Closed,
    Done,
    NotInFlight,
    NotNext,
    Requeued,
    WouldBlock,
)
from services.queue.core.pod import AssignedPod, PodRef, QueuedPod
from services.queue.core.scheduling_queue import SchedulingQueue
from services.rpc.errors import FieldError, UnservedError

Outcome = (
    Popped
    | WouldBlock
    | Closed
    | NotNext
    | Requeued
    | AlreadyPresent
    | NotInFlight
    | SubQueue
    | int
    | None
)
"""What a call of the core answers; a count and a sub-queue are plainly applied."""

_PLAIN: frozenset[type] = frozenset({NoneType, int, SubQueue, Requeued})
_NOT_IN_FLIGHT = NotInFlight()
_REFUSED = Failure()
_GATES = "no served mode holds pods back by PreEnqueue: send none"


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationKind:
    """One row: `read` checks a message and returns the argument that `apply` takes.

    `apply` gets the queue, the argument and the time in ns. A stream does not tell outcomes of
    the types in `untold`. The argument's type is the row's own affair.
    """

    read: Callable[[Any], Any]
    apply: Callable[[SchedulingQueue, Any, int], Outcome]
    untold: frozenset[type] = _PLAIN


Step = tuple[OperationKind, Any, int]
"""A checked operation: its row, its argument, and its time in ns."""


def read_operation(message: queue_pb2.Operation) -> tuple[OperationKind, Any]:
    """Return the row of an operation and its argument; a refusal's path is within it."""
    name = message.WhichOneof("operation")
    if name is None:
        raise FieldError("operation", "is required")
    return read_named(name, getattr(message, name))


def read_named(name: str, message: object) -> tuple[OperationKind, Any]:
    """Return the row of the operation called `name` and the argument that `message` holds."""
    kind = _KINDS[name]
    try:
        return kind, kind.read(message)
    except FieldError as error:
        raise FieldError(f"{name}.{error.field}", error.problem) from None


def _read_add(message: queue_pb2.Add) -> QueuedPod:
    if message.gates:
        raise FieldError("gates", _GATES)
    return codec.queued_pod(message.pod, field="pod", sort_key=message.sort_key)


def _add(queue: SchedulingQueue, pod: QueuedPod, at_ns: int) -> None:
    queue.add(pod, now_ns=at_ns)


def _read_update(message: queue_pb2.Update) -> tuple[QueuedPod | None, QueuedPod]:
    if message.gates:
        raise FieldError("gates", _GATES)
    new = codec.queued_pod(message.pod, field="pod", sort_key=message.sort_key, compared=True)
    if not message.HasField("old"):
        return None, new
    old = codec.queued_pod(message.old, field="old", compared=True)
    if old.key != new.key:
        raise FieldError(
            "old.metadata", f"is {'/'.join(old.key)}, another pod than {'/'.join(new.key)}"
        )
    return old, new


def _update(
    queue: SchedulingQueue, versions: tuple[QueuedPod | None, QueuedPod], at_ns: int
) -> SubQueue:
    old, new = versions
    return queue.update(old, new, now_ns=at_ns)


def _read_delete(message: queue_pb2.Delete) -> PodRef:
    pod = codec.pod_ref(message.pod)
    if not pod.name:
        raise FieldError("pod.name", "is required: pods are found by namespace and name")
    return pod


def _delete(queue: SchedulingQueue, pod: PodRef, at_ns: int) -> None:
    queue.delete(pod, now_ns=at_ns)


def _read_nothing(_message: object) -> None:
    return None


def _pop(queue: SchedulingQueue, _argument: None, at_ns: int) -> Outcome:
    return queue.pop(now_ns=at_ns)


def _read_pop_id(message: queue_pb2.CommitPop | queue_pb2.Done) -> PopId:
    return codec.pop_id(message.pop)


def _commit_pop(queue: SchedulingQueue, pop: PopId, at_ns: int) -> Outcome:
    return queue.commit_pop(pop, now_ns=at_ns)


class _FailedPop(NamedTuple):
    pop: PopId
    failure: Failure
    cycle: int | None
    pod: QueuedPod | None


def _read_add_unschedulable(message: queue_pb2.AddUnschedulable) -> _FailedPop:
    pop = codec.pop_id(message.pop)
    if message.cycle < 0:
        raise FieldError("cycle", f"{message.cycle} is no scheduling cycle: they count from 1")
    pod = None
    if message.HasField("pod"):
        pod = codec.queued_pod(message.pod, field="pod")
        if pod.uid != pop.uid:
            raise FieldError("pod.metadata.uid", f"{pod.uid!r} is not the pop's {pop.uid!r}")
    return _FailedPop(pop, _failure(message), message.cycle or None, pod)


def _failure(message: queue_pb2.AddUnschedulable) -> Failure:
    plugins, pending = message.unschedulable_plugins, message.pending_plugins
    if not (plugins or pending or message.error):
        return _REFUSED
    return Failure(plugins=tuple(plugins), pending_plugins=tuple(pending), error=message.error)


def _add_unschedulable(queue: SchedulingQueue, failed: _FailedPop, at_ns: int) -> Outcome:
    return queue.add_unschedulable(
        failed.pop, now_ns=at_ns, failure=failed.failure, cycle=failed.cycle, pod=failed.pod
    )


def _done(queue: SchedulingQueue, pop: PopId, _at_ns: int) -> NotInFlight | None:
    return None if queue.done(pop) is Done.APPLIED else _NOT_IN_FLIGHT


class _WantedMove(NamedTuple):
    event: str
    priority_at_most: int | None
    all_but_uid: str


def _read_move(message: queue_pb2.Move) -> _WantedMove:
    label = message.event.label
    if not label:
        raise FieldError("event.label", 'is required, such as "NodeAdd"')
    priority = message.priority_at_most if message.HasField("priority_at_most") else None
    return _WantedMove(label, priority, message.all_but_uid)


def _move(queue: SchedulingQueue, wanted: _WantedMove, at_ns: int) -> int:
    return queue.move_all(
        wanted.event,
        now_ns=at_ns,
        priority_at_most=wanted.priority_at_most,
        all_but_uid=wanted.all_but_uid,
    )


def _read_assigned(message: queue_pb2.AssignedPodAdd | queue_pb2.AssignedPodUpdate) -> AssignedPod:
    return codec.assigned_pod(message.pod, field="pod")


def _assigned_add(queue: SchedulingQueue, pod: AssignedPod, at_ns: int) -> int:
    return queue.assigned_add(pod, now_ns=at_ns)


def _assigned_update(queue: SchedulingQueue, pod: AssignedPod, at_ns: int) -> int:
    return queue.assigned_update(pod, now_ns=at_ns)


def _read_nominate(message: queue_pb2.Nominate) -> tuple[PodRef, str]:
    pod = codec.pod_ref(message.pod)
    if not message.node_name:
        raise FieldError("node_name", "is required: DeleteNomination ends a nomination")
    return pod, message.node_name


def _nominate(queue: SchedulingQueue, nomination: tuple[PodRef, str], _at_ns: int) -> None:
    queue.nominate(*nomination)


def _read_delete_nomination(message: queue_pb2.DeleteNomination) -> str:
    return codec.pod_ref(message.pod).uid


def _delete_nomination(queue: SchedulingQueue, uid: str, _at_ns: int) -> None:
    queue.nominate_delete(uid)


def _refuse_activate(_message: object) -> None:
    raise UnservedError("activate: only the mode v1.34 has it, which is not served yet")


def _never(_queue: SchedulingQueue, _argument: None, _at_ns: int) -> None:
    raise AssertionError("it is refused when it is read")


def _flush_backoff(queue: SchedulingQueue, _argument: None, at_ns: int) -> int:
    return queue.flush_backoff(now_ns=at_ns)


def _flush_leftover(queue: SchedulingQueue, _argument: None, at_ns: int) -> int:
    return queue.flush_leftover(now_ns=at_ns)


def _close(queue: SchedulingQueue, _argument: None, _at_ns: int) -> None:
    queue.close()


_KINDS: Mapping[str, OperationKind] = {
    "add": OperationKind(read=_read_add, apply=_add),
    "update": OperationKind(read=_read_update, apply=_update),
    "delete": OperationKind(read=_read_delete, apply=_delete),
    "pop": OperationKind(read=_read_nothing, apply=_pop),
    "commit_pop": OperationKind(read=_read_pop_id, apply=_commit_pop, untold=_PLAIN | {Popped}),
    "add_unschedulable": OperationKind(read=_read_add_unschedulable, apply=_add_unschedulable),
    "done": OperationKind(read=_read_pop_id, apply=_done),
    "move": OperationKind(read=_read_move, apply=_move),
    "assigned_pod_add": OperationKind(read=_read_assigned, apply=_assigned_add),
    "assigned_pod_update": OperationKind(read=_read_assigned, apply=_assigned_update),
    "nominate": OperationKind(read=_read_nominate, apply=_nominate),
    "delete_nomination": OperationKind(read=_read_delete_nomination, apply=_delete_nomination),
    "activate": OperationKind(read=_refuse_activate, apply=_never),
    "flush_backoff": OperationKind(read=_read_nothing, apply=_flush_backoff),
    "flush_leftover": OperationKind(read=_read_nothing, apply=_flush_leftover),
    "close": OperationKind(read=_read_nothing, apply=_close),
}
