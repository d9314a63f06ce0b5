"""The input of a round: changes and answers of the world in, queue operations out.

A round is read as a whole before any of it is applied, so that a refusal changes nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from reprieve.kube.v1beta1 import meta_pb2, object_pb2, pod_pb2
from reprieve.queue.v1beta1 import queue_pb2
from reprieve.scheduler.v1beta1 import scheduler_pb2
from services.kube.pod import Pod, PodSpec
from services.kube.requests import names_in_force, requested_names
from services.kube.time import SECOND_NS
from services.rpc.errors import FieldError, RefusalError, TimeGoesBackwardsError
from services.rpc.kube.codec import apply_patch
from services.rpc.limits import UNLIMITED, Limits
from services.scheduler import cluster_events
from services.scheduler.batch import Batch
from services.scheduler.cluster_events import (
    ClusterChange,
    ConfirmBinding,
    PatchPod,
    PutBudget,
    PutNode,
    PutObject,
    PutPod,
    RemoveObject,
    Tick,
    TimedChange,
    UnreadObject,
)
from services.scheduler.core.decisions import Stage
from services.scheduler.core.queueing.mirror import QueueTraits
from services.scheduler.core.queueing.steps import (
    EventLabel,
    Flush,
    Move,
    PopId,
    QueueStep,
    QueueUpdate,
)
from services.scheduler.core.session.scheduler import Scheduler
from services.scheduler.step_encoder import StepEncoder

LEFTOVER_NS = 30 * SECOND_NS
_SPECS_MAX = 65536
"""Specs that are remembered as counted; a forgotten one is counted again, to no effect."""


_STAGES = {
    scheduler_pb2.REFUSAL_STAGE_UNSPECIFIED: None,
    scheduler_pb2.REFUSAL_STAGE_BIND: Stage.BIND,
    scheduler_pb2.REFUSAL_STAGE_NOMINATE: Stage.NOMINATE,
    scheduler_pb2.REFUSAL_STAGE_DELETE_VICTIM: Stage.DELETE_VICTIM,
}
ALL_PODS = 2**31
"""More pods than a round can try."""


class Answer(NamedTuple):
    """The world's answer to a decision; `refused` is what it did not carry out, if anything."""

    at_ns: int
    pop: PopId
    refused: Stage | None


class RoundInput(NamedTuple):
    """A round as it was read: the changes to apply before its heads are tried.

    `pods_max` is 0 for a part of a round: events alone, the rest of the round follows.
    """

    at_ns: int
    answers: Sequence[Answer]
    changes: Sequence[TimedChange]
    pods_max: int


