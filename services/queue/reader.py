"""Decodes pods and events for a session: the fields that the traits of its version need.

If plugins register for events, a pod is stored with the fields that their hints compare. Pods of
one template share specs and labels, because there may be a million pods. An event's objects are
decoded only if a hint of the session reads them, or if a wildcard event names a pod.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from reprieve.kube.v1beta1 import object_pb2, pod_pb2
from reprieve.queue.v1beta1 import queue_pb2
from services.framework.cluster_event import ClusterEvent, ObjectEvent
from services.kube.pod import PodSpec
from services.kube.selector import LabelSelector
from services.queue import codec
from services.queue.core.queued_pod import AssignedPod, Failure, QueuedPod
from services.queue.core.queueing_hints import QueueingHintMap
from services.queue.core.rules.versions import VERSIONS, QueueConfig
from services.rpc.errors import FieldError
from services.rpc.kube import codec as kube_codec
from services.rpc.kube import devices, fields, storage
from services.rpc.kube.spec import PodSpecInterner

_NO_GATES = "these rules have no PreEnqueue: send no gates"
_LABELS_MAX = 65536
_NO_FAILURE = Failure()


class QueueReader:
    """Reads messages for one session, by the traits of its `version`.

    Equal values share one object; this saves memory and does not change results.
    """

    __slots__ = (
        "_compares",
        "_failures",
        "_labels",
        "_reads_objects",
        "_selectors",
        "_specs",
        "version",
    )

    def __init__(self, config: QueueConfig) -> None:
        self.version = VERSIONS[config.version]
        self._compares = self.version.compares_digests(config)
        self._specs = PodSpecInterner()
        self._labels: dict[tuple[tuple[str, str], ...], Mapping[str, str]] = {}
        self._failures: dict[Failure, Failure] = {}
        self._selectors: dict[LabelSelector, LabelSelector] = {}
        self._reads_objects = QueueingHintMap(config.registrations).reads_objects

    def pod(
        self,
        message: pod_pb2.Pod,
        *,
        field: str,
        sort_key: bytes = b"",
        gates: Iterable[str] = (),
        compared: bool = False,
    ) -> QueuedPod:
        """Return a pending pod, with its digest if `compared`. Raises FieldError.

        With queueing hints there is no digest: an update compares the versions' fields.
        """
        held = self.gates(gates)
        compared = compared and self._compares
        if not self.version.registers_events:
            return codec.queued_pod(message, field=field, sort_key=sort_key, compared=compared)
        pod = codec.queued_pod(message, field=field, sort_key=sort_key)
        spec = self._specs.spec(message.spec, field=f"{field}.spec")
        labels = self._shared(message.metadata.labels)
        return pod._replace(
            gates=held,
            digest=_digest(message) if compared else b"",
            affinity_terms=codec.spec_affinity_terms(spec, labels, pod.namespace),
            labels=labels,
            spec=spec,
            claim_names=fields.claim_names(message.status),
        )

    def gates(self, gates: Iterable[str]) -> tuple[str, ...]:
        """Return the gates. Raises FieldError for gates in a version without PreEnqueue."""
        held = tuple(gates)
        if held and not self.version.has_pre_enqueue:
            raise FieldError("gates", _NO_GATES)
        return held

    def failure(self, message: queue_pb2.Failure) -> Failure:
        """Return why a cycle failed; equal failures are one object."""
        plugins, pending = message.unschedulable_plugins, message.pending_plugins
        if not (plugins or pending or message.error):
            return _NO_FAILURE
        failure = Failure(
            plugins=tuple(sorted(set(plugins))),
            pending_plugins=tuple(sorted(set(pending))),
            error=message.error,
        )
        if len(self._failures) >= _LABELS_MAX:
            self._failures.clear()
        return self._failures.setdefault(failure, failure)

    def spread_selector(self, message: queue_pb2.Failure) -> LabelSelector | None:
        """Return the selector of the pods that default spread constraints counted.

        Equal selectors share one object. Raises FieldError.
        """
        if not message.HasField("default_spread_selector"):
            return None
        if not self.version.registers_events:
            raise FieldError(
                "default_spread_selector", "these rules have no queueing hints: send no selector"
            )
        selector = fields.label_selector(message.default_spread_selector, "default_spread_selector")
        if len(self._selectors) >= _LABELS_MAX:
            self._selectors.clear()
        return self._selectors.setdefault(selector, selector)

    def object_event(self, message: queue_pb2.ClusterEvent, *, field: str) -> ObjectEvent:
        """Return an event, with its objects if a hint reads them. Raises FieldError."""
        event = codec.cluster_event(message.label, f"{field}.label")
        has_objects = message.HasField("old_object") or message.HasField("new_object")
        if not has_objects or not (event.is_wildcard or self._reads_objects(event)):
            return ObjectEvent(event=event)
        return ObjectEvent(
            event=event,
            old=self._object(message.old_object, f"{field}.old_object"),
            new=self._object(message.new_object, f"{field}.new_object"),
            namespace_labels=fields.strings(message.namespace_labels),
            source=message.SerializeToString(deterministic=True),
            class_resources=frozenset(message.class_resources),
        )

    def spec(self, message: pod_pb2.PodSpec) -> PodSpec:
        """Return a spec of a checkpoint. Raises FieldError."""
        return self._specs.spec(message)

    def from_source(self, source: bytes) -> ObjectEvent:
        """Return an event of a checkpoint, from ObjectEvent.source. Raises FieldError."""
        message = queue_pb2.ClusterEvent.FromString(source)
        return self.object_event(message, field="event")

    def assigned(
        self,
        event: ClusterEvent,
        old: pod_pb2.Pod | None,
        new: pod_pb2.Pod,
        namespace_labels: Mapping[str, str],
        *,
        label: str = "",
    ) -> tuple[AssignedPod, ObjectEvent]:
        """Return an assigned pod and its event. Raises FieldError.

        `label` is a more specific name of the event, for plugins that registered for it.
        """
        if label:
            codec.cluster_event(label, "label")
        pod = codec.assigned_pod(new, field="pod")
        if not self.version.registers_events:
            return pod, ObjectEvent(event=event)
        message = queue_pb2.ClusterEvent(
            label=label or event.label, namespace_labels=namespace_labels
        )
        message.new_object.pod.CopyFrom(new)
        if old is not None:
            message.old_object.pod.CopyFrom(old)
        pod = AssignedPod(
            namespace=pod.namespace,
            labels=pod.labels,
            namespace_labels=fields.strings(namespace_labels),
        )
        return pod, self.object_event(message, field="pod")

    def _object(self, message: object_pb2.KubernetesObject, field: str) -> object | None:
        kind = message.WhichOneof("object")
        if kind is None or (kind != "pod" and kind not in _READERS):
            return None
        path = f"{field}.{kind}"
        if kind == "pod":
            return kube_codec.pod_from_message(message.pod, self._specs, field=path)
        return _READERS[kind](getattr(message, kind), path)

    def _shared(self, labels: Mapping[str, str]) -> Mapping[str, str]:
        if not labels:
            return fields.strings(labels)
        key = tuple(sorted(labels.items()))
        shared = self._labels.get(key)
        if shared is None:
            if len(self._labels) >= _LABELS_MAX:
                self._labels.clear()
            shared = self._labels[key] = dict(key)
        return shared


def _digest(message: pod_pb2.Pod) -> bytes:
    """Return the digest of the fields that may make a pod schedulable; v1.34 ignores finalizers.

    Source: kubernetes v1.34 pkg/scheduler/backend/queue/scheduling_queue.go, isPodUpdated.
    """
    if message.metadata.finalizers:
        compared = pod_pb2.Pod()
        compared.CopyFrom(message)
        compared.metadata.ClearField("finalizers")
        message = compared
    return kube_codec.spec_digest(message)


_READERS: Mapping[str, Callable[[Any, str], object]] = {
    "node": lambda message, path: kube_codec.node_from_message(message, field=path),
    "persistent_volume": lambda message, path: storage.persistent_volume_from_message(
        message, field=path
    ),
    "persistent_volume_claim": lambda message, path: storage.claim_from_message(
        message, field=path
    ),
    "storage_class": lambda message, path: storage.storage_class_from_message(message, field=path),
    "csi_node": lambda message, _path: storage.csi_node_from_message(message),
    "volume_attachment": lambda message, _path: storage.volume_attachment_from_message(message),
    "csi_driver": lambda message, _path: storage.csi_driver_from_message(message),
    "resource_claim": lambda message, path: devices.resource_claim_from_message(
        message, field=path
    ),
    "csi_storage_capacity": lambda message, path: storage.csi_storage_capacity_from_message(
        message, field=path
    ),
}
