"""Checks of the services' responses, made before anything in them is carried out.

The contract states for each field whether it is required, by an option (services/rpc/required.py),
and in comments under which condition, and which values it may have; a response that breaks that
cannot be carried out, and ends the run with the field's path. A decision
that an API server would refuse, such as the binding of a pod that does not exist or is being
deleted, is valid here: it is refused where it is carried out (replay.world.loop.refusals).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

from google.protobuf.message import Message

from replay.world.api.conditions import TAINTS
from reprieve.autoscaler.v1beta1 import autoscaler_service_pb2
from reprieve.eviction.v1beta1 import eviction_pb2, eviction_service_pb2
from reprieve.kube.v1beta1 import meta_pb2, node_pb2
from reprieve.scheduler.v1beta1 import scheduler_pb2
from reprieve.session.v1beta1 import session_pb2
from services.kube.time import SECOND_NS
from services.rpc.required import PROBLEM, missing

_MAY_WAIT = frozenset(scheduler_pb2.MayWait.values())
_UNKNOWN_POD = "no pod has this uid"
_RESULTS = {
    "step": ("step", "need_reclaim"),
    "resume": ("step",),
    "configure": ("configured",),
    "admit": ("admission",),
}
"""The results that each operation on a node may have."""

_COUNTS_OF_EVICTION = (
    *("grace_period_override_duration_ns", "rank", "ranked_pods"),
    *("available", "capacity"),
)


class ContractError(RuntimeError):
    """A response that breaks the contract; `field` is the path of the invalid field.

    time_ns: the time of the round or step that it answers, None if it has none. pod_uid, node_name:
    whose part of the response is invalid, "" for no pod and no node.
    """

    def __init__(
        self,
        service: str,
        field: str,
        problem: str,
        *,
        time_ns: int | None = None,
        pod_uid: str = "",
        node_name: str = "",
    ) -> None:
        super().__init__(f"the {service} returned an invalid response: {field}: {problem}")
        self.service, self.field, self.problem = service, field, problem
        self.time_ns, self.pod_uid, self.node_name = time_ns, pod_uid, node_name


class _InvalidFieldError(Exception):
    """A field's problem, and its path below the message that is being checked."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(problem)
        self.path = path


class SentObjects(Protocol):
    """The objects that a scheduler has been sent."""

    def has_pod(self, uid: str) -> bool:
        """Return whether the scheduler has a pod of that UID."""

    def has_node(self, name: str) -> bool:
        """Return whether the scheduler has a node of that name."""

    def guarding_budget(self, uid: str) -> str:
        """Return namespace/name of a budget that guards a pod, "" if none or a terminating pod."""


def check_outcomes(outcomes: scheduler_pb2.RoundOutcomes, at_ns: int, sent: SentObjects) -> None:
    """Check a scheduler's response to the round at `at_ns`. Raises ContractError."""
    place: int | None = None
    try:
        for place, outcome in enumerate(outcomes.outcomes):  # noqa: B007 - for the error's path
            _outcome(outcome, at_ns, sent)
        place = None
        _awaits_effects(outcomes, sent)
        _phases(outcomes.phases)
        for index, expectation in enumerate(outcomes.expectations):
            _within(f"expectations[{index}]", _expectation, expectation, sent)
        if outcomes.HasField("next_wakeup_time_ns") and outcomes.next_wakeup_time_ns <= at_ns:
            problem = f"{outcomes.next_wakeup_time_ns} is not after the round's {at_ns}"
            raise _InvalidFieldError("next_wakeup_time_ns", problem)
        if outcomes.more and not outcomes.outcomes:
            raise _InvalidFieldError(
                "more", "is set, but no pod was taken: the round would not end"
            )
        _enum(_MAY_WAIT, outcomes.may_wait, "may_wait")
    except _InvalidFieldError as error:
        path = error.path if place is None else f"outcomes[{place}].{error.path}"
        uid = "" if place is None else outcomes.outcomes[place].pop.uid
        raise ContractError("scheduler", path, str(error), time_ns=at_ns, pod_uid=uid) from None


def check_window_continues(outcomes: scheduler_pb2.RoundOutcomes, *, is_followed: bool) -> None:
    """Check that a response announces another round only where one was sent. Raises ContractError.

    `is_followed`: another round of the same window was sent.
    """
    if outcomes.window_continues and not is_followed:
        raise ContractError(
            "scheduler", "window_continues", "is set, but no round of a window follows"
        )


