"""Status of pods and nodes: conditions, the status of each step of a pod's life, and restarts.

A container's first restart is immediate. The backoff is reset, as upstream's is, by a run of more
than ten minutes.

An init container takes no time: it has completed when the pod runs. A sidecar runs with the pod.

Source: kubernetes v1.34 pkg/api/v1/pod/util.go, UpdatePodCondition;
pkg/controller/nodelifecycle/node_lifecycle_controller.go, nodeConditionToTaintKeyStatusMap;
pkg/registry/core/pod/storage/storage.go, BindingREST.setPodNodeAndMetadata;
pkg/kubelet/kubelet_pods.go, generateAPIPodStatus; kubelet.go, MaxContainerBackOff, backOffPeriod;
container/helpers.go, ShouldContainerBeRestarted; kuberuntime/kuberuntime_manager.go, doBackOff.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from reprieve.kube.v1beta1 import node_pb2, pod_pb2
from services.kube.taints import DISK_PRESSURE, MEMORY_PRESSURE, PID_PRESSURE
from services.kube.time import SECOND_NS
from services.rpc.kube.fields import set_time, time_ns

TAINTS = {
    "MemoryPressure": MEMORY_PRESSURE,
    "DiskPressure": DISK_PRESSURE,
    "PIDPressure": PID_PRESSURE,
}
"""The taint that the node lifecycle controller sets for each pressure condition."""

Write = Callable[[int, pod_pb2.Pod], None]
"""Writes a step of a pod's life into its status, at a time in ns since the Unix epoch."""
BACKOFF_NS = 10 * SECOND_NS
BACKOFF_MAX_NS = 300 * SECOND_NS
RESET_NS = 2 * BACKOFF_MAX_NS
"""How long containers must have run for their backoff to be reset."""
KILLED_EXIT_CODE = 137
OOM_KILLED = "OOMKilled"
_INITIALIZING = "PodInitializing"


def set_pod_condition(
    status: pod_pb2.PodStatus,
    type_: str,
    value: str,
    now_ns: int,
    reason: str = "",
    message: str = "",
) -> bool:
    """Set a pod's condition and return whether anything changed.

    The transition time moves only when the condition's status does.
    """
    for condition in status.conditions:
        if condition.type == type_:
            break
    else:
        condition = status.conditions.add()
        condition.type = type_
    before = condition.status
    if before == value and condition.reason == reason and condition.message == message:
        return False
    if before != value:
        condition.status = value
        set_time(condition.last_transition_time, now_ns)
    condition.reason = reason
    condition.message = message
    return True


def remove_pod_condition(status: pod_pb2.PodStatus, type_: str) -> None:
    """Remove a pod's condition; one that it does not have is accepted."""
    for index, condition in enumerate(status.conditions):
        if condition.type == type_:
            del status.conditions[index]
            return


def mark_disrupted(status: pod_pb2.PodStatus, now_ns: int, reason: str, message: str) -> None:
    """Set the condition DisruptionTarget, whose reason names the component that ends the pod."""
    set_pod_condition(status, "DisruptionTarget", "True", now_ns, reason, message)


def ready_since_ns(status: pod_pb2.PodStatus) -> int | None:
    """Return when the condition Ready became True, ns since 1970; None while it is not."""
    for condition in status.conditions:
        if condition.type == "Ready" and condition.status == "True":
            return time_ns(condition.last_transition_time)
    return None


def is_ready(status: pod_pb2.PodStatus) -> bool:
    """Return whether the condition Ready is True."""
    return any(
        condition.type == "Ready" and condition.status == "True" for condition in status.conditions
    )


def bound_since_ns(pod: pod_pb2.Pod) -> int:
    """Return when a pod was bound to its node, ns since the Unix epoch.

    It is the time of its condition PodScheduled; a pod without it, such as a static one, counts
    from its creation.
    """
    for condition in pod.status.conditions:
        if condition.type == "PodScheduled" and condition.status == "True":
            return time_ns(condition.last_transition_time)
    return time_ns(pod.metadata.creation_timestamp)


