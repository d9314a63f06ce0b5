"""A node as `kubectl describe` shows it, with its pods and what they request.

Source: kubernetes v1.34 kubectl pkg/describe/describe.go, describeNode, describeNodeResource;
kubectl pkg/util/resource/resource.go, PodRequestsAndLimits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from replay.results import durations
from replay.results.kubectl import rows
from replay.results.kubectl.objects import RunObjects
from replay.results.kubectl.page import Page, pairs, time_text
from reprieve.kube.v1beta1 import meta_pb2, node_pb2, pod_pb2
from services.kube import quantity
from services.kube.pod import TERMINAL_PHASES
from services.kube.quantity import Format, Quantity
from services.kube.requests import pod_requests
from services.rpc.kube import fields
from services.rpc.kube.fields import optional_time_ns
from services.rpc.kube.spec import spec_from_message

_SHOWN = ("cpu", "memory", "ephemeral-storage")
_MILLI = quantity.NANO // 1000


def add_node(page: Page, node: node_pb2.Node, held: RunObjects, now_ns: int) -> None:
    """Add a node's lines, without its Events."""
    meta, status, info = node.metadata, node.status, node.status.node_info
    page.line("Name:", meta.name)
    page.line("Roles:", rows.node_row(node, now_ns)[2])
    page.values("Labels", pairs(meta.labels, "="))
    page.values("Annotations", pairs(meta.annotations, ": "))
    page.line("CreationTimestamp:", time_text(meta, "creation_timestamp"))
    page.values("Taints", sorted(map(_taint, node.spec.taints)))
    page.line("Unschedulable:", str(node.spec.unschedulable).lower())
    if status.conditions:
        page.line("Conditions:")
        header = "Type|Status|LastHeartbeatTime|LastTransitionTime|Reason|Message"
        page.table(header, map(_condition, status.conditions))
    if status.addresses:
        page.line("Addresses:")
        for address in status.addresses:
            page.line(f"{address.type}:", address.address, indent=1)
    for title, amounts in (("Capacity", status.capacity), ("Allocatable", status.allocatable)):
        if amounts:
            page.line(f"{title}:")
            for name in sorted(amounts):
                page.line(f"{name}:", amounts[name], indent=1)
    page.line("System Info:")
    page.line("Kernel Version:", info.kernel_version, indent=1)
    page.line("OS Image:", info.os_image, indent=1)
    page.line("Operating System:", info.operating_system, indent=1)
    page.line("Architecture:", info.architecture, indent=1)
    page.line("Container Runtime Version:", info.container_runtime_version, indent=1)
    page.line("Kubelet Version:", info.kubelet_version, indent=1)
    _allocated(page, node, _pods_on(held, meta.name), now_ns)


def _taint(taint: node_pb2.Taint) -> str:
    return (
        f"{taint.key}={taint.value}:{taint.effect}"
        if taint.value
        else f"{taint.key}:{taint.effect}"
    )


def _condition(condition: node_pb2.NodeCondition) -> Sequence[str]:
    heartbeat, transition = (
        time_text(condition, "last_heartbeat_time"),
        time_text(condition, "last_transition_time"),
    )
    return (
        condition.type,
        condition.status,
        heartbeat,
        transition,
        condition.reason,
        condition.message,
    )


def _pods_on(held: RunObjects, node_name: str) -> list[pod_pb2.Pod]:
    """Return the pods of a node that have not ended, by namespace and name."""
    messages = (held.objects[key] for key in sorted(key for key in held.objects if key[0] == "Pod"))
    return [
        pod
        for pod in messages
        if isinstance(pod, pod_pb2.Pod)
        and pod.spec.node_name == node_name
        and pod.status.phase not in TERMINAL_PHASES
    ]


def _allocated(page: Page, node: node_pb2.Node, pods: Sequence[pod_pb2.Pod], now_ns: int) -> None:
    have = fields.resources(node.status.allocatable or node.status.capacity, "allocatable")
    taken = [(pod, _totals(pod.spec), _totals(_limits(pod.spec))) for pod in pods]
    page.line("Non-terminated Pods:", f"({len(pods)} in total)")
    header = "Namespace|Name|CPU Requests|CPU Limits|Memory Requests|Memory Limits|Age"
    page.table(
        header,
        (
            (
                pod.metadata.namespace,
                pod.metadata.name,
                *(
                    _share(name, amounts.get(name, 0), have)
                    for name in ("cpu", "memory")
                    for amounts in (requests, limits)
                ),
                _age(pod.metadata, now_ns),
            )
            for pod, requests, limits in taken
        ),
    )
    page.line("Allocated resources:")
    page.line("(Total limits may be over 100 percent, i.e., overcommitted.)", indent=1)
    others = sorted({name for _, requests, _ in taken for name in requests} - {*_SHOWN})
    names = [*_SHOWN, *others]
    page.table(
        "Resource|Requests|Limits",
        (
            (
                name,
                _share(name, sum(requests.get(name, 0) for _, requests, _ in taken), have),
                _share(name, sum(limits.get(name, 0) for _, _, limits in taken), have),
            )
            for name in names
        ),
    )


def _totals(spec: pod_pb2.PodSpec) -> dict[str, int]:
    return pod_requests(spec_from_message(spec, field="spec"))


def _limits(spec: pod_pb2.PodSpec) -> pod_pb2.PodSpec:
    """Return a spec whose requests are the limits of `spec`, which add up by the same rules."""
    made = pod_pb2.PodSpec()
    made.CopyFrom(spec)
    containers = (*made.containers, *made.init_containers)
    for resources in (*(container.resources for container in containers), made.resources):
        limits = dict(resources.limits)
        resources.requests.clear()
        resources.requests.update(limits)
    limited = {name for container in made.containers for name in container.resources.limits}
    for name in set(made.overhead) - limited:
        del made.overhead[name]
    return made


def _share(name: str, amount: int, have: Mapping[str, int]) -> str:
    total = have.get(name, 0)
    if name == "cpu":
        text = str(Quantity(amount * _MILLI))
    elif name in ("memory", "ephemeral-storage") or name.startswith("hugepages-"):
        text = str(Quantity.from_value(amount, Format.BINARY_SI))
    else:
        return str(amount)
    return f"{text} ({100 * amount // total if total else 0}%)"


def _age(meta: meta_pb2.ObjectMeta, now_ns: int) -> str:
    at_ns = optional_time_ns(meta, "creation_timestamp")
    return rows.UNKNOWN if at_ns is None else durations.age(now_ns - at_ns)
