"""Pods and nodes as rows of kubectl's tables.

Readiness gates are not simulated: their column is empty.
Source: kubernetes v1.34 pkg/printers/internalversion/printers.go, printPod, printNode,
findNodeRoles.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from replay.results import durations
from reprieve.kube.v1beta1 import node_pb2, pod_pb2
from reprieve.kube.v1beta1.meta_pb2 import ObjectMeta
from services.rpc.kube.fields import time_ns
from services.terminal import one_line

_GAP = "   "


class TableWriter:
    """Writes rows in batches, as kubectl does: the header first; columns only grow wider.

    headers: whether there is a header.
    """

    def __init__(
        self, columns: Sequence[str], write: Callable[[str], object], *, headers: bool = True
    ) -> None:
        self._columns = columns
        self._write = write
        self._widths = [len(one_line(column)) if headers else 0 for column in columns]
        self._begun = not headers

    def rows(self, rows: Sequence[Sequence[str]]) -> None:
        """Write rows; each has a cell for each column. Control characters are escaped."""
        rows = [tuple(map(one_line, row)) for row in rows]
        for row in rows:
            self._widths = [max(w, len(cell)) for w, cell in zip(self._widths, row, strict=True)]
        if rows and not self._begun:
            self._begun = True
            self._line([one_line(column) for column in self._columns])
        for row in rows:
            self._line(row)

    def _line(self, cells: Sequence[str]) -> None:
        padded = [cell.ljust(width) for cell, width in zip(cells, self._widths, strict=True)]
        self._write(_GAP.join(padded).rstrip() + "\n")


POD_COLUMNS = ("NAME", "READY", "STATUS", "RESTARTS", "AGE")
POD_COLUMNS_WIDE = (*POD_COLUMNS, "IP", "NODE", "NOMINATED NODE", "READINESS GATES")
NODE_COLUMNS = ("NAME", "STATUS", "ROLES", "AGE", "VERSION")
NODE_COLUMNS_WIDE = (
    *NODE_COLUMNS,
    "INTERNAL-IP",
    "EXTERNAL-IP",
    "OS-IMAGE",
    "KERNEL-VERSION",
    "CONTAINER-RUNTIME",
    "CONDITIONS",
)
NONE = "<none>"
UNKNOWN = "<unknown>"
_TERMINAL = frozenset({"Succeeded", "Failed"})
_ROLE_PREFIX = "node-role.kubernetes.io/"
_ROLE_LABEL = "kubernetes.io/role"


def pod_row(pod: pod_pb2.Pod, now_ns: int, *, shows_phase: bool = True) -> tuple[str, ...]:
    """Return a pod's cells for POD_COLUMNS_WIDE at `now_ns`; `shows_phase` as in pod_status."""
    ready, restarts = _ready_and_restarts(pod)
    status = pod.status
    return (
        pod.metadata.name,
        ready,
        pod_status(pod, shows_phase=shows_phase),
        str(restarts),
        _age(pod.metadata, now_ns),
        next((each.ip for each in status.pod_ips if each.ip), status.pod_ip) or NONE,
        pod.spec.node_name or NONE,
        status.nominated_node_name or NONE,
        NONE,
    )


def shows_phase_of_ended(kubernetes_version: str) -> bool:
    """Return whether that version's kubectl shows the phase of an ended pod that is being deleted.

    Older ones show Terminating. "" stands for the newest.
    Source: kubernetes pull request 122038, in v1.31.
    """
    numbers = re.match(r"v?(\d+)\.(\d+)", kubernetes_version)
    return numbers is None or (int(numbers[1]), int(numbers[2])) >= (1, 31)


def pod_status(pod: pod_pb2.Pod, *, shows_phase: bool = True) -> str:
    """Return kubectl's STATUS; `shows_phase` is what shows_phase_of_ended returns."""
    status = pod.status
    text = status.reason or status.phase or "Pending"
    scheduled = _condition(status, "PodScheduled")
    if scheduled is not None and scheduled.reason == "SchedulingGated":
        text = "SchedulingGated"
    initializing = _initializing(pod)
    if initializing:
        text = initializing
    initialized = _condition(status, "Initialized")
    if not initializing or (initialized is not None and initialized.status == "True"):
        text = _containers_status(status, text)
    return _deletion_status(pod, shows_phase=shows_phase) or text


def _deletion_status(pod: pod_pb2.Pod, *, shows_phase: bool) -> str:
    if not pod.metadata.HasField("deletion_timestamp"):
        return ""
    if pod.status.reason == "NodeLost":
        return "Unknown"
    ended = pod.status.phase in _TERMINAL
    return "" if ended and shows_phase else "Terminating"


