"""Converts the queue service's protobuf messages to core values and back.

From a Pod, the queue reads identity, priority, nomination and required affinity terms; from an
update, also a digest of the other fields. The field of a FieldError is relative to the decoded
message; the caller adds the path of that message.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

from reprieve.kube.v1beta1 import affinity_pb2, meta_pb2, pod_pb2
from reprieve.queue.v1beta1 import queue_pb2, queue_service_pb2
from reprieve.session.v1beta1 import session_pb2
from services.framework.cluster_event import ClusterEvent, event_of
from services.kube.pod import PodSpec
from services.queue.core.backoff import BackoffLimits, NameBackoff, attempt_backoff_ns
from services.queue.core.nominator import NodeNominations
from services.queue.core.queued_pod import (
    AffinityTerm,
    AssignedPod,
    InFlightPod,
    PodRef,
    PopId,
    QueuedPod,
    QueuedPodInfo,
)
from services.queue.core.results import SubQueue
from services.queue.core.rules.state import QueueState
from services.queue.core.scheduling_queue import SchedulingQueue
from services.rpc.errors import FieldError
from services.rpc.kube import fields
from services.rpc.kube.codec import spec_digest
from services.rpc.required import PROBLEM

_Terms = tuple[AffinityTerm, ...]
_TERMS = "spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution"


def queued_pod(
    message: pod_pb2.Pod, *, field: str, sort_key: bytes = b"", compared: bool = False
) -> QueuedPod:
    """Return a pending pod; with its digest if `compared`, which only an update needs.

    Raises FieldError without metadata.uid or metadata.name.
    """
    meta, spec = message.metadata, message.spec
    uid, namespace, name = meta.uid, meta.namespace, meta.name
    if not uid:
        raise FieldError(f"{field}.metadata.uid", PROBLEM)
    if not name:
        raise FieldError(f"{field}.metadata.name", PROBLEM)
    terms = affinity_terms(spec, namespace, field=field) if spec.HasField("affinity") else ()
    digest = spec_digest(message) if compared else b""
    nominated = message.status.nominated_node_name
    # Positional: keyword arguments take twice as long, and every Add does this.
    return QueuedPod(uid, namespace, name, spec.priority, nominated, sort_key, (), digest, terms)


def affinity_terms(spec: pod_pb2.PodSpec, namespace: str, *, field: str) -> _Terms:
    """Return the required affinity terms that an assigned pod can match, before v1.34.

    A term without a selector matches no pod and is left out. A term applies to the namespaces that
    it lists, or to the pod's namespace; versions before v1.34 ignore namespaceSelector.
    Source: kubernetes v1.20 internal/queue/scheduling_queue.go,
    getUnschedulablePodsWithMatchingAffinityTerm.
    """
    required = spec.affinity.pod_affinity.required_during_scheduling_ignored_during_execution
    return tuple(_terms(required, namespace, f"{field}.{_TERMS}"))


def spec_affinity_terms(spec: PodSpec, labels: Mapping[str, str], namespace: str) -> _Terms:
    """Return the required affinity terms of a pod, with their namespace selectors.

    Source: kubernetes v1.34 pkg/scheduler/framework/types.go, GetAffinityTerms.
    """
    if spec.pod_affinity is None:
        return ()
    return tuple(
        AffinityTerm(
            namespaces=term.namespaces or ((namespace,) if term.namespace_selector is None else ()),
            selector=term.selector,
            namespace_selector=term.namespace_selector,
        )
        for term in (required.keyed(labels) for required in spec.pod_affinity.required)
        if term.selector is not None
    )


def _terms(
    messages: Iterable[affinity_pb2.PodAffinityTerm], namespace: str, field: str
) -> Iterable[AffinityTerm]:
    for index, message in enumerate(messages):
        if message.HasField("label_selector"):
            path = f"{field}[{index}].labelSelector"
            yield AffinityTerm(
                namespaces=tuple(message.namespaces) or (namespace,),
                selector=fields.label_selector(message.label_selector, path),
            )


def assigned_pod(message: pod_pb2.Pod, *, field: str) -> AssignedPod:
    """Return an assigned pod; raises FieldError without metadata.uid."""
    meta = message.metadata
    if not meta.uid:
        raise FieldError(f"{field}.metadata.uid", PROBLEM)
    return AssignedPod(namespace=meta.namespace, labels=fields.strings(meta.labels))


def cluster_event(label: str, field: str) -> ClusterEvent:
    """Return the event that a label names. Raises FieldError for an unknown resource."""
    event = event_of(label)
    if not event.is_valid:
        raise FieldError(field, f'"{label}" is not a cluster event: use one such as "NodeAdd"')
    return event


def pod_ref(message: meta_pb2.ObjectReference, path: str) -> PodRef:
    """Return the identity of the pod at `path` ("" or "pod."); raises FieldError without a uid."""
    if not message.uid:
        raise FieldError(f"{path}uid", PROBLEM)
    return PodRef(uid=message.uid, namespace=message.namespace, name=message.name)


def pop_id(message: session_pb2.PopId, path: str = "pop.") -> PopId:
    """Return the identity of the pop at `path`; raises FieldError without a cycle."""
    return PopId(message.uid, scheduling_cycle(message.cycle, f"{path}cycle"))


def scheduling_cycle(cycle: int, field: str) -> int:
    """Return `cycle`; raises FieldError below 1."""
    if cycle < 1:
        raise FieldError(field, f"{cycle} is not a scheduling cycle: they count from 1")
    return cycle


def pod_ref_message(pod: PodRef | QueuedPod) -> meta_pb2.ObjectReference:
    """Return a pod's identity as a message."""
    return meta_pb2.ObjectReference(uid=pod.uid, namespace=pod.namespace, name=pod.name)