def set_node_condition(
    status: node_pb2.NodeStatus, type_: str, value: str, now_ns: int, reason: str, message: str
) -> bool:
    """Set a node's condition and return whether its status changed; nothing else counts."""
    condition = next((existing for existing in status.conditions if existing.type == type_), None)
    if condition is None:
        condition = status.conditions.add(type=type_)
    if condition.status == value:
        return False
    condition.status, condition.reason, condition.message = value, reason, message
    set_time(condition.last_transition_time, now_ns)
    return True


def mark_pressure(node: node_pb2.Node, shown: node_pb2.NodeCondition, now_ns: int) -> None:
    """Write a pressure condition, and its taint while it holds."""
    set_node_condition(node.status, shown.type, shown.status, now_ns, shown.reason, shown.message)
    remove_taints(node, TAINTS[shown.type])
    if shown.status == "True":
        taint = node.spec.taints.add(key=TAINTS[shown.type], effect="NoSchedule")
        set_time(taint.time_added, now_ns)


def remove_taints(node: node_pb2.Node, *keys: str) -> None:
    """Remove the taints with any of the keys, whatever their effects."""
    kept = [taint for taint in node.spec.taints if taint.key not in keys]
    del node.spec.taints[:]
    node.spec.taints.extend(kept)


def scheduled(now_ns: int, pod: pod_pb2.Pod) -> None:
    """Write that the pod has a node."""
    set_pod_condition(pod.status, "PodScheduled", "True", now_ns)


def seen(now_ns: int, pod: pod_pb2.Pod) -> None:
    """Write the kubelet's first status of a pod whose containers do not run yet."""
    _acknowledge(now_ns, pod)
    set_pod_condition(pod.status, "Ready", "False", now_ns, "ContainersNotReady")
    reason = _INITIALIZING if pod.spec.init_containers else "ContainerCreating"
    for container in pod.status.container_statuses:
        container.state.waiting.reason = reason


def seen_running(now_ns: int, pod: pod_pb2.Pod) -> None:
    """Write the kubelet's first status of a pod whose containers run at once."""
    _acknowledge(now_ns, pod)
    running(now_ns, pod)


def running(now_ns: int, pod: pod_pb2.Pod) -> None:
    """Write that the pod's containers run."""
    status = pod.status
    status.phase = "Running"
    _set_ready(status, "True", now_ns)
    for container in status.container_statuses:
        container.ready = True
        container.state.Clear()
        set_time(container.state.running.started_at, now_ns)
    if status.init_container_statuses:
        set_pod_condition(status, "Initialized", "True", now_ns)
        sidecars = _sidecars(pod)
        for container in status.init_container_statuses:
            _initialized(now_ns, container, is_sidecar=container.name in sidecars)


def running_unready(now_ns: int, pod: pod_pb2.Pod) -> None:
    """Write that the pod's containers run and are not ready yet."""
    running(now_ns, pod)
    set_pod_condition(pod.status, "ContainersReady", "False", now_ns)
    _set_ready(pod.status, "False", now_ns, "ContainersNotReady")
    for container in pod.status.container_statuses:
        container.ready = False


def seen_running_unready(now_ns: int, pod: pod_pb2.Pod) -> None:
    """Write the kubelet's first status of a pod whose containers run at once, but are not ready."""
    _acknowledge(now_ns, pod)
    running_unready(now_ns, pod)


def ready(now_ns: int, pod: pod_pb2.Pod) -> None:
    """Write that the pod's containers, which run, are ready."""
    _set_ready(pod.status, "True", now_ns)
    for container in pod.status.container_statuses:
        container.ready = True


def _set_ready(status: pod_pb2.PodStatus, value: str, now_ns: int, reason: str = "") -> None:
    """Set the condition Ready, and ContainersReady where the pod has it."""
    for condition in status.conditions:
        if condition.type == "ContainersReady":
            set_pod_condition(status, "ContainersReady", value, now_ns, reason)
            break
    set_pod_condition(status, "Ready", value, now_ns, reason)


