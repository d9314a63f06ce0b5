"""The parts that every mode of the queue is composed of, and the counters that they share."""

from __future__ import annotations

from services.queue.core.backoff import BackoffPolicy, FlushTicks
from services.queue.core.in_flight import InFlightPods
from services.queue.core.nominator import Nominator
from services.queue.core.queued_pod import InFlightPod, PodRef, QueuedPod, QueuedPodInfo
from services.queue.core.results import Counts
from services.queue.core.sub_queues import SubQueues

NO_MOVE_YET = -1


class QueueParts:
    """The sub-queues, the nominator, the pods in flight, the flushes, and the counters.

    `finished` counts pods by the attempts after which their pop ended without a failure.
    `move_request_cycle` is the scheduling cycle of the last move request, NO_MOVE_YET before it.
    """

    __slots__ = (
        "closed",
        "finished",
        "flushes",
        "in_flight",
        "move_request_cycle",
        "nominator",
        "now_ns",
        "policy",
        "queues",
        "scheduling_cycle",
        "sequence",
    )

    def __init__(
        self, policy: BackoffPolicy, *, ranked: bool, lease_ns: int, max_unschedulable_ns: int
    ) -> None:
        self.policy = policy
        self.queues = SubQueues(policy, ranked=ranked)
        self.nominator = Nominator()
        self.in_flight = InFlightPods(lease_ns)
        self.flushes = FlushTicks(max_unschedulable_ns=max_unschedulable_ns)
        self.finished = Counts[int]()
        self.now_ns = 0
        self.scheduling_cycle = 0
        self.move_request_cycle = NO_MOVE_YET
        self.sequence = 0
        self.closed = False

    def advance(self, now_ns: int) -> None:
        """Set the time, which never goes back."""
        assert now_ns >= self.now_ns, "time goes back"
        self.now_ns = now_ns

    def new_pod_info(self, pod: QueuedPod, initial_attempt_ns: int | None) -> QueuedPodInfo:
        """Return the info of a pod that is added now, without attempts."""
        self.sequence = sequence = self.sequence + 1
        return QueuedPodInfo(pod, self.now_ns, initial_attempt_ns, 0, sequence)

    def latest(self, pod: PodRef) -> QueuedPod | None:
        """Return the version of a pod that is queued, or else in flight; None for other pods."""
        queued = self.queues.latest(pod)
        return queued or self.in_flight.latest(pod.uid)

    def next_sequence(self) -> int:
        """Return the next tie-break."""
        self.sequence += 1
        return self.sequence

    def record_move(self) -> None:
        """Record a move request in the current scheduling cycle."""
        self.move_request_cycle = self.scheduling_cycle

    def as_popped(self, pod_info: QueuedPodInfo, cycle: int, owner: str = "") -> InFlightPod:
        """Return the pod as a pop that begins `cycle` would."""
        return InFlightPod(pod_info, cycle, self.nominator.node_of(pod_info.pod.uid), owner)
