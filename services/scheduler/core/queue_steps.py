"""What the scheduler tells its queue about a pop, as values (cluster events: events_operations)."""

from __future__ import annotations

from typing import NamedTuple

from services.kube.selector import LabelSelector
from services.kube.value import value
from services.scheduler.core.events_operations import QueueOperation


class PopId(NamedTuple):
    """One pop of one pod: its UID and the queue's scheduling cycle."""

    uid: str
    cycle: int


class Head(NamedTuple):
    """A pod at the front of the queue, not popped yet; times in ns since the Unix epoch."""

    pop: PopId
    attempts: int
    first_enqueued_ns: int
    queued_ns: int


@value()
class CommitPop:
    """Take exactly this head."""

    pop: PopId


class WhyFailed(NamedTuple):
    """The plugins that refused a pod, or an error.

    `spread_selector` picks the pods that default spread constraints counted, where they refused.
    """

    plugins: tuple[str, ...] = ()
    pending_plugins: tuple[str, ...] = ()
    is_error: bool = False
    spread_selector: LabelSelector | None = None


class CommitUnschedulable(NamedTuple):
    """Take exactly this head and give it back."""

    pop: PopId
    why: WhyFailed


@value()
class AddUnschedulable:
    """Give a pop back after an error; `cycle` is the queue's cycle at that time."""

    pop: PopId
    cycle: int


@value()
class Done:
    """End a pop whose pod was bound or is gone."""

    pop: PopId


@value()
class Nominate:
    """Record a nomination."""

    uid: str
    node_name: str


@value()
class DeleteNomination:
    """Forget a nomination."""

    uid: str


@value()
class Activate:
    """Try a pod again at once."""

    uid: str


@value()
class Flush:
    """Let the queue do what its clock would do: `leftover` on whole 30 s, backoff every second."""

    leftover: bool


QueueStep = (
    QueueOperation
    | CommitPop
    | CommitUnschedulable
    | AddUnschedulable
    | Done
    | Nominate
    | DeleteNomination
    | Activate
    | Flush
)
