"""The Events that a cluster would have recorded, from the decision log.

Equal Events of one object within an hour become one Event with a count; an API server keeps an
Event for an hour after its last occurrence. A kubelet's Events about images, containers and probes
are not simulated: the start of a pod gives one Event.

A binding that the API server refuses is a FailedScheduling Event, and so is a failed attempt whose
status update is refused: kube-scheduler records the Event before it updates the status. A refused
deletion of a victim gives no Event.

Source: kubernetes v1.34 pkg/scheduler/schedule_one.go (handleSchedulingFailure),
framework/runtime/framework.go (RunBindPlugins) and framework/preemption/executor.go;
pkg/kubelet/events/event.go, kubelet_node_status.go, kubelet.go (rejectPod) and
oom/oom_watcher_linux.go;
pkg/controller/controller_utils.go and statefulset/stateful_pod_control.go (messages);
client-go tools/record/events_cache.go (counting);
cmd/kube-apiserver --event-ttl (the hour).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from reprieve.kube.v1beta1.meta_pb2 import ObjectReference
from reprieve.trace.v1beta1 import trace_pb2
from services.kube.bindings import binding_failure
from services.kube.pod import DEFAULT_SCHEDULER
from services.rpc.kube import rfc3339

KEPT_NS = 3_600_000_000_000
_NORMAL, _WARNING = "Normal", "Warning"
_NODE_REASONS: Mapping[tuple[str, str], str] = {
    ("MemoryPressure", "True"): "NodeHasInsufficientMemory",
    ("MemoryPressure", "False"): "NodeHasSufficientMemory",
    ("DiskPressure", "True"): "NodeHasDiskPressure",
    ("DiskPressure", "False"): "NodeHasNoDiskPressure",
    ("PIDPressure", "True"): "NodeHasInsufficientPID",
    ("PIDPressure", "False"): "NodeHasSufficientPID",
    ("Ready", "True"): "NodeReady",
    ("Ready", "False"): "NodeNotReady",
}
_CORDON_REASONS = {"Cordoned": "NodeNotSchedulable", "Uncordoned": "NodeSchedulable"}


@dataclass(slots=True, kw_only=True)
class KubeEvent:
    """An Event of the core/v1 API; times in ns since the Unix epoch.

    kind, namespace, object_name, uid: the involved object; a node's Event is in the namespace
    "default", as in a cluster. component, host: the Event's source.
    """

    kind: str
    namespace: str
    object_name: str
    uid: str
    type: str
    reason: str
    message: str
    component: str
    host: str
    name: str
    first_ns: int
    last_ns: int
    count: int = 1

    @property
    def key(self) -> tuple[str, ...]:
        """Return the aggregation key: Events with equal keys are counted as one Event."""
        said = (self.type, self.reason, self.message, self.component, self.host)
        return (self.kind, self.namespace, self.object_name, self.uid, *said)

    def to_mapping(self) -> dict[str, Any]:
        """Return the Event as an API object."""
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                "name": self.name,
                "namespace": self.namespace,
                "creationTimestamp": rfc3339.text(self.first_ns),
            },
            "involvedObject": {
                "kind": self.kind,
                **({"namespace": self.namespace} if self.kind != "Node" else {}),
                "name": self.object_name,
                **({"uid": self.uid} if self.uid else {}),
            },
            "reason": self.reason,
            "message": self.message,
            "source": {"component": self.component, **({"host": self.host} if self.host else {})},
            "firstTimestamp": rfc3339.text(self.first_ns),
            "lastTimestamp": rfc3339.text(self.last_ns),
            "count": self.count,
            "type": self.type,
        }


class KubeEvents:
    """The Events that an API server holds after the last decision."""

    def __init__(self) -> None:
        self._events: dict[tuple[str, ...], KubeEvent] = {}

    def take(self, decision: trace_pb2.Decision) -> KubeEvent | None:
        """Return the Event that a decision creates or increments; None if it causes no Event."""
        event = event_of(decision)
        if event is None:
            return None
        self._forget(decision.time_ns)
        known = self._events.pop(event.key, None)
        if known is not None:
            known.last_ns, known.count = event.last_ns, known.count + 1
            event = known
        self._events[event.key] = event
        return event

    def standing(self, now_ns: int) -> list[KubeEvent]:
        """Return the Events that have not expired at `now_ns`, the latest last."""
        self._forget(now_ns)
        return list(self._events.values())

    def _forget(self, now_ns: int) -> None:
        while self._events:
            key, oldest = next(iter(self._events.items()))
            if oldest.last_ns + KEPT_NS >= now_ns:
                return
            del self._events[key]


def event_of(decision: trace_pb2.Decision) -> KubeEvent | None:
    """Return the Event that a decision causes; None if it causes no Event."""
    observed = decision.observed
    pod, kind = observed.object, observed.WhichOneof("observed")
    if decision.refused and kind == "scheduled":
        text = binding_failure(decision.refused)
        return _event(decision, pod, _WARNING, "FailedScheduling", text)
    if decision.refused and kind != "failed_scheduling":
        return None
    match kind:
        case "scheduled":
            node = observed.scheduled.node_name
            text = f"Successfully assigned {pod.namespace}/{pod.name} to {node}"
            return _event(decision, pod, _NORMAL, "Scheduled", text)
        case "failed_scheduling":
            text = observed.failed_scheduling.message
            return _event(decision, pod, _WARNING, "FailedScheduling", text)
        case "preempted":
            preempted = observed.preempted
            text = f"Preempted by pod {preempted.by.uid} on node {preempted.node_name}"
            return _event(decision, pod, _NORMAL, "Preempted", text)
        case "oom_killed" if observed.oom_killed.limit_of == "node":
            host = observed.oom_killed.node_name
            about = ObjectReference(kind="Node", name=host)
            text = f"System OOM encountered, victim: {observed.oom_killed.container}"
            return _event(decision, about, _WARNING, "SystemOOM", text, "kubelet", host)
        case "evicted" | "started" | "rejected" as kind:
            return _of_pod_by_kubelet(decision, pod, kind)
        case "created":
            return _created(decision, observed.created.owner)
        case "refused" if observed.refused.HasField("owner"):
            return _refused(decision, observed.refused)
        case "condition_changed" | "node_drain":
            return _of_node(decision, _node_reason(observed))
        case "scaled_up" | "node_removal" | "no_scale_up" as kind:
            return _of_autoscaler(decision, kind)
    return None


def _of_pod_by_kubelet(decision: trace_pb2.Decision, pod: ObjectReference, kind: str) -> KubeEvent:
    """Return the Event of a kubelet about a pod that it has evicted, started or rejected."""
    observed = decision.observed
    host = getattr(observed, kind).node_name
    if kind == "evicted":
        text = observed.evicted.message
        return _event(decision, pod, _WARNING, "Evicted", text, "kubelet", host)
    if kind == "rejected":
        rejected = observed.rejected
        return _event(decision, pod, _WARNING, rejected.reason, rejected.message, "kubelet", host)
    return _event(decision, pod, _NORMAL, "Started", "Started containers", "kubelet", host)


def _node_reason(observed: trace_pb2.Observed) -> str | None:
    if observed.HasField("node_drain"):
        return _CORDON_REASONS.get(observed.node_drain.step)
    changed = observed.condition_changed
    return _NODE_REASONS.get((changed.type, changed.status))


def _of_autoscaler(decision: trace_pb2.Decision, kind: str) -> KubeEvent | None:
    """Return the Event that Cluster Autoscaler records of a scale-up, a removal, or a pod.

    Source: kubernetes/autoscaler 1.36 core/scaleup/orchestrator/executor.go, executeScaleUp;
    core/scaledown/actuation/actuator.go, deleteNodesAsync, and delete_in_batch.go;
    processors/status/eventing_scale_up_processor.go, Process.
    """
    observed, by = decision.observed, "cluster-autoscaler"
    if kind == "scaled_up":
        scaled, group = observed.scaled_up, observed.object.name
        text = (
            f"Scale-up: setting group {group} size to {scaled.to_size} instead of "
            f"{scaled.from_size}"
        )
        return _event(decision, observed.object, _NORMAL, "ScaledUpGroup", text, by)
    if kind == "no_scale_up":
        reasons = Counter(
            reason for group in observed.no_scale_up.groups for reason in group.reasons
        )
        counts = ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items()))
        text = f"pod didn't trigger scale-up: {counts}"
        return _event(decision, observed.object, _NORMAL, "NotTriggerScaleUp", text, by)
    removal = observed.node_removal
    if removal.step == "Failed":
        text = f"failed to delete node: {removal.message}"
        return _event(decision, observed.object, _WARNING, "ScaleDownFailed", text, by)
    if removal.step != "Started":
        return None
    text = "marked the node as toBeDeleted/unschedulable"
    return _event(decision, observed.object, _NORMAL, "ScaleDown", text, by)


def _created(decision: trace_pb2.Decision, owner: ObjectReference) -> KubeEvent:
    pod = decision.observed.object.name
    text = f"Created pod: {pod}"
    if owner.kind == "StatefulSet":
        text = f"create Pod {pod} in StatefulSet {owner.name} successful"
    component = f"{owner.kind.lower()}-controller"
    return _event(decision, owner, _NORMAL, "SuccessfulCreate", text, component)


def _refused(decision: trace_pb2.Decision, refused: trace_pb2.Refused) -> KubeEvent:
    owner, pod = refused.owner, decision.observed.object.name
    text = f"Error creating: {refused.message}"
    if owner.kind == "StatefulSet":
        text = f"create Pod {pod} in StatefulSet {owner.name} failed error: {refused.message}"
    component = f"{owner.kind.lower()}-controller"
    return _event(decision, owner, _WARNING, "FailedCreate", text, component)


def _of_node(decision: trace_pb2.Decision, reason: str | None) -> KubeEvent | None:
    """Return a kubelet's Event about the state of its node; None for a state without an Event."""
    if reason is None:
        return None
    node = decision.observed.object
    text = f"Node {node.name} status is now: {reason}"
    return _event(decision, node, _NORMAL, reason, text, "kubelet", node.name)


def _event(
    decision: trace_pb2.Decision,
    about: ObjectReference,
    type_: str,
    reason: str,
    message: str,
    component: str = DEFAULT_SCHEDULER,
    host: str = "",
) -> KubeEvent:
    return KubeEvent(
        kind=about.kind,
        namespace=about.namespace or "default",
        object_name=about.name,
        uid=about.uid,
        type=type_,
        reason=reason,
        message=message,
        component=component,
        host=host,
        name=f"{about.name}.{decision.sequence:016x}",
        first_ns=decision.time_ns,
        last_ns=decision.time_ns,
    )
