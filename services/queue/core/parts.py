"""What every mode of the queue is composed of, and the counters that they share."""

from __future__ import annotations

from services.queue.core.backoff import BackoffPolicy
from services.queue.core.entry import Entry, Popped
from services.queue.core.incoming import Counts
from services.queue.core.nominator import Nominator
from services.queue.core.pod import PodRef, QueuedPod
from services.queue.core.pops import Pops
from services.queue.core.sub_queues import SubQueues

NO_MOVE_YET = -1


class QueueParts:
    """The sub-queues, the nominator, the pops in flight, and where the counters stand.

    `finished` counts pods by the attempts after which they ended.
    """

    __slots__ = (
        "closed",
        "finished",
        "move_request_cycle",
        "nominator",
        "now_ns",
        "policy",
        "pops",
        "queues",
        "scheduling_cycle",
        "sequence",
    )

    def __init__(self, policy: BackoffPolicy, *, ranked: bool, lease_ns: int) -> None:
        self.policy = policy
        self.queues = SubQueues(policy, ranked=ranked)
        self.nominator = Nominator()
        self.pops = Pops(lease_ns)
        self.finished = Counts[int]()
        self.now_ns = 0
        self.scheduling_cycle = 0
        self.move_request_cycle = NO_MOVE_YET
        self.sequence = 0
        self.closed = False

    def advance(self, now_ns: int) -> None:
        """Let it be `now_ns`, which is never earlier than before."""
        assert now_ns >= self.now_ns, "time goes back"
        self.now_ns = now_ns

    def new_entry(self, pod: QueuedPod, initial_attempt_ns: int | None) -> Entry:
        """Return the stay of a pod that the queue has not seen before, from now on."""
        self.sequence = sequence = self.sequence + 1
        return Entry(pod, self.now_ns, initial_attempt_ns, 0, sequence)

    def latest(self, pod: PodRef) -> QueuedPod | None:
        """Return a pod's version that is queued, or else in flight; None for any other pod."""
        queued = self.queues.latest(pod)
        return queued or self.pops.latest(pod.uid)

    def next_sequence(self) -> int:
        """Return the next tie-break."""
        self.sequence += 1
        return self.sequence

    def note_move(self) -> None:
        """Note that pods were asked to move in the current scheduling cycle."""
        self.move_request_cycle = self.scheduling_cycle

    def as_popped(self, entry: Entry, cycle: int, owner: str = "") -> Popped:
        """Return the pop of `entry` that would begin `cycle`."""
        return Popped(entry, cycle, self.nominator.node_of(entry.pod.uid), owner)
