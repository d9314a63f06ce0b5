"""Pods and pops: messages to the queue's values, and back.

Of a Pod the queue reads its identity, priority, nomination and required affinity terms, and of
an update also a digest of the rest. A refusal names the field below the message that is read;
who reads that message adds the path to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from reprieve.kube.v1beta1 import affinity_pb2, meta_pb2, pod_pb2
from reprieve.queue.v1beta1 import queue_pb2
from reprieve.session.v1beta1 import session_pb2
from services.kube.pod import PodSpec
from services.queue.core.cluster_event import ClusterEvent, event_of
from services.queue.core.entry import PopId, Popped
from services.queue.core.pod import AffinityTerm, AssignedPod, PodRef, QueuedPod
from services.rpc import kube_fields
from services.rpc.errors import FieldError
from services.rpc.kube_codec import spec_digest

_Terms = tuple[AffinityTerm, ...]
_REQUIRED = "is required"
_TERMS = "spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution"


def queued_pod(
    message: pod_pb2.Pod, *, field: str, sort_key: bytes = b"", compared: bool = False
) -> QueuedPod:
    """Return a pending pod; `compared` asks for its digest, which only an update needs.

    Raises FieldError without metadata.uid or metadata.name.
    """
    meta, spec = message.metadata, message.spec
    uid, namespace, name = meta.uid, meta.namespace, meta.name
    if not uid:
        raise FieldError(f"{field}.metadata.uid", _REQUIRED)
    if not name:
        raise FieldError(f"{field}.metadata.name", _REQUIRED)
    terms = affinity_terms(spec, namespace, field=field) if spec.HasField("affinity") else ()
    digest = spec_digest(message) if compared else b""
    nominated = message.status.nominated_node_name
    # By place: by keyword this takes twice as long, and there is one for each Add.
    return QueuedPod(uid, namespace, name, spec.priority, nominated, sort_key, (), digest, terms)


def affinity_terms(spec: pod_pb2.PodSpec, namespace: str, *, field: str) -> _Terms:
    """Return the required affinity terms that an assigned pod can meet.

    A term without a selector matches no pod and is left out. The namespaces are those by name,
    or the pod's own: the modes that look at terms here know no namespaceSelector.
    Source: kubernetes v1.20 internal/queue/scheduling_queue.go,
    getUnschedulablePodsWithMatchingAffinityTerm.
    """
    required = spec.affinity.pod_affinity.required_during_scheduling_ignored_during_execution
    return tuple(_terms(required, namespace, f"{field}.{_TERMS}"))


def spaced_terms(spec: PodSpec, labels: Mapping[str, str], namespace: str) -> _Terms:
    """Return the required affinity terms of a pod, with the namespaces that they select.

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
        for term in (each.keyed(labels) for each in spec.pod_affinity.required)
        if term.selector is not None
    )


def _terms(
    messages: Iterable[affinity_pb2.PodAffinityTerm], namespace: str, field: str
) -> Iterable[AffinityTerm]:
    for index, each in enumerate(messages):
        if each.HasField("label_selector"):
            path = f"{field}[{index}].labelSelector"
            yield AffinityTerm(
                namespaces=tuple(each.namespaces) or (namespace,),
                selector=kube_fields.label_selector(each.label_selector, path),
            )


def assigned_pod(message: pod_pb2.Pod, *, field: str) -> AssignedPod:
    """Return an assigned pod; raises FieldError without metadata.uid."""
    meta = message.metadata
    if not meta.uid:
        raise FieldError(f"{field}.metadata.uid", _REQUIRED)
    return AssignedPod(namespace=meta.namespace, labels=kube_fields.strings(meta.labels))


def known_event(label: str, field: str) -> ClusterEvent:
    """Return the event that a label names. Raises FieldError for one that upstream cannot print."""
    if not label:
        raise FieldError(field, 'is required, such as "NodeAdd"')
    event = event_of(label)
    if not event.is_known:
        raise FieldError(field, f'"{label}" names no event: write one such as "NodeAdd"')
    return event


def pod_ref(message: meta_pb2.ObjectReference, path: str) -> PodRef:
    """Return the identity of the pod at `path` ("" or "pod."); raises FieldError without a uid."""
    if not message.uid:
        raise FieldError(f"{path}uid", _REQUIRED)
    return PodRef(uid=message.uid, namespace=message.namespace, name=message.name)


def pop_id(message: session_pb2.PopId, path: str = "pop.") -> PopId:
    """Return what names the pop at `path`; raises FieldError without a uid or a cycle."""
    uid, cycle = message.uid, message.cycle
    if not uid:
        raise FieldError(f"{path}uid", _REQUIRED)
    if cycle < 1:
        raise FieldError(f"{path}cycle", f"{cycle} is no scheduling cycle: they count from 1")
    return PopId(uid, cycle)


def pod_ref_message(pod: PodRef | QueuedPod) -> meta_pb2.ObjectReference:
    """Return a pod's identity as a message."""
    return meta_pb2.ObjectReference(uid=pod.uid, namespace=pod.namespace, name=pod.name)


def head_message(popped: Popped) -> queue_pb2.Head:
    """Return a pop, or what would be one, as a message."""
    message = queue_pb2.Head()
    write_head(message, popped)
    return message


def write_head(message: queue_pb2.Head, popped: Popped) -> None:
    """Write a pop into an empty message.

    Field by field, into a message that stands in its answer already: built from its parts by
    keyword it takes three times as long, and there is one for each pod and batch.
    """
    pop = message.pop
    pop.uid = popped.pod.uid
    pop.cycle = popped.cycle
    message.attempts = popped.attempts
    message.first_enqueued_ns = popped.initial_attempt_ns
    message.queued_ns = popped.timestamp_ns
    if popped.nominated_node_name:
        message.nominated_node_name = popped.nominated_node_name