class Intake:
    """Reads rounds for one core, and keeps what came as it came.

    messages: pods by UID. others: objects that the core keeps by value, by kind and name. uids: of
    pods by namespace and name. `decoder` reads objects, so that equal specs are one value, and
    `encoder` writes the operations of a queue with the traits `queue`. `limits` bound the names of
    resources.
    """

    def __init__(self, core: Scheduler, *, queue: QueueTraits, limits: Limits = UNLIMITED) -> None:
        self._core = core
        self._limits = limits
        self._resources: set[str] = set()
        self._counted: set[PodSpec] = set()
        self._new_resources: set[str] = set()
        self._new_specs: set[PodSpec] = set()
        self._counts_moves = not queue.registers_events
        self.messages: dict[str, pod_pb2.Pod] = {}
        self.others: dict[tuple[str, str, str], object_pb2.KubernetesObject] = {}
        self.uids: dict[tuple[str, str], str] = {}
        self._brought: dict[str, Pod] = {}
        self.decoder = cluster_events.Decoder()
        self.encoder = StepEncoder(
            self.messages,
            core.sort_key,
            core.snapshot.catalog.namespace_labels,
            core.reads_objects if queue.registers_events else _never,
            core.snapshot.catalog.devices.class_resources,
        )

    def read_round(self, round_: scheduler_pb2.Round, since_ns: int) -> RoundInput:
        """Return the input of a round, which does not begin before `since_ns`.

        Raises FieldError, TimeGoesBackwardsError and LimitError; nothing is changed.
        """
        for read in (self._brought, self._new_resources, self._new_specs):
            read.clear()
        if round_.time_ns < 0:
            raise FieldError("round.time_ns", f"{round_.time_ns} ns lies before the Unix epoch")
        if round_.HasField("max_pods") and not round_.max_pods:
            raise FieldError("round.max_pods", "must be above 0; leave it out for no limit")
        for index, attempt in enumerate(round_.recorded):
            _check_recorded(attempt, f"round.recorded[{index}]")
        answers = list(self._read_answers(round_, max(0, since_ns)))
        last_ns = answers[-1].at_ns if answers else max(0, since_ns)
        changes = self.read_events(round_.events, last_ns, round_.time_ns, "round.events")
        pods_max = 0 if round_.events_only else round_.max_pods or ALL_PODS
        return RoundInput(round_.time_ns, answers, changes, pods_max)

    def read_events(
        self,
        events: Iterable[scheduler_pb2.Event],
        last_ns: int,
        until_ns: int,
        field: str,
        *,
        confirms: bool = False,
    ) -> list[TimedChange]:
        """Return the changes of events in order, at `last_ns` at the earliest.

        `confirms`: they may confirm bindings. Raises as `read_round`.
        """
        decode = self.decoder.decode
        changes: list[TimedChange] = []
        for index, event in enumerate(events):
            at_ns = event.time_ns
            if not last_ns <= at_ns <= until_ns:
                raise out_of_turn(f"{field}[{index}]", at_ns, last_ns, until_ns)
            try:
                change = decode(event)
                if type(change) is PutPod:
                    self._check_name(change.pod, event)
                elif type(change) is ConfirmBinding and not confirms:
                    raise FieldError("patch.confirms_binding", "is for confirmations only")
            except FieldError as error:
                raise FieldError(f"{field}[{index}].{error.field}", error.problem) from None
            changes.append(TimedChange(at_ns, change))
            last_ns = at_ns
        self._check_resources(changes)
        return changes

    def _check_resources(self, changes: Iterable[TimedChange]) -> None:
        """Check how many names of resources changes bring. Raises LimitError.

        A resource takes a column over all nodes, so that their number is what a message of a few
        bytes can make costly. Specs are looked at once, as pods of one template share theirs.
        """
        names: set[str] = set()
        specs = self._new_specs
        for _, change in changes:
            if type(change) is PutPod:
                if change.pod.spec not in self._counted and change.pod.spec not in specs:
                    specs.add(change.pod.spec)
                    names.update(requested_names(change.pod.spec))
                if change.pod.container_resources:
                    names.update(names_in_force(change.pod.container_resources))
            elif type(change) is PutNode:
                names.update(change.node.allocatable)
            elif type(change) is PatchPod and change.status is not None:
                names.update(names_in_force(change.status.container_resources))
        self._check_names(names)

    def count_resources(self, names: Collection[str]) -> None:
        """Count names of resources that a restored session has. Raises LimitError."""
        self._check_names(names)
        self._count_read()

    def _check_names(self, names: Collection[str]) -> None:
        """Check names of resources with those of the session. Raises LimitError."""
        if not self._resources.issuperset(names):
            self._new_resources.update(names)
            count = len(self._resources | self._new_resources)
            self._limits.check("session_resources", count, "names of resources in a session")

    def _count_read(self) -> None:
        """Count what was read since `read_round` began, whose request is not refused any more."""
        self._resources |= self._new_resources
        if len(self._counted) > _SPECS_MAX:
            self._counted.clear()
        self._counted |= self._new_specs

    def _check_name(self, pod: Pod, event: scheduler_pb2.Event) -> None:
        """Raise FieldError if the pod's uid was another pod's; a request may bring both."""
        before = self._brought.get(pod.uid) or self._core.pods.get(pod.uid)
        if before is not None and (before.name, before.namespace) != (pod.name, pod.namespace):
            raise FieldError(
                f"{event.WhichOneof('event')}.pod.metadata.uid",
                f"{pod.uid!r} is the uid of {before.namespace}/{before.name}, another pod than "
                f"{pod.namespace}/{pod.name}",
            )
        self._brought[pod.uid] = pod

    def _read_answers(self, round_: scheduler_pb2.Round, last_ns: int) -> Iterator[Answer]:
        """Yield a round's answers, at `last_ns` at the earliest.

        Raises a refusal for a malformed answer; one of an unknown pop may be a retried one.
        """
        for index, answer in enumerate(round_.answers):
            field = f"round.answers[{index}]"
            at_ns = answer.time_ns if answer.HasField("time_ns") else round_.time_ns
            if not last_ns <= at_ns <= round_.time_ns:
                raise out_of_turn(field, at_ns, last_ns, round_.time_ns)
            last_ns = at_ns
            if answer.pop.cycle < 1:
                problem = f"{answer.pop.cycle} is not a scheduling cycle: cycles count from 1"
                raise FieldError(f"{field}.pop.cycle", problem)
            is_stage = answer.refused or not answer.HasField("refused")
            if not is_stage or answer.refused not in _STAGES:
                raise FieldError(f"{field}.refused", "is not a stage of this service")
            pop, refused = PopId(answer.pop.uid, answer.pop.cycle), _STAGES[answer.refused]
            if refused is Stage.DELETE_VICTIM:
                self._check_victim(pop, answer.victim.uid, f"{field}.victim.uid")
            yield Answer(at_ns, pop, refused)

    def _check_victim(self, pop: PopId, uid: str, field: str) -> None:
        """Raise FieldError if a decision that awaits its answer did not delete the pod."""
        for decision in self._core.unanswered():
            nomination = decision.nomination
            deletions = nomination.deletions if nomination else ()
            if decision.head.pop == pop and all(pod.uid != uid for pod in deletions):
                problem = f"{uid!r} is not one of the pods whose deletion was requested"
                raise FieldError(field, problem)

    def take_round(self, brought: RoundInput) -> Batch:
        """Apply a round's answers and changes to the core; return what they are for the queue.

        The batch holds operations only, no decisions.
        """
        self._count_read()
        operations = [
            self.encoder.operation(step, answer.at_ns)
            for answer in brought.answers
            for step in self._core.answer(answer.pop, answer.refused)
        ]
        if brought.changes:
            since_ns = brought.changes[0].at_ns
            held = self._core.time_goes_on()
            operations += [self.encoder.operation(step, since_ns) for step in held]
        for timed in brought.changes:
            operations += self._take_change(timed)
        return Batch(self.encoder, brought.at_ns, operations)

    def keep(self, message: object_pb2.KubernetesObject) -> None:
        """Keep the message of an object that the core keeps by its value."""
        self.others[_other_key(message)] = message

    def apply(self, change: ClusterChange) -> tuple[pod_pb2.Pod | None, Sequence[QueueStep]]:
        """Apply a change to the core.

        Return a pod's previous version, None where the queue needs none, and the queue's steps.
        """
        match change:
            case PutPod(pod=pod, message=message):
                old = self.messages.get(pod.uid)
                self.messages[pod.uid] = message
                self.uids[pod.namespace, pod.name] = pod.uid
                return old, self._core.put_pod(pod)
            case PatchPod():
                return self._patch(change)
            case PutNode(node=node):
                return None, self._core.put_node(node)
            case PutBudget(budget=budget):
                return None, self._core.put_budget(budget)
            case PutObject(value=value, message=other):
                self.keep(other)
                return None, self._core.put_object(value)
            case RemoveObject(ref=ref):
                return self._remove(ref)
            case Tick() | UnreadObject():
                return None, ()
            case ConfirmBinding():
                raise AssertionError("a window replaces it by a patch to the chosen node")

    def _take_change(self, timed: TimedChange) -> list[queue_pb2.Operation]:
        old, steps = self.apply(timed.change)
        if isinstance(timed.change, Tick):
            steps = _flushes(timed.at_ns)
        encoded = self.encoder.operation
        return [encoded(step, timed.at_ns, old) for step in steps if self._may_change_queue(step)]

    def _may_change_queue(self, step: QueueStep) -> bool:
        """Return whether a step may change the queue: a move only where it may move a pod.

        Before v1.34 the queue counts every move, so that each may change it.
        """
        if isinstance(step, QueueUpdate):
            return self._core.may_matter(step)
        return not isinstance(step, Move) or self._counts_moves or self._core.may_move_pods(step)

    def _patch(self, change: PatchPod) -> tuple[pod_pb2.Pod | None, Sequence[QueueStep]]:
        """Apply a patch; one of an unknown pod is ignored, as a late watch event is."""
        uid = change.patch.pod.uid
        pod, message = self._core.pods.get(uid), self.messages.get(uid)
        if pod is None or message is None:
            return None, ()
        steps = self._core.put_pod(change.applied_to(pod))
        old: pod_pb2.Pod | None = None
        # A queue receives the previous version of a pod that is pending, or that moves others.
        if not (pod.node_name or change.patch.node_name) or any(map(_has_old_pod, steps)):
            old = pod_pb2.Pod()
            old.CopyFrom(message)
        apply_patch(message, change.patch)
        return old, steps

    def _remove(
        self, ref: meta_pb2.ObjectReference
    ) -> tuple[pod_pb2.Pod | None, Sequence[QueueStep]]:
        match ref.kind:
            case "Pod":
                uid = ref.uid or self.uids.get((ref.namespace, ref.name), "")
                steps = self._core.remove_pod(uid)
                if self.uids.get((ref.namespace, ref.name)) == uid:
                    del self.uids[ref.namespace, ref.name]
                return self.messages.pop(uid, None), steps
            case "Node":
                return None, self._core.remove_node(ref.name)
            case "PodDisruptionBudget":
                return None, self._core.remove_budget(ref.namespace, ref.name)
            case _:
                self.others.pop((ref.kind, ref.namespace, ref.name), None)
                return None, self._core.remove_object(ref.kind, ref.namespace, ref.name)


