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
from reprieve.session.v1alpha1 import session_pb2
from services.kube.selector import LabelSelector
from services.queue import codec
from services.queue.core.cluster_event import ASSIGNED_POD_ADD, ASSIGNED_POD_UPDATE
from services.queue.core.entry import FailedPod, Failure, PopId, Popped
from services.queue.core.happening import Happening
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
from services.queue.core.rules import MoveFilter
from services.queue.core.scheduling_queue import SchedulingQueue
from services.queue.reader import QueueReader
from services.rpc.errors import FieldError

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


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationKind:
    """One row: `read` checks a message and returns the argument that `apply` takes.

    `read` gets the session's reader, `apply` the queue, the argument and the time in ns. A stream
    does not tell outcomes of the types in `untold`. The argument's type is the row's own affair.
    """

    read: Callable[[QueueReader, Any], Any]
    apply: Callable[[SchedulingQueue, Any, int], Outcome]
    untold: frozenset[type] = _PLAIN


Step = tuple[OperationKind, Any, int]
"""A checked operation: its row, its argument, and its time in ns."""


def read_operation(message: queue_pb2.Operation, reader: QueueReader) -> tuple[OperationKind, Any]:
    """Return the row of an operation and its argument; a refusal's path is within it."""
    name = message.WhichOneof("operation")
    if name is None:
        raise FieldError("operation", "is required")
    return read_named(name, getattr(message, name), reader)


def read_named(name: str, message: object, reader: QueueReader) -> tuple[OperationKind, Any]:
    """Return the row of the operation called `name` and the argument that `message` holds."""
    kind = _KINDS[name]
    try:
        return kind, kind.read(reader, message)
    except FieldError as error:
        raise FieldError(f"{name}.{error.field}", error.problem) from None


def _read_add(reader: QueueReader, message: queue_pb2.Add) -> QueuedPod:
    return reader.pod(message.pod, field="pod", sort_key=message.sort_key, gates=message.gates)


def _add(queue: SchedulingQueue, pod: QueuedPod, at_ns: int) -> None:
    queue.add(pod, now_ns=at_ns)


def _read_update(
    reader: QueueReader, message: queue_pb2.Update
) -> tuple[QueuedPod | None, QueuedPod]:
    key, gates = message.sort_key, message.gates
    new = reader.pod(message.pod, field="pod", sort_key=key, gates=gates, compared=True)
    if not message.HasField("old"):
        return None, new
    old = reader.pod(message.old, field="old", compared=True)
    if old.key != new.key:
        raise FieldError(
            "old.metadata", f"is {'/'.join(old.key)}, another pod than {'/'.join(new.key)}"
        )
    return old, new


def _update(
    queue: SchedulingQueue, versions: tuple[QueuedPod | None, QueuedPod], at_ns: int
) -> SubQueue | None:
    old, new = versions
    return queue.update(old, new, now_ns=at_ns)


def _read_delete(_reader: QueueReader, message: queue_pb2.Delete) -> PodRef:
    return _named_ref(message.pod)


def _named_ref(message: session_pb2.PodRef) -> PodRef:
    pod = codec.pod_ref(message)
    if not pod.name:
        raise FieldError("pod.name", "is required: pods are found by namespace and name")
    return pod


def _delete(queue: SchedulingQueue, pod: PodRef, at_ns: int) -> None:
    queue.delete(pod, now_ns=at_ns)


def _read_nothing(_reader: QueueReader, _message: object) -> None:
    return None


def _read_pop(_reader: QueueReader, message: queue_pb2.Pop) -> str:
    return message.owner


def _pop(queue: SchedulingQueue, owner: str, at_ns: int) -> Outcome:
    return queue.pop(now_ns=at_ns, owner=owner)


def _read_commit_pop(_reader: QueueReader, message: queue_pb2.CommitPop) -> tuple[PopId, str]:
    return codec.pop_id(message.pop), message.owner


def _commit_pop(queue: SchedulingQueue, wanted: tuple[PopId, str], at_ns: int) -> Outcome:
    pop, owner = wanted
    return queue.commit_pop(pop, now_ns=at_ns, owner=owner)


class _FailedPods(NamedTuple):
    first_cycle: int
    pods: list[FailedPod]