def _initializing(pod: pod_pb2.Pod) -> str:
    """Return the status of the first unfinished init container, "" where all have finished."""
    sidecars = _sidecars(pod)
    for number, container in enumerate(pod.status.init_container_statuses):
        state = container.state
        terminated = state.HasField("terminated")
        if terminated and state.terminated.exit_code == 0:
            continue
        if container.name in sidecars and container.started:
            continue
        if terminated:
            return f"Init:{_termination(state.terminated)}"
        if state.waiting.reason not in ("", "PodInitializing"):
            return f"Init:{state.waiting.reason}"
        return f"Init:{number}/{len(pod.spec.init_containers)}"
    return ""


def _containers_status(status: pod_pb2.PodStatus, text: str) -> str:
    """Return the status of the first container that does not run, or else `text`."""
    running = False
    for container in reversed(status.container_statuses):
        state = container.state
        if state.waiting.reason:
            text = state.waiting.reason
        elif state.HasField("terminated"):
            text = _termination(state.terminated)
        elif container.ready and state.HasField("running"):
            running = True
    if text == "Completed" and running:
        ready = _condition(status, "Ready")
        return "Running" if ready is not None and ready.status == "True" else "NotReady"
    return text


def _termination(terminated: pod_pb2.ContainerStateTerminated) -> str:
    if terminated.reason:
        return terminated.reason
    if terminated.signal:
        return f"Signal:{terminated.signal}"
    return f"ExitCode:{terminated.exit_code}"


def _ready_and_restarts(pod: pod_pb2.Pod) -> tuple[str, int]:
    """Return READY, and RESTARTS: of init containers while they run, then of the others."""
    sidecars = _sidecars(pod)
    status = pod.status
    init = status.init_container_statuses
    total = len(pod.spec.containers) + len(sidecars)
    ready = sum(each.ready and each.started and each.name in sidecars for each in init)
    if _initializing(pod):
        return f"{ready}/{total}", sum(each.restart_count for each in init)
    restarts = sum(each.restart_count for each in init if each.name in sidecars)
    for container in status.container_statuses:
        restarts += container.restart_count
        ready += container.ready and container.state.HasField("running")
    return f"{ready}/{total}", restarts


def _sidecars(pod: pod_pb2.Pod) -> frozenset[str]:
    return frozenset(
        each.name for each in pod.spec.init_containers if each.restart_policy == "Always"
    )


def _condition(status: pod_pb2.PodStatus, type_: str) -> pod_pb2.PodCondition | None:
    return next((each for each in status.conditions if each.type == type_), None)


def node_row(node: node_pb2.Node, now_ns: int) -> tuple[str, ...]:
    """Return a node's cells for NODE_COLUMNS_WIDE at `now_ns`.

    CONDITIONS is ours: the true conditions other than Ready.
    """
    status = node.status
    info = status.node_info
    holding = [each.type for each in status.conditions if each.status == "True"]
    return (
        node.metadata.name,
        ",".join(_node_status(node)),
        ",".join(sorted(set(_roles(node)))) or NONE,
        _age(node.metadata, now_ns),
        info.kubelet_version,
        _address(status, "InternalIP"),
        _address(status, "ExternalIP"),
        info.os_image or UNKNOWN,
        info.kernel_version or UNKNOWN,
        info.container_runtime_version or UNKNOWN,
        ",".join(each for each in holding if each != "Ready") or NONE,
    )


def _node_status(node: node_pb2.Node) -> Iterator[str]:
    ready = next((each for each in node.status.conditions if each.type == "Ready"), None)
    if ready is None:
        yield "Unknown"
    else:
        yield "Ready" if ready.status == "True" else "NotReady"
    if node.spec.unschedulable:
        yield "SchedulingDisabled"


def _roles(node: node_pb2.Node) -> Iterator[str]:
    for key, value in node.metadata.labels.items():
        if key.startswith(_ROLE_PREFIX) and key != _ROLE_PREFIX:
            yield key.removeprefix(_ROLE_PREFIX)
        elif key == _ROLE_LABEL and value:
            yield value


def _address(status: node_pb2.NodeStatus, type_: str) -> str:
    return next((each.address for each in status.addresses if each.type == type_), NONE)


def _age(meta: ObjectMeta, now_ns: int) -> str:
    if not meta.HasField("creation_timestamp"):
        return UNKNOWN
    return durations.age(now_ns - time_ns(meta.creation_timestamp))
