"""A session as JSON, its queue's checkpoint included.

Pods are written once each and referred to by index. A pod may be assumed, nominated or decided upon
in an older version than its latest, so several versions of one pod may be kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from reprieve.kube.v1beta1 import node_pb2, object_pb2, pod_pb2, policy_pb2
from reprieve.scheduler.v1beta1 import scheduler_pb2
from reprieve.session.v1beta1 import session_pb2
from services.framework.columns.columns import RowLayout
from services.framework.runtime.diagnosis import Unschedulable
from services.framework.snapshot.snapshot import Snapshot
from services.kube.pod import Pod
from services.rpc.kube.codec import budget_from_message, node_from_message, pod_from_message
from services.rpc.kube.messages import budget_to_message, node_to_message, pod_to_message
from services.rpc.kube.spec import PodSpecInterner
from services.scheduler.cluster_events import PutObject, decode_object
from services.scheduler.core.decisions import Binding, Decision
from services.scheduler.core.queueing.steps import Head
from services.scheduler.core.session.options import SchedulerState
from services.scheduler.session import SchedulerSession, SessionState
from services.typed import Places, Reading, write

_PodsByNode = Sequence[tuple[str, Sequence[Pod]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _SavedSnapshot:
    """A snapshot; `pods` and `nominated` by node, in order."""

    layout: RowLayout
    nodes: Sequence[node_pb2.Node]
    pods: _PodsByNode
    assumed: Sequence[str]
    nominated: _PodsByNode
    columns: Mapping[str, Sequence[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _SavedDecision:
    """A decision that waits for an answer, with what handling the answer needs.

    Steps and what an undo needs are left out, for between rounds nothing is undone any more.
    """

    head: Head
    pod: Pod
    binding: Binding | None = None
    refused: Unschedulable | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _SavedState:
    """The part of a saved session that refers to pods by their index."""

    snapshot: _SavedSnapshot
    scheduler: SchedulerState


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedSession:
    """A session between rounds.

    `pods` are those that the world sent, and `versions` further ones that are met in the state.
    """

    config: scheduler_pb2.SchedulerConfig
    queue: Sequence[session_pb2.CheckpointChunk]
    session: SessionState
    objects: Sequence[object_pb2.KubernetesObject]
    budgets: Sequence[policy_pb2.PodDisruptionBudget]
    state: object
    pods: Sequence[pod_pb2.Pod]
    versions: Sequence[pod_pb2.Pod]


def session_to_json(
    session: SchedulerSession, queue: Sequence[session_pb2.CheckpointChunk]
) -> bytes:
    """Return a session between rounds as JSON."""
    core, intake = session.scheduler, session.intake
    pods = Places(pod_to_message, core.pods.values())
    saved = SavedSession(
        config=session.config,
        queue=queue,
        session=session.state,
        objects=tuple(intake.others.values()),
        budgets=[budget_to_message(budget) for budget in core.snapshot.budgets.values()],
        state=_SavedState(snapshot=_saved_snapshot(core.snapshot), scheduler=core.state()),
        pods=tuple(intake.messages.values()),
        versions=pods.rows,
    )
    return write(saved, {Pod: pods.place, Decision: _saved_decision})


def saved_session(plain: object) -> SavedSession:
    """Return the saved session of loaded JSON; its `state` is read by `fill`.

    Raises DecodeError or ValueError if `plain` is not what session_to_json wrote.
    """
    return Reading().read(SavedSession, plain)


def fill(session: SchedulerSession, saved: SavedSession) -> None:
    """Restore a saved session into a new one with the same configuration.

    Raises LookupError, TypeError, ValueError, AssertionError or a RefusalError if
    `saved` is not what session_to_json wrote.
    """
    core, interner = session.scheduler, session.intake.decoder.interner
    received = [pod_from_message(message, interner) for message in saved.pods]
    pods = [*received, *_versions(saved.versions, received, interner)]
    reading = Reading({Pod: pods.__getitem__, Decision: lambda plain: _decision(plain, reading)})
    state = reading.read(_SavedState, saved.state)
    for message in saved.objects:
        _put_object(session, message)
    for budget in saved.budgets:
        core.snapshot.set_budget(budget_from_message(budget))
    session.intake.count_resources(state.snapshot.layout.resources)
    _fill_snapshot(core.snapshot, state.snapshot)
    core.restore(received, state.scheduler)
    session.resume(saved.pods, saved.session)


def _put_object(session: SchedulerSession, message: object_pb2.KubernetesObject) -> None:
    change = decode_object(message, session.intake.decoder.interner, "object")
    if not isinstance(change, PutObject):
        raise TypeError("a pod, node or budget among the other objects")
    session.scheduler.snapshot.catalog.put(change.value)
    session.intake.keep(message)


def _saved_decision(decision: Decision) -> _SavedDecision:
    verdict = decision.verdict
    if not isinstance(verdict, Binding | Unschedulable):
        raise TypeError(f"{verdict!r} does not wait for an answer")
    return _SavedDecision(
        head=decision.head,
        pod=decision.attempted_pod,
        binding=verdict if isinstance(verdict, Binding) else None,
        refused=verdict if isinstance(verdict, Unschedulable) else None,
    )


def _decision(plain: object, reading: Reading) -> Decision:
    saved = reading.read(_SavedDecision, plain)
    verdict = saved.binding or saved.refused
    if verdict is None:
        raise ValueError("a decision without a verdict")
    return Decision(head=saved.head, pod=saved.pod, verdict=verdict, steps=())


def _saved_snapshot(snapshot: Snapshot) -> _SavedSnapshot:
    layout, columns, nominations = snapshot.layout(), snapshot.columns, snapshot.nominations
    pods = [(name, snapshot.pods_on(row)) for name, row in layout.rows]
    return _SavedSnapshot(
        layout=layout,
        nodes=[node_to_message(snapshot.node(row)) for row in snapshot.listed_rows()],
        pods=pods,
        assumed=[pod.uid for _, on in pods for pod in on if snapshot.is_assumed(pod.uid)],
        nominated=[(name, nominations.on(name)) for name in nominations.node_names()],
        columns={name: columns.owned(name).tolist() for name in columns.owned_names()},
    )


def _fill_snapshot(snapshot: Snapshot, saved: _SavedSnapshot) -> None:
    snapshot.lay_out(saved.layout)
    for node in saved.nodes:
        snapshot.set_node(node_from_message(node))
    assumed = frozenset(saved.assumed)
    for name, pods in saved.pods:
        for pod in pods:
            if pod.uid in assumed:
                snapshot.assume(pod, name)
            else:
                snapshot.set_pod(pod)
    for name, pods in saved.nominated:
        for pod in pods:
            snapshot.nominations.put(pod, name)
    for name, values in saved.columns.items():
        snapshot.columns.owned(name)[:] = values


def _versions(
    messages: Sequence[pod_pb2.Pod], received: Sequence[Pod], interner: PodSpecInterner
) -> Iterator[Pod]:
    """Yield the further versions, each with the spec of its pod where that is an equal one."""
    by_uid = {pod.uid: pod for pod in received}
    for message in messages:
        pod = pod_from_message(message, interner)
        now = by_uid.get(pod.uid)
        same = now is not None and now.spec == pod.spec
        yield replace(pod, spec=now.spec) if now is not None and same else pod
