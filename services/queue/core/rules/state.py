"""The whole state of a queue as values, for GetState and for checkpoints."""

from __future__ import annotations

from dataclasses import dataclass, field

from services.queue.core.backoff import NameBackoff
from services.queue.core.nominator import NodeNominations
from services.queue.core.queued_pod import InFlightPod, QueuedPodInfo
from services.queue.core.rules.base import HintState, QueueParts, QueueRules
from services.queue.core.sub_queues import BackoffQueue


@dataclass(frozen=True, slots=True, kw_only=True)
class BackingOffPod:
    """A pod in a backoffQ, with the end of its backoff (BackoffPolicy.expiry_ns).

    `put_by_ns` is the expiry at the time when the pod was added; it determines the pod's place.
    """

    pod_info: QueuedPodInfo
    expiry_ns: int
    put_by_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueState:
    """The whole state of a queue, except its configuration; `mode` is its version.

    `active` is in pop order, `backoff` and `error_backoff` (v1.34) in the order of expiry,
    `unschedulable` by timestamp with gated pods last, `in_flight` by cycle, `name_backoffs` (v1.16)
    by last update. `now_ns` is the time of the last operation, `sequence` the last sequence number
    used. The flush times are the times of the last flush of each kind, -1 for never.
    """

    mode: str
    active: tuple[QueuedPodInfo, ...]
    backoff: tuple[BackingOffPod, ...]
    unschedulable: tuple[QueuedPodInfo, ...]
    in_flight: tuple[InFlightPod, ...]
    nominations: tuple[NodeNominations, ...]
    name_backoffs: tuple[NameBackoff, ...]
    now_ns: int
    scheduling_cycle: int
    move_request_cycle: int
    sequence: int
    flushed_backoff_ns: int
    flushed_leftover_ns: int
    closed: bool
    error_backoff: tuple[BackingOffPod, ...] = ()
    hint_state: HintState = field(default_factory=HintState)


def state_of(mode: str, parts: QueueParts, rules: QueueRules) -> QueueState:
    """Return the state of a queue of the version `mode`."""
    queues = parts.queues
    return QueueState(
        mode=mode,
        active=queues.active.pod_infos(),
        backoff=_backing_off(queues.backoff, parts),
        error_backoff=_backing_off(queues.error_backoff, parts),
        unschedulable=queues.unschedulable.pod_infos(),
        in_flight=tuple(parts.in_flight.by_cycle.values()),
        hint_state=rules.hint_state(),
        nominations=parts.nominator.nominations(),
        name_backoffs=parts.policy.state(),
        now_ns=parts.now_ns,
        scheduling_cycle=parts.scheduling_cycle,
        move_request_cycle=parts.move_request_cycle,
        sequence=parts.sequence,
        flushed_backoff_ns=parts.flushes.backoff_ns,
        flushed_leftover_ns=parts.flushes.leftover_ns,
        closed=parts.closed,
    )


def restore(parts: QueueParts, rules: QueueRules, state: QueueState) -> None:
    """Restore `state` in the parts and rules of an empty queue."""
    queues = parts.queues
    parts.policy.restore(state.name_backoffs)
    for pod_info in state.active:
        queues.active.put(pod_info)
    for backing_off in state.backoff:
        queues.backoff.put_by(backing_off.put_by_ns, backing_off.pod_info)
    for backing_off in state.error_backoff:
        queues.error_backoff.put_by(backing_off.put_by_ns, backing_off.pod_info)
    for pod_info in state.unschedulable:
        queues.unschedulable.put(pod_info)
    parts.nominator.restore(state.nominations)
    parts.in_flight.restore(state.in_flight)
    rules.restore(state.hint_state)
    parts.flushes.backoff_ns = state.flushed_backoff_ns
    parts.flushes.leftover_ns = state.flushed_leftover_ns
    parts.now_ns = state.now_ns
    parts.scheduling_cycle = state.scheduling_cycle
    parts.move_request_cycle = state.move_request_cycle
    parts.sequence = state.sequence
    parts.closed = state.closed


def _backing_off(heap: BackoffQueue, parts: QueueParts) -> tuple[BackingOffPod, ...]:
    expiry_ns = parts.policy.expiry_ns
    return tuple(
        BackingOffPod(
            pod_info=pod_info,
            expiry_ns=expiry_ns(pod_info),
            put_by_ns=heap.put_by_ns((pod_info.pod.namespace, pod_info.pod.name)),
        )
        for pod_info in heap.pod_infos()
    )
