"""Pods that come and go while no other pod is active: the queue needs their number only."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

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
_ADDED_AND_POPPED = 2


def without_passing(operations: Sequence[queue_pb2.Operation]) -> list[queue_pb2.Operation]:
    """Return operations of the same effect, with PassThrough for pods that come and go.

    Those are added, popped and done among `operations`, all while no other pod is active. A pod
    may come again with the same uid, so that a life counts, not a uid.
    """
    popped: dict[int, int] = {}
    lives: dict[str, list[int]] = {}
    ended: set[str] = set()
    dropped: set[int] = set()
    for place, operation in enumerate(operations):
        match operation.WhichOneof("operation"):
            case "add":
                uid = operation.add.pod.metadata.uid
                ended.discard(uid)
                # A pod that is added twice is in the queue already: it does not come here.
                if lives.pop(uid, None) is None:
                    lives[uid] = [place]
            case "commit_pop":
                life = lives.get(operation.commit_pop.pop.uid)
                if life is not None:
                    life.append(place)
            case "done":
                uid = operation.done.uid
                life = lives.pop(uid, ())
                if len(life) == _ADDED_AND_POPPED:
                    dropped.update((*life, place))
                    popped[life[1]] = operations[life[1]].commit_pop.pop.cycle
                    ended.add(uid)
            case "delete_pod":
                uid = operation.delete_pod.uid
                lives.pop(uid, None)
                if uid in ended:
                    dropped.add(place)
            case kind if kind not in _OF_NO_PENDING_POD:
                return list(operations)
    return list(_left(operations, popped, dropped)) if popped else list(operations)


def _left(
    operations: Iterable[queue_pb2.Operation], popped: Mapping[int, int], dropped: Container[int]
) -> Iterator[queue_pb2.Operation]:
    """Yield what is left; `popped` has the cycles of the pops that pass, by their places."""
    passing: queue_pb2.Operation | None = None
    for place, operation in enumerate(operations):
        kind = operation.WhichOneof("operation")
        cycle, pods = popped.get(place, 0), 1 if place in popped else 0
        if kind == "pass_through":
            cycle, pods = operation.pass_through.first_cycle, operation.pass_through.pods
        if pods:
            if passing is None:
                passing = queue_pb2.Operation()
                passing.pass_through.first_cycle = cycle
            passing.at_ns = operation.at_ns
            passing.pass_through.pods += pods
        elif place not in dropped:
            if passing is not None:
                yield passing
                passing = None
            yield operation
    if passing is not None:
        yield passing
