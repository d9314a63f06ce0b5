"""A session as plain values: what its checkpoint holds, its queue's checkpoint included.

Messages are written in hex, as they came. Pods are written once each, and named by their place
among them: a pod may be assumed, nominated or decided upon as it was before its last change, so
that several versions of one are kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from google.protobuf.message import Message

from reprieve.kube.v1alpha1 import node_pb2, object_pb2, pod_pb2, policy_pb2
from reprieve.queue.v1alpha1 import queue_pb2
from reprieve.scheduler.v1alpha1 import scheduler_pb2
from reprieve.session.v1alpha1 import session_pb2
from services.kube.pod import Pod
from services.rpc.kube_codec import budget_from_message, node_from_message, pod_from_message
from services.rpc.kube_messages import budget_to_message, node_to_message, pod_to_message
from services.rpc.kube_spec import PodSpecInterner
from services.scheduler import saved_decisions
from services.scheduler.cluster_events import PutOther, decode_object
from services.scheduler.core.layout import Layout
from services.scheduler.core.memory import Memory
from services.scheduler.core.snapshot import Snapshot
from services.scheduler.session import Edge, SchedulerSession

Plain = dict[str, Any]
Row = list[Any]


def session_to_plain(
    session: SchedulerSession, queue: Sequence[session_pb2.CheckpointChunk]
) -> Plain:
    """Return dicts, lists, strings, integers and None that stand for a session between rounds."""
    core, snapshot = session.core, session.core.snapshot
    pods = _Pods(list(session.intake.messages.values()), list(core.pods.values()))
    memory, edge = core.memory(), session.edge
    plain: Plain = {
        "config": _hex(session.config),
        "at_ns": edge.at_ns,
        "wakeup_ns": edge.wakeup_ns,
        "cycle": edge.cycle,
        "is_empty": edge.is_empty,
        "heads": [_hex(head) for head in edge.heads],
        "uids": [[*key, uid] for key, uid in edge.uids.items()],
        "objects": [_hex(message) for message in session.intake.others.values()],
        "budgets": [_hex(budget_to_message(each)) for each in snapshot.budgets.values()],
        "snapshot": _snapshot_to_plain(snapshot, pods),
        "latest_cycle": memory.latest_cycle,
        "choice_mark": memory.choice_mark,
        "held_back": memory.held_back,
        "unanswered": [
            saved_decisions.to_row(each, pods.place, pods.places) for each in memory.unanswered
        ],
        "waiting": memory.waiting,
        "listening": memory.listening,
        "plugins": memory.plugins,
        "queue": [_hex(chunk) for chunk in queue],
    }
    # Last, for what is written above may bring up further versions of pods.
    return plain | {"pods": pods.told, "versions": pods.rows}


def config_of(plain: Plain) -> scheduler_pb2.SchedulerConfig:
    """Return the configuration of a saved session."""
    return scheduler_pb2.SchedulerConfig.FromString(bytes.fromhex(plain["config"]))


def queue_of(plain: Plain) -> list[session_pb2.CheckpointChunk]:
    """Return the checkpoint of a saved session's queue."""
    chunk = session_pb2.CheckpointChunk
    return [chunk.FromString(bytes.fromhex(each)) for each in plain["queue"]]


def fill(session: SchedulerSession, plain: Plain) -> None:
    """Make a new session of the saved one's configuration what the saved one was.

    Raises LookupError, TypeError, ValueError, AssertionError, DecodeError or a RefusalError where
    `plain` is not what session_to_plain returns.
    """
    core, interner = session.core, session.intake.decoder.interner
    messages = [pod_pb2.Pod.FromString(bytes.fromhex(each)) for each in plain["pods"]]
    told = [pod_from_message(each, interner) for each in messages]
    pods = [*told, *_versions(plain["versions"], told, interner)]
    for each in plain["objects"]:
        _put_object(session, object_pb2.Object.FromString(bytes.fromhex(each)))
    for each in plain["budgets"]:
        budget = policy_pb2.PodDisruptionBudget.FromString(bytes.fromhex(each))
        core.snapshot.set_budget(budget_from_message(budget))
    _fill_snapshot(core.snapshot, plain["snapshot"], pods)
    memory = Memory(
        latest_cycle=plain["latest_cycle"],
        choice_mark=plain["choice_mark"],
        held_back=tuple(plain["held_back"]),
        unanswered=tuple(saved_decisions.from_row(row, pods) for row in plain["unanswered"]),
        waiting=tuple((uid, for_pods) for uid, for_pods in plain["waiting"]),
        listening=tuple((uid, for_pods) for uid, for_pods in plain["listening"]),
        plugins=plain["plugins"],
    )
    core.recall(told, memory)
    heads = [queue_pb2.Head.FromString(bytes.fromhex(each)) for each in plain["heads"]]
    uids = {(namespace, name): uid for namespace, name, uid in plain["uids"]}
    cycle, is_empty = plain["cycle"], plain["is_empty"]
    edge = Edge(plain["at_ns"], heads, uids, plain["wakeup_ns"], cycle, is_empty)
    session.resume(messages, edge)


