"""The queue's state as messages, for GetState and WatchPending."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from reprieve.kube.v1beta1 import meta_pb2
from reprieve.queue.v1beta1 import queue_pb2, queue_service_pb2
from services.queue.codec import pod_ref_message
from services.queue.core.backoff import BackoffLimits, NameBackoff, backoff_ns
from services.queue.core.entry import Entry, Popped
from services.queue.core.incoming import SubQueue
from services.queue.core.nominator import NodeNominations
from services.queue.core.scheduling_queue import SchedulingQueue
from services.queue.core.state import QueueState

_SUB_QUEUES = {
    SubQueue.ACTIVE: queue_pb2.SUB_QUEUE_ACTIVE,
    SubQueue.BACKOFF: queue_pb2.SUB_QUEUE_BACKOFF,
    SubQueue.ERROR_BACKOFF: queue_pb2.SUB_QUEUE_ERROR_BACKOFF,
    SubQueue.UNSCHEDULABLE: queue_pb2.SUB_QUEUE_UNSCHEDULABLE,
    SubQueue.GATED: queue_pb2.SUB_QUEUE_GATED,
}

PODS_PER_NOMINATION = 1000
_LATER = frozenset({SubQueue.ERROR_BACKOFF, SubQueue.GATED})


def state_message(
    state: QueueState, *, limits: BackoffLimits, at_ns: int, next_wakeup_ns: int | None
) -> queue_pb2.QueueState:
    """Return the whole state; `at_ns` is the session's time, which nominations advance too."""
    return queue_pb2.QueueState(
        entries=_entries(state),
        nominations=_nominations(state.nominations),
        cycle=state.scheduling_cycle,
        move_request_cycle=moved if (moved := state.move_request_cycle) >= 0 else None,
        pod_backoffs=_pod_backoffs(state.name_backoffs, limits),
        closed=state.closed,
        at_ns=at_ns,
        next_wakeup_ns=next_wakeup_ns,
        in_flight_events=[each.event.label for each in state.record.events],
        in_flight=_tracked(state),
    )


def pending_views(
    queue: SchedulingQueue, count: int, *, has_gates: bool
) -> list[queue_service_pb2.SubQueueView]:
    """Return the size of each sub-queue and its first `count` pods, pops in flight last.

    Without `has_gates` the sub-queues that only later modes know are left out.
    """
    views = [
        queue_service_pb2.SubQueueView(
            sub_queue=_SUB_QUEUES[where],
            count=size,
            heads=[_entry(entry, _SUB_QUEUES[where]) for entry in queue.first(where, count)],
        )
        for where, size in queue.sizes().items()
        if has_gates or where not in _LATER
    ]
    in_flight = queue.in_flight
    views.append(
        queue_service_pb2.SubQueueView(
            sub_queue=queue_pb2.SUB_QUEUE_IN_FLIGHT,
            count=len(in_flight),
            heads=[_in_flight(popped) for popped in islice(in_flight.values(), count)],
        )
    )
    return views


def _entries(state: QueueState) -> Iterator[queue_pb2.Entry]:
    for entry in state.active:
        yield _entry(entry, queue_pb2.SUB_QUEUE_ACTIVE)
    for waiting in state.backoff:
        yield _entry(waiting.entry, queue_pb2.SUB_QUEUE_BACKOFF, until_ns=waiting.expiry_ns)
    for waiting in state.error_backoff:
        until_ns = waiting.expiry_ns
        yield _entry(waiting.entry, queue_pb2.SUB_QUEUE_ERROR_BACKOFF, until_ns=until_ns)
    for entry in sorted(state.unschedulable, key=lambda each: each.key):
        gated = queue_pb2.SUB_QUEUE_GATED if entry.gate else queue_pb2.SUB_QUEUE_UNSCHEDULABLE
        yield _entry(entry, gated)
    for popped in sorted(state.in_flight, key=lambda each: (each.pod.key, each.cycle)):
        yield _in_flight(popped)


def _entry(
    entry: Entry, sub_queue: queue_pb2.SubQueue.ValueType, *, until_ns: int | None = None
) -> queue_pb2.Entry:
    failure = entry.failure
    return queue_pb2.Entry(
        pod=pod_ref_message(entry.pod),
        sub_queue=sub_queue,
        attempts=entry.attempts,
        queued_ns=entry.timestamp_ns,
        first_enqueued_ns=entry.initial_attempt_ns or 0,
        backoff_until_ns=until_ns,
        unschedulable_plugins=failure.plugins if failure else (),
        pending_plugins=failure.pending_plugins if failure else (),
        gates=entry.pod.gates if entry.gate else (),
    )


def _in_flight(popped: Popped) -> queue_pb2.Entry:
    return queue_pb2.Entry(
        pod=pod_ref_message(popped.pod),
        sub_queue=queue_pb2.SUB_QUEUE_IN_FLIGHT,
        attempts=popped.attempts,
        queued_ns=popped.timestamp_ns,
        first_enqueued_ns=popped.initial_attempt_ns,
        cycle=popped.cycle,
        owner=popped.owner,
        lease_until_ns=popped.lease_until_ns or None,
    )


def _tracked(state: QueueState) -> Iterator[meta_pb2.ObjectReference]:
    held = {popped.entry.pod.uid: popped.entry.pod for popped in state.in_flight}
    for uid, _since in state.record.pods:
        yield pod_ref_message(held[uid])


def _nominations(nominations: Iterable[NodeNominations]) -> Iterator[queue_pb2.Nomination]:
    for node in sorted(nominations, key=lambda each: each.node_name):
        for start in range(0, len(node.pods), PODS_PER_NOMINATION):
            pods = map(pod_ref_message, node.pods[start : start + PODS_PER_NOMINATION])
            yield queue_pb2.Nomination(node_name=node.node_name, pods=pods)


def _pod_backoffs(
    backoffs: Iterable[NameBackoff], limits: BackoffLimits
) -> Iterator[queue_pb2.PodBackoff]:
    for backoff in sorted(backoffs, key=lambda each: each.key):
        yield queue_pb2.PodBackoff(
            key="/".join(backoff.key),
            attempts=backoff.attempts,
            updated_ns=backoff.updated_ns,
            until_ns=backoff.updated_ns + backoff_ns(backoff.attempts, limits),
        )
