"""Rows of pods, nodes, usage and free capacity, from a run's rounds in one pass.

Free capacity is divided by the reason why the average waiting pod cannot use it. With N waiting
pods, 1/N of the free capacity of a node goes to the reason for which that node refuses each pod.
The reasons are cordon, taints, node affinity and requests, in the order of upstream's filters. A
node without any of these reasons may still refuse the pod for spreading, pod affinity, ports or
volumes, or the pod's turn has not come yet (FITS).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from replay.results.run.cluster import ChangeType, ClusterState, NodeUse, ObjectChange
from replay.results.run.device_use import ClassUse, DeviceTally
from replay.results.workloads.tally import WorkloadTally
from replay.results.workloads.verdict import WorkloadVerdict
from replay.world.api.pod_record import controller_of
from replay.world.controllers.autoscaling.node_groups import Autoscaling, NodeGroup
from reprieve.kube.v1beta1 import node_pb2, pod_pb2
from reprieve.scheduler.v1beta1 import scheduler_pb2
from services.kube.node import Node
from services.kube.pod import TERMINAL_PHASES, PodSpec
from services.kube.quantity import saturated
from services.kube.requests import CPU, MEMORY
from services.kube.taints import CORDON, Taint, repels, tolerated
from services.rpc.kube.codec import node_from_message
from services.rpc.kube.fields import time_ns

Write = Callable[[str, Mapping[str, Any]], None]
"""Appends a row, its columns by name, to the draft of a table."""


class HistoryRows:
    """Writes the rows that are derived from a run's rounds.

    Free capacity is sampled every `sample_ns` of simulated time. `start_ns` is None if there was no
    round. Each event is also passed to `workloads`. `autoscaling`: the scaled node groups, if any.
    """

    def __init__(
        self,
        write: Write,
        workloads: WorkloadTally,
        *,
        sample_ns: int,
        autoscaling: Autoscaling | None = None,
    ) -> None:
        self.start_ns: int | None = None
        self.end_ns = 0
        self._write = write
        self._workloads = workloads
        self._sample_ns = sample_ns
        self._autoscaling = autoscaling
        self._next_sample_ns = 0
        self._state = ClusterState()
        self._devices = DeviceTally()
        self._devices_written: Mapping[str, ClassUse] = {}
        self._gated: dict[str, dict[str, Any]] = {}

    def take(self, rounds: Iterable[scheduler_pb2.Round]) -> None:
        """Write the rows of all rounds, and of the state after the last round."""
        for round_ in rounds:
            for event in round_.events:
                self._reach(event.time_ns)
                self._workloads.sent(event)
                change = self._state.take(event)
                if change is not None:
                    self._devices.take(change)
                    self._write_change(change)
            self._reach(round_.time_ns)
        for row in self._gated.values():
            self._write("pods", row)
        self._write_usage(self.end_ns)
        if self.start_ns is not None:
            self._sample(self.end_ns)

    def _reach(self, at_ns: int) -> None:
        """Advance to `at_ns`; write the state of the moment before it first."""
        if self.start_ns is None:
            self.start_ns = self._next_sample_ns = self.end_ns = at_ns
        if at_ns <= self.end_ns:
            return
        self._write_usage(self.end_ns)
        if self._next_sample_ns < at_ns:
            self._sample(max(self._next_sample_ns, self.end_ns))
            missed = (at_ns - self._next_sample_ns + self._sample_ns - 1) // self._sample_ns
            self._next_sample_ns += missed * self._sample_ns
        self.end_ns = at_ns

    def _write_change(self, change: ObjectChange) -> None:
        message = change.message
        if isinstance(message, pod_pb2.Pod):
            self._write_pod(change, message)
        elif isinstance(message, node_pb2.Node) and change.type is not ChangeType.MODIFIED:
            node = node_from_message(message)
            if change.type is ChangeType.ADDED:
                scaled = self._autoscaling
                group = None if scaled is None else scaled.group_of(message)
                self._write("nodes", _node_row(change.at_ns, node, group))
                return
            for resource in node.allocatable:
                row = {"at_ns": change.at_ns, "node_name": node.name, "resource": resource}
                self._write("node_usage", {**row, "requested": 0, "allocatable": 0})
            self._write("nodes", {"node_name": node.name, "removed_ns": change.at_ns})

    def _write_pod(self, change: ObjectChange, message: pod_pb2.Pod) -> None:
        """Write the row of a new pod; if it has scheduling gates, when they have been removed."""
        uid, has_gates = message.metadata.uid, bool(message.spec.scheduling_gates)
        if change.type is ChangeType.ADDED:
            row = self._pod_row(change.at_ns, message)
            if has_gates:
                self._gated[uid] = row
            else:
                self._write("pods", row)
        elif uid in self._gated and not has_gates and change.type is ChangeType.MODIFIED:
            self._write("pods", {**self._gated.pop(uid), "waiting_since_ns": change.at_ns})

    def _write_usage(self, at_ns: int) -> None:
        for name in self._state.changed_nodes:
            use = self._state.nodes[name]
            have, used = use.node.allocatable, use.requested
            for resource in (*have, *(name for name in used if name not in have)):
                row = {"at_ns": at_ns, "node_name": name, "resource": resource}
                row["requested"] = saturated(used.get(resource, 0))
                row["allocatable"] = have.get(resource, 0)
                self._write("node_usage", row)
        self._state.changed_nodes.clear()
        self._write_devices(at_ns)

    def _write_devices(self, at_ns: int) -> None:
        uses, written = self._devices.uses, self._devices_written
        if uses is written:
            return
        self._devices_written = uses
        for name in (*uses, *(name for name in written if name not in uses)):
            use = uses.get(name, ClassUse())
            if use != written.get(name):
                self._write("device_usage", {"at_ns": at_ns, "device_class": name, **asdict(use)})

    def _sample(self, at_ns: int) -> None:
        waiting = self._state.waiting.values()
        shapes = Counter(pod.spec for pod in waiting)
        requests = {pod.spec: pod.requests for pod in waiting}
        for capacity in free_capacity(list(self._state.nodes.values()), shapes, requests):
            row = {"at_ns": at_ns, **asdict(capacity), "waiting_pods": len(waiting)}
            self._write("free_capacity", row)

    def _pod_row(self, at_ns: int, message: pod_pb2.Pod) -> dict[str, Any]:
        meta, spec, status = message.metadata, message.spec, message.status
        requests = (self._state.pods.get(meta.uid) or self._state.active_pod(message)).requests
        owner = controller_of(meta)
        workload = owner and (self._workloads.top_of(owner.uid) or (owner.kind, owner.name))
        waits = not (spec.node_name or spec.scheduling_gates)
        runs = status.phase == "Running"
        return {
            "namespace": meta.namespace,
            "name": meta.name,
            "uid": meta.uid,
            "owner_kind": owner.kind if owner else None,
            "owner_name": owner.name if owner else None,
            "workload_kind": workload[0] if workload else None,
            "workload_name": workload[1] if workload else None,
            "priority": spec.priority,
            "priority_class": spec.priority_class_name or None,
            "cpu_milli": requests.get(CPU, 0),
            "memory_bytes": requests.get(MEMORY, 0),
            "requests": dict(sorted(requests.items())),
            "created_ns": at_ns,
            "waiting_since_ns": at_ns if waits else None,
            "node_name": spec.node_name or None,
            "started_ns": (time_ns(status.start_time) or at_ns) if runs else None,
            "phase": status.phase if status.phase in TERMINAL_PHASES else None,
        }


def workload_row(place: int, verdict: WorkloadVerdict) -> dict[str, Any]:
    """Return the row of a workload; `place` is its rank, 1 for the worst."""
    row: dict[str, Any] = {
        "place": place,
        **asdict(verdict),
        "priority_class": verdict.priority_class or None,
        "not_created": verdict.not_created,
        "budgets": ", ".join(verdict.budgets) or None,
    }
    for name in ("below", "below_budget"):
        times = getattr(verdict, name)
        row |= {f"{name}_times": times.times, f"{name}_ns": times.total_ns}
        since_ns = times.longest_from_ns if times.times else None
        row |= {f"{name}_longest_from_ns": since_ns, f"{name}_longest_ns": times.longest_ns}
        del row[name]
    return row


def _node_row(at_ns: int, node: Node, group: NodeGroup | None) -> dict[str, Any]:
    return {
        "node_name": node.name,
        "added_ns": at_ns,
        "cpu_milli": node.allocatable.get(CPU, 0),
        "memory_bytes": node.allocatable.get(MEMORY, 0),
        "allocatable": dict(sorted(node.allocatable.items())),
        "labels": dict(sorted(node.labels.items())),
        "node_group": None if group is None else group.name,
    }


SHAPES_MAX = 16
"""Only the most frequent specs of waiting pods are judged, up to this number."""
CORDONED = "node is unschedulable"
TAINTED = "untolerated taint"
UNSELECTED = "node affinity or selector"
FITS = "fits: other rules, or not its turn"
_Marks = tuple[bool, tuple[Taint, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeCapacity:
    """Free amount of a resource on nodes that refuse pods for `reason`; "" if no pod waits."""

    resource: str
    reason: str
    free: int
    allocatable: int


def free_capacity(
    nodes: Sequence[NodeUse],
    waiting: Counter[PodSpec],
    requests: Mapping[PodSpec, Mapping[str, int]],
) -> Iterator[FreeCapacity]:
    """Yield the free amount of each resource by reason.

    `waiting` counts waiting pods by spec; `requests` are those specs' requests. Resources are cpu,
    memory and those with a domain in their name, such as devices.
    """
    names = _resources(nodes)
    judged = waiting.most_common(SHAPES_MAX)
    requested = {name for spec, _ in judged for name in requests[spec]}
    moment = _Moment(nodes, [*names, *sorted(requested.difference(names))])
    pods = sum(count for _, count in judged)
    parts: dict[tuple[str, str], float] = {}
    for spec, count in judged:
        reasons, index = moment.refusals(spec, requests[spec])
        for column, name in enumerate(names):
            weights = moment.free[:, column]
            amounts = np.bincount(index, weights=weights, minlength=len(reasons))
            for reason, amount in zip(reasons, amounts.tolist(), strict=True):
                key = name, reason
                parts[key] = parts.get(key, 0.0) + amount * count / pods
    if not judged:
        parts = {(name, ""): float(sum(moment.free[:, i].tolist())) for i, name in enumerate(names)}
    total = {name: sum(node.node.allocatable.get(name, 0) for node in nodes) for name in names}
    for (name, reason), amount in parts.items():
        if amount or not judged:
            yield FreeCapacity(
                resource=name,
                reason=reason,
                free=saturated(round(amount)),
                allocatable=saturated(total[name]),
            )


def _resources(nodes: Sequence[NodeUse]) -> list[str]:
    named = {name for node in nodes for name in node.node.allocatable if "/" in name}
    return [CPU, MEMORY, *sorted(named)]


class _Moment:
    """The nodes at one moment: `free` is int64[nodes, resources].

    Cordon and taints are judged once for all nodes with the same ones (`_marks`).
    """

    def __init__(self, nodes: Sequence[NodeUse], names: Sequence[str]) -> None:
        self._nodes = nodes
        self._columns = {name: column for column, name in enumerate(names)}
        free = np.array([[node.free(name) for name in names] for node in nodes], dtype=np.int64)
        self.free = free.reshape(len(nodes), len(names))
        self._marks: dict[_Marks, int] = {}
        self._mark_of = np.array([self._mark(node.node) for node in nodes], dtype=np.int64)

    def _mark(self, node: Node) -> int:
        return self._marks.setdefault((node.unschedulable, node.taints), len(self._marks))

    def refusals(
        self, spec: PodSpec, amounts: Mapping[str, int]
    ) -> tuple[list[str], NDArray[np.int64]]:
        """Return reasons, and for each node the index of the reason why it refuses `spec`."""
        reasons = [FITS, CORDONED, TAINTED, UNSELECTED]
        by_mark = [_refused_for_marks(marks, spec) for marks in self._marks]
        index = np.array(by_mark, dtype=np.int64)[self._mark_of]
        selector = spec.node_selector.items()
        required = spec.node_affinity.required if spec.node_affinity is not None else None
        if selector or required is not None:
            for row in np.flatnonzero(index == 0).tolist():
                index[row] = 0 if self._nodes[row].node.matches(selector, required) else 3
        names = sorted(amounts)
        requested = np.array([amounts[name] for name in names], dtype=np.int64)
        short = self.free[:, [self._columns[name] for name in names]] < requested
        codes = short @ (1 << np.arange(len(names)))
        for code in np.unique(codes[(index == 0) & (codes > 0)]).tolist():
            index[(index == 0) & (codes == code)] = len(reasons)
            missing = [name for bit, name in enumerate(names) if code >> bit & 1]
            reasons.append(f"Insufficient {' and '.join(missing)}")
        return reasons, index


def _refused_for_marks(marks: _Marks, spec: PodSpec) -> int:
    """Return the index of a reason in refusals(); 0 if cordon and taints do not refuse `spec`."""
    unschedulable, taints = marks
    if unschedulable and not tolerated(CORDON, spec.tolerations):
        return 1
    return 2 if any(repels(taint, spec.tolerations) for taint in taints) else 0