def head_message(popped: InFlightPod) -> queue_pb2.Head:
    """Return a pod in flight, or one that a pop would return, as a message."""
    message = queue_pb2.Head()
    write_head(message, popped)
    return message


def write_head(message: queue_pb2.Head, popped: InFlightPod) -> None:
    """Write what `head_message` returns into an empty message.

    Setting the fields of a message that is already part of its response takes a third of the time
    of building one by keyword, and every popped pod needs one.
    """
    pop = message.pop
    pop.uid = popped.pod.uid
    pop.cycle = popped.cycle
    message.attempts = popped.attempts
    message.first_enqueued_time_ns = popped.initial_attempt_ns
    message.queued_time_ns = popped.timestamp_ns
    if popped.nominated_node_name:
        message.nominated_node_name = popped.nominated_node_name
    requeue = popped.pod_info.requeue
    if requeue is not None:
        message.requeue.event, message.requeue.time_ns = requeue.event, requeue.at_ns
        if requeue.active_ns is not None:
            message.requeue.active_time_ns = requeue.active_ns


_SUB_QUEUES = {
    SubQueue.ACTIVE: queue_pb2.SUB_QUEUE_ACTIVE,
    SubQueue.BACKOFF: queue_pb2.SUB_QUEUE_BACKOFF,
    SubQueue.ERROR_BACKOFF: queue_pb2.SUB_QUEUE_ERROR_BACKOFF,
    SubQueue.UNSCHEDULABLE: queue_pb2.SUB_QUEUE_UNSCHEDULABLE,
    SubQueue.GATED: queue_pb2.SUB_QUEUE_GATED,
}

PODS_PER_NOMINATION = 1000


def state_message(
    state: QueueState, *, limits: BackoffLimits, at_ns: int, next_wakeup_ns: int | None
) -> queue_pb2.QueueState:
    """Return the state; `at_ns` is the session's time, which may be later than the queue's."""
    return queue_pb2.QueueState(
        entries=_entries(state),
        nominations=_nominations(state.nominations),
        cycle=state.scheduling_cycle,
        move_request_cycle=moved if (moved := state.move_request_cycle) >= 0 else None,
        pod_backoffs=_pod_backoffs(state.name_backoffs, limits),
        closed=state.closed,
        time_ns=at_ns,
        next_wakeup_time_ns=next_wakeup_ns,
        in_flight_events=[event.event.label for event in state.hint_state.events],
        in_flight=_recorded_for(state),
    )