def _read_commit_unschedulable(
    reader: QueueReader, message: queue_pb2.CommitUnschedulable
) -> _FailedPods:
    uids, failed_by = message.uids, message.failed_by
    if not uids or not all(uids):
        raise FieldError("uids", "is required, and no uid may be empty")
    if message.first_cycle < 1:
        raise FieldError(
            "first_cycle", f"{message.first_cycle} is no scheduling cycle: they count from 1"
        )
    failures = [_failure_at(reader, *each) for each in enumerate(message.failures)]
    if len(failed_by) != len(uids) or max(failed_by) >= len(failures):
        raise FieldError("failed_by", "must name one of `failures` for each of `uids`")
    pods = [FailedPod(uid, *failures[each]) for uid, each in zip(uids, failed_by, strict=True)]
    return _FailedPods(message.first_cycle, pods)


def _failure_at(
    reader: QueueReader, index: int, message: queue_pb2.Failure
) -> tuple[Failure, LabelSelector | None]:
    try:
        return reader.failure(message), reader.spread_selector(message)
    except FieldError as error:
        raise FieldError(f"failures[{index}].{error.field}", error.problem) from None


def _commit_unschedulable(queue: SchedulingQueue, failed: _FailedPods, at_ns: int) -> Outcome:
    return queue.commit_unschedulable(failed.pods, first_cycle=failed.first_cycle, now_ns=at_ns)


def _read_pass_through(_reader: QueueReader, message: queue_pb2.PassThrough) -> tuple[int, int]:
    if message.first_cycle < 1:
        raise FieldError(
            "first_cycle", f"{message.first_cycle} is no scheduling cycle: they count from 1"
        )
    if not message.pods:
        raise FieldError("pods", "is required: how many have passed")
    return message.first_cycle, message.pods


def _pass_through(queue: SchedulingQueue, passed: tuple[int, int], at_ns: int) -> Outcome:
    first_cycle, pods = passed
    return queue.pass_through(pods, first_cycle=first_cycle, now_ns=at_ns)


class _FailedPop(NamedTuple):
    pop: PopId
    failure: Failure
    cycle: int | None
    pod: QueuedPod | None
    gates: tuple[str, ...]
    spread_selector: LabelSelector | None


def _read_add_unschedulable(reader: QueueReader, message: queue_pb2.AddUnschedulable) -> _FailedPop:
    pop = codec.pop_id(message.pop)
    if message.cycle < 0:
        raise FieldError("cycle", f"{message.cycle} is no scheduling cycle: they count from 1")
    gates, pod = reader.gates(message.gates), None
    if message.HasField("pod"):
        pod = reader.pod(message.pod, field="pod", gates=gates)
        if pod.uid != pop.uid:
            raise FieldError("pod.metadata.uid", f"{pod.uid!r} is not the pop's {pop.uid!r}")
    selector = reader.spread_selector(message)
    return _FailedPop(pop, reader.failure(message), message.cycle or None, pod, gates, selector)


def _add_unschedulable(queue: SchedulingQueue, failed: _FailedPop, at_ns: int) -> Outcome:
    return queue.add_unschedulable(
        failed.pop,
        now_ns=at_ns,
        failure=failed.failure,
        cycle=failed.cycle,
        pod=failed.pod,
        gates=failed.gates,
        spread_selector=failed.spread_selector,
    )


def _read_done(_reader: QueueReader, message: queue_pb2.Done) -> PopId:
    return codec.pop_id(message.pop)


def _done(queue: SchedulingQueue, pop: PopId, _at_ns: int) -> NotInFlight | None:
    return None if queue.done(pop) is Done.APPLIED else _NOT_IN_FLIGHT


class _WantedMove(NamedTuple):
    happening: Happening
    wanted: MoveFilter


def _read_move(reader: QueueReader, message: queue_pb2.Move) -> _WantedMove:
    happening = reader.happening(message.event, field="event")
    priority = message.priority_at_most if message.HasField("priority_at_most") else None
    wanted = MoveFilter(priority_at_most=priority, all_but_uid=message.all_but_uid)
    return _WantedMove(happening, wanted)


def _move(queue: SchedulingQueue, wanted: _WantedMove, at_ns: int) -> int:
    return queue.move_all(wanted.happening, now_ns=at_ns, wanted=wanted.wanted)


_Assigned = tuple[AssignedPod, Happening]


def _read_assigned_add(reader: QueueReader, message: queue_pb2.AssignedPodAdd) -> _Assigned:
    return reader.assigned(ASSIGNED_POD_ADD.label, None, message.pod, message.namespace_labels)


def _assigned_add(queue: SchedulingQueue, assigned: _Assigned, at_ns: int) -> int:
    pod, happening = assigned
    return queue.assigned_add(pod, now_ns=at_ns, happening=happening)


