"""What services must answer: checked before anything of an answer is carried out.

The contract's comments say of each field whether it is required and what it may be; an answer
that breaks them is refused by the field's path. What the API server would refuse, such as a binding
of a pod that is being deleted, is no fault of the answer: it is refused in the next round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

from google.protobuf.message import Message

from replay.world.api.conditions import TAINTS
from reprieve.eviction.v1beta1 import eviction_pb2, eviction_service_pb2
from reprieve.kube.v1beta1 import meta_pb2, node_pb2
from reprieve.scheduler.v1beta1 import scheduler_pb2
from reprieve.session.v1beta1 import session_pb2

_REQUIRED = "is required"
_UNKNOWN_POD = "no pod has this uid"
_RESULTS = {
    "step": ("step", "need_reclaim"),
    "resume": ("step",),
    "configure": ("configured",),
    "admit": ("admission",),
}
"""What each operation on a node is answered by."""

_COUNTS_OF_EVICTION = (
    *("grace_period_override_seconds", "rank", "ranked_pods"),
    *("available", "capacity"),
)


class AnswerError(RuntimeError):
    """An answer that breaks the contract; for people. `field` is the path of what is wrong."""

    def __init__(self, service: str, field: str, problem: str) -> None:
        super().__init__(f"the {service} answers wrongly: {field}: {problem}")
        self.field = field


class _WrongError(Exception):
    """What is wrong, and where below the message that is looked at."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(problem)
        self.path = path


class Known(Protocol):
    """What a scheduler has been sent."""

    def has_pod(self, uid: str) -> bool:
        """Tell whether there is a pod of that UID."""

    def has_node(self, name: str) -> bool:
        """Tell whether there is a node of that name."""


def check_outcomes(
    outcomes: scheduler_pb2.RoundOutcomes, at_ns: int, known: Known, *, is_followed: bool
) -> None:
    """Check what a scheduler answers to the round at `at_ns`.

    `is_followed`: another round of its window was sent. Times that are absent are filled in. Raises
    AnswerError.
    """
    place: int | None = None
    try:
        for place, outcome in enumerate(outcomes.outcomes):  # noqa: B007 - where an error is
            _outcome(outcome, at_ns, known)
        place = None
        _phases(outcomes.phases)
        if outcomes.HasField("next_wakeup_ns") and outcomes.next_wakeup_ns <= at_ns:
            problem = f"{outcomes.next_wakeup_ns} is not after the round's {at_ns}"
            raise _WrongError("next_wakeup_ns", problem)
        if outcomes.more and not outcomes.outcomes:
            raise _WrongError("more", "is set, and no pod was taken: the round would not end")
        if outcomes.goes_on and not is_followed:
            raise _WrongError("goes_on", "is set, and no round of a window follows")
        _enum(scheduler_pb2.MayWait.values(), outcomes.may_wait, "may_wait")
    except _WrongError as error:
        path = error.path if place is None else f"outcomes[{place}].{error.path}"
        raise AnswerError("scheduler", path, str(error)) from None


def check_results(
    results: Sequence[eviction_service_pb2.OperationResult],
    operations: Sequence[eviction_service_pb2.Operation],
) -> None:
    """Check what an eviction service answers to operations. Raises AnswerError."""
    asked = [each for each in operations if each.WhichOneof("operation") != "remove_node"]
    try:
        if len(results) != len(asked):
            problem = f"holds {len(results)}, and {len(asked)} operations have one"
            raise _WrongError("results", problem)
        for index, (result, operation) in enumerate(zip(results, asked, strict=True)):
            _within(f"results[{index}]", _result, result, operation)
    except _WrongError as error:
        raise AnswerError("eviction service", error.path, str(error)) from None


def _within(path: str, check: Callable[..., None], *arguments: object) -> None:
    """Check a part of a message that stands at `path`."""
    try:
        check(*arguments)
    except _WrongError as error:
        raise _WrongError(f"{path}.{error.path}" if error.path else path, str(error)) from None


# A scheduler's outcomes