def pending_views(queue: SchedulingQueue, count: int) -> list[queue_service_pb2.SubQueueView]:
    """Return the size of each sub-queue and its first `count` pods, pods in flight last."""
    views = [
        queue_service_pb2.SubQueueView(
            sub_queue=_SUB_QUEUES[where],
            count=size,
            heads=[
                _entry(
                    pod_info, _SUB_QUEUES[where], until_ns=queue.backoff_until_ns(pod_info, where)
                )
                for pod_info in queue.first(where, count)
            ],
        )
        for where, size in queue.sizes().items()
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
    for pod_info in state.active:
        yield _entry(pod_info, queue_pb2.SUB_QUEUE_ACTIVE)
    for sub_queue, pods in (
        (queue_pb2.SUB_QUEUE_BACKOFF, state.backoff),
        (queue_pb2.SUB_QUEUE_ERROR_BACKOFF, state.error_backoff),
    ):
        for pod in pods:
            yield _entry(pod.pod_info, sub_queue, until_ns=pod.expiry_ns)
    for pod_info in sorted(state.unschedulable, key=lambda info: info.key):
        is_gated = bool(pod_info.gating_plugin)
        yield _entry(pod_info, _SUB_QUEUES[SubQueue.GATED if is_gated else SubQueue.UNSCHEDULABLE])
    for popped in sorted(state.in_flight, key=lambda pop: (pop.pod.key, pop.cycle)):
        yield _in_flight(popped)


def _entry(
    pod_info: QueuedPodInfo, sub_queue: queue_pb2.SubQueue.ValueType, *, until_ns: int | None = None
) -> queue_pb2.Entry:
    failure = pod_info.failure
    return queue_pb2.Entry(
        pod=pod_ref_message(pod_info.pod),
        sub_queue=sub_queue,
        attempts=pod_info.attempts,
        queued_time_ns=pod_info.timestamp_ns,
        first_enqueued_time_ns=pod_info.initial_attempt_ns,
        backoff_end_time_ns=until_ns if until_ns is not None and until_ns >= 0 else None,
        unschedulable_plugins=failure.plugins if failure else (),
        pending_plugins=failure.pending_plugins if failure else (),
        gates=pod_info.pod.gates if pod_info.gating_plugin else (),
    )


def _in_flight(popped: InFlightPod) -> queue_pb2.Entry:
    return queue_pb2.Entry(
        pod=pod_ref_message(popped.pod),
        sub_queue=queue_pb2.SUB_QUEUE_IN_FLIGHT,
        attempts=popped.attempts,
        queued_time_ns=popped.timestamp_ns,
        first_enqueued_time_ns=popped.initial_attempt_ns,
        cycle=popped.cycle,
        owner=popped.owner,
        lease_end_time_ns=popped.lease_until_ns or None,
    )


def _recorded_for(state: QueueState) -> Iterator[meta_pb2.ObjectReference]:
    held = {popped.pod_info.pod.uid: popped.pod_info.pod for popped in state.in_flight}
    for uid, _since in state.hint_state.pods:
        yield pod_ref_message(held[uid])


def _nominations(nominations: Iterable[NodeNominations]) -> Iterator[queue_pb2.Nomination]:
    for node in sorted(nominations, key=lambda nomination: nomination.node_name):
        for start in range(0, len(node.pods), PODS_PER_NOMINATION):
            pods = map(pod_ref_message, node.pods[start : start + PODS_PER_NOMINATION])
            yield queue_pb2.Nomination(node_name=node.node_name or None, pods=pods)


def _pod_backoffs(
    backoffs: Iterable[NameBackoff], limits: BackoffLimits
) -> Iterator[queue_pb2.PodBackoff]:
    for backoff in sorted(backoffs, key=lambda backoff: backoff.key):
        yield queue_pb2.PodBackoff(
            key="/".join(backoff.key),
            attempts=backoff.attempts,
            updated_time_ns=backoff.updated_ns,
            end_time_ns=backoff.updated_ns + attempt_backoff_ns(backoff.attempts, limits),
        )
