"""Pods and nodes as rows of kubectl's tables, and the writer of tables.

Readiness gates are not simulated, so their column shows "<none>".
Source: kubernetes v1.34 pkg/printers/internalversion/printers.go, printPod, printNode,
findNodeRoles; cli-runtime pkg/printers/tabwriter.go (widths).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import Message

from replay.results import durations
from reprieve.kube.v1beta1 import node_pb2, pod_pb2
from services.kube.pod import TERMINAL_PHASES
from services.rpc.kube.fields import optional_time_ns, time_ns
from services.terminal import one_line

_GAP = "   "
_WIDTH_MIN = 3


class TableWriter:
    """Writes a table in batches of rows, as kubectl does; a column never gets narrower.

    headers: whether the first batch is preceded by a header.
    """

    def __init__(
        self, columns: Sequence[str], write: Callable[[str], object], *, headers: bool = True
    ) -> None:
        self._columns = columns
        self._write = write
        shown = columns if headers else [""] * len(columns)
        self._widths = [max(len(one_line(header)), _WIDTH_MIN) for header in shown]
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


NONE = "<none>"
UNKNOWN = "<unknown>"
_ROLE_PREFIX = "node-role.kubernetes.io/"
_ROLE_LABEL = "kubernetes.io/role"


def age(message: Any, now_ns: int) -> str:
    """Return the time since an object's creation; "<unknown>" without a creation time."""
    return since(message.metadata, "creation_timestamp", now_ns)


def since(message: Message, name: str, now_ns: int, unknown: str = UNKNOWN) -> str:
    """Return the time since the time in the field `name`; `unknown` if the field is absent."""
    at_ns = optional_time_ns(message, name)
    return unknown if at_ns is None else durations.age(now_ns - at_ns)


def pairs(labels: Mapping[str, str]) -> str:
    """Return labels as kubectl writes them; "<none>" for no label."""
    return ",".join(f"{key}={labels[key]}" for key in sorted(labels)) or NONE


def pod_row(pod: pod_pb2.Pod, now_ns: int, *, shows_phase: bool = True) -> tuple[str, ...]:
    """Return a pod's cells at `now_ns`; `shows_phase` as in pod_status."""
    seen = _seen(pod)
    status = pod.status
    return (
        pod.metadata.name,
        f"{seen.ready}/{len(pod.spec.containers) + len(_sidecars(pod))}",
        _deletion_status(pod, shows_phase=shows_phase) or seen.status,
        seen.restarts.text(now_ns),
        age(pod, now_ns),
        next((pod_ip.ip for pod_ip in status.pod_ips if pod_ip.ip), status.pod_ip) or NONE,
        pod.spec.node_name or NONE,
        status.nominated_node_name or NONE,
        NONE,
    )


def shows_phase_of_ended(kubernetes_version: str) -> bool:
    """Return whether that version's kubectl shows the phase of an ended pod that is being deleted.

    Older versions show Terminating. "" stands for the newest version.
    Source: kubernetes pull request 122038, in v1.31.
    """
    numbers = re.match(r"v?(\d+)\.(\d+)", kubernetes_version)
    return numbers is None or (int(numbers[1]), int(numbers[2])) >= (1, 31)


def pod_status(pod: pod_pb2.Pod, *, shows_phase: bool = True) -> str:
    """Return kubectl's STATUS; `shows_phase` is what shows_phase_of_ended returns."""
    return _deletion_status(pod, shows_phase=shows_phase) or _seen(pod).status


def _deletion_status(pod: pod_pb2.Pod, *, shows_phase: bool) -> str:
    if not pod.metadata.HasField("deletion_timestamp"):
        return ""
    if pod.status.reason == "NodeLost":
        return "Unknown"
    ended = pod.status.phase in TERMINAL_PHASES
    return "" if ended and shows_phase else "Terminating"


@dataclass(slots=True)
class _Restarts:
    """Restarts of containers, and when one of them last ended before a restart; None: never."""

    count: int = 0
    ended_ns: int | None = None

    def add(self, container: pod_pb2.ContainerStatus) -> None:
        self.count += container.restart_count
        if container.last_state.terminated.HasField("finished_at"):
            ended_ns = time_ns(container.last_state.terminated.finished_at)
            self.ended_ns = max(ended_ns, ended_ns if self.ended_ns is None else self.ended_ns)

    def text(self, now_ns: int) -> str:
        if not self.count or self.ended_ns is None:
            return str(self.count)
        return f"{self.count} ({durations.age(now_ns - self.ended_ns)} ago)"