def check_results(
    results: Sequence[eviction_service_pb2.OperationResult],
    operations: Sequence[eviction_service_pb2.Operation],
) -> None:
    """Check an eviction service's results of operations. Raises ContractError."""
    expecting = [
        operation for operation in operations if operation.WhichOneof("operation") != "remove_node"
    ]
    node_name = ""
    try:
        if len(results) != len(expecting):
            problem = f"has {len(results)} entries, but {len(expecting)} operations have a result"
            raise _InvalidFieldError("results", problem)
        for index, (result, operation) in enumerate(zip(results, expecting, strict=True)):
            node_name = getattr(operation, operation.WhichOneof("operation") or "").node_name
            if path := missing(result):
                raise _InvalidFieldError(f"results[{index}].{path}", PROBLEM)
            _within(f"results[{index}]", _result, result, operation)
    except _InvalidFieldError as error:
        raise ContractError(
            "eviction service", error.path, str(error), node_name=node_name
        ) from None


def check_autoscaler(
    answer: autoscaler_service_pb2.ApplyResponse, step: autoscaler_service_pb2.Step
) -> None:
    """Check the result of an autoscaler's step; `step` is its request. Raises ContractError."""
    try:
        if path := missing(answer):
            raise _InvalidFieldError(path, PROBLEM)
        case = answer.WhichOneof("result")
        if case == "call" and answer.call.WhichOneof("request") is None:
            raise _InvalidFieldError("call.request", PROBLEM)
        if (case == "report") != step.HasField("scan") and case != "call":
            problem = f"{PROBLEM}: a scan has ended"
            if not step.HasField("scan"):
                problem = "must be absent: the step is not a scan"
            raise _InvalidFieldError("report", problem)
        if answer.HasField("next_scan_time_ns") and answer.next_scan_time_ns <= step.time_ns:
            problem = f"{answer.next_scan_time_ns} is not after the step's {step.time_ns}"
            raise _InvalidFieldError("next_scan_time_ns", problem)
    except _InvalidFieldError as error:
        raise ContractError("autoscaler", error.path, str(error), time_ns=step.time_ns) from None


def _within(path: str, check: Callable[..., None], *arguments: object) -> None:
    """Check the part of a message at `path`, and put that in front of its errors' paths."""
    try:
        check(*arguments)
    except _InvalidFieldError as error:
        raise _InvalidFieldError(
            f"{path}.{error.path}" if error.path else path, str(error)
        ) from None


# A scheduler's outcomes


def _outcome(outcome: scheduler_pb2.Outcome, at_ns: int, sent: SentObjects) -> None:
    kind = outcome.WhichOneof("decision")
    if kind is None:
        raise _InvalidFieldError(
            "decision", "is required: bind, unschedulable, failure or refusals"
        )
    # A binding's fields are looked at below: `missing` on each took half a percent of a replay.
    if kind != "bind" and (path := missing(outcome)):
        raise _InvalidFieldError(path, PROBLEM)
    if outcome.time_ns != at_ns:
        raise _InvalidFieldError("time_ns", f"{outcome.time_ns} is not the round's {at_ns}")
    if kind == "refusals":
        if outcome.HasField("pop"):
            raise _InvalidFieldError("pop", "must be absent: refusals name their pods in uids")
        _within("refusals", _refusals, outcome.refusals, at_ns, sent)
        return
    _pop(outcome.pop)
    _attempt(outcome, at_ns)
    match kind:
        case "bind":
            _bind(outcome.bind)
        case "unschedulable":
            _within("unschedulable", _unschedulable, outcome.unschedulable, sent)
            _victims(outcome)
        case "failure":
            _nominated(outcome.failure, "failure.nominated_node_name", sent)
    _phases(outcome.phases)
    for index, answer in enumerate(outcome.extender_answers):
        _within(f"extender_answers[{index}]", _extender_answer, answer)


def _expectation(expectation: scheduler_pb2.Expectation, sent: SentObjects) -> None:
    if path := missing(expectation):
        raise _InvalidFieldError(path, PROBLEM)
    if not expectation.pod.uid:
        raise _InvalidFieldError("pod.uid", PROBLEM)
    if not sent.has_node(expectation.node_name):
        problem = f"{expectation.node_name!r}: no node has this name"
        raise _InvalidFieldError("node_name", problem)


