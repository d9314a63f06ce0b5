"""A pod as `kubectl describe` shows it.

Source: kubernetes v1.34 kubectl pkg/describe/describe.go, describePod, describeContainers,
describeStatus, printPodTolerationsMultiline.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from replay.results.kubectl.page import Page, pairs, time_text
from replay.results.kubectl.rows import NONE
from reprieve.kube.v1beta1 import affinity_pb2, pod_pb2
from services.kube.pod import TERMINAL_PHASES


def add_pod(page: Page, pod: pod_pb2.Pod) -> None:
    """Add a pod's lines, without its Events."""
    spec, status = pod.spec, pod.status
    _head(page, pod)
    page.values("Labels", pairs(pod.metadata.labels, "="))
    page.values("Annotations", pairs(pod.metadata.annotations, ": "))
    _status(page, pod)
    _containers(page, "Init Containers", spec.init_containers, status.init_container_statuses)
    _containers(page, "Containers", spec.containers, status.container_statuses)
    if status.conditions:
        page.line("Conditions:")
        page.line("Type", "Status", indent=1)
        for condition in status.conditions:
            page.line(condition.type, condition.status, indent=1)
    if status.qos_class:
        page.line("QoS Class:", status.qos_class)
    page.values("Node-Selectors", pairs(spec.node_selector, "="))
    page.values("Tolerations", sorted(map(_toleration, spec.tolerations)))
    if spec.topology_spread_constraints:
        constraints = [*map(_spread, spec.topology_spread_constraints)]
        page.values("Topology Spread Constraints", constraints)


def _head(page: Page, pod: pod_pb2.Pod) -> None:
    spec = pod.spec
    page.line("Name:", pod.metadata.name)
    page.line("Namespace:", pod.metadata.namespace)
    if spec.HasField("priority"):
        page.line("Priority:", str(spec.priority))
    if spec.priority_class_name:
        page.line("Priority Class Name:", spec.priority_class_name)
    page.line("Node:", spec.node_name or NONE)
    if pod.status.HasField("start_time"):
        page.line("Start Time:", time_text(pod.status, "start_time"))


def _status(page: Page, pod: pod_pb2.Pod) -> None:
    meta, status = pod.metadata, pod.status
    page.line("Status:", _phase(pod))
    if meta.HasField("deletion_timestamp"):
        page.line("Termination Grace Period:", f"{meta.deletion_grace_period_seconds}s")
    if status.reason:
        page.line("Reason:", status.reason)
    if status.message:
        page.line("Message:", status.message)
    page.line("IP:", status.pod_ip)
    for owner in meta.owner_references:
        if owner.controller:
            page.line("Controlled By:", f"{owner.kind}/{owner.name}")
    if status.nominated_node_name:
        page.line("NominatedNodeName:", status.nominated_node_name)


def _phase(pod: pod_pb2.Pod) -> str:
    meta = pod.metadata
    if meta.HasField("deletion_timestamp") and pod.status.phase not in TERMINAL_PHASES:
        return f"Terminating ({time_text(meta, 'deletion_timestamp')})"
    return pod.status.phase


def _containers(
    page: Page,
    title: str,
    containers: Sequence[pod_pb2.Container],
    statuses: Iterable[pod_pb2.ContainerStatus],
) -> None:
    if not containers:
        return
    page.line(f"{title}:")
    by_name = {status.name: status for status in statuses}
    for container in containers:
        page.line(f"{container.name}:", indent=1)
        page.line("Image:", container.image, indent=2)
        ports = [f"{port.container_port}/{port.protocol or 'TCP'}" for port in container.ports]
        hosts = [f"{port.host_port}/{port.protocol or 'TCP'}" for port in container.ports]
        plural = "s" if len(ports) > 1 else ""
        page.line(f"Port{plural}:", ", ".join(ports) or NONE, indent=2)
        page.line(f"Host Port{plural}:", ", ".join(hosts) or NONE, indent=2)
        status = by_name.get(container.name)
        if status is not None:
            _state(page, "State", status.state)
            if status.last_state.ListFields():
                _state(page, "Last State", status.last_state)
            page.line("Ready:", str(status.ready), indent=2)
            page.line("Restart Count:", str(status.restart_count), indent=2)
        _amounts(page, "Limits", container.resources.limits)
        _amounts(page, "Requests", container.resources.requests)


def _state(page: Page, title: str, state: pod_pb2.ContainerState) -> None:
    if state.HasField("running"):
        page.line(f"{title}:", "Running", indent=2)
        if state.running.HasField("started_at"):
            page.line("  Started:", time_text(state.running, "started_at"), indent=2)
    elif state.HasField("terminated"):
        ended = state.terminated
        page.line(f"{title}:", "Terminated", indent=2)
        if ended.reason:
            page.line("  Reason:", ended.reason, indent=2)
        if ended.message:
            page.line("  Message:", ended.message, indent=2)
        page.line("  Exit Code:", str(ended.exit_code), indent=2)
        if ended.signal:
            page.line("  Signal:", str(ended.signal), indent=2)
        for name, label in (("started_at", "Started"), ("finished_at", "Finished")):
            if ended.HasField(name):  # type: ignore[arg-type] # two fields of the message
                page.line(f"  {label}:", time_text(ended, name), indent=2)
    else:
        page.line(f"{title}:", "Waiting", indent=2)
        if state.waiting.reason:
            page.line("  Reason:", state.waiting.reason, indent=2)


def _amounts(page: Page, title: str, amounts: Mapping[str, str]) -> None:
    if amounts:
        page.line(f"{title}:", indent=2)
        for name in sorted(amounts):
            page.line(f"{name}:", amounts[name], indent=3)


def _toleration(toleration: pod_pb2.Toleration) -> str:
    text = toleration.key
    if toleration.value:
        text += f"={toleration.value}"
    if toleration.effect:
        text += f":{toleration.effect}"
    if toleration.operator == "Exists":
        text += " op=Exists" if text else "op=Exists"
    if toleration.HasField("toleration_seconds"):
        text += f" for {toleration.toleration_seconds}s"
    return text


def _spread(spread: affinity_pb2.TopologySpreadConstraint) -> str:
    skew = f"when max skew {spread.max_skew} is exceeded"
    return f"{spread.topology_key}:{spread.when_unsatisfiable} {skew}"
