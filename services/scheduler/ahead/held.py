"""Operations whose answer nothing waits for, held until an exchange that something waits for.

Pods that are added, popped and done among them, all while no other pod is active, leave nothing in
the queue but its scheduling cycle and its counts. Of those the queue receives the number. One that
is refused among them is added as late as possible: just before it is tried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from reprieve.queue.v1beta1 import queue_pb2
from reprieve.session.v1beta1 import session_pb2

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
        "delete_nomination",
        "flush_backoff",
        "flush_leftover",
        "move",
        "nominate",
        "pass_through",
    }
)


@dataclass(slots=True)
class _Life:
    """A pod that was added: the places of its operations, and the cycle of its pop.

    `refused_at` is the place of the operation that leaves it unschedulable, None if none does. A
    pod may come again with the same uid, so that a life counts, not a uid.
    """

    places: list[int]
    cycle: int = 0
    is_done: bool = False
    refused_at: int | None = None


class _Lives:
    """The lives of pods among operations, in stretches between moments without an active one."""

    def __init__(self) -> None:
        self._stretches: list[list[_Life]] = []
        self._by_uid: dict[str, _Life] = {}
        self._active: set[str] = set()

    def add(self, place: int, uid: str) -> None:
        """Begin a life."""
        if not self._active:
            self._stretches.append([])
        self._active.add(uid)
        life = _Life([place])
        self._stretches[-1].append(life)
        # While an earlier life lasts, whose pops follow is not known: neither passes.
        lasts = uid in self._by_uid and not self._by_uid[uid].is_done
        self._by_uid[uid] = _Life([]) if lasts else life

    def pop(self, place: int, pop: session_pb2.PopId) -> None:
        """Note a pop that binds."""
        if pop.uid in self._active:
            self._active.remove(pop.uid)
            self._by_uid[pop.uid].places.append(place)
            self._by_uid[pop.uid].cycle = pop.cycle

    def refuse(self, place: int, uids: Sequence[str]) -> bool:
        """Note pops that leave their pods unschedulable; return whether each was active."""
        if not self._active.issuperset(uids):
            return False
        self._active.difference_update(uids)
        for uid in uids:
            self._by_uid[uid].refused_at = place
        return True

    def done(self, place: int, pop: session_pb2.PopId) -> None:
        """Note that a cycle ended well."""
        popped = self._by_uid.get(pop.uid)
        if popped and not popped.is_done and popped.cycle == pop.cycle:
            popped.is_done = True
            popped.places.append(place)

    def delete(self, place: int, uid: str) -> None:
        """End a life."""
        self._active.discard(uid)
        if uid in self._by_uid and self._by_uid[uid].is_done:
            self._by_uid[uid].places.append(place)
        else:
            self._by_uid.pop(uid, None)

    def tried(self) -> list[_Life]:
        """Return the lives of stretches in which all pods were bound, and are done, or refused."""
        return [
            life
            for stretch in self._stretches
            if all(life.is_done or life.refused_at is not None for life in stretch)
            for life in stretch
        ]


def without_passing(operations: Operations) -> Operations:
    """Return operations of the same effect, with PassThrough for pods that are added and deleted.

    Those are added, popped and done among `operations`, all while no other pod is active. So the
    pods that come between two moments without an active one pass together, but for those that are
    refused, or none of them does.
    """
    lives = _Lives()
    for place, operation in enumerate(operations):
        match operation.WhichOneof("operation"):
            case "add":
                lives.add(place, operation.add.pod.metadata.uid)
            case "commit_pop":
                lives.pop(place, operation.commit_pop.pop)
            case "commit_unschedulable":
                if not lives.refuse(place, operation.commit_unschedulable.uids):
                    return operations
            case "done":
                lives.done(place, operation.done)
            case "delete_pod":
                lives.delete(place, operation.delete_pod.uid)
            case kind if kind not in _OF_NO_PENDING_POD:
                return operations
    tried = lives.tried()
    return list(_without(tried, operations)) if any(life.is_done for life in tried) else operations


def _without(
    lives: Sequence[_Life], operations: Sequence[queue_pb2.Operation]
) -> Iterator[queue_pb2.Operation]:
    """Yield the operations without those of `lives`, whose pops are PassThrough operations.

    Those of them that are refused are added just before that.
    """
    dropped = {place for life in lives for place in life.places}
    popped = {life.places[1]: life.cycle for life in lives if life.is_done}
    refused: dict[int, list[int]] = {}
    for life in lives:
        if life.refused_at is not None:
            refused.setdefault(life.refused_at, []).extend(life.places)
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
            yield from (operations[added] for added in refused.get(place, ()))
            yield operation
    if passing is not None:
        yield passing