def _outcome(outcome: scheduler_pb2.Outcome, at_ns: int, known: Known) -> None:
    kind = outcome.WhichOneof("outcome")
    if kind is None:
        raise _WrongError("outcome", "is required: bind, unschedulable, failure or refusals")
    if outcome.at_ns != at_ns:
        raise _WrongError("at_ns", f"{outcome.at_ns} is not the round's {at_ns}")
    if kind == "refusals":
        if outcome.HasField("pop"):
            raise _WrongError("pop", "is not for refusals, which name their pods")
        _within("refusals", _refusals, outcome.refusals, at_ns, known)
        return
    _pop(outcome.pop, known)
    if not outcome.HasField("first_enqueued_ns"):
        outcome.first_enqueued_ns = at_ns
    if not outcome.HasField("queued_ns"):
        outcome.queued_ns = at_ns
    _attempt(outcome.attempts, outcome.first_enqueued_ns, outcome.queued_ns, at_ns)
    match kind:
        case "bind":
            _bind(outcome.bind, known)
        case "unschedulable":
            _within("unschedulable", _unschedulable, outcome.unschedulable, known)
            _victims(outcome)
        case "failure":
            _nominated(outcome.failure, "failure.nominated_node_name", known)
    _phases(outcome.phases)
    for index, answer in enumerate(outcome.extender_answers):
        _within(f"extender_answers[{index}]", _extender_answer, answer)


def _pop(pop: session_pb2.PopId, known: Known) -> None:
    if not known.has_pod(pop.uid):
        problem = f"{pop.uid!r}: {_UNKNOWN_POD}" if pop.uid else _REQUIRED
        raise _WrongError("pop.uid", problem)
    if pop.cycle < 1:
        raise _WrongError("pop.cycle", f"{pop.cycle} is no scheduling cycle: they count from 1")


def _attempt(attempts: int, first_ns: int, queued_ns: int, at_ns: int) -> None:
    if attempts < 1:
        raise _WrongError("attempts", f"{attempts} is no attempt: they count from 1")
    if not 0 <= first_ns <= at_ns:
        raise _WrongError("first_enqueued_ns", f"{first_ns} is not from 0 to the round's {at_ns}")
    if not 0 <= queued_ns <= at_ns:
        raise _WrongError("queued_ns", f"{queued_ns} is not from 0 to the round's {at_ns}")


def _bind(bind: scheduler_pb2.Bind, known: Known) -> None:
    _node(bind.node_name, "bind.node_name", known)
    counted = (bind.evaluated_nodes, bind.feasible_nodes, bind.tied_nodes)
    if min(counted) < 0:
        for name in ("evaluated_nodes", "feasible_nodes", "tied_nodes"):
            _within("bind", _count, bind, name)


def _unschedulable(verdict: scheduler_pb2.Unschedulable, known: Known) -> None:
    _nominated(verdict, "nominated_node_name", known)
    for index, reason in enumerate(verdict.reasons):
        _within(f"reasons[{index}]", _count, reason, "nodes")
    if verdict.HasField("preemption"):
        _within("preemption", _preemption, verdict.preemption, known)


def _preemption(preemption: scheduler_pb2.Preemption, known: Known) -> None:
    _node(preemption.node_name, "node_name", known)
    if not preemption.victims:
        raise _WrongError("victims", "is required: a preemption deletes pods")
    _pods([victim.pod for victim in preemption.victims], "victims[{}].pod.uid", known)
    _pods(preemption.cleared_nominations, "cleared_nominations[{}].uid", known)
    _pods(preemption.reprieved, "reprieved[{}].uid", known)
    _count(preemption, "budget_violations")
    _count(preemption, "candidates")


def _victims(outcome: scheduler_pb2.Outcome) -> None:
    """Refuse a preemptor that is its own victim, and a victim that comes twice."""
    seen = {outcome.pop.uid}
    for index, victim in enumerate(outcome.unschedulable.preemption.victims):
        if victim.pod.uid in seen:
            path = f"unschedulable.preemption.victims[{index}].pod.uid"
            raise _WrongError(path, f"{victim.pod.uid!r} is the preemptor, or comes twice")
        seen.add(victim.pod.uid)


