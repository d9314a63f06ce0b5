"""Operations whose answer nothing waits for, held until an exchange that something waits for.

Pods that are added, popped and done among them, all while no other pod is active, leave nothing in
the queue but its scheduling cycle and its counts. Of those the queue receives the number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from reprieve.queue.v1beta1 import queue_pb2

HELD_MAX = 512
"""Operations that are held at most; with 0 each is sent at once."""
TOGETHER_MAX = 131_072
"""Operations that are held at most while pods are tried that were added together."""

Operations = Sequence[queue_pb2.Operation]


class HeldOperations:
    """Operations that go along with the next exchange; `shorten` returns some of equal effect."""

    def __init__(self, shorten: Callable[[Operations], Operations]) -> None:
        self._shorten = shorten
        self._operations: list[queue_pb2.Operation] = []

    def add(self, operations: Operations, *, more_follow: bool) -> Operations:
        """Hold operations, and return those to send now: all if too many are held, else none.

        more_follow: others for the same pods follow, after which fewer may be left of all.
        """
        self._operations += operations
        most = TOGETHER_MAX if more_follow else HELD_MAX
        if len(self._operations) < most:
            return ()
        operations = self.take()
        if len(operations) >= most // 2:
            return operations
        self._operations = [*operations]  # short again: most of them were of pods that have gone
        return ()

    def take(self) -> Operations:
        """Return the held operations, and hold none from then on."""
        operations, self._operations = self._operations, []
        return self._shorten(operations)


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


@dataclass(slots=True)
class _Life:
    """A pod that was added: the places of its operations, and the cycle of its pop.

    A pod may come again with the same uid, so that a life counts, not a uid.
    """

    places: list[int]
    cycle: int = 0
    is_done: bool = False


def without_passing(operations: Operations) -> Operations:
    """Return operations of the same effect, with PassThrough for pods that are added and deleted.

    Those are added, popped and done among `operations`, all while no other pod is active. So the
    pods that come between two moments without an active one pass together, or none of them does.
    """
    stretches: list[list[_Life]] = []
    lives: dict[str, _Life] = {}
    active: set[str] = set()
    for place, operation in enumerate(operations):
        match operation.WhichOneof("operation"):
            case "add":
                uid = operation.add.pod.metadata.uid
                if not active:
                    stretches.append([])
                active.add(uid)
                life = _Life([place])
                stretches[-1].append(life)
                # While an earlier life lasts, whose pops follow is not known: neither passes.
                lasts = uid in lives and not lives[uid].is_done
                lives[uid] = _Life([]) if lasts else life
            case "commit_pop":
                pop = operation.commit_pop.pop
                if pop.uid in active:
                    active.remove(pop.uid)
                    lives[pop.uid].places.append(place)
                    lives[pop.uid].cycle = pop.cycle
            case "done":
                popped = lives.get(operation.done.uid)
                if popped and not popped.is_done and popped.cycle == operation.done.cycle:
                    popped.is_done = True
                    popped.places.append(place)
            case "delete_pod":
                uid = operation.delete_pod.uid
                active.discard(uid)
                if uid in lives and lives[uid].is_done:
                    lives[uid].places.append(place)
                else:
                    lives.pop(uid, None)
            case kind if kind not in _OF_NO_PENDING_POD:
                return operations
    passing = [
        life for stretch in stretches if all(life.is_done for life in stretch) for life in stretch
    ]
    return list(_without(passing, operations)) if passing else operations


def _without(
    lives: Sequence[_Life], operations: Iterable[queue_pb2.Operation]
) -> Iterator[queue_pb2.Operation]:
    """Yield the operations without those of `lives`, whose pops are PassThrough operations."""
    dropped = {place for life in lives for place in life.places}
    popped = {life.places[1]: life.cycle for life in lives}
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
            passing.time_ns = operation.time_ns
            passing.pass_through.pods += pods
        elif place not in dropped:
            if passing is not None:
                yield passing
                passing = None
            yield operation
    if passing is not None:
        yield passing
