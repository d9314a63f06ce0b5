"""Feeds the trace's records to the cluster: changes that users, not controllers, make.

Observations of the recorded cluster are skipped: they are for comparisons only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from replay.hashing import object_uid
from replay.trace.validate import pod_features
from replay.world.api.admission import chain
from replay.world.api.admission.refusal import AdmissionError
from replay.world.api.pod_record import object_ref
from replay.world.controllers.controller_manager import ControllerManager
from replay.world.kubelet.pod_lifecycle import AdmittedPod, PodLifecycle
from replay.world.state import WorldState
from reprieve.kube.v1beta1 import object_pb2, pod_pb2
from reprieve.trace.v1beta1 import trace_pb2
from services.rpc.errors import FieldError


class RequestedPod(NamedTuple):
    """A record's pod; `without_uid` is its kind, namespace and name where the trace has no UID.

    `admitted` is the pod as admitted ahead of time, None if admission has not run.
    """

    message: pod_pb2.Pod
    life: trace_pb2.PodLife
    features: tuple[str, ...]
    without_uid: tuple[str, str, str] | None
    admitted: AdmittedPod | None = None


class RecordFeed:
    """Feeds a trace's records to a cluster.

    `request` returns the pod of a record, None if its template is not in the trace.
    """

    _templates: dict[int, pod_pb2.Pod]
    _template_features: dict[int, tuple[str, ...]]
    _template_usage: dict[int, int]
    _uids_made: Counter[tuple[str, str, str]]

    def __init__(
        self, state: WorldState, lifecycle: PodLifecycle, controllers: ControllerManager
    ) -> None:
        self._cluster = state.cluster
        self._admission = state.admission
        self._journal = state.journal
        self._lifecycle = lifecycle
        self._controllers = controllers
        self._templates = {}
        self._template_features = {}
        self._template_usage = {}
        self._uids_made = Counter()
        self.request: Callable[[trace_pb2.Record], RequestedPod | None] = self._requested_pod

    def add_template(self, template: trace_pb2.Template) -> None:
        """Add a template, which only later records refer to."""
        self._templates[template.id] = template.pod
        self._template_features[template.id] = self._features(template.pod)

    def feed(self, now_ns: int, record: trace_pb2.Record) -> None:
        """Carry out one record; an invalid one is noted and changes nothing."""
        match record.WhichOneof("record"):
            case "template":
                self.add_template(record.template)
            case "pod_create":
                self._create_pod(now_ns, record)
            case "create" | "update":
                is_new = record.HasField("create")
                self._put(now_ns, record.create if is_new else record.update, is_new=is_new)
            case "delete":
                self._delete(now_ns, record.delete)
            case "issue":
                issue = record.issue
                self._journal.notes[issue.kind, issue.message] += max(1, issue.count)
            case _:
                if record.usage.template_id:
                    self._template_usage[record.usage.template_id] = record.usage.id
                self._controllers.read(now_ns, record)

    def _create_pod(self, now_ns: int, record: trace_pb2.Record) -> None:
        requested = self.request(record)
        if requested is None:
            template_id = record.pod_create.template_id
            self._journal.note("refused", f"template {template_id} is not in the trace")
            return
        refusal = self._lifecycle.create(
            now_ns, requested.message, requested.life, admitted=requested.admitted
        )
        if refusal is None:
            self._stored(requested)
            return
        pod = object_ref("Pod", requested.message.metadata)
        if not refusal.by_admission:
            self._journal.note("refused", refusal.message)
        else:
            self._journal.note("refused", f"pod {pod.namespace}/{pod.name}: {refusal.message}")
            pod.ClearField("uid")
            self._journal.refused(now_ns, pod, refusal.message)

    def _requested_pod(self, record: trace_pb2.Record) -> RequestedPod | None:
        create = record.pod_create
        if create.template_id:
            template = self._templates.get(create.template_id)
            if template is None:
                return None
            message = _from_template(template, create.pod)
            features = self._template_features[create.template_id]
        else:
            message = pod_pb2.Pod()
            message.CopyFrom(create.pod)
            features = self._features(message)
        life = trace_pb2.PodLife()
        life.CopyFrom(create.life)
        if not life.usage_id:
            life.usage_id = self._template_usage.get(create.template_id, 0)
        meta = message.metadata
        meta.namespace = meta.namespace or "default"
        without_uid = None
        if not meta.uid:
            without_uid = ("Pod", meta.namespace, meta.name)
            meta.uid = object_uid(*without_uid, ordinal=self._uids_made[without_uid])
        return RequestedPod(message, life, features, without_uid)

    def _features(self, pod: pod_pb2.Pod) -> tuple[str, ...]:
        has_devices = self._cluster.device_claims.are_simulated
        return tuple(pod_features(pod.spec, has_devices=has_devices))

    def _stored(self, requested: RequestedPod) -> None:
        """Count a stored pod's UID, and note its features that are not simulated."""
        if requested.without_uid is not None:
            self._uids_made[requested.without_uid] += 1
        for feature in requested.features:
            self._journal.note("not-simulated", feature)

    def _put(self, now_ns: int, recorded: object_pb2.KubernetesObject, *, is_new: bool) -> None:
        """Add or replace an object; the trace's own message is not changed."""
        message = object_pb2.KubernetesObject()
        message.CopyFrom(recorded)
        case = message.WhichOneof("object")
        if case is None:
            self._journal.note("refused", "an object of an unknown kind")
            return
        kind: str = getattr(message, case).DESCRIPTOR.name
        try:
            if kind == "Pod" and is_new:
                create = trace_pb2.PodCreate(pod=message.pod)
                self._create_pod(now_ns, trace_pb2.Record(pod_create=create))
            elif kind == "Pod":
                self._update_pod(now_ns, message.pod)
            elif case in chain.KINDS:
                pods = (pod.message for pod in self._cluster.pods.values())
                note = self._admission.put(now_ns, message, pods)
                if note:
                    self._journal.note("not-simulated", note)
                self._journal.object_put(now_ns, message, is_new=is_new)
            elif not self._controllers.keeps(kind):
                if kind == "Namespace":
                    note = self._admission.namespaces.put(message.namespace)
                    if note:
                        self._journal.note("not-simulated", note)
                self._cluster.put_other(now_ns, message, is_new=is_new)
            self._controllers.put(now_ns, kind, message)
        except (AdmissionError, FieldError) as error:
            self._journal.note("refused", str(error))

    def _update_pod(self, now_ns: int, message: pod_pb2.Pod) -> None:
        """Carry out a user's update; the recorded pod may not exist here any more."""
        meta = message.metadata
        meta.namespace = meta.namespace or "default"
        uid = self._cluster.pod_uids.get(f"{meta.namespace}/{meta.name}", "")
        pod = self._cluster.pods.get(uid)
        if pod is not None:
            self._lifecycle.check(message)
            before = pod.message.spec
            self._cluster.replace_pod(now_ns, pod, message)
            self._lifecycle.finalizers_changed(now_ns, pod)
            if pod.node_name and _resources(before) != _resources(message.spec):
                self._lifecycle.resized(now_ns, pod, before)

    def _delete(self, now_ns: int, delete: trace_pb2.Delete) -> None:
        ref = delete.object
        grace_s = delete.grace_period_seconds if delete.HasField("grace_period_seconds") else None
        if ref.kind == "Pod":
            key = f"{ref.namespace or 'default'}/{ref.name}"
            pod = self._cluster.pods.get(self._cluster.pod_uids.get(key, ""))
            if pod is not None:
                self._lifecycle.delete(now_ns, pod, grace_s, "deleted")
        elif ref.kind in chain.KINDS.values():
            self._admission.remove(ref)
            self._journal.object_removed(now_ns, ref)
        elif not self._controllers.keeps(ref.kind):
            if ref.kind == "Namespace":
                self._admission.namespaces.remove(ref.name)
            self._cluster.remove_other(now_ns, ref)
        self._controllers.remove(now_ns, ref)


def _resources(spec: pod_pb2.PodSpec) -> list[pod_pb2.ResourceRequirements]:
    """Return the fields that a resize in place changes: resources of containers and pod."""
    return [
        spec.resources,
        *(container.resources for container in (*spec.containers, *spec.init_containers)),
    ]


def _from_template(template: pod_pb2.Pod, pod: pod_pb2.Pod) -> pod_pb2.Pod:
    """Return the template with the pod's own metadata, node and status."""
    message = pod_pb2.Pod()
    message.CopyFrom(template)
    meta = message.metadata
    meta.MergeFrom(pod.metadata)
    if pod.spec.node_name:
        message.spec.node_name = pod.spec.node_name
    message.status.CopyFrom(pod.status)
    return message
