"""The chain of admission plugins that each new pod passes, in upstream's order.

Plugins fill in the pod, then it is validated, then plugins check it.

Pods that exist (those of a recording or of a list of a cluster's objects) have been through it;
only a missing priority is filled in. A pod that a controller creates as it did in the recording is
not refused again. Webhooks, policies and PodSecurity are not simulated.

Source: kubernetes v1.34 pkg/kubeapiserver/options/plugins.go, AllOrderedPlugins.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from replay.world.api.admission.limit_ranges import LimitRanges
from replay.world.api.admission.namespaces import Namespaces
from replay.world.api.admission.priority import PriorityAdmission
from replay.world.api.admission.quotas import Quotas
from replay.world.api.admission.resources import refuse_above_limits
from replay.world.api.admission.runtime_classes import RuntimeClasses
from reprieve.kube.v1beta1 import meta_pb2, object_pb2, pod_pb2

KINDS = {
    "priority_class": "PriorityClass",
    "resource_quota": "ResourceQuota",
    "limit_range": "LimitRange",
    "runtime_class": "RuntimeClass",
}
"""The kinds that admission reads, by their fields of KubernetesObject."""


class Admission:
    """The objects that admission reads, and their effect on new pods."""

    def __init__(self) -> None:
        self.priority = PriorityAdmission()
        self.quotas = Quotas()
        self.namespaces = Namespaces()
        self._limit_ranges = LimitRanges()
        self._runtime_classes = RuntimeClasses()

    def put(
        self, now_ns: int, message: object_pb2.KubernetesObject, pods: Iterable[pod_pb2.Pod]
    ) -> str:
        """Create or update an object; `pods` exist already. Return a note, "" if none.

        Raises AdmissionError and FieldError.
        """
        kind = message.WhichOneof("object") or ""
        meta: meta_pb2.ObjectMeta = getattr(message, kind).metadata
        match kind:
            case "priority_class":
                self.priority.put_class(message.priority_class)
                return ""
            case "runtime_class":
                self._runtime_classes.put(message.runtime_class)
                return ""
        meta.namespace = meta.namespace or "default"
        if kind == "limit_range":
            self._limit_ranges.put(message.limit_range)
            types = {limit.type for limit in message.limit_range.spec.limits} - {"Container", "Pod"}
            others = sorted(types)
        else:
            others = self.quotas.put(now_ns, message.resource_quota, pods)
        if not others:
            return ""
        named = f"{KINDS[kind]} {meta.namespace}/{meta.name}"
        return f"{named} limits {', '.join(others)}, too: only pods are counted and checked"

    def remove(self, ref: meta_pb2.ObjectReference) -> None:
        """Delete an object; an unknown one is accepted."""
        namespace = ref.namespace or "default"
        match ref.kind:
            case "PriorityClass":
                self.priority.remove_class(ref.name)
            case "RuntimeClass":
                self._runtime_classes.remove(ref.name)
            case "LimitRange":
                self._limit_ranges.remove(namespace, ref.name)
            case "ResourceQuota":
                self.quotas.remove(namespace, ref.name)

    def admit(self, now_ns: int, pod: pod_pb2.Pod, *, recorded: bool) -> str:
        """Fill in a pod and return a note, "" if none. Raises AdmissionError and FieldError.

        recorded: a controller creates it as in the recording, where it was not refused.
        """
        if pod.metadata.HasField("creation_timestamp") or pod.spec.node_name:
            return self.priority.admit(pod)
        if not recorded:
            self.namespaces.check(pod.metadata.namespace)
        self._limit_ranges.fill_in(pod)
        note = self.priority.admit(pod)
        self._runtime_classes.admit(pod.spec, enforced=not recorded)
        if not recorded:
            refuse_above_limits(pod.spec, "spec")
            self._limit_ranges.check(pod)
            self.quotas.check(now_ns, pod)
        return note

    def pods_changed(
        self, now_ns: int, changed: Mapping[str, pod_pb2.Pod], existing: Mapping[str, object]
    ) -> bool:
        """Charge and release pods, by UID; return whether something was released."""
        if self.quotas.is_empty:
            return False
        released = False
        for uid, pod in changed.items():
            if uid in existing:
                released |= self.quotas.charge(now_ns, pod)
            else:
                released |= self.quotas.release(pod)
        return released
