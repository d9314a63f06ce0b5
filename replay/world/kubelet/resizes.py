"""Resizes in place: a kubelet's decision on new resources of a pod that it runs.

A user changes the resources in a pod's spec (the subresource `resize`). Its kubelet goes on with
what it has allocated until it has decided:

- *Infeasible*: the pod requests more than the node has, or is a static pod. It is not tried again.
- *Deferred*: the other pods leave too little. It is tried again when something has changed; of
  several pods first those that request no more than before, then by priority, Guaranteed pods
  first, then by the time of the deferral.
- Otherwise the new resources are allocated and in force; here that takes no time, so that the
  condition PodResizeInProgress never shows.

While a resize is pending, the condition PodResizePending has the decision, and the containers'
statuses the resources that are allocated: the scheduler counts the higher of both (of an infeasible
one only what is allocated), and the kubelet what is allocated, in admission, eviction and memory
limits. Where a trace begins with a pending resize, the statuses have what was allocated.

Upstream retries every three minutes, too, and after its own restart also infeasible ones; a
container whose resizePolicy asks for a restart is restarted there.

Source: kubernetes v1.36 pkg/kubelet/allocation/allocation_manager.go, retryPendingResizes,
sortPendingResizes, handlePodResourcesResize; pkg/kubelet/allocation/handlers.go,
podResizesAdmitHandler.Admit; v1.34 allocation_manager.go, canResizePod; pkg/kubelet/kubelet.go,
initializeRuntimeDependentModules (eviction reads allocated pods).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from replay.world.api.cluster import Changed
from replay.world.api.conditions import is_ready, remove_pod_condition, set_pod_condition
from replay.world.api.pod_record import PodRecord
from replay.world.controller import Controller
from replay.world.kubelet.admission import MIRROR_ANNOTATION, Rejection
from replay.world.kubelet.memory_limits import (
    DEFAULT_KUBELET,
    KubeletMemory,
    is_sidecar,
    kubepods_limit,
    qos_class,
)
from replay.world.kubelet.pod_lifecycle import PodLifecycle
from replay.world.state import WorldState
from reprieve.kube.v1beta1 import pod_pb2
from services.kube import quantity
from services.kube.requests import CPU, MEMORY

PENDING, IN_PROGRESS = "PodResizePending", "PodResizeInProgress"
DEFERRED, INFEASIBLE = "Deferred", "Infeasible"
_FAILED = "Error"
_OF_POD = ""
_STATIC = "In-place resize of static-pods is not supported"
_LIMIT_LOWERED = (
    "has a lower memory limit now: a kubelet lowers no memory limit below what is used; here the "
    "limit counts at once, and the container is killed"
)


class InPlaceResizes(Controller):
    """Decides resizes for the kubelets; `_deferred` are pods by UID, in order of their deferral."""

    _deferred: dict[str, None]

    def __init__(
        self, state: WorldState, lifecycle: PodLifecycle, kubelet: KubeletMemory = DEFAULT_KUBELET
    ) -> None:
        super().__init__(state)
        self._lifecycle = lifecycle
        self._kubelet = kubelet
        self._deferred = {}
        lifecycle.resized = self.resized
        lifecycle.taken_up = self.taken_up

    def resized(self, now_ns: int, pod: PodRecord, before: pod_pb2.PodSpec) -> None:
        """Decide a resize; `before` is the pod's former spec.

        A kubelet that has not seen the pod yet will see the new spec alone.
        """
        status = pod.message.status
        is_seen = status.phase == "Running" or status.HasField("start_time")
        if not is_seen or pod.is_terminal:
            return
        if pod.allocated is None:
            pod.allocated = _resources(before)
        self._decide(now_ns, pod)

    def taken_up(self, now_ns: int, pod: PodRecord) -> None:
        """Go on with the resize of a pod that runs when the trace begins."""
        reasons = {
            condition.type: condition.reason
            for condition in pod.message.status.conditions
            if condition.type in {PENDING, IN_PROGRESS} and condition.status == "True"
        }
        if PENDING in reasons:
            pod.allocated = dict(_reported(pod.message.status))
            if reasons[PENDING] != INFEASIBLE:
                self._deferred[pod.uid] = None
        elif reasons.get(IN_PROGRESS, _FAILED) != _FAILED:
            self._allocate(now_ns, pod)

    def reconcile(self, now_ns: int, changed: Changed) -> None:
        """Try deferred resizes again."""
        del changed
        if self._deferred:
            pods = (self._cluster.pods.get(uid) for uid in self._deferred)
            pending = [pod for pod in pods if pod is not None and not pod.is_terminal]
            order = {uid: place for place, uid in enumerate(self._deferred)}
            self._deferred = {pod.uid: None for pod in pending}
            for pod in sorted(pending, key=lambda pod: (*_urgency(pod), order[pod.uid])):
                self._decide(now_ns, pod)

    def concerns(self, _pod: PodRecord) -> bool:
        """Return whether a pod that starts or ends may decide a deferred resize."""
        return bool(self._deferred)

    def _decide(self, now_ns: int, pod: PodRecord) -> None:
        if pod.node_name not in self._cluster.nodes or pod.node_name in self._lifecycle.silent:
            self._deferred[pod.uid] = None
            return
        refusal = self._refusal(pod)
        if refusal is None:
            self._allocate(now_ns, pod)
            return
        if refusal.reason == INFEASIBLE:
            self._deferred.pop(pod.uid, None)
        else:
            self._deferred.setdefault(pod.uid)
        status = pod.message.status
        if set_pod_condition(status, PENDING, "True", now_ns, refusal.reason, refusal.message):
            _report(pod.message, pod.allocated or {})
            text = f"the resize of pod {pod.key} is {refusal.reason.lower()}: {refusal.message}"
            self._journal.note("resize", text)
            self._cluster.resized(now_ns, pod)

    def _allocate(self, now_ns: int, pod: PodRecord) -> None:
        """Let the resources of the spec be allocated and in force."""
        before, after = pod.allocated or {}, _resources(pod.message.spec)
        pod.allocated = None
        self._deferred.pop(pod.uid, None)
        self._lifecycle.kubelet_admission.forget(pod)
        self._lifecycle.resources_changed(pod)
        for type_ in (PENDING, IN_PROGRESS):
            remove_pod_condition(pod.message.status, type_)
        _report(pod.message, after)
        if any(_memory_limit(after[name]) < _memory_limit(before.get(name)) for name in after):
            self._journal.note("not-simulated", f"pod {pod.key} {_LIMIT_LOWERED}")
        self._cluster.resized(now_ns, pod)
        self._lifecycle.usage_changed(now_ns, pod)

    def _refusal(self, pod: PodRecord) -> Rejection | None:
        """Return why a kubelet does not allocate the pod's resources now, None if it does."""
        message = pod.message
        if MIRROR_ANNOTATION in message.metadata.annotations:
            return Rejection(INFEASIBLE, _STATIC)
        requests = self._lifecycle.kubelet_admission.requests(message)
        node = self._cluster.nodes[pod.node_name]
        allocatable = node.status.allocatable
        memory = kubepods_limit(node, self._kubelet)
        capacity = {
            MEMORY: memory if memory is not None else quantity.value(allocatable.get(MEMORY, "0")),
            CPU: quantity.milli(allocatable.get(CPU, "0")),
        }
        for name, amount in capacity.items():
            if requests.get(name, 0) > amount:
                text = (
                    f"Node didn't have enough capacity: {name}, requested: {requests[name]}, "
                    f"capacity: {amount}"
                )
                return Rejection(INFEASIBLE, text)
        unfit = self._lifecycle.kubelet_admission.unfit_resized(pod)
        return None if unfit is None else Rejection(DEFERRED, unfit.rejection().message)