def _put_object(session: SchedulerSession, message: object_pb2.Object) -> None:
    change = decode_object(message, session.intake.decoder.interner, "object")
    if not isinstance(change, PutOther):
        raise TypeError("a pod, node or budget among the other objects")
    session.core.snapshot.catalog.put(change.value)
    session.intake.keep(message)


def _snapshot_to_plain(snapshot: Snapshot, pods: _Pods) -> Plain:
    layout, columns = snapshot.layout(), snapshot.columns
    nominations = snapshot.nominations
    return {
        "capacity": layout.capacity,
        "used": layout.used,
        "resources": layout.resources,
        "rows": layout.rows,
        "free": layout.free,
        "nodes": [_hex(node_to_message(snapshot.node(row))) for row in snapshot.listed_rows()],
        "pods": [[name, pods.places(snapshot.pods_on(row))] for name, row in layout.rows],
        "assumed": [
            pod.uid
            for _, row in layout.rows
            for pod in snapshot.pods_on(row)
            if snapshot.is_assumed(pod.uid)
        ],
        "nominated": [
            [name, pods.places(nominations.on(name))] for name in nominations.node_names()
        ],
        "columns": {name: columns.owned(name).tolist() for name in columns.owned_names()},
    }


def _fill_snapshot(snapshot: Snapshot, plain: Plain, pods: Sequence[Pod]) -> None:
    snapshot.lay_out(
        Layout(
            capacity=plain["capacity"],
            used=plain["used"],
            resources=tuple(plain["resources"]),
            rows=tuple((name, row) for name, row in plain["rows"]),
            free=tuple(plain["free"]),
        )
    )
    for each in plain["nodes"]:
        node = node_pb2.Node.FromString(bytes.fromhex(each))
        snapshot.set_node(node_from_message(node))
    assumed = set(plain["assumed"])
    for name, places in plain["pods"]:
        for pod in (pods[place] for place in places):
            if pod.uid in assumed:
                snapshot.assume(pod, name)
            else:
                snapshot.set_pod(pod)
    for name, places in plain["nominated"]:
        for place in places:
            snapshot.nominations.put(pods[place], name)
    for name, values in plain["columns"].items():
        snapshot.columns.owned(name)[:] = values


class _Pods:
    """The pods that were told, and further versions of them as they are met."""

    def __init__(self, messages: Sequence[pod_pb2.Pod], told: Sequence[Pod]) -> None:
        self.told = [_hex(message) for message in messages]
        self.rows: list[str] = []
        self._place_by_id = {id(pod): place for place, pod in enumerate(told)}
        self._kept = list(told)

    def place(self, pod: Pod) -> int:
        """Return the pod's place among those told and the further ones."""
        place = self._place_by_id.get(id(pod))
        if place is None:
            place = self._place_by_id[id(pod)] = len(self._kept)
            self._kept.append(pod)
            self.rows.append(_hex(pod_to_message(pod)))
        return place

    def places(self, pods: Sequence[Pod]) -> list[int]:
        """Return the places of several."""
        return [self.place(pod) for pod in pods]


def _versions(rows: Sequence[str], told: Sequence[Pod], interner: PodSpecInterner) -> Iterator[Pod]:
    """Yield the further versions, each with the spec of its pod where that is an equal one."""
    by_uid = {pod.uid: pod for pod in told}
    for row in rows:
        pod = pod_from_message(pod_pb2.Pod.FromString(bytes.fromhex(row)), interner)
        now = by_uid.get(pod.uid)
        same = now is not None and now.spec == pod.spec
        yield replace(pod, spec=now.spec) if now is not None and same else pod


def _hex(message: Message) -> str:
    return message.SerializeToString(deterministic=True).hex()