def _read_assigned_update(reader: QueueReader, message: queue_pb2.AssignedPodUpdate) -> _Assigned:
    label = message.label if reader.has_gates and message.label else ASSIGNED_POD_UPDATE.label
    old = message.old if message.HasField("old") else None
    return reader.assigned(label, old, message.pod, message.namespace_labels)


def _assigned_update(queue: SchedulingQueue, assigned: _Assigned, at_ns: int) -> int:
    pod, happening = assigned
    return queue.assigned_update(pod, now_ns=at_ns, happening=happening)


def _read_nominate(_reader: QueueReader, message: queue_pb2.Nominate) -> tuple[PodRef, str]:
    return codec.pod_ref(message.pod), message.node_name


def _nominate(queue: SchedulingQueue, nomination: tuple[PodRef, str], _at_ns: int) -> None:
    queue.nominate(*nomination)


def _read_delete_nomination(_reader: QueueReader, message: queue_pb2.DeleteNomination) -> str:
    return codec.pod_ref(message.pod).uid


def _delete_nomination(queue: SchedulingQueue, uid: str, _at_ns: int) -> None:
    queue.nominate_delete(uid)


def _read_activate(reader: QueueReader, message: queue_pb2.Activate) -> list[PodRef]:
    if not reader.has_gates:
        raise FieldError("pods", "the mode has no Activate: it came with v1.34")
    if not message.pods:
        raise FieldError("pods", "is required")
    return [_ref_at(index, each) for index, each in enumerate(message.pods)]


def _ref_at(index: int, message: session_pb2.PodRef) -> PodRef:
    try:
        return _named_ref(message)
    except FieldError as error:
        path = error.field.replace("pod", f"pods[{index}]", 1)
        raise FieldError(path, error.problem) from None


def _activate(queue: SchedulingQueue, pods: list[PodRef], at_ns: int) -> int:
    return queue.activate(pods, now_ns=at_ns)


def _read_set_gates(
    reader: QueueReader, message: queue_pb2.SetGates
) -> tuple[PodRef, tuple[str, ...]]:
    return _named_ref(message.pod), reader.gates(message.gates)


def _set_gates(queue: SchedulingQueue, held: tuple[PodRef, tuple[str, ...]], at_ns: int) -> None:
    queue.hold(*held, now_ns=at_ns)


def _read_owner(
    _reader: QueueReader, message: queue_pb2.RenewLeases | queue_pb2.ReleaseOwner
) -> str:
    if not message.owner:
        raise FieldError("owner", "is required")
    return message.owner


def _renew_leases(queue: SchedulingQueue, owner: str, at_ns: int) -> int:
    return queue.renew_leases(owner, now_ns=at_ns)


def _release_owner(queue: SchedulingQueue, owner: str, at_ns: int) -> int:
    return queue.release_owner(owner, now_ns=at_ns)


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
    "pop": OperationKind(read=_read_pop, apply=_pop),
    "commit_pop": OperationKind(read=_read_commit_pop, apply=_commit_pop, untold=_PLAIN | {Popped}),
    "commit_unschedulable": OperationKind(
        read=_read_commit_unschedulable, apply=_commit_unschedulable
    ),
    "pass_through": OperationKind(read=_read_pass_through, apply=_pass_through),
    "add_unschedulable": OperationKind(read=_read_add_unschedulable, apply=_add_unschedulable),
    "done": OperationKind(read=_read_done, apply=_done),
    "move": OperationKind(read=_read_move, apply=_move),
    "assigned_pod_add": OperationKind(read=_read_assigned_add, apply=_assigned_add),
    "assigned_pod_update": OperationKind(read=_read_assigned_update, apply=_assigned_update),
    "nominate": OperationKind(read=_read_nominate, apply=_nominate),
    "delete_nomination": OperationKind(read=_read_delete_nomination, apply=_delete_nomination),
    "activate": OperationKind(read=_read_activate, apply=_activate),
    "flush_backoff": OperationKind(read=_read_nothing, apply=_flush_backoff),
    "flush_leftover": OperationKind(read=_read_nothing, apply=_flush_leftover),
    "close": OperationKind(read=_read_nothing, apply=_close),
    "set_gates": OperationKind(read=_read_set_gates, apply=_set_gates),
    "renew_leases": OperationKind(read=_read_owner, apply=_renew_leases),
    "release_owner": OperationKind(read=_read_owner, apply=_release_owner),
}