def _urgency(pod: PodRecord) -> tuple[bool, int, bool]:
    """Return a deferred resize's place among others; the smallest is tried first."""
    before, after = pod.allocated or {}, _resources(pod.message.spec)
    grows = any(
        _requested(after[name], resource) > _requested(before.get(name), resource)
        for name in after
        for resource in (CPU, MEMORY)
    )
    qos = pod.message.status.qos_class or qos_class(pod.message.spec)
    return grows, -pod.priority, qos != "Guaranteed"


def _resources(spec: pod_pb2.PodSpec) -> dict[str, pod_pb2.ResourceRequirements]:
    """Return a copy of the resources that can be resized, by container; "": those of the pod."""
    copied = {container.name: _copy(container.resources) for container in _resizable(spec)}
    if spec.HasField("resources"):
        copied[_OF_POD] = _copy(spec.resources)
    return copied


def _resizable(spec: pod_pb2.PodSpec) -> Iterator[pod_pb2.Container]:
    yield from spec.containers
    yield from filter(is_sidecar, spec.init_containers)


def _reported(status: pod_pb2.PodStatus) -> Iterator[tuple[str, pod_pb2.ResourceRequirements]]:
    """Yield the resources of which a status says that they are allocated."""
    for container in (*status.container_statuses, *status.init_container_statuses):
        if container.HasField("resources"):
            yield container.name, _allocated(container.resources, container.allocated_resources)
    if status.HasField("resources"):
        yield _OF_POD, _allocated(status.resources, status.allocated_resources)


def _allocated(
    actual: pod_pb2.ResourceRequirements, allocated: Mapping[str, str]
) -> pod_pb2.ResourceRequirements:
    resources = _copy(actual)
    resources.requests.update(allocated)
    return resources


def _report(pod: pod_pb2.Pod, resources: Mapping[str, pod_pb2.ResourceRequirements]) -> None:
    """Write that these resources are allocated and in force."""
    status = pod.status
    by_name = {
        container.name: container
        for container in (*status.container_statuses, *status.init_container_statuses)
    }
    for container in pod.spec.containers:
        if container.name not in by_name:
            by_name[container.name] = status.container_statuses.add(
                name=container.name, ready=is_ready(status)
            )
    for name, amounts in resources.items():
        if name in by_name:
            out = by_name[name]
            out.resources.CopyFrom(amounts)
            out.allocated_resources.clear()
            out.allocated_resources.update(amounts.requests)
    if _OF_POD in resources:
        status.resources.CopyFrom(resources[_OF_POD])
        status.allocated_resources.clear()
        status.allocated_resources.update(resources[_OF_POD].requests)


def _copy(resources: pod_pb2.ResourceRequirements) -> pod_pb2.ResourceRequirements:
    copied = pod_pb2.ResourceRequirements()
    copied.CopyFrom(resources)
    return copied


def _requested(resources: pod_pb2.ResourceRequirements | None, name: str) -> int:
    if resources is None or name not in resources.requests:
        return 0
    return quantity.milli(resources.requests[name])


def _memory_limit(resources: pod_pb2.ResourceRequirements | None) -> float:
    """Return a memory limit, bytes; infinite where there is none."""
    if resources is None or MEMORY not in resources.limits:
        return float("inf")
    return quantity.value(resources.limits[MEMORY])