def _refusals(refusals: scheduler_pb2.Refusals, at_ns: int, known: Known) -> None:
    pods = len(refusals.uids)
    if not pods:
        raise _WrongError("uids", _REQUIRED)
    columns = ("refused_by", "attempts", "first_enqueued_ns", "queued_ns", "wall_ns")
    for name in columns:
        if len(getattr(refusals, name)) != pods:
            held = len(getattr(refusals, name))
            raise _WrongError(name, f"holds {held} entries, and there are {pods} pods")
    for index, uid in enumerate(refusals.uids):
        if not known.has_pod(uid):
            problem = f"{uid!r}: {_UNKNOWN_POD}" if uid else _REQUIRED
            raise _WrongError(f"uids[{index}]", problem)
    if refusals.first_cycle < 1:
        problem = f"{refusals.first_cycle} is no scheduling cycle: they count from 1"
        raise _WrongError("first_cycle", problem)
    _each(refusals, "refused_by", 0, len(refusals.verdicts) - 1)
    _each(refusals, "attempts", 1, 2**31)
    _each(refusals, "first_enqueued_ns", 0, at_ns)
    _each(refusals, "queued_ns", 0, at_ns)
    _each(refusals, "wall_ns", 0, 2**63)
    for index, verdict in enumerate(refusals.verdicts):
        path = f"verdicts[{index}]"
        if verdict.HasField("preemption"):
            raise _WrongError(f"{path}.preemption", "is not for refusals: send an Unschedulable")
        _within(path, _unschedulable, verdict, known)
    for index, step in enumerate(refusals.steps):
        _within(f"steps[{index}]", _step_times, step, pods)


def _step_times(step: scheduler_pb2.StepTimes, pods: int) -> None:
    if not step.name:
        raise _WrongError("name", _REQUIRED)
    if len(step.wall_ns) != len(step.places):
        held = len(step.wall_ns)
        raise _WrongError(
            "wall_ns", f"holds {held} entries, and there are {len(step.places)} places"
        )
    _each(step, "places", 0, pods - 1)
    _each(step, "wall_ns", 0, 2**63)


def _extender_answer(answer: scheduler_pb2.ExtenderAnswer) -> None:
    if not answer.extender:
        raise _WrongError("extender", _REQUIRED)
    _enum(scheduler_pb2.ExtenderCall.values()[1:], answer.call, "call")
    if answer.WhichOneof("answer") is None:
        raise _WrongError("answer", _REQUIRED)


def _nominated(
    verdict: scheduler_pb2.Unschedulable | scheduler_pb2.Failure, path: str, known: Known
) -> None:
    name = verdict.nominated_node_name
    if name and not known.has_node(name):
        raise _WrongError(path, f"{name!r}: no node has this name")


def _node(name: str, path: str, known: Known) -> None:
    if not known.has_node(name):
        raise _WrongError(path, f"{name!r}: no node has this name" if name else _REQUIRED)


def _pods(pods: Iterable[meta_pb2.ObjectReference], path: str, known: Known) -> None:
    for index, pod in enumerate(pods):
        if not known.has_pod(pod.uid):
            problem = f"{pod.uid!r}: {_UNKNOWN_POD}" if pod.uid else _REQUIRED
            raise _WrongError(path.format(index), problem)


# An eviction service's results


def _result(
    result: eviction_service_pb2.OperationResult, operation: eviction_service_pb2.Operation
) -> None:
    asked = operation.WhichOneof("operation") or ""
    of_node = getattr(operation, asked).node_name
    if result.node_name != of_node:
        problem = f"is {result.node_name!r}, and the operation is of {of_node!r}"
        raise _WrongError("node_name", problem if result.node_name else _REQUIRED)
    kind = result.WhichOneof("result")
    if kind not in _RESULTS[asked]:
        problem = f"is {kind}" if kind else _REQUIRED
        raise _WrongError("result", f"{problem}: {asked} is answered by {_RESULTS[asked][0]}")
    if kind == "step":
        at_ns = operation.step.at_ns if asked == "step" else None
        _within("step", _step_result, result.step, at_ns, frozenset(_active(operation)))
    elif kind == "admission" and not result.admission.admit and not result.admission.reason:
        raise _WrongError("admission.reason", f"{_REQUIRED} of a pod that is refused")