@dataclass(slots=True)
class _Seen:
    """STATUS of a pod before its deletion is considered, its ready containers, and restarts."""

    status: str
    ready: int
    restarts: _Restarts


def _seen(pod: pod_pb2.Pod) -> _Seen:
    """Return what containers show; before initialization, an init container decides STATUS."""
    status, sidecars = pod.status, _sidecars(pod)
    of_init, of_sidecars = _Restarts(), _Restarts()
    ready, initializing = 0, ""
    for number, container in enumerate(status.init_container_statuses):
        of_init.add(container)
        is_sidecar = container.name in sidecars
        if is_sidecar:
            of_sidecars.add(container)
        state = container.state
        if state.HasField("terminated") and state.terminated.exit_code == 0:
            continue
        if is_sidecar and container.started:
            ready += container.ready
            continue
        initializing = _initializing(state, f"{number}/{len(pod.spec.init_containers)}")
        break
    initialized = _condition(status, "Initialized")
    if initializing and (initialized is None or initialized.status != "True"):
        return _Seen(initializing, ready, of_init)
    for container in status.container_statuses:
        of_sidecars.add(container)
        ready += _is_up(container)
    text = _containers_status(status, initializing or _phase(status))
    return _Seen(text, ready, of_sidecars)


def _phase(status: pod_pb2.PodStatus) -> str:
    scheduled = _condition(status, "PodScheduled")
    if scheduled is not None and scheduled.reason == "SchedulingGated":
        return "SchedulingGated"
    return status.reason or status.phase or "Pending"


def _initializing(state: pod_pb2.ContainerState, progress: str) -> str:
    """Return the status of a pod whose first unfinished init container has this state."""
    if state.HasField("terminated"):
        return f"Init:{_termination(state.terminated)}"
    if state.waiting.reason not in ("", "PodInitializing"):
        return f"Init:{state.waiting.reason}"
    return f"Init:{progress}"


def _is_up(container: pod_pb2.ContainerStatus) -> bool:
    """Return whether a container is ready and neither waits for a reason nor has ended."""
    state = container.state
    return container.ready and state.HasField("running")


def _containers_status(status: pod_pb2.PodStatus, text: str) -> str:
    """Return the status of the first container that does not run; `text` if all run."""
    running = False
    for container in reversed(status.container_statuses):
        state = container.state
        if state.waiting.reason:
            text = state.waiting.reason
        elif state.HasField("terminated"):
            text = _termination(state.terminated)
        else:
            running = running or _is_up(container)
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


def _sidecars(pod: pod_pb2.Pod) -> frozenset[str]:
    return frozenset(
        init_container.name
        for init_container in pod.spec.init_containers
        if init_container.restart_policy == "Always"
    )


def _condition(status: pod_pb2.PodStatus, type_: str) -> pod_pb2.PodCondition | None:
    return next((condition for condition in status.conditions if condition.type == type_), None)


def node_row(node: node_pb2.Node, now_ns: int) -> tuple[str, ...]:
    """Return a node's cells at `now_ns`.

    kubectl does not have the last cell: the conditions, except Ready, that are true.
    """
    status = node.status
    info = status.node_info
    holding = [condition.type for condition in status.conditions if condition.status == "True"]
    return (
        node.metadata.name,
        ",".join(_node_status(node)),
        ",".join(sorted(set(_roles(node)))) or NONE,
        age(node, now_ns),
        info.kubelet_version,
        _address(status, "InternalIP"),
        _address(status, "ExternalIP"),
        info.os_image or UNKNOWN,
        info.kernel_version or UNKNOWN,
        info.container_runtime_version or UNKNOWN,
        ",".join(type_ for type_ in holding if type_ != "Ready") or NONE,
    )


def _node_status(node: node_pb2.Node) -> Iterator[str]:
    ready = next(
        (condition for condition in node.status.conditions if condition.type == "Ready"), None
    )
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
    return next((address.address for address in status.addresses if address.type == type_), NONE)