def _initialized(now_ns: int, status: pod_pb2.ContainerStatus, *, is_sidecar: bool) -> None:
    """Write that a sidecar runs, or that another init container has completed."""
    state = status.state
    if is_sidecar:
        if not state.HasField("running"):
            state.Clear()
            set_time(state.running.started_at, now_ns)
        status.ready = status.started = True
    elif not (state.HasField("terminated") and state.terminated.exit_code == 0):
        state.Clear()
        state.terminated.reason = "Completed"
        set_time(state.terminated.started_at, now_ns)
        set_time(state.terminated.finished_at, now_ns)
        status.ready, status.started = True, False


def oom_killed(now_ns: int, pod: pod_pb2.Pod, name: str, *, waits: bool) -> None:
    """Write that the kernel killed a container; it `waits` for a restart after its backoff.

    One that is restarted at once, or never, is shown as terminated. An init container's pod is not
    initialized.
    """
    status = pod.status
    _set_ready(status, "False", now_ns, "ContainersNotReady")
    container = _status_of(status, name)
    if container is None:
        return
    if container in status.init_container_statuses and name not in _sidecars(pod):
        set_pod_condition(status, "Initialized", "False", now_ns, "ContainersNotInitialized")
    killed = pod_pb2.ContainerStateTerminated(exit_code=KILLED_EXIT_CODE, reason=OOM_KILLED)
    set_time(killed.finished_at, now_ns)
    killed.started_at.CopyFrom(killed.finished_at)
    if container.state.running.HasField("started_at"):
        killed.started_at.CopyFrom(container.state.running.started_at)
    container.ready = False
    if container.HasField("started"):
        container.started = False
    container.state.Clear()
    if waits:
        container.state.waiting.reason = "CrashLoopBackOff"
        container.last_state.terminated.CopyFrom(killed)
    else:
        container.state.terminated.CopyFrom(killed)


def restarted(now_ns: int, pod: pod_pb2.Pod, name: str, *, is_ready: bool) -> None:
    """Write that a container runs again; the pod is ready if all of its containers are."""
    status = pod.status
    container = _status_of(status, name)
    if container is None:
        return
    _count_restart(container)
    container.state.Clear()
    set_time(container.state.running.started_at, now_ns)
    container.ready = is_ready
    sidecars = _sidecars(pod)
    if name in sidecars:
        container.started = container.ready = True
    if all(container.ready for container in _long_running(status, sidecars)):
        _set_ready(status, "True", now_ns)


def init_failed(now_ns: int, pod: pod_pb2.Pod, write: Write) -> None:
    """Write that the pod fails, since an init container that `write` writes is not run again."""
    write(now_ns, pod)
    pod.status.phase = "Failed"
    _set_ready(pod.status, "False", now_ns, "PodFailed")


def init_restarted(now_ns: int, pod: pod_pb2.Pod, name: str) -> None:  # noqa: ARG001 - a Write
    """Write that an init container is restarted; the caller writes its result next."""
    container = _status_of(pod.status, name)
    if container is not None:
        _count_restart(container)


def _count_restart(container: pod_pb2.ContainerStatus) -> None:
    container.restart_count += 1
    if container.state.HasField("terminated"):
        container.last_state.terminated.CopyFrom(container.state.terminated)


def _status_of(status: pod_pb2.PodStatus, name: str) -> pod_pb2.ContainerStatus | None:
    every = (*status.container_statuses, *status.init_container_statuses)
    return next((container for container in every if container.name == name), None)


def _sidecars(pod: pod_pb2.Pod) -> frozenset[str]:
    return frozenset(
        container.name
        for container in pod.spec.init_containers
        if container.restart_policy == "Always"
    )


