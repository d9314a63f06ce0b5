"""Rows of pods, nodes and their usage, from a run's rounds in one pass.

Held are the objects of the cluster as they stand, and of pods that have not ended what they take.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from replay.results.history import Change, ClusterHistory, Verb
from replay.results.tables.free_capacity import NodeState, free_capacity
from reprieve.kube.v1alpha1 import node_pb2, pod_pb2
from reprieve.scheduler.v1alpha1 import scheduler_pb2
from services.kube.pod import PodSpec
from services.kube.requests import CPU, MEMORY, PODS, pod_requests
from services.rpc.kube_codec import node_from_message
from services.rpc.kube_fields import time_ns
from services.rpc.kube_spec import PodSpecInterner

Write = Callable[[Mapping[str, Any]], None]
_TERMINAL = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Writers:
    """Where rows go, by draft."""

    pods: Write
    nodes: Write
    node_usage: Write
    free_capacity: Write


@dataclass(slots=True, kw_only=True)
class _Pod:
    spec: PodSpec
    amounts: Mapping[str, int]
    node_name: str = ""


class HistoryRows:
    """Takes a run's rounds in order and writes rows of what they tell.

    Free capacity is looked at every `sample_ns` of simulated time. `start_ns` is None where no
    round was told.
    """

    def __init__(self, writers: Writers, *, sample_ns: int) -> None:
        self.start_ns: int | None = None
        self.end_ns = 0
        self._writers = writers
        self._sample_ns = sample_ns
        self._next_sample_ns = 0
        self._history = ClusterHistory()
        self._interner = PodSpecInterner()
        self._nodes: dict[str, NodeState] = {}
        self._pods: dict[str, _Pod] = {}
        self._waiting: dict[str, _Pod] = {}
        self._changed: dict[str, None] = {}

    def take(self, rounds: Iterable[scheduler_pb2.Round]) -> None:
        """Take all rounds, and what stands at their end."""
        for round_ in rounds:
            for event in round_.events:
                self._reach(event.at_ns)
                change = self._history.take(event)
                if change is not None:
                    self._change(change, patched=event.HasField("patch"))
            self._reach(round_.at_ns)
        self._write_usage(self.end_ns)
        if self.start_ns is not None:
            self._sample(self.end_ns)

    def _reach(self, at_ns: int) -> None:
        """Write what stood until a later moment."""
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

    def _change(self, change: Change, *, patched: bool) -> None:
        message, gone = change.message, change.verb is Verb.DELETED
        if isinstance(message, node_pb2.Node):
            if gone:
                self._drop_node(change.at_ns, message.metadata.name)
            else:
                self._put_node(change.at_ns, message)
        elif isinstance(message, pod_pb2.Pod):
            if gone:
                self._drop_pod(message.metadata.uid)
            elif patched:
                self._patched_pod(message)
            else:
                self._put_pod(change.at_ns, message, is_new=change.verb is Verb.ADDED)

    # Pods

    def _put_pod(self, at_ns: int, message: pod_pb2.Pod, *, is_new: bool) -> None:
        uid = message.metadata.uid
        is_known = uid in self._pods
        if not is_known and not is_new:
            return
        self._drop_pod(uid)
        spec = self._interner.spec(message.spec)
        pod = _Pod(spec=spec, amounts=_taken(spec))
        if not is_known:
            self._writers.pods(_pod_row(at_ns, message, pod.amounts))
        if message.status.phase in _TERMINAL:
            return
        self._pods[uid] = pod
        if message.spec.node_name:
            self._place(pod, message.spec.node_name)
        elif not spec.scheduling_gates:
            self._waiting[uid] = pod

    def _patched_pod(self, message: pod_pb2.Pod) -> None:
        """Take a pod whose spec is what it was, but for the node."""
        uid, node_name = message.metadata.uid, message.spec.node_name
        pod = self._pods.get(uid)
        if pod is None:
            return
        if node_name and not pod.node_name:
            self._waiting.pop(uid, None)
            self._place(pod, node_name)
        if message.status.phase in _TERMINAL:
            self._drop_pod(uid)

    def _place(self, pod: _Pod, node_name: str) -> None:
        pod.node_name = node_name
        self._account(pod, 1)

    def _drop_pod(self, uid: str) -> None:
        self._waiting.pop(uid, None)
        pod = self._pods.pop(uid, None)
        if pod is not None and pod.node_name:
            self._account(pod, -1)

    def _account(self, pod: _Pod, sign: int) -> None:
        state = self._nodes.get(pod.node_name)
        if state is None:
            return
        for name, amount in pod.amounts.items():
            state.requested[name] = state.requested.get(name, 0) + sign * amount
        self._changed[pod.node_name] = None

    # Nodes

    def _put_node(self, at_ns: int, message: node_pb2.Node) -> None:
        node = node_from_message(message)
        state = self._nodes.get(node.name)
        if state is not None:
            if state.node.allocatable != node.allocatable:
                self._changed[node.name] = None
            state.node = node
            return
        self._nodes[node.name] = NodeState(node=node)
        self._changed[node.name] = None
        for pod in self._pods.values():
            if pod.node_name == node.name:
                self._account(pod, 1)
        self._writers.nodes(
            {
                "node_name": node.name,
                "added_ns": at_ns,
                "cpu_milli": node.allocatable.get(CPU, 0),
                "memory_bytes": node.allocatable.get(MEMORY, 0),
                "allocatable": dict(sorted(node.allocatable.items())),
                "labels": dict(sorted(node.labels.items())),
            }
        )

    def _drop_node(self, at_ns: int, name: str) -> None:
        state = self._nodes.pop(name, None)
        if state is None:
            return
        self._changed.pop(name, None)
        for resource in state.node.allocatable:
            row = {"at_ns": at_ns, "node_name": name, "resource": resource}
            self._writers.node_usage({**row, "requested": 0, "allocatable": 0})
        self._writers.nodes({"node_name": name, "removed_ns": at_ns})

    def _write_usage(self, at_ns: int) -> None:
        for name in self._changed:
            state = self._nodes[name]
            have, used = state.node.allocatable, state.requested
            for resource in (*have, *(each for each in used if each not in have)):
                row = {"at_ns": at_ns, "node_name": name, "resource": resource}
                row["requested"] = used.get(resource, 0)
                row["allocatable"] = have.get(resource, 0)
                self._writers.node_usage(row)
        self._changed.clear()

    def _sample(self, at_ns: int) -> None:
        waiting = Counter(pod.spec for pod in self._waiting.values())
        amounts = {pod.spec: pod.amounts for pod in self._waiting.values()}
        nodes = list(self._nodes.values())
        for each in free_capacity(nodes, waiting, amounts):
            row = {"at_ns": at_ns, **asdict(each), "waiting_pods": len(self._waiting)}
            self._writers.free_capacity(row)


def _taken(spec: PodSpec) -> dict[str, int]:
    """Return what a pod takes of its node, one of its pods too, without zeros."""
    return {name: amount for name, amount in pod_requests(spec).items() if amount} | {PODS: 1}


def _pod_row(at_ns: int, message: pod_pb2.Pod, amounts: Mapping[str, int]) -> dict[str, Any]:
    meta, spec, status = message.metadata, message.spec, message.status
    owner = next((each for each in meta.owner_references if each.controller), None)
    runs = status.phase == "Running"
    return {
        "namespace": meta.namespace,
        "name": meta.name,
        "uid": meta.uid,
        "owner_kind": owner.kind if owner else None,
        "owner_name": owner.name if owner else None,
        "priority": spec.priority,
        "priority_class": spec.priority_class_name or None,
        "cpu_milli": amounts.get(CPU, 0),
        "memory_bytes": amounts.get(MEMORY, 0),
        "requests": dict(sorted(amounts.items())),
        "created_ns": at_ns,
        "node_name": spec.node_name or None,
        "started_ns": (time_ns(status.start_time) or at_ns) if runs else None,
        "phase": status.phase if status.phase in _TERMINAL else None,
    }
