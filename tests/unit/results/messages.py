"""Handmade rounds, outcomes and decisions, for tests of a run's results."""

from __future__ import annotations

from replay.world.journal import AttemptFailure, FailedAttempt
from reprieve.kube.v1beta1 import meta_pb2, node_pb2, object_pb2, pod_pb2
from reprieve.scheduler.v1beta1 import scheduler_pb2
from reprieve.session.v1beta1 import session_pb2
from reprieve.trace.v1beta1 import trace_pb2
from services.kube.pod import PodPhase
from services.kube.time import SECOND_NS
from tests.builders import make_pod

START_NS = 1_571_904_000 * SECOND_NS


def pod_message(
    name: str,
    *,
    node_name: str = "",
    phase: str = "Pending",
    priority: int = 0,
    owner_uid: str = "",
    created_s: int = 0,
) -> pod_pb2.Pod:
    """Return a pod of one container, created `created_s` after START_NS."""
    made = make_pod(name).uid(f"uid-{name}").created(START_NS + created_s * SECOND_NS)
    made.container("c").node(node_name).priority(priority).phase(PodPhase(phase))
    pod = made.message()
    if owner_uid:
        pod.metadata.owner_references.add(kind="ReplicaSet", uid=owner_uid, controller=True)
    if phase == "Running":
        container = pod.status.container_statuses.add(name="c", ready=True)
        container.state.running.SetInParent()
    return pod


def added(message: pod_pb2.Pod | node_pb2.Node, at_s: int = 0) -> scheduler_pb2.Event:
    """Return the event of an object's creation, `at_s` after START_NS."""
    holder = (
        object_pb2.KubernetesObject(pod=message)
        if isinstance(message, pod_pb2.Pod)
        else object_pb2.KubernetesObject(node=message)
    )
    return scheduler_pb2.Event(time_ns=START_NS + at_s * SECOND_NS, add=holder)


def patched(
    name: str,
    at_s: int = 0,
    *,
    status: pod_pb2.PodStatus | None = None,
    node_name: str | None = None,
    deletion_s: int | None = None,
) -> scheduler_pb2.Event:
    """Return the event of a change of a part of a pod."""
    patch = scheduler_pb2.PodPatch(pod=pod_ref(name), status=status)
    if node_name is not None:
        patch.node_name = node_name
    if deletion_s is not None:
        patch.deletion_time_ns = START_NS + deletion_s * SECOND_NS
    return scheduler_pb2.Event(time_ns=START_NS + at_s * SECOND_NS, patch=patch)


def deleted(name: str, at_s: int = 0) -> scheduler_pb2.Event:
    """Return the event of a pod's removal."""
    return scheduler_pb2.Event(time_ns=START_NS + at_s * SECOND_NS, remove=object_ref(name))


def round_of(*events: scheduler_pb2.Event, at_s: int = 0, number: int = 0) -> scheduler_pb2.Round:
    """Return a round of events."""
    return scheduler_pb2.Round(time_ns=START_NS + at_s * SECOND_NS, number=number, events=events)


def pod_ref(name: str) -> meta_pb2.ObjectReference:
    """Return a pod's name for services."""
    return meta_pb2.ObjectReference(uid=f"uid-{name}", namespace="default", name=name)


def object_ref(name: str) -> meta_pb2.ObjectReference:
    """Return a pod's name for logs."""
    return meta_pb2.ObjectReference(kind="Pod", namespace="default", name=name, uid=f"uid-{name}")


def bound(name: str, node_name: str, at_s: int = 0, queued_s: int = 0) -> scheduler_pb2.Outcome:
    """Return the outcome of a cycle that found a node."""
    outcome = _outcome(name, at_s, queued_s)
    outcome.bind.node_name = node_name
    outcome.bind.feasible_nodes = 3
    return outcome


def unschedulable(
    name: str, message: str, reason: str = "Insufficient cpu", at_s: int = 0
) -> scheduler_pb2.Outcome:
    """Return the outcome of a cycle that found none."""
    outcome = _outcome(name, at_s, at_s)
    outcome.unschedulable.message = message
    outcome.unschedulable.reasons.add(reason=reason, nodes=1)
    return outcome


