"""A pod's stay in the queue between two pops, and a pop itself.

Both are immutable: an operation that changes an entry puts another in its place, so a
snapshot shares them. They are named tuples because one of each is made in every cycle of
every pod, and a frozen dataclass takes three times as long to make and to hash.
"""

from __future__ import annotations

from typing import NamedTuple

from services.kube.selector import LabelSelector
from services.queue.core.pod import PodKey, QueuedPod


class Failure(NamedTuple):
    """Why a scheduling cycle failed: the plugins that refused the pod, or an error.

    `pending_plugins` are those that refused until an event of their own (Permit, PreBind).
    `error` is a failure that no plugin decided.
    """

    plugins: tuple[str, ...] = ()
    pending_plugins: tuple[str, ...] = ()
    error: bool = False

    @property
    def is_refusal(self) -> bool:
        """Tell whether any plugin refused the pod, or asked it to wait."""
        return bool(self.plugins or self.pending_plugins)

    def also_by(self, plugin: str) -> Failure:
        """Return the failure with one more refusing plugin; plugins stand in order of name."""
        if plugin in self.plugins:
            return self
        plugins = tuple(sorted((*self.plugins, plugin)))
        return Failure(plugins=plugins, pending_plugins=self.pending_plugins, error=self.error)


class Entry(NamedTuple):
    """A pod in one of the sub-queues.

    `timestamp_ns` is when it was added or last failed; `initial_attempt_ns` when it was
    first added (v1.34: when it was first let into activeQ, None before that); `attempts`
    counts its pops; `sequence` breaks ties of the timestamp in the order of arrival;
    `failure` is the last cycle's, None before the first. v1.34 backs off by `refusals`, the
    cycles in which plugins refused it, or by `errors`, the failures in a row that no plugin
    decided; `gate` names the PreEnqueue plugin that holds it back, "" for none.
    """

    pod: QueuedPod
    timestamp_ns: int
    initial_attempt_ns: int | None
    attempts: int
    sequence: int
    failure: Failure | None = None
    refusals: int = 0
    errors: int = 0
    gate: str = ""

    @property
    def key(self) -> PodKey:
        """The pod's namespace and name."""
        pod = self.pod
        return (pod.namespace, pod.name)

    @property
    def failed_by_plugins(self) -> bool:
        """Tell whether plugins refused it, in its last cycle or before its first."""
        return self.failure is not None and self.failure.is_refusal

    def with_pod(self, pod: QueuedPod) -> Entry:
        """Return the same stay with a newer version of the pod."""
        return self._replace(pod=pod)


class FailedPod(NamedTuple):
    """A pod that is next, and why its cycle will have failed.

    `spread_selector` is what default spread constraints counted, None where they did not refuse it.
    """

    uid: str
    failure: Failure
    spread_selector: LabelSelector | None = None


class PopId(NamedTuple):
    """What names a pop: the pod's UID and the scheduling cycle that the pop began."""

    uid: str
    cycle: int


class Popped(NamedTuple):
    """A pod handed out for one scheduling cycle, in flight until its outcome comes.

    `entry` is the stay that the pop ended: attempts and times belong to the pop, for an
    update of an in-flight pod queues a second copy of it with its own in older modes.
    `nominated_node_name` is what the nominator knew at the pop, "" for none. `owner` holds
    the pop until `lease_until_ns`; 0 is for ever.
    """

    entry: Entry
    cycle: int
    nominated_node_name: str
    owner: str = ""
    lease_until_ns: int = 0

    @property
    def pod(self) -> QueuedPod:
        """The pod as it was popped."""
        return self.entry.pod

    @property
    def attempts(self) -> int:
        """Attempts so far, this one included."""
        return self.entry.attempts + 1

    @property
    def initial_attempt_ns(self) -> int:
        """When the pod was first added."""
        return self.entry.initial_attempt_ns or 0

    @property
    def timestamp_ns(self) -> int:
        """When the pod was added or last failed, before this pop."""
        return self.entry.timestamp_ns

    @property
    def id(self) -> PopId:
        """The name under which the outcome is given back."""
        return PopId(self.entry.pod.uid, self.cycle)