def _awaits_effects(outcomes: scheduler_pb2.RoundOutcomes, sent: SentObjects) -> None:
    """Refuse outcomes after a preemption whose victim a budget guards: it ends its round."""
    if outcomes.awaits_effects and not outcomes.more:
        raise _InvalidFieldError("awaits_effects", "is set, but no pod is left: `more` is unset")
    last = len(outcomes.outcomes) - 1
    for place, outcome in enumerate(outcomes.outcomes):
        if place == last and (outcomes.awaits_effects or not outcomes.more):
            return
        if not outcome.HasField("unschedulable"):
            continue
        for victim in outcome.unschedulable.preemption.victims:
            if budget := sent.guarding_budget(victim.pod.uid):
                pod = f"{victim.pod.namespace}/{victim.pod.name}"
                problem = (
                    f"outcomes[{place}] deletes {pod}, which budget {budget} guards, and so ends "
                    "its round: it must be the last outcome, and awaits_effects set with `more`"
                )
                raise _InvalidFieldError("awaits_effects", problem)


def _pop(pop: session_pb2.PopId) -> None:
    if not pop.uid:
        raise _InvalidFieldError("pop.uid", PROBLEM)
    if pop.cycle < 1:
        raise _InvalidFieldError(
            "pop.cycle", f"{pop.cycle} is not a scheduling cycle: they count from 1"
        )


def _attempt(outcome: scheduler_pb2.Outcome, at_ns: int) -> None:
    if outcome.attempts < 1:
        problem = f"{outcome.attempts} is not an attempt: they count from 1"
        raise _InvalidFieldError("attempts", problem)
    # An absent time reads as 0, which is allowed.
    for name, time_ns in (
        ("first_enqueued_time_ns", outcome.first_enqueued_time_ns),
        ("queued_time_ns", outcome.queued_time_ns),
    ):
        if not 0 <= time_ns <= at_ns:
            raise _InvalidFieldError(name, f"{time_ns} is not from 0 to the round's {at_ns}")
    if outcome.HasField("requeue"):
        _within("requeue", _requeue, outcome.requeue, at_ns)


def _requeue(requeue: session_pb2.Requeue, at_ns: int) -> None:
    if not requeue.event:
        raise _InvalidFieldError("event", PROBLEM)
    moved_ns, active_ns = requeue.time_ns, requeue.active_time_ns
    if not 0 <= moved_ns <= at_ns:
        raise _InvalidFieldError("time_ns", f"{moved_ns} is not from 0 to the round's {at_ns}")
    if requeue.HasField("active_time_ns") and not moved_ns <= active_ns <= at_ns:
        problem = f"{active_ns} is not from time_ns, {moved_ns}, to the round's {at_ns}"
        raise _InvalidFieldError("active_time_ns", problem)


def _bind(bind: scheduler_pb2.Bind) -> None:
    if not bind.node_name:
        raise _InvalidFieldError("bind.node_name", PROBLEM)
    counted = (bind.evaluated_nodes, bind.feasible_nodes, bind.tied_nodes)
    if min(counted) < 0:
        for name in ("evaluated_nodes", "feasible_nodes", "tied_nodes"):
            _within("bind", _count, bind, name)


def _unschedulable(verdict: scheduler_pb2.Unschedulable, sent: SentObjects) -> None:
    _nominated(verdict, "nominated_node_name", sent)
    for index, reason in enumerate(verdict.reasons):
        _within(f"reasons[{index}]", _count, reason, "nodes")
    if verdict.HasField("preemption"):
        _within("preemption", _preemption, verdict.preemption, sent)


def _preemption(preemption: scheduler_pb2.Preemption, sent: SentObjects) -> None:
    for index, victim in enumerate(preemption.victims):
        if not victim.pod.uid:
            raise _InvalidFieldError(f"victims[{index}].pod.uid", PROBLEM)
    _pods(preemption.cleared_nominations, "cleared_nominations[{}].uid", sent)
    _pods(preemption.reprieved, "reprieved[{}].uid", sent)
    _count(preemption, "budget_violations")
    _count(preemption, "candidates")
    _enum(scheduler_pb2.PreemptionCriterion.values(), preemption.decided_by, "decided_by")


def _victims(outcome: scheduler_pb2.Outcome) -> None:
    """Refuse a preemptor that is its own victim, and a victim that is listed twice."""
    seen = {outcome.pop.uid}
    for index, victim in enumerate(outcome.unschedulable.preemption.victims):
        if victim.pod.uid in seen:
            path = f"unschedulable.preemption.victims[{index}].pod.uid"
            raise _InvalidFieldError(
                path, f"{victim.pod.uid!r} is the preemptor, or is listed twice"
            )
        seen.add(victim.pod.uid)


