"""A scheduling queue that keeps every rule of docs/queue.md, or all but one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import grpc

from reprieve.kube.v1beta1 import meta_pb2, pod_pb2
from reprieve.queue.v1beta1 import queue_pb2, queue_service_pb2_grpc
from reprieve.queue.v1beta1 import queue_service_pb2 as pb
from reprieve.session.v1beta1 import session_pb2
from tests.conformance_mutants.queue_rules import Breach
from tests.conformance_mutants.small_sessions import VERSION, RefusedError, SmallSessions, bad_field

SECOND_NS = 10**9
LEFTOVER_NS, LEFTOVER_TICK_NS = 300 * SECOND_NS, 30 * SECOND_NS
LABEL = re.compile(r"\*|((Assigned|Unscheduled)?(Node|Pod))(Add|Update|Delete)?\w*")
APPLIED, WOULD_BLOCK = queue_pb2.OUTCOME_CODE_APPLIED, queue_pb2.OUTCOME_CODE_WOULD_BLOCK
CLOSED, NOT_NEXT = queue_pb2.OUTCOME_CODE_CLOSED, queue_pb2.OUTCOME_CODE_NOT_NEXT
UNKNOWN_POP = queue_pb2.OUTCOME_CODE_UNKNOWN_POP


@dataclass(slots=True)
class Waiting:
    """A pod of the queue, in the sub-queue that it is in."""

    pod: pod_pb2.Pod
    sort_key: bytes
    queued_ns: int
    number: int
    sub_queue: int = queue_pb2.SUB_QUEUE_ACTIVE
    gates: Sequence[str] = ()
    attempts: int = 0
    refusals: int = 0
    moved_ns: int = 0
    requeue: session_pb2.Requeue | None = None
    failure: queue_pb2.Failure = field(default_factory=queue_pb2.Failure)
    cycle: int = 0
    events: list[queue_pb2.ClusterEvent] = field(default_factory=list)
    owner: str = ""
    lease_end_ns: int = 0


class SmallQueue:
    """One session's pods by UID; `broken` is the rule that it breaks."""

    def __init__(self, config: queue_pb2.QueueConfig, broken: Breach | None) -> None:
        self._config = config
        self._broken = broken
        self._pods: dict[str, Waiting] = {}
        self._nominated: dict[str, str] = {}
        self._now_ns = 0
        self._cycle = 0
        self._added = 0
        self._is_closed = False

    def breaks(self, *breaches: Breach) -> bool:
        """Return whether one of these rules is broken."""
        return self._broken in breaches

    def apply(self, request: pb.ApplyRequest) -> pb.ApplyResponse:
        """Apply a batch."""
        for index, operation in enumerate(request.operations):
            if path := _malformed(operation):
                raise bad_field(f"operations[{index}].{path}")
        if self.breaks(Breach.CYCLES_REPEAT):
            self._cycle = 0
        answer = pb.ApplyResponse()
        for index, operation in enumerate(request.operations):
            self._advance(operation.time_ns)
            kind = str(operation.WhichOneof("operation"))
            result = getattr(self, f"_{kind}")(getattr(operation, kind))
            if result is not None and (result.code != APPLIED or kind == "pop"):
                answer.results.add(index=index).MergeFrom(result)
            if result is not None and result.code == NOT_NEXT and not self.breaks(Breach.GOES_ON):
                break
            answer.applied += 1
        self._look_ahead(request, answer)
        return answer

    def _look_ahead(self, request: pb.ApplyRequest, answer: pb.ApplyResponse) -> None:
        """Write the next heads and wakeups."""
        order = self._next()
        if self.breaks(Breach.HEADS_BY_NAME):
            order.sort(key=lambda waiting: waiting.pod.metadata.name)
        shown = order if self.breaks(Breach.SHOWS_ALL_HEADS) else order[: request.heads]
        for place, waiting in enumerate(shown, 1):
            cycle = 1 if self.breaks(Breach.HEADS_HAVE_ONE_CYCLE) else place
            answer.heads.append(self._head(waiting, self._cycle + cycle, waiting.attempts + 1))
        if self.breaks(Breach.HEADS_ARE_POPPED):
            for waiting in shown:
                self._take(waiting)
        wakeup_ns = self._wakeup_ns(self._pods.values())
        if wakeup_ns is not None and not self.breaks(Breach.NEVER_WAKES):
            answer.next_wakeup_time_ns = wakeup_ns
        if request.HasField("attempts_time_ns") and len(shown) == len(order):
            self._foresee(request.attempts_time_ns, order, answer.after_attempts)

    def _foresee(self, at_ns: int, heads: Sequence[Waiting], after: pb.AfterAttempts) -> None:
        """Say what the next wakeup is once all heads have been tried."""
        after.SetInParent()
        left = [waiting for waiting in self._pods.values() if waiting not in heads]
        bound_ns = self._wakeup_ns(left)
        if bound_ns is not None:
            after.next_wakeup_time_ns = bound_ns
        refused_ns = min(self._leftover_ns(at_ns), bound_ns or self._leftover_ns(at_ns))
        if self.breaks(Breach.FORESEES_NO_REFUSAL):
            refused_ns = 0
        after.refused_wakeup_time_ns = refused_ns

    def _advance(self, now_ns: int) -> None:
        if now_ns < self._now_ns:
            raise RefusedError(grpc.StatusCode.FAILED_PRECONDITION, "TIME_GOES_BACKWARDS")
        self._now_ns = now_ns
        for waiting in self._in(queue_pb2.SUB_QUEUE_IN_FLIGHT):
            has_ended = waiting.lease_end_ns and waiting.lease_end_ns <= now_ns
            if has_ended and not self.breaks(Breach.LEASES_NEVER_END):
                self._give_up(waiting)

    # The order

    def _in(self, *sub_queues: int) -> list[Waiting]:
        return [waiting for waiting in self._pods.values() if waiting.sub_queue in sub_queues]

    def _next(self) -> list[Waiting]:
        """Return the pods that the next pops take, in order."""
        active = sorted(self._in(queue_pb2.SUB_QUEUE_ACTIVE), key=self._key)
        may_pop = not self._config.HasField("pop_from_backoff_q") or self._config.pop_from_backoff_q
        if may_pop and not self.breaks(Breach.NEVER_POPS_BACKOFF):
            active += sorted(self._in(queue_pb2.SUB_QUEUE_BACKOFF), key=self._key)
        return active

    def _key(self, waiting: Waiting) -> tuple[Any, ...]:
        age = (waiting.queued_ns, waiting.number)
        if self.breaks(Breach.IGNORES_AGE):
            age = (-waiting.queued_ns, -waiting.number)
        if waiting.sort_key and not self.breaks(Breach.IGNORES_SORT_KEY):
            key = waiting.sort_key
            if self.breaks(Breach.ORDERS_KEYS_BACKWARDS):
                key = bytes(255 - byte for byte in key)
            return (key, *age)
        if self.breaks(Breach.IGNORES_PRIORITY):
            return (b"", *age)
        return (b"%020d" % (2**40 - waiting.pod.spec.priority), *age)

    def _head(self, waiting: Waiting, cycle: int, attempts: int) -> queue_pb2.Head:
        uid = waiting.pod.metadata.uid
        head = queue_pb2.Head(
            pop=session_pb2.PopId(uid=uid, cycle=cycle),
            attempts=1 if self.breaks(Breach.COUNTS_NO_ATTEMPTS) else attempts,
            queued_time_ns=waiting.queued_ns,
        )
        if uid in self._nominated and not self.breaks(Breach.LOSES_NOMINATIONS):
            head.nominated_node_name = self._nominated[uid]
        if waiting.requeue is not None:
            head.requeue.CopyFrom(waiting.requeue)
        return head

    # Pods

    def _add(self, add: queue_pb2.Add) -> None:
        self._added += 1
        waiting = Waiting(add.pod, add.sort_key, self._now_ns, self._added)
        self._pods[add.pod.metadata.uid] = waiting
        self._gate(waiting, add.gates)

    def _gate(self, waiting: Waiting, gates: Sequence[str]) -> None:
        waiting.gates = list(gates)
        if gates and not self.breaks(Breach.IGNORES_GATES):
            waiting.sub_queue = queue_pb2.SUB_QUEUE_GATED

    def _update(self, update: queue_pb2.Update) -> None:
        waiting = self._pods.get(update.pod.metadata.uid)
        if waiting is not None and not self.breaks(Breach.KEEPS_OLD_PRIORITY):
            waiting.pod = update.pod

    def _delete_pod(self, pod: meta_pb2.ObjectReference) -> None:
        waiting = self._pods.get(pod.uid)
        if waiting is None:
            if self.breaks(Breach.REFUSES_UNKNOWN):
                raise bad_field("operations[0].delete_pod.uid")
            return
        is_refused = waiting.sub_queue == queue_pb2.SUB_QUEUE_UNSCHEDULABLE
        kept = Breach.KEEPS_DELETED_REFUSED if is_refused else Breach.KEEPS_DELETED
        if not self.breaks(kept):
            del self._pods[pod.uid]
        if not self.breaks(Breach.NOMINATIONS_OUTLIVE_PODS):
            self._nominated.pop(pod.uid, None)

    def _set_gates(self, gates: queue_pb2.SetGates) -> None:
        waiting = self._pods.get(gates.pod.uid)
        if waiting is not None and not self.breaks(Breach.KEEPS_GATES):
            waiting.gates = list(gates.gates)
            if not gates.gates and self.breaks(Breach.SETTING_GATES_MOVES):
                waiting.sub_queue = queue_pb2.SUB_QUEUE_ACTIVE

    # Pops

    def _pop(self, pop: queue_pb2.Pop) -> queue_pb2.OperationResult:
        order = self._next()
        if not order:
            is_closed = self._is_closed and not self.breaks(Breach.POPS_AFTER_CLOSE)
            return queue_pb2.OperationResult(code=CLOSED if is_closed else WOULD_BLOCK)
        waiting = self._take(order[0], pop.owner)
        head = self._head(waiting, waiting.cycle, waiting.attempts)
        return queue_pb2.OperationResult(code=APPLIED, popped=head)

    def _take(self, waiting: Waiting, owner: str = "") -> Waiting:
        self._cycle += 1
        waiting.cycle, waiting.attempts = self._cycle, waiting.attempts + 1
        waiting.sub_queue, waiting.events, waiting.owner = queue_pb2.SUB_QUEUE_IN_FLIGHT, [], owner
        lease_ns = self._config.lease_duration_ns
        waiting.lease_end_ns = self._now_ns + lease_ns if lease_ns else 0
        return waiting

    def _commit_pop(self, commit: queue_pb2.CommitPop) -> queue_pb2.OperationResult:
        waiting = self._exactly(commit.pop.uid, commit.pop.cycle)
        if waiting is None:
            return queue_pb2.OperationResult(code=NOT_NEXT)
        self._take(waiting, commit.owner)
        return queue_pb2.OperationResult(code=APPLIED)

    def _exactly(self, uid: str, cycle: int) -> Waiting | None:
        """Return the next pod if it is this one, in this cycle."""
        order = self._next()
        if self.breaks(Breach.HEADS_IN_ORDER_OF_ARRIVAL):
            order.sort(key=lambda waiting: waiting.number)
        if self.breaks(Breach.COMMITS_ANY_POD):
            order = [waiting for waiting in order if waiting.pod.metadata.uid == uid]
        is_cycle = cycle == self._cycle + 1 or self.breaks(Breach.COMMITS_ANY_CYCLE)
        if not order or not is_cycle or order[0].pod.metadata.uid != uid:
            return None
        return order[0]

    def _done(self, pop: session_pb2.PopId) -> None:
        waiting = self._pods.get(pop.uid)
        if waiting is not None and waiting.cycle == pop.cycle:
            del self._pods[pop.uid]

    def _add_unschedulable(self, given: queue_pb2.AddUnschedulable) -> queue_pb2.OperationResult:
        waiting = self._pods.get(given.pop.uid)
        is_in_flight = waiting is not None and (
            waiting.sub_queue == queue_pb2.SUB_QUEUE_IN_FLIGHT or self.breaks(Breach.KEEPS_FLYING)
        )
        if waiting is None or not is_in_flight or waiting.cycle != given.pop.cycle:
            is_taken = self.breaks(Breach.TAKES_UNKNOWN_POPS)
            return queue_pb2.OperationResult(code=APPLIED if is_taken else UNKNOWN_POP)
        if given.HasField("pod"):
            waiting.pod = given.pod
        self._refuse(waiting, given.failure)
        if given.gates:
            self._gate(waiting, given.gates)
        return queue_pb2.OperationResult(code=APPLIED)

    def _refuse(self, waiting: Waiting, failure: queue_pb2.Failure) -> None:
        waiting.failure, waiting.queued_ns = failure, self._now_ns
        waiting.moved_ns = self._now_ns
        waiting.requeue = None
        waiting.refusals += 1
        waiting.sub_queue = queue_pb2.SUB_QUEUE_UNSCHEDULABLE
        helped = [event for event in waiting.events if self._concerns(waiting, event)]
        if helped and not self.breaks(Breach.FORGETS_EVENTS):
            self._move_pod(waiting)
        is_error = not failure.unschedulable_plugins and not failure.pending_plugins
        if is_error and not self.breaks(Breach.ERRORS_WAIT):
            self._move_pod(waiting)
        if self.breaks(Breach.TRIES_AGAIN_AT_ONCE):
            waiting.sub_queue = queue_pb2.SUB_QUEUE_ACTIVE

    def _commit_unschedulable(
        self, commit: queue_pb2.CommitUnschedulable
    ) -> queue_pb2.OperationResult:
        for place, uid in enumerate(commit.uids):
            waiting = self._exactly(uid, commit.first_cycle + place)
            if self.breaks(Breach.COMMITS_ANY_LIST):
                waiting = self._pods.get(uid)
            if waiting is None:
                pods = 0 if self.breaks(Breach.COUNTS_NO_PODS) else place
                return queue_pb2.OperationResult(code=NOT_NEXT, pods=pods)
            index = (
                0 if self.breaks(Breach.COMMITS_BY_FIRST_FAILURE) else commit.failure_indexes[place]
            )
            self._refuse(self._take(waiting), commit.failures[index])
        return queue_pb2.OperationResult(code=APPLIED)

    def _pass_through(self, passing: queue_pb2.PassThrough) -> queue_pb2.OperationResult:
        is_next = passing.first_cycle == self._cycle + 1 and not self._next()
        if not is_next and not self.breaks(Breach.PASSES_ALWAYS):
            return queue_pb2.OperationResult(code=NOT_NEXT)
        self._cycle += 1 if self.breaks(Breach.PASSING_COUNTS_ONE) else passing.pods
        return queue_pb2.OperationResult(code=APPLIED)

    # Events

    def _move(self, move: queue_pb2.Move) -> None:
        for waiting in self._in(queue_pb2.SUB_QUEUE_IN_FLIGHT):
            waiting.events.append(move.event)
        for waiting in self._in(queue_pb2.SUB_QUEUE_UNSCHEDULABLE, queue_pb2.SUB_QUEUE_GATED):
            is_high = move.HasField("priority_at_most") and (
                waiting.pod.spec.priority > move.priority_at_most
            )
            is_left = waiting.pod.metadata.uid == move.all_but.uid
            if is_high and not self.breaks(Breach.IGNORES_MOVE_PRIORITY):
                continue
            if is_left and not self.breaks(Breach.IGNORES_ALL_BUT):
                continue
            if waiting.sub_queue == queue_pb2.SUB_QUEUE_UNSCHEDULABLE and self._concerns(
                waiting, move.event
            ):
                waiting.requeue = session_pb2.Requeue(event=move.event.label, time_ns=self._now_ns)
                self._move_pod(waiting)

    def _assigned_pod_add(self, added: queue_pb2.AssignedPodAdd) -> None:
        for waiting in self._in(queue_pb2.SUB_QUEUE_UNSCHEDULABLE):
            is_meant = self._awaits(waiting.pod, added.pod)
            if self.breaks(Breach.ASSIGNED_PODS_MOVE_ALL) or (
                is_meant and not self.breaks(Breach.ASSIGNED_PODS_MOVE_NONE)
            ):
                self._move_pod(waiting)

    def _awaits(self, pod: pod_pb2.Pod, assigned: pod_pb2.Pod) -> bool:
        """Return whether a required affinity term of a pod matches an assigned one."""
        terms = pod.spec.affinity.pod_affinity.required_during_scheduling_ignored_during_execution
        labels = dict(assigned.metadata.labels)
        return any(_selects(term.label_selector, labels) for term in terms)

    def _concerns(self, waiting: Waiting, event: queue_pb2.ClusterEvent) -> bool:
        if self.breaks(Breach.MOVED_BY_ANY_EVENT):
            return True
        if self.breaks(Breach.MOVED_BY_NO_EVENT):
            return False
        plugins = (*waiting.failure.unschedulable_plugins, *waiting.failure.pending_plugins)
        return any(self._hears(plugin, waiting, event) for plugin in plugins)

    def _hears(self, plugin: str, waiting: Waiting, event: queue_pb2.ClusterEvent) -> bool:
        hints = [hint for hint in self._config.hints if hint.plugin == plugin]
        if not hints:
            return not self.breaks(Breach.UNLISTED_HEAR_NOTHING)
        return any(self._matches(hint, waiting, event) for hint in hints)

    def _matches(
        self, hint: queue_pb2.HintRegistration, waiting: Waiting, event: queue_pb2.ClusterEvent
    ) -> bool:
        is_label = event.label == hint.event
        if not self.breaks(Breach.MATCHES_EXACT_LABELS):
            is_label = hint.event == "*" or event.label.startswith(hint.event)
        condition = hint.only_if
        if not is_label or self.breaks(Breach.IGNORES_CONDITIONS):
            return is_label
        changed = event.new_object.pod.metadata
        if condition.own_pod and changed.uid != waiting.pod.metadata.uid:
            return False
        return not condition.never and _selects(condition.new_labels, dict(changed.labels))

    def _move_pod(self, waiting: Waiting) -> None:
        if self.breaks(Breach.MOVES_PROLONG_BACKOFF):
            waiting.moved_ns = self._now_ns
        is_pending = waiting.failure.pending_plugins and not self.breaks(Breach.PENDING_BACKS_OFF)
        backs_off = self._due_ns(waiting) > self._now_ns and not self.breaks(Breach.IGNORES_BACKOFF)
        if waiting.gates and not self.breaks(Breach.IGNORES_GATES):
            waiting.sub_queue = queue_pb2.SUB_QUEUE_GATED
        elif backs_off and not is_pending:
            waiting.sub_queue = queue_pb2.SUB_QUEUE_BACKOFF
        else:
            waiting.sub_queue = queue_pb2.SUB_QUEUE_ACTIVE

    def _due_ns(self, waiting: Waiting) -> int:
        config = self._config
        first_ns = (
            config.initial_backoff_duration_ns
            if config.HasField("initial_backoff_duration_ns")
            else SECOND_NS
        )
        most_ns = (
            config.max_backoff_duration_ns
            if config.HasField("max_backoff_duration_ns")
            else 10 * SECOND_NS
        )
        doublings = 0 if self.breaks(Breach.BACKOFF_IS_CONSTANT) else waiting.refusals - 1
        wait_ns = first_ns << max(0, doublings)
        if not self.breaks(Breach.BACKOFF_HAS_NO_LIMIT):
            wait_ns = min(wait_ns, most_ns)
        return waiting.moved_ns + wait_ns

    def _wakeup_ns(self, pods: Iterable[Waiting]) -> int | None:
        ticks = []
        for waiting in pods:
            if waiting.sub_queue == queue_pb2.SUB_QUEUE_BACKOFF:
                ticks.append(-(-self._due_ns(waiting) // SECOND_NS) * SECOND_NS)
            elif waiting.sub_queue == queue_pb2.SUB_QUEUE_UNSCHEDULABLE:
                ticks.append(self._leftover_ns(waiting.queued_ns))
        return min(ticks, default=None)

    def _leftover_ns(self, queued_ns: int) -> int:
        """Return the flush that moves a pod which has been unschedulable since then."""
        return ((queued_ns + LEFTOVER_NS) // LEFTOVER_TICK_NS + 1) * LEFTOVER_TICK_NS

    def _flush_backoff(self, _empty: object) -> None:
        for waiting in self._in(queue_pb2.SUB_QUEUE_BACKOFF):
            if self._due_ns(waiting) <= self._now_ns:
                waiting.sub_queue = queue_pb2.SUB_QUEUE_ACTIVE
                if self.breaks(Breach.MOVED_BY_THE_FLUSH) and waiting.requeue is not None:
                    waiting.requeue.time_ns = self._now_ns

    def _flush_leftover(self, _empty: object) -> None:
        for waiting in self._in(queue_pb2.SUB_QUEUE_UNSCHEDULABLE):
            is_late = self._now_ns - waiting.queued_ns > LEFTOVER_NS
            is_moved = is_late or self.breaks(Breach.MOVES_LEFTOVERS_EARLY)
            if is_moved and not self.breaks(Breach.LEAVES_LEFTOVERS):
                self._move_pod(waiting)

    def _activate(self, activate: queue_pb2.Activate) -> None:
        for pod in activate.pods:
            waiting = self._pods.get(pod.uid)
            if waiting is not None and waiting.sub_queue != queue_pb2.SUB_QUEUE_IN_FLIGHT:
                if self.breaks(Breach.ACTIVATED_PODS_BACK_OFF):
                    self._move_pod(waiting)
                elif not waiting.gates:
                    waiting.sub_queue = queue_pb2.SUB_QUEUE_ACTIVE

    def _close(self, _empty: object) -> None:
        self._is_closed = True

    # Nominations and owners

    def _nominate(self, nominate: queue_pb2.Nominate) -> None:
        self._nominated[nominate.pod.uid] = nominate.node_name

    def _delete_nomination(self, pod: meta_pb2.ObjectReference) -> None:
        if not self.breaks(Breach.KEEPS_NOMINATIONS):
            self._nominated.pop(pod.uid, None)

    def _renew_leases(self, owner: str) -> None:
        for waiting in self._in(queue_pb2.SUB_QUEUE_IN_FLIGHT):
            if waiting.owner == owner and not self.breaks(Breach.IGNORES_RENEWALS):
                waiting.lease_end_ns = self._now_ns + self._config.lease_duration_ns

    def _release_owner(self, owner: str) -> None:
        for waiting in self._in(queue_pb2.SUB_QUEUE_IN_FLIGHT):
            is_its = waiting.owner == owner or self.breaks(Breach.RELEASES_ALL)
            if is_its and not self.breaks(Breach.KEEPS_OWNERS):
                self._give_up(waiting)

    def _give_up(self, waiting: Waiting) -> None:
        waiting.sub_queue, waiting.attempts = queue_pb2.SUB_QUEUE_ACTIVE, waiting.attempts - 1
        waiting.lease_end_ns = 0

    # Reads

    def state(self) -> pb.GetStateResponse:
        """Return the whole state."""
        state = queue_pb2.QueueState(cycle=self._cycle)
        for waiting in self._pods.values():
            is_in_flight = waiting.sub_queue == queue_pb2.SUB_QUEUE_IN_FLIGHT
            if is_in_flight and self.breaks(Breach.STATE_HAS_NO_FLIGHTS):
                continue
            entry = state.entries.add(sub_queue=waiting.sub_queue, attempts=waiting.attempts)
            entry.pod.CopyFrom(_ref(waiting.pod))
        for uid, node in self._nominated.items():
            if uid in self._pods and not self.breaks(Breach.STATE_HAS_NO_NOMINATIONS):
                state.nominations.add(node_name=node, pods=[_ref(self._pods[uid].pod)])
        return pb.GetStateResponse(state=state)

    def view(self) -> pb.WatchPendingResponse:
        """Return the number of pods in each sub-queue."""
        view = pb.WatchPendingResponse()
        for sub_queue in queue_pb2.SubQueue.values()[1:]:
            count = len(self._in(sub_queue))
            if self.breaks(Breach.WATCH_COUNTS_ALL) and sub_queue == queue_pb2.SUB_QUEUE_ACTIVE:
                count = len(self._pods)
            view.sub_queues.add(sub_queue=sub_queue, count=count)
        return view


def _ref(pod: pod_pb2.Pod) -> meta_pb2.ObjectReference:
    meta = pod.metadata
    return meta_pb2.ObjectReference(namespace=meta.namespace, name=meta.name, uid=meta.uid)


def _selects(selector: meta_pb2.LabelSelector, labels: dict[str, str]) -> bool:
    return dict(selector.match_labels).items() <= labels.items()


def _malformed(operation: queue_pb2.Operation) -> str:
    """Return the path of a required field that an operation lacks, "" if it lacks none."""
    match operation.WhichOneof("operation"):
        case None:
            return "operation"
        case "add" if not operation.add.pod.metadata.uid:
            return "add.pod"
        case "commit_pop" if not operation.commit_pop.pop.uid:
            return "commit_pop.pop"
        case "move" if not LABEL.fullmatch(operation.move.event.label):
            return "move.event.label"
    return ""


class SmallQueueService(SmallSessions, queue_service_pb2_grpc.QueueServiceServicer):
    """Serves every RPC; `broken` is the rule that it breaks."""

    service = "queue"
    create_type, apply_type = pb.CreateSessionRequest, pb.ApplyRequest

    def __init__(self, broken: Breach | None = None) -> None:
        super().__init__()
        self._broken = broken

    def new_core(self, request: pb.CreateSessionRequest) -> SmallQueue:
        """Return the queue of a new session."""
        return SmallQueue(request.config, self._broken)

    def opened(self, name: str, core: Any) -> pb.Session:
        """Return a session that serves every feature."""
        del core
        return pb.Session(
            session_id=name,
            version=VERSION,
            resumable=True,
            foreseeable_heads=True,
            passes_through=True,
        )

    def WatchPending(  # noqa: N802
        self, request: pb.WatchPendingRequest, context: Any
    ) -> Iterator[pb.WatchPendingResponse]:
        """Return one view."""
        del context
        queue = self.session(request.stamp).core
        assert isinstance(queue, SmallQueue)
        yield queue.view()
