"""Pods that come and go while no other pod is active: the queue needs their number only."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence

from reprieve.queue.v1beta1 import queue_pb2

_OF_NO_PENDING_POD = frozenset(
    {
        "assigned_pod_add",
        "assigned_pod_update",
        "flush_backoff",
        "flush_leftover",
        "move",
        "pass_through",
    }
)


def without_passing(operations: Sequence[queue_pb2.Operation]) -> list[queue_pb2.Operation]:
    """Return operations of the same effect, with PassThrough for pods that come and go.

    Those are added, popped and done among `operations`, all while no other pod is active.
    """
    came: set[str] = set()
    taken: set[str] = set()
    gone: set[str] = set()
    for operation in operations:
        match operation.WhichOneof("operation"):
            case "add":
                came.add(operation.add.pod.metadata.uid)
            case "commit_pop" if operation.commit_pop.pop.uid in came:
                taken.add(operation.commit_pop.pop.uid)
            case "done" if operation.done.uid in taken:
                gone.add(operation.done.uid)
            case "delete_pod":
                taken.discard(operation.delete_pod.uid)
            case "commit_pop" | "done":
                pass
            case kind if kind not in _OF_NO_PENDING_POD:
                return list(operations)
    return list(_left(operations, gone)) if gone else list(operations)


def _left(
    operations: Iterable[queue_pb2.Operation], gone: Container[str]
) -> Iterator[queue_pb2.Operation]:
    passing: queue_pb2.Operation | None = None
    for operation in operations:
        kind = operation.WhichOneof("operation")
        cycle, pods = 0, 0
        if kind == "commit_pop" and operation.commit_pop.pop.uid in gone:
            cycle, pods = operation.commit_pop.pop.cycle, 1
        elif kind == "pass_through":
            cycle, pods = operation.pass_through.first_cycle, operation.pass_through.pods
        if pods:
            if passing is None:
                passing = queue_pb2.Operation()
                passing.pass_through.first_cycle = cycle
            passing.at_ns = operation.at_ns
            passing.pass_through.pods += pods
        elif not _is_about(operation, kind, gone):
            if passing is not None:
                yield passing
                passing = None
            yield operation
    if passing is not None:
        yield passing


def _is_about(operation: queue_pb2.Operation, kind: str | None, pods: Container[str]) -> bool:
    match kind:
        case "add":
            return operation.add.pod.metadata.uid in pods
        case "done":
            return operation.done.uid in pods
        case "delete_pod":
            return operation.delete_pod.uid in pods
        case _:
            return False