def _long_running(
    status: pod_pb2.PodStatus, sidecars: Collection[str]
) -> Iterator[pod_pb2.ContainerStatus]:
    yield from status.container_statuses
    yield from (
        container for container in status.init_container_statuses if container.name in sidecars
    )


def ended(
    now_ns: int, pod: pod_pb2.Pod, exit_code: int, phase: str = "", before: Collection[str] = ()
) -> None:
    """Write that the pod's containers have exited for good; `phase` "": by the exit code.

    The containers `before` have ended before, each with a failure. Sidecars end last, with 0.
    """
    status = pod.status
    phase = phase or ("Failed" if exit_code or before else "Succeeded")
    status.phase = phase
    _set_ready(status, "False", now_ns, "PodFailed" if phase == "Failed" else "PodCompleted")
    for container in status.init_container_statuses:
        if container.state.HasField("running"):
            container.ready = container.started = False
            container.state.Clear()
            container.state.terminated.reason = "Completed"
            set_time(container.state.terminated.finished_at, now_ns)
        elif container.state.HasField("waiting") and container.last_state.HasField("terminated"):
            container.state.terminated.CopyFrom(container.last_state.terminated)
    for container in status.container_statuses:
        container.ready = False
        if container.name in before:
            continue
        container.state.Clear()
        container.state.terminated.exit_code = exit_code
        container.state.terminated.reason = "Completed" if exit_code == 0 else "Error"
        set_time(container.state.terminated.finished_at, now_ns)


def waits_for_restart(now_ns: int, pod: pod_pb2.Pod, exit_code: int) -> None:
    """Write that the pod's containers have exited and will be restarted after their backoff."""
    status = pod.status
    _set_ready(status, "False", now_ns, "ContainersNotReady")
    for container in status.container_statuses:
        container.ready = False
        container.restart_count += 1
        last = pod_pb2.ContainerStateTerminated(exit_code=exit_code)
        last.reason = "Completed" if exit_code == 0 else "Error"
        if container.state.running.HasField("started_at"):
            last.started_at.CopyFrom(container.state.running.started_at)
        set_time(last.finished_at, now_ns)
        container.last_state.terminated.CopyFrom(last)
        container.state.Clear()
        container.state.waiting.reason = "CrashLoopBackOff"


def rejected(now_ns: int, pod: pod_pb2.Pod, reason: str, message: str) -> None:
    """Write that the kubelet does not admit the pod, which never runs.

    Source: kubernetes v1.32 pkg/kubelet/kubelet.go, rejectPod.
    """
    status = pod.status
    status.phase, status.reason = "Failed", reason
    status.message = f"Pod was rejected: {message}"
    status.nominated_node_name = ""
    set_time(status.start_time, now_ns)


def _acknowledge(now_ns: int, pod: pod_pb2.Pod) -> None:
    """Write the kubelet's start time, which also ends the pod's nomination."""
    status = pod.status
    set_time(status.start_time, now_ns)
    status.nominated_node_name = ""
    if pod.spec.init_containers:
        reason = "ContainersNotInitialized"
        set_pod_condition(status, "Initialized", "False", now_ns, reason)
    else:
        set_pod_condition(status, "Initialized", "True", now_ns)
    del status.container_statuses[:]
    for container in pod.spec.containers:
        status.container_statuses.add(name=container.name)
    del status.init_container_statuses[:]
    for container in pod.spec.init_containers:
        made = status.init_container_statuses.add(name=container.name)
        made.state.waiting.reason = _INITIALIZING


def runs_again(restart_policy: str, exit_code: int) -> bool:
    """Return whether containers that have exited run again; an empty policy is Always."""
    if restart_policy == "Never":
        return False
    return restart_policy != "OnFailure" or exit_code != 0


def crash_backoff_ns(restarts: int) -> int:
    """Return the wait before the next restart, ns; 0 for the first one."""
    if restarts < 1:
        return 0
    return min(BACKOFF_NS << min(restarts - 1, 16), BACKOFF_MAX_NS)