def _outcome(name: str, at_s: int, queued_s: int) -> scheduler_pb2.Outcome:
    outcome = scheduler_pb2.Outcome(
        pop=session_pb2.PopId(uid=f"uid-{name}", cycle=1),
        time_ns=START_NS + at_s * SECOND_NS,
        attempts=1,
        first_enqueued_time_ns=START_NS + queued_s * SECOND_NS,
        queued_time_ns=START_NS + queued_s * SECOND_NS,
    )
    outcome.phases.add(name="schedulingCycle", wall_duration_ns=60_000)
    return outcome


def decision(name: str, at_s: int = 0, sequence: int = 1) -> trace_pb2.Decision:
    """Return a decision about a pod; the caller says which."""
    entry = trace_pb2.Decision(time_ns=START_NS + at_s * SECOND_NS, sequence=sequence)
    entry.observed.object.CopyFrom(object_ref(name))
    return entry


def scheduled(name: str, node_name: str, at_s: int = 0, waited_s: int = 0) -> trace_pb2.Decision:
    """Return a binding."""
    entry = decision(name, at_s)
    entry.observed.scheduled.node_name = node_name
    entry.observed.scheduled.waited_duration_ns = waited_s * SECOND_NS
    return entry


def failed_attempt(name: str, message: str, at_s: int = 0) -> FailedAttempt:
    """Return an attempt that bound nothing."""
    at_ns = START_NS + at_s * SECOND_NS
    failure = AttemptFailure(1, "Unschedulable", message)
    return FailedAttempt(at_ns, 1, object_ref(name), failure)


def failed(name: str, message: str, at_s: int = 0) -> trace_pb2.Decision:
    """Return the decision of an attempt that bound nothing."""
    return failed_attempt(name, message, at_s).decision()


def refused(*names: str, message: str, reason: str = "Insufficient cpu") -> scheduler_pb2.Outcome:
    """Return the outcome of pods that were refused one after the other, at the start."""
    outcome = scheduler_pb2.Outcome(time_ns=START_NS)
    refusals = outcome.refusals
    verdict = refusals.verdicts.add(message=message)
    verdict.reasons.add(reason=reason, nodes=1)
    refusals.uids.extend(f"uid-{name}" for name in names)
    for column, value in ((refusals.attempts, 1), (refusals.verdict_indexes, 0)):
        column.extend([value] * len(names))
    for times in (refusals.first_enqueued_time_ns, refusals.queued_time_ns):
        times.extend([START_NS] * len(names))
    refusals.first_cycle = 1
    refusals.wall_duration_ns.extend(range(1, len(names) + 1))
    refusals.steps.add(name="RunFilterPlugins", attempt_indexes=[0], wall_duration_ns=[1])
    return outcome


def nominated(name: str, node_name: str, *victims: str, at_s: int = 0) -> trace_pb2.Decision:
    """Return a nomination with its victims."""
    entry = decision(name, at_s)
    entry.observed.nominated.node_name = node_name
    entry.observed.nominated.decided_by = "only-candidate"
    entry.observed.nominated.victims.extend(map(object_ref, victims))
    return entry


def preempted(name: str, by: str, at_s: int = 0) -> trace_pb2.Decision:
    """Return a victim's lot."""
    entry = decision(name, at_s)
    entry.observed.preempted.by.CopyFrom(object_ref(by))
    return entry


def evicted(name: str, signal: str, at_s: int = 0) -> trace_pb2.Decision:
    """Return a kubelet's eviction."""
    entry = decision(name, at_s)
    entry.observed.evicted.signal = signal
    return entry


def rejected(name: str, reason: str, at_s: int = 0) -> trace_pb2.Decision:
    """Return that a kubelet did not admit a pod."""
    made = decision(name, at_s)
    made.observed.rejected.CopyFrom(trace_pb2.Rejected(node_name="n", reason=reason))
    return made


def started(name: str, at_s: int = 0) -> trace_pb2.Decision:
    """Return that a pod runs."""
    entry = decision(name, at_s)
    entry.observed.started.SetInParent()
    return entry


def finished(name: str, at_s: int = 0, phase: str = "Succeeded") -> trace_pb2.Decision:
    """Return that a pod has ended."""
    entry = decision(name, at_s)
    entry.observed.finished.phase = phase
    return entry


def removed(name: str, at_s: int = 0, cause: str = "deleted") -> trace_pb2.Decision:
    """Return that a pod is no more."""
    entry = decision(name, at_s)
    entry.observed.removed.cause = cause
    return entry
