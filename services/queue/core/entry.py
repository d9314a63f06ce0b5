"""A pod's stay in the queue between two pops, and a pop itself.

Both are immutable: an operation that changes an entry puts another in its place, so a
snapshot shares them. They are named tuples because one of each is made in every cycle of
every pod, and a frozen dataclass takes three times as long to make.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from services.queue.core.pod import PodKey, QueuedPod


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a scheduling cycle failed: the plugins that refused the pod, or an error.

    `pending_plugins` are those that refused until an event of their own (Permit, PreBind).
    `error` is a failure that no plugin decided.
    """

    plugins: tuple[str, ...] = ()
    pending_plugins: tuple[str, ...] = ()
    error: bool = False


class Entry(NamedTuple):
    """A pod in one of the sub-queues.

    `timestamp_ns` is when it was added or last failed; `initial_attempt_ns` when it was
    first added; `attempts` counts its pops; `sequence` breaks ties of the timestamp in
    the order of arrival; `failure` is the last cycle's, None before the first.
    """

    pod: QueuedPod
    timestamp_ns: int
    initial_attempt_ns: int
    attempts: int
    sequence: int
    failure: Failure | None = None

    @property
    def key(self) -> PodKey:
        """The pod's namespace and name."""
        return self.pod.key

    def with_pod(self, pod: QueuedPod) -> Entry:
        """Return the same stay with a newer version of the pod."""
        return self._replace(pod=pod)


class PopId(NamedTuple):
    """What names a pop: the pod's UID and the scheduling cycle that the pop began."""

    uid: str
    cycle: int


class Popped(NamedTuple):
    """A pod handed out for one scheduling cycle, in flight until its outcome comes.

    Attempts and times belong to the pop: an update of an in-flight pod queues a second
    copy of it with its own. `attempts` includes this one. `nominated_node_name` is what
    the nominator knew at the pop, "" for none.
    """

    pod: QueuedPod
    cycle: int
    attempts: int
    initial_attempt_ns: int
    timestamp_ns: int
    nominated_node_name: str

    @property
    def id(self) -> PopId:
        """The name under which the outcome is given back."""
        return PopId(self.pod.uid, self.cycle)