def _refusals(refusals: scheduler_pb2.Refusals, at_ns: int, sent: SentObjects) -> None:
    pods = len(refusals.uids)
    columns = (
        "verdict_indexes",
        "attempts",
        "first_enqueued_time_ns",
        "queued_time_ns",
        "wall_duration_ns",
    )
    for name in columns:
        if len(getattr(refusals, name)) != pods:
            count = len(getattr(refusals, name))
            raise _InvalidFieldError(name, f"has {count} entries, but there are {pods} pods")
    for index, uid in enumerate(refusals.uids):
        if not uid:
            raise _InvalidFieldError(f"uids[{index}]", PROBLEM)
    if refusals.first_cycle < 1:
        problem = f"{refusals.first_cycle} is not a scheduling cycle: they count from 1"
        raise _InvalidFieldError("first_cycle", problem)
    _each(refusals, "verdict_indexes", 0, len(refusals.verdicts) - 1)
    _each(refusals, "attempts", 1, 2**31)
    _each(refusals, "first_enqueued_time_ns", 0, at_ns)
    _each(refusals, "queued_time_ns", 0, at_ns)
    _each(refusals, "wall_duration_ns", 0, 2**63)
    for index, verdict in enumerate(refusals.verdicts):
        path = f"verdicts[{index}]"
        if verdict.HasField("preemption"):
            raise _InvalidFieldError(f"{path}.preemption", "must be absent: send an Unschedulable")
        _within(path, _unschedulable, verdict, sent)
    for index, step in enumerate(refusals.steps):
        _within(f"steps[{index}]", _step_times, step, pods)
    for index, requeue in enumerate(refusals.requeues):
        _within(f"requeues[{index}]", _requeue, requeue, at_ns)
    if len(refusals.requeue_numbers) not in {0, pods}:
        count = len(refusals.requeue_numbers)
        problem = f"has {count} entries, but there are {pods} pods"
        raise _InvalidFieldError("requeue_numbers", problem)
    _each(refusals, "requeue_numbers", 0, len(refusals.requeues))


def _step_times(step: scheduler_pb2.StepTimes, pods: int) -> None:
    if len(step.wall_duration_ns) != len(step.attempt_indexes):
        count, attempts = len(step.wall_duration_ns), len(step.attempt_indexes)
        problem = f"has {count} entries, but there are {attempts} attempts"
        raise _InvalidFieldError("wall_duration_ns", problem)
    _each(step, "attempt_indexes", 0, pods - 1)
    _each(step, "wall_duration_ns", 0, 2**63)


def _extender_answer(answer: scheduler_pb2.ExtenderAnswer) -> None:
    if path := missing(answer):
        raise _InvalidFieldError(path, PROBLEM)
    _enum(scheduler_pb2.ExtenderCall.values()[1:], answer.call, "call")
    if answer.WhichOneof("answer") is None:
        raise _InvalidFieldError("answer", PROBLEM)


def _nominated(
    verdict: scheduler_pb2.Unschedulable | scheduler_pb2.Failure, path: str, sent: SentObjects
) -> None:
    name = verdict.nominated_node_name
    if verdict.HasField("nominated_node_name") and not sent.has_node(name):
        raise _InvalidFieldError(path, f"{name!r}: no node has this name" if name else PROBLEM)


def _pods(pods: Iterable[meta_pb2.ObjectReference], path: str, sent: SentObjects) -> None:
    for index, pod in enumerate(pods):
        if not sent.has_pod(pod.uid):
            problem = f"{pod.uid!r}: {_UNKNOWN_POD}" if pod.uid else PROBLEM
            raise _InvalidFieldError(path.format(index), problem)


# An eviction service's results


def _result(
    result: eviction_service_pb2.OperationResult, operation: eviction_service_pb2.Operation
) -> None:
    requested = operation.WhichOneof("operation") or ""
    node_name = getattr(operation, requested).node_name
    if result.node_name != node_name:
        problem = f"is {result.node_name!r}, but the operation's is {node_name!r}"
        raise _InvalidFieldError("node_name", problem)
    kind = result.WhichOneof("result")
    if kind not in _RESULTS[requested]:
        problem = f"is {kind}" if kind else PROBLEM
        expected = _RESULTS[requested][0]
        raise _InvalidFieldError("result", f"{problem}: the result of {requested} is {expected}")
    if kind == "step":
        at_ns = operation.step.time_ns if requested == "step" else None
        _within("step", _step_result, result.step, at_ns, frozenset(_active(operation)))
    elif kind == "admission" and not result.admission.admit and not result.admission.reason:
        raise _InvalidFieldError("admission.reason", f"{PROBLEM} for a pod that is not admitted")


