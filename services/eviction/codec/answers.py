"""What a step decided, and what a node's state is, as messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from reprieve.eviction.v1alpha1 import eviction_pb2, eviction_service_pb2
from reprieve.session.v1alpha1 import session_pb2
from services.eviction.codec.configs import threshold_to_message
from services.eviction.core.decisions import EVICTED_PHASE, EVICTED_REASON, Eviction, NodeEvent
from services.eviction.core.manager import Manager
from services.eviction.core.ranking import RankedPod
from services.eviction.core.results import NeedReclaim, StepResult
from services.eviction.core.signals import ConditionType, Signal
from services.eviction.core.thresholds import Threshold
from services.eviction.fleet import Answer
from services.rpc.kube_messages import put, put_all

RANKING_MAX = 10


def answer_to_message(answer: Answer) -> eviction_service_pb2.StepAnswer:
    """Return a step's result, or its question."""
    match answer.outcome:
        case NeedReclaim() as need:
            return eviction_service_pb2.StepAnswer(
                node_name=answer.node_name,
                need_reclaim=eviction_pb2.NeedReclaim(
                    containers=need.containers, images=need.images
                ),
            )
        case StepResult() as result:
            return eviction_service_pb2.StepAnswer(
                node_name=answer.node_name,
                result=_result(result, answer),
            )


def node_state(name: str, manager: Manager, at_ns: int) -> eviction_pb2.NodeState:
    """Return what is kept of a node whose last step was at `at_ns`."""
    state = manager.state
    return eviction_pb2.NodeState(
        node_name=name,
        conditions=[each.value for each in state.conditions],
        thresholds_met=map(threshold_to_message, state.thresholds_met),
        first_observed=_threshold_times(state.first_observed_ns),
        condition_last_observed=_condition_times(state.condition_last_observed_ns),
        thresholds=map(threshold_to_message, manager.watched_now),
        at_ns=at_ns,
        awaits_reclaim=manager.is_waiting,
    )


def _result(result: StepResult, answer: Answer) -> eviction_pb2.StepResult:
    kill_failed = answer.kill_failed
    message = eviction_pb2.StepResult(
        evictions=[_eviction(each, kill_failed=kill_failed) for each in result.evictions],
        conditions=[each.value for each in result.under],
        thresholds_met=map(threshold_to_message, result.thresholds_met),
        first_observed=_threshold_times(result.first_observed_ns),
        condition_last_observed=_condition_times(result.condition_last_observed_ns),
        ranking=map(_ranked, result.ranking[:RANKING_MAX]),
        node_events=map(_event, result.events),
        next_step_ns=result.next_step_ns,
        quiet=result.quiet,
        error=result.error,
        signal="" if result.signal is None else result.signal.value,
        notify_at=_amounts(result.notify_at),
        calm=_calm(answer.calm),
    )
    if not result.quiet:
        put_all(result.conditions, message.node_conditions)
    return message


def _calm(least: Mapping[Signal, int] | None) -> eviction_pb2.Calm | None:
    if least is None:
        return None
    return eviction_pb2.Calm(least=_amounts(least.items()))


def _amounts(amounts: Iterable[tuple[Signal, int]]) -> list[eviction_pb2.SignalAmount]:
    return [
        eviction_pb2.SignalAmount(signal=signal.value, amount=amount) for signal, amount in amounts
    ]


def _eviction(eviction: Eviction, *, kill_failed: bool) -> eviction_pb2.Eviction:
    message = eviction_pb2.Eviction(
        pod=_pod_ref(eviction),
        grace_period_override_s=eviction.grace_period_s,
        message=eviction.message,
        reason=EVICTED_REASON,
        phase=EVICTED_PHASE,
        annotations=eviction.annotations,
        kill_failed=kill_failed,
    )
    if eviction.condition is not None:
        put(eviction.condition, message.condition)
    grounds = eviction.grounds
    if grounds is not None:
        message.signal, message.threshold = eviction.cause, grounds.threshold
        message.available, message.capacity = grounds.available, grounds.capacity
        message.rank, message.ranked_pods = grounds.rank, grounds.ranked
    return message


def _ranked(place: RankedPod) -> eviction_pb2.RankedPod:
    return eviction_pb2.RankedPod(
        pod=_pod_ref(place),
        priority=place.priority,
        usage=place.usage,
        request=place.request,
        exceeds_request=place.exceeds_request,
    )


def _pod_ref(named: Eviction | RankedPod) -> session_pb2.PodRef:
    return session_pb2.PodRef(uid=named.uid, namespace=named.namespace, name=named.name)


def _event(event: NodeEvent) -> eviction_pb2.NodeEvent:
    return eviction_pb2.NodeEvent(type=event.type, reason=event.reason, message=event.message)


def _threshold_times(times_ns: Mapping[Threshold, int]) -> list[eviction_pb2.SignalTime]:
    return [
        eviction_pb2.SignalTime(name=str(each), at_ns=at_ns) for each, at_ns in times_ns.items()
    ]


def _condition_times(times_ns: Mapping[ConditionType, int]) -> list[eviction_pb2.SignalTime]:
    return [
        eviction_pb2.SignalTime(name=each.value, at_ns=at_ns) for each, at_ns in times_ns.items()
    ]
