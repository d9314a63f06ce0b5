"""Converts results of operations, and states of nodes, to messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from reprieve.eviction.v1beta1 import eviction_pb2, eviction_service_pb2
from reprieve.kube.v1beta1 import meta_pb2
from services.eviction.codec.configs import threshold_to_message
from services.eviction.core.manager import Manager
from services.eviction.core.ranking import RankedPod
from services.eviction.core.results import (
    EVICTED_PHASE,
    EVICTED_REASON,
    Eviction,
    NeedReclaim,
    NodeEvent,
    PodAdmitResult,
    StepResult,
)
from services.eviction.core.signals import ConditionType, Signal
from services.eviction.core.state import node_conditions
from services.eviction.core.thresholds import Threshold
from services.eviction.fleet import OperationResult, ParsedConfig
from services.kube.time import SECOND_NS
from services.rpc.kube.messages import put, put_all

RANKING_MAX = 10


def result_message(result: OperationResult) -> eviction_service_pb2.OperationResult:
    """Return the result of an operation."""
    message = eviction_service_pb2.OperationResult(node_name=result.node_name)
    match result.outcome:
        case StepResult() as step:
            message.step.CopyFrom(_step_result(step, result))
        case NeedReclaim() as need:
            message.need_reclaim.containers, message.need_reclaim.images = (
                need.containers,
                need.images,
            )
            message.need_reclaim.SetInParent()
        case ParsedConfig() as read:
            message.configured.thresholds.extend(map(threshold_to_message, read.thresholds))
            message.configured.warnings.extend(read.warnings)
            message.configured.SetInParent()
        case PodAdmitResult() as admission:
            message.admission.admit, message.admission.reason = admission.admit, admission.reason
            message.admission.message = admission.message
            message.admission.SetInParent()
    return message


def node_state(name: str, manager: Manager, at_ns: int) -> eviction_pb2.NodeState:
    """Return the state of a node whose last step was at `at_ns`; negative before the first."""
    state = manager.state
    message = eviction_pb2.NodeState(
        node_name=name,
        thresholds_met=map(threshold_to_message, state.thresholds_met),
        first_observed=_threshold_times(state.first_observed_ns),
        condition_last_observed=_condition_times(state.condition_last_observed_ns),
        thresholds=map(threshold_to_message, manager.watched_now),
        time_ns=at_ns if at_ns >= 0 else None,
        awaits_reclaim=manager.is_waiting,
    )
    put_all(node_conditions(state.conditions), message.conditions)
    return message


def _step_result(step: StepResult, result: OperationResult) -> eviction_pb2.StepResult:
    message = eviction_pb2.StepResult(
        evictions=[
            _eviction(eviction, kill_failed=result.kill_failed) for eviction in step.evictions
        ],
        thresholds_met=map(threshold_to_message, step.thresholds_met),
        first_observed=_threshold_times(step.first_observed_ns),
        condition_last_observed=_condition_times(step.condition_last_observed_ns),
        ranking=map(_ranked, step.ranking[:RANKING_MAX]),
        node_events=map(_event, step.events),
        next_step_time_ns=step.next_step_ns,
        quiet=step.quiet,
        error=step.error,
        signal=None if step.signal is None else step.signal.value,
        notify_at=_amounts(step.notify_at),
        calm=_calm(result.calm),
    )
    if not step.quiet:
        put_all(step.conditions, message.conditions)
    return message


def _calm(amounts: Mapping[Signal, int] | None) -> eviction_pb2.Calm | None:
    return None if amounts is None else eviction_pb2.Calm(min_available=_amounts(amounts.items()))


def _amounts(amounts: Iterable[tuple[Signal, int]]) -> list[eviction_pb2.SignalAmount]:
    return [
        eviction_pb2.SignalAmount(signal=signal.value, amount=amount) for signal, amount in amounts
    ]


def _eviction(eviction: Eviction, *, kill_failed: bool) -> eviction_pb2.Eviction:
    message = eviction_pb2.Eviction(
        pod=_pod_ref(eviction),
        grace_period_override_duration_ns=(
            None if eviction.grace_period_s is None else eviction.grace_period_s * SECOND_NS
        ),
        message=eviction.message,
        reason=EVICTED_REASON,
        phase=EVICTED_PHASE,
        annotations=eviction.annotations,
        kill_failed=kill_failed,
    )
    if eviction.condition is not None:
        put(eviction.condition, message.condition)
    evidence = eviction.evidence
    if evidence is not None:
        message.signal, message.threshold = eviction.cause, evidence.threshold
        message.available, message.capacity = evidence.available, evidence.capacity
        message.rank, message.ranked_pods = evidence.rank, evidence.ranked
    return message


def _ranked(place: RankedPod) -> eviction_pb2.RankedPod:
    return eviction_pb2.RankedPod(
        pod=_pod_ref(place),
        priority=place.priority,
        usage=place.usage,
        request=place.request,
        exceeds_request=place.exceeds_request,
    )


def _pod_ref(named: Eviction | RankedPod) -> meta_pb2.ObjectReference:
    return meta_pb2.ObjectReference(uid=named.uid, namespace=named.namespace, name=named.name)


def _event(event: NodeEvent) -> eviction_pb2.NodeEvent:
    return eviction_pb2.NodeEvent(type=event.type, reason=event.reason, message=event.message)


def _threshold_times(times_ns: Mapping[Threshold, int]) -> list[eviction_pb2.SignalTime]:
    return [
        eviction_pb2.SignalTime(name=str(threshold), time_ns=at_ns)
        for threshold, at_ns in times_ns.items()
    ]


def _condition_times(times_ns: Mapping[ConditionType, int]) -> list[eviction_pb2.SignalTime]:
    return [
        eviction_pb2.SignalTime(name=condition.value, time_ns=at_ns)
        for condition, at_ns in times_ns.items()
    ]