def _active(operation: eviction_service_pb2.Operation) -> Iterator[str]:
    yield from (pod.metadata.uid for pod in operation.step.pods)
    yield from operation.step.active_uids


def _step_result(step: eviction_pb2.StepResult, at_ns: int | None, active: frozenset[str]) -> None:
    """Check a step's result; `at_ns` None: a resumed step, whose pods were sent before."""
    for index, eviction in enumerate(step.evictions):
        path = f"evictions[{index}]"
        _active_pod(eviction.pod, f"{path}.pod.uid", at_ns, active)
        for name in _COUNTS_OF_EVICTION:
            _within(path, _count, eviction, name)
        if eviction.grace_period_override_duration_ns % SECOND_NS:
            problem = f"{eviction.grace_period_override_duration_ns} is not whole seconds"
            raise _InvalidFieldError(f"{path}.grace_period_override_duration_ns", problem)
    if len({eviction.pod.uid for eviction in step.evictions}) < len(step.evictions):
        raise _InvalidFieldError("evictions", "list a pod twice")
    for index, place in enumerate(step.ranking):
        _active_pod(place.pod, f"ranking[{index}].pod.uid", at_ns, active)
    if at_ns is not None and step.next_step_time_ns <= at_ns:
        problem = f"{step.next_step_time_ns} is not after the step's {at_ns}"
        raise _InvalidFieldError("next_step_time_ns", problem)
    _conditions(step)
    _observed(step)


def _conditions(step: eviction_pb2.StepResult) -> None:
    for index, condition in enumerate(step.conditions):
        _within(f"conditions[{index}]", _condition, condition)
    if step.quiet and step.evictions:
        raise _InvalidFieldError("quiet", "is set, but pods are evicted")
    if not step.quiet and sorted(condition.type for condition in step.conditions) != sorted(TAINTS):
        names = ", ".join(sorted(TAINTS))
        raise _InvalidFieldError(
            "conditions", f"are required in a step that is not quiet: {names}, each once"
        )


def _observed(step: eviction_pb2.StepResult) -> None:
    for index, threshold in enumerate(step.thresholds_met):
        _within(f"thresholds_met[{index}]", _count, threshold, "grace_period_duration_ns")
    for name in ("first_observed", "condition_last_observed"):
        for index, observed in enumerate(getattr(step, name)):
            _within(f"{name}[{index}]", _count, observed, "time_ns")
    for name, amounts in (
        ("notify_at", step.notify_at),
        ("calm.min_available", step.calm.min_available),
    ):
        for index, amount in enumerate(amounts):
            path = f"{name}[{index}]"
            _within(path, _count, amount, "amount")


def _active_pod(
    pod: meta_pb2.ObjectReference, path: str, at_ns: int | None, active: frozenset[str]
) -> None:
    if not pod.uid:
        raise _InvalidFieldError(path, PROBLEM)
    if at_ns is not None and pod.uid not in active:
        raise _InvalidFieldError(path, f"{pod.uid!r} is not an active pod of the step")


def _condition(condition: node_pb2.NodeCondition) -> None:
    if condition.type not in TAINTS:
        raise _InvalidFieldError(
            "type", f"{condition.type!r} is not one of {', '.join(sorted(TAINTS))}"
        )
    if condition.status not in {"True", "False"}:
        raise _InvalidFieldError("status", f'{condition.status!r} is neither "True" nor "False"')


# Parts of both


def _phases(phases: Iterable[session_pb2.Phase]) -> None:
    for index, phase in enumerate(phases):
        if not phase.name:
            raise _InvalidFieldError(f"phases[{index}].name", PROBLEM)
        if phase.wall_duration_ns < 0:
            raise _InvalidFieldError(
                f"phases[{index}].wall_duration_ns", f"{phase.wall_duration_ns} is negative"
            )


def _each(message: Message, name: str, lowest: int, highest: int) -> None:
    values = getattr(message, name)
    if values and (min(values) < lowest or max(values) > highest):
        outside = (place for place, value in enumerate(values) if not lowest <= value <= highest)
        index = next(outside)
        problem = f"{values[index]} is not from {lowest} to {highest}"
        raise _InvalidFieldError(f"{name}[{index}]", problem)


def _count(message: Message, name: str) -> None:
    if getattr(message, name) < 0:
        raise _InvalidFieldError(name, f"{getattr(message, name)} is negative")


def _enum(values: Iterable[int], value: int, path: str) -> None:
    if value not in values:
        raise _InvalidFieldError(path, f"{value} is not a value of the enum")