def _active(operation: eviction_service_pb2.Operation) -> Iterator[str]:
    yield from (pod.metadata.uid for pod in operation.step.pods)
    yield from operation.step.active_uids


def _step_result(step: eviction_pb2.StepResult, at_ns: int | None, active: frozenset[str]) -> None:
    """Check a step's result; one of a step that goes on has no time, and names its pods before."""
    for index, eviction in enumerate(step.evictions):
        path = f"evictions[{index}]"
        _active_pod(eviction.pod, f"{path}.pod.uid", at_ns, active)
        for name in _COUNTS_OF_EVICTION:
            _within(path, _count, eviction, name)
    if len({each.pod.uid for each in step.evictions}) < len(step.evictions):
        raise _WrongError("evictions", "name a pod twice")
    for index, place in enumerate(step.ranking):
        _active_pod(place.pod, f"ranking[{index}].pod.uid", at_ns, active)
    if at_ns is not None and step.next_step_ns <= at_ns:
        problem = f"{step.next_step_ns} is not after the step's {at_ns}"
        raise _WrongError("next_step_ns", problem)
    _conditions(step)
    _seen(step)


def _conditions(step: eviction_pb2.StepResult) -> None:
    for index, condition in enumerate(step.conditions):
        _within(f"conditions[{index}]", _condition, condition)
    if step.quiet and step.evictions:
        raise _WrongError("quiet", "is set, and pods are evicted")
    if not step.quiet and sorted(each.type for each in step.conditions) != sorted(TAINTS):
        names = ", ".join(sorted(TAINTS))
        raise _WrongError("conditions", f"are required of a step that is not quiet: {names}, once")


def _seen(step: eviction_pb2.StepResult) -> None:
    for index, threshold in enumerate(step.thresholds_met):
        _within(f"thresholds_met[{index}]", _count, threshold, "grace_ns")
    for name in ("first_observed", "condition_last_observed"):
        for index, seen in enumerate(getattr(step, name)):
            _within(f"{name}[{index}]", _count, seen, "at_ns")
    for name, amounts in (("notify_at", step.notify_at), ("calm.least", step.calm.least)):
        for index, amount in enumerate(amounts):
            path = f"{name}[{index}]"
            if not amount.signal:
                raise _WrongError(f"{path}.signal", _REQUIRED)
            _within(path, _count, amount, "amount")


def _active_pod(
    pod: meta_pb2.ObjectReference, path: str, at_ns: int | None, active: frozenset[str]
) -> None:
    if not pod.uid:
        raise _WrongError(path, _REQUIRED)
    if at_ns is not None and pod.uid not in active:
        raise _WrongError(path, f"{pod.uid!r} is no active pod of the step")


def _condition(condition: node_pb2.NodeCondition) -> None:
    if condition.type not in TAINTS:
        raise _WrongError("type", f"{condition.type!r} is none of {', '.join(sorted(TAINTS))}")
    if condition.status not in {"True", "False"}:
        raise _WrongError("status", f'{condition.status!r} is neither "True" nor "False"')


# Parts of both


def _phases(phases: Iterable[session_pb2.Phase]) -> None:
    for index, phase in enumerate(phases):
        if not phase.name:
            raise _WrongError(f"phases[{index}].name", _REQUIRED)
        if phase.wall_ns < 0:
            raise _WrongError(f"phases[{index}].wall_ns", f"{phase.wall_ns} is negative")


def _each(message: Message, name: str, least: int, most: int) -> None:
    values = getattr(message, name)
    if values and (min(values) < least or max(values) > most):
        index = next(place for place, each in enumerate(values) if not least <= each <= most)
        raise _WrongError(f"{name}[{index}]", f"{values[index]} is not from {least} to {most}")


def _count(message: Message, name: str) -> None:
    if getattr(message, name) < 0:
        raise _WrongError(name, f"{getattr(message, name)} is negative")


def _enum(known: Iterable[int], value: int, path: str) -> None:
    if value not in known:
        raise _WrongError(path, f"{value} is no value of the enum")
