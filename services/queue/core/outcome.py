"""What the operations answer. Each is a value, also where upstream reports an error."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from services.queue.core.entry import Popped
from services.queue.core.incoming import SubQueue
from services.queue.core.pod import QueuedPod


@dataclass(frozen=True, slots=True, kw_only=True)
class WouldBlock:
    """No pod is active: a blocking pop would wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed:
    """The queue is closed and drained; `text` is upstream's error, "" where it has none."""

    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PresentTexts:
    """Upstream's words for a failed pod that is in a sub-queue already; {pod} is ns/name."""

    active: str
    backoff: str
    unschedulable: str

    def text(self, where: SubQueue, pod: QueuedPod) -> str:
        """Return the words for `pod` being in `where`."""
        words: str = getattr(self, where.value)
        return words.format(pod=f"{pod.namespace}/{pod.name}")


Pop = Popped | WouldBlock | Closed
"""What a pop answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotNext:
    """A commit of a pop that Pop would not return at this moment; nothing has changed by it.

    `next` is what it would return. Of several commits at once, `committed` went before.
    """

    next: Pop
    committed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Requeued:
    """A failed pod is back in `queue`."""

    queue: SubQueue


@dataclass(frozen=True, slots=True, kw_only=True)
class AlreadyPresent:
    """The pod is in `queue` already, so this copy is dropped; `text` is upstream's error."""

    queue: SubQueue
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NotInFlight:
    """No such pop is in flight; nothing has changed."""


class Done(Enum):
    """What a pop that ended well answers."""

    APPLIED = "applied"
    NOT_IN_FLIGHT = "not in flight"