def _has_old_pod(step: QueueStep) -> bool:
    return isinstance(step, Move) and isinstance(step.old, Pod)


def _check_recorded(attempt: scheduler_pb2.RecordedAttempt, field: str) -> None:
    if not attempt.pod.uid:
        raise FieldError(f"{field}.pod.uid", "is required")
    if attempt.attempt < 1:
        raise FieldError(
            f"{field}.attempt", f"{attempt.attempt} is not an attempt: attempts count from 1"
        )


def out_of_turn(field: str, at_ns: int, last_ns: int, round_ns: int) -> RefusalError:
    """Return the refusal of a time after the round's, or before what came before it."""
    if at_ns > round_ns:
        return FieldError(f"{field}.time_ns", f"{at_ns} ns lies after the round's {round_ns} ns")
    return TimeGoesBackwardsError(
        f"{field}.time_ns: {at_ns} ns lies before what came before it, at {last_ns} ns",
        earliest_time_ns=last_ns,
    )


def _never(_event: EventLabel) -> bool:
    return False


def _other_key(message: object_pb2.KubernetesObject) -> tuple[str, str, str]:
    content = getattr(message, message.WhichOneof("object") or "")
    return (content.DESCRIPTOR.name, content.metadata.namespace, content.metadata.name)


def _flushes(at_ns: int) -> Sequence[QueueStep]:
    """Return the flushes due at a tick; upstream's queue flushes leftovers every 30 s."""
    backoff, leftover = Flush(leftover=False), Flush(leftover=True)
    return (backoff, leftover) if at_ns % LEFTOVER_NS == 0 else (backoff,)
