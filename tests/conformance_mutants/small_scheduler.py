"""A scheduler that keeps every rule of the contract, or all but one.

Each pod goes to the first node that fits it. Pending pods stand in one dictionary; a pod that was
tried waits for an event that helps, and then for the end of its backoff.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from reprieve.kube.v1beta1 import meta_pb2, node_pb2, object_pb2, pod_pb2, policy_pb2
from reprieve.queue.v1beta1 import queue_pb2
from reprieve.scheduler.v1beta1 import scheduler_pb2
from reprieve.session.v1beta1 import session_pb2
from tests.conformance_mutants.scheduler_fit import Fit, PodOnNode, Refusal
from tests.conformance_mutants.scheduler_rules import Breach, Difference, Freedom

SECOND_NS = 10**9
BACKOFF_MAX_NS = 10 * SECOND_NS
ANSWER_BYTES_MAX = 1024 * 1024
ENDED = ("Succeeded", "Failed")
_M = TypeVar("_M", node_pb2.Node, pod_pb2.Pod, policy_pb2.PodDisruptionBudget)


@dataclass(slots=True)
class Pending:
    """A pod that waits: since when, and whether an event has helped since its last attempt."""

    first_ns: int
    queued_ns: int
    not_before_ns: int = 0
    attempts: int = 0
    is_ready: bool = True


@dataclass(slots=True)
class Assumed:
    """A pod whose binding was returned and is not confirmed, with what it was before."""

    node_name: str
    cycle: int
    pending: Pending


class SmallScheduler:
    """One session's cluster and pending pods; `difference` is what it does in another way."""

    def __init__(self, difference: Difference | None = None) -> None:
        self._freedom = difference
        self._fit = Fit(difference)
        self.breaks = self._fit.breaks
        self.nodes: dict[str, node_pb2.Node] = {}
        self.pods: dict[str, pod_pb2.Pod] = {}
        self.budgets: dict[str, policy_pb2.PodDisruptionBudget] = {}
        self.pending: dict[str, Pending] = {}
        self.assumed: dict[str, Assumed] = {}
        self.nominated: dict[str, str] = {}
        self._unconfirmed: dict[str, str] = {}
        self._ghosts: list[PodOnNode] = []
        self._cycle = 0

    # Rounds

    def run(
        self, round_: scheduler_pb2.Round, confirmations: Iterable[scheduler_pb2.Event] = ()
    ) -> scheduler_pb2.RoundOutcomes:
        """Apply a round and return its outcomes."""
        for answer in round_.answers:
            self._answered(answer)
        for event in (*confirmations, *round_.events):
            self._take(event)
        outcomes = scheduler_pb2.RoundOutcomes()
        if not round_.events_only or self.breaks(Breach.TRIES_AT_EVENTS_ONLY):
            self._try_pods(round_, outcomes)
        self._ask_for_tick(round_, outcomes)
        return outcomes

    def _try_pods(self, round_: scheduler_pb2.Round, outcomes: scheduler_pb2.RoundOutcomes) -> None:
        size, pods_max = 0, round_.max_pods or len(self.pods)
        if self.breaks(Breach.IGNORES_MAX_PODS):
            pods_max = len(self.pods)
        if self._freedom is Freedom.ANSWERS_ONE_BY_ONE:
            pods_max = 1
        while due := self._due(round_.time_ns):
            is_large = size > ANSWER_BYTES_MAX and not self.breaks(Breach.ANSWERS_WHOLE)
            if len(outcomes.outcomes) == pods_max or is_large:
                outcomes.more = not self.breaks(Breach.LEAVES_MORE_OUT, Breach.LOSES_THE_REST)
                if self.breaks(Breach.LOSES_THE_REST):
                    self.pending.clear()
                return
            outcome = self._attempt(min(due, key=self._order), round_.time_ns)
            outcomes.outcomes.append(outcome)
            size += outcome.ByteSize()
            victims = outcome.unschedulable.preemption.victims
            if any(self._budget_of(self.pods[victim.pod.uid]) for victim in victims):
                if self.breaks(Breach.GOES_ON_AFTER_BUDGETS):
                    continue
                if self._due(round_.time_ns) and not self.breaks(Breach.ENDS_WITHOUT_MORE):
                    outcomes.more = outcomes.awaits_effects = True
                return

    def _due(self, now_ns: int) -> list[str]:
        return [
            uid
            for uid, pending in self.pending.items()
            if pending.is_ready and pending.not_before_ns <= now_ns
        ]

    def _order(self, uid: str) -> tuple[int, int]:
        """Return what sorts pending pods: by priority, then by age."""
        pod, age = self.pods.get(uid, pod_pb2.Pod()), self.pending[uid].queued_ns
        priority = pod.spec.priority
        if not pod.spec.HasField("priority") and self.breaks(Breach.ABSENT_PRIORITY_IS_LAST):
            priority = -(2**31)
        if self.breaks(Breach.IGNORES_PRIORITY):
            priority = 0
        return -priority, -age if self.breaks(Breach.IGNORES_AGE) else age

    def _ask_for_tick(
        self, round_: scheduler_pb2.Round, outcomes: scheduler_pb2.RoundOutcomes
    ) -> None:
        ends = [it.not_before_ns for it in self.pending.values() if it.is_ready]
        later = [end_ns for end_ns in ends if end_ns > round_.time_ns]
        if later and not self.breaks(Breach.ASKS_FOR_NO_TICK):
            outcomes.next_wakeup_time_ns = min(later)
            if self.breaks(Breach.ASKS_TOO_EARLY):
                outcomes.next_wakeup_time_ns = round_.time_ns

    # Attempts

    def _attempt(self, uid: str, now_ns: int) -> scheduler_pb2.Outcome:
        pending = self.pending[uid]
        pending.attempts += 1
        self._cycle += 1
        outcome = scheduler_pb2.Outcome(time_ns=now_ns, attempts=pending.attempts)
        if self.breaks(Breach.COUNTS_ONE_ATTEMPT):
            outcome.attempts = 1
        outcome.pop.uid = uid
        outcome.pop.cycle = 1 if self.breaks(Breach.COUNTS_ONE_CYCLE) else self._cycle
        outcome.queued_time_ns = pending.queued_ns
        again = self.breaks(Breach.COMES_AGAIN)
        outcome.first_enqueued_time_ns = pending.queued_ns if again else pending.first_ns
        backoff_ns = min(SECOND_NS << min(pending.attempts - 1, 10), BACKOFF_MAX_NS)
        if self._freedom is Freedom.HAS_NO_BACKOFF:
            backoff_ns = 0
        if self._freedom is Freedom.LEAVES_OUT_OPTIONAL:
            outcome.ClearField("first_enqueued_time_ns")
            outcome.ClearField("queued_time_ns")
        pending.queued_ns, pending.not_before_ns = now_ns, now_ns + backoff_ns
        pending.is_ready = False
        refusals = self.judge(self.pods[uid])
        feasible = [name for name, refusal in refusals.items() if refusal is None]
        if feasible:
            self._bind(outcome, feasible)
            return outcome
        outcome.unschedulable.CopyFrom(self._verdict(refusals))
        if preemption := self._preempt(uid, refusals):
            outcome.unschedulable.preemption.CopyFrom(preemption)
            if not self.breaks(Breach.NOMINATES_NO_NODE):
                outcome.unschedulable.nominated_node_name = preemption.node_name
            self.nominated[uid] = preemption.node_name
        return outcome

    def _bind(self, outcome: scheduler_pb2.Outcome, feasible: Sequence[str]) -> None:
        uid, bind = outcome.pop.uid, outcome.bind
        if self._freedom is Freedom.TAKES_THE_LAST_NODE:
            feasible = feasible[::-1]
        bind.node_name = feasible[0]
        bind.evaluated_nodes, bind.feasible_nodes = len(self.nodes), len(feasible)
        if self.breaks(Breach.COUNTS_TOO_MANY_NODES):
            bind.feasible_nodes = len(self.nodes) + 1
        if self._freedom is Freedom.LEAVES_OUT_OPTIONAL:
            bind.ClearField("evaluated_nodes")
            bind.ClearField("feasible_nodes")
        self.assumed[uid] = Assumed(feasible[0], outcome.pop.cycle, self.pending.pop(uid))
        self._unconfirmed[uid] = feasible[0]

    def judge(self, pod: pod_pb2.Pod) -> dict[str, Refusal | None]:
        """Return why each node refuses a pod, None where it fits."""
        wrapped = self._wrapped(pod)
        return {
            name: self._fit.refusal(
                wrapped, node, [*self._pods_on(name), *self._reserved(name, pod)]
            )
            for name, node in self.nodes.items()
        }

    def _wrapped(self, pod: pod_pb2.Pod) -> PodOnNode:
        return PodOnNode(pod, self._fit.requests(pod))

    def _node_of(self, uid: str) -> str:
        if node_name := self.pods[uid].spec.node_name:
            return node_name
        assumed = self.assumed.get(uid)
        late = self.breaks(Breach.BINDS_LATE)
        return assumed.node_name if assumed is not None and not late else ""

    def _pods_on(self, node_name: str) -> list[PodOnNode]:
        pods = [
            self._wrapped(pod)
            for uid, pod in self.pods.items()
            if self._node_of(uid) == node_name and self._holds_room(pod)
        ]
        return pods + [twice for twice in self._ghosts if twice.pod.spec.node_name == node_name]

    def _holds_room(self, pod: pod_pb2.Pod) -> bool:
        if pod.status.phase in ENDED:
            return self.breaks(Breach.COUNTS_ENDED)
        if self.breaks(Breach.FREES_TERMINATING) and _is_deleted(pod):
            return False
        is_foreign = pod.metadata.uid not in self._unconfirmed
        return not (self.breaks(Breach.FORGETS_BOUND_PODS) and is_foreign)

    def _reserved(self, node_name: str, pod: pod_pb2.Pod) -> list[PodOnNode]:
        """Return the pods that are nominated for a node, and of which another one keeps clear."""
        if self.breaks(Breach.RESERVES_NOTHING):
            return []
        listed = [
            self.pods.get(uid, pod_pb2.Pod())
            for uid, nominated in self.nominated.items()
            if nominated == node_name and uid != pod.metadata.uid
        ]
        least = pod.spec.priority
        if self.breaks(Breach.RESERVES_FROM_LOWER):
            least += 1
        if self.breaks(Breach.RESERVES_FROM_ALL):
            least = -(2**31)
        return [self._wrapped(other) for other in listed if other.spec.priority >= least]

    def _verdict(self, refusals: dict[str, Refusal | None]) -> scheduler_pb2.Unschedulable:
        verdict = scheduler_pb2.Unschedulable()
        refused = [refusal for refusal in refusals.values() if refusal is not None]
        counts = Counter(reason for refusal in refused for reason in refusal.reasons)
        for reason, nodes in counts.most_common():
            verdict.reasons.add(reason=reason, nodes=nodes)
        if self.breaks(Breach.COUNTS_NO_NODES):
            counts = Counter(dict.fromkeys(counts, 1))
        listed = ", ".join(sorted(f"{nodes} {reason}" for reason, nodes in counts.items()))
        verdict.message = f"0/{len(refusals)} nodes are available: {listed}."
        if not refusals and not self.breaks(Breach.NO_NODES_HAS_NO_TEXT):
            verdict.message = "no nodes available to schedule pods"
        if self.breaks(Breach.SAYS_NO_MORE):
            verdict.message = "it does not fit"
        plugins = sorted({refusal.plugin for refusal in refused})
        if self.breaks(Breach.NAMES_ONE_PLUGIN):
            plugins = ["NodeResourcesFit"]
        if not self.breaks(Breach.NAMES_NO_PLUGINS):
            verdict.unschedulable_plugins.extend(plugins)
        return verdict

    # Preemption

    def _preempt(
        self, uid: str, refusals: dict[str, Refusal | None]
    ) -> scheduler_pb2.Preemption | None:
        pod = self.pods[uid]
        if pod.spec.preemption_policy == "Never" and not self.breaks(Breach.IGNORES_POLICY):
            return None
        if self._victims_terminate(uid) and not self.breaks(Breach.PREEMPTS_AGAIN):
            return None
        candidates = [
            preemption
            for name, refusal in refusals.items()
            if refusal is not None and (refusal.helps or self.breaks(Breach.PREEMPTS_ON_ANY_NODE))
            if (preemption := self._dry_run(pod, name)) is not None
        ]
        if not candidates:
            return None
        if self._freedom is Freedom.TAKES_THE_LAST_NODE:
            candidates.reverse()
        best = min(candidates, key=lambda it: (it.budget_violations, len(it.victims)))
        if self.breaks(Breach.PREEMPTS_ELSEWHERE) and len(candidates) > 1:
            best.node_name = next(it.node_name for it in candidates if it is not best)
        return best

    def _victims_terminate(self, uid: str) -> bool:
        node_name = self.nominated.get(uid)
        return any(
            _is_deleted(other.pod) and other.pod.spec.priority < self.pods[uid].spec.priority
            for other in (self._pods_on(node_name) if node_name else ())
        )

    def _dry_run(self, pod: pod_pb2.Pod, node_name: str) -> scheduler_pb2.Preemption | None:
        """Return the preemption that makes room on a node; None: no node can have room."""
        least = pod.spec.priority + self.breaks(Breach.PREEMPTS_EQUALS)
        if self.breaks(Breach.PREEMPTS_ALL):
            least = 2**31
        there = self._pods_on(node_name)
        lower = [other for other in there if other.pod.spec.priority < least]
        kept = [other for other in there if other.pod.spec.priority >= least]
        kept += self._reserved(node_name, pod)
        in_vain = self.breaks(Breach.PREEMPTS_IN_VAIN, Breach.PREEMPTS_ON_ANY_NODE)
        if not lower or not (in_vain or self._fits(pod, node_name, kept)):
            return None
        violating = self._violating([other.pod for other in lower])
        # The most important pods are spared first, those of exhausted budgets before all others.
        lower.sort(key=lambda it: (it.pod.metadata.uid not in violating, -it.pod.spec.priority))
        spares, victims = not self.breaks(Breach.REPRIEVES_NO_POD), []
        for other in lower:
            if spares and self._fits(pod, node_name, [*kept, other]):
                kept.append(other)
            else:
                victims.append(other.pod)
        if not victims:
            return None
        made = scheduler_pb2.Preemption(node_name=node_name)
        for victim in victims:
            violates = victim.metadata.uid in violating
            made.budget_violations += violates
            made.victims.add(
                pod=_reference(victim), priority=victim.spec.priority, violates_budget=violates
            )
        return made

    def _fits(self, pod: pod_pb2.Pod, node_name: str, others: Sequence[PodOnNode]) -> bool:
        refusal = self._fit.refusal(self._wrapped(pod), self.nodes[node_name], others)
        return refusal is None

    def _violating(self, pods: Iterable[pod_pb2.Pod]) -> set[str]:
        """Return the UIDs of pods whose deletion is more than their budget allows."""
        allowed = {key: it.status.disruptions_allowed for key, it in self.budgets.items()}
        violating: set[str] = set()
        for pod in sorted(pods, key=lambda it: -it.spec.priority):
            key = self._budget_of(pod)
            if not key:
                continue
            allowed[key] -= 1
            if allowed[key] < 0 or self.breaks(Breach.MARKS_ALL):
                violating.add(pod.metadata.uid)
        return set() if self.breaks(Breach.MARKS_NO_VIOLATION) else violating

    def _budget_of(self, pod: pod_pb2.Pod) -> str:
        """Return the key of a budget that guards a pod, "" if none or a terminating pod."""
        if _is_deleted(pod):
            return ""
        for key, budget in self.budgets.items():
            labels = dict(budget.spec.selector.match_labels)
            has_labels = labels.items() <= dict(pod.metadata.labels).items()
            if self.breaks(Breach.MARKS_ALL_PODS) or (labels and has_labels):
                return key
        return ""

    # What the world reports

    def _answered(self, answer: scheduler_pb2.Answer) -> None:
        uid = answer.pop.uid
        if not answer.HasField("refused"):
            return
        if answer.refused == scheduler_pb2.REFUSAL_STAGE_BIND:
            assumed = self.assumed.get(uid)
            if assumed is None or self.breaks(Breach.LOSES_REFUSED):
                return
            if self.breaks(Breach.KEEPS_REFUSED_ROOM):
                ghost = _copy(self.pods[uid])
                ghost.spec.node_name = assumed.node_name
                self._ghosts.append(self._wrapped(ghost))
            del self.assumed[uid]
            self._help()
            if self._is_pending(self.pods[uid]):
                self.pending[uid] = assumed.pending
                assumed.pending.is_ready = True
        elif uid in self.pending:
            self.nominated.pop(uid, None)
            self.pending[uid].is_ready = True
            if self.breaks(Breach.LOSES_AFTER_REFUSAL):
                self.pods[uid].spec.scheduler_name = "lost"
                del self.pending[uid]

    def _take(self, event: scheduler_pb2.Event) -> None:
        match event.WhichOneof("event"):
            case "add":
                self._put(event.add, event.time_ns, is_update=False)
            case "update":
                self._put(event.update, event.time_ns, is_update=True)
            case "patch" if event.patch.pod.uid in self.pods:
                self._patch(event.patch, event.time_ns)
            case "remove":
                self._remove(event.remove)
            case "tick":
                if self.breaks(Breach.FAILS_AT_TICKS) and not self.pending:
                    raise RuntimeError("nobody asked for a tick")

    def _put(self, thing: object_pb2.KubernetesObject, now_ns: int, *, is_update: bool) -> None:
        match thing.WhichOneof("object"):
            case "node":
                self._put_node(thing.node, is_update=is_update)
            case "pod":
                self._put_pod(_copy(thing.pod), now_ns, is_update=is_update)
            case "pod_disruption_budget":
                budget = thing.pod_disruption_budget
                self.budgets[f"{budget.metadata.namespace}/{budget.metadata.name}"] = _copy(budget)
            case kind if self.breaks(Breach.FAILS_AT_OTHER_KINDS):
                raise RuntimeError(f"{kind} is not read")

    def _put_node(self, node: node_pb2.Node, *, is_update: bool) -> None:
        name = node.metadata.name
        is_known = name in self.nodes
        if is_update and self.breaks(Breach.KEEPS_OLD_NODES):
            return
        if is_known and not is_update and self.breaks(Breach.KEEPS_ADDED_NODES):
            return
        if not is_known and self.breaks(Breach.FORGETS_EARLY_PODS):
            for pod in self.pods.values():
                if pod.spec.node_name == name:
                    pod.spec.node_name = "forgotten"
        self.nodes[name] = _copy(node)
        ignored = Breach.IGNORES_NODE_UPDATES if is_known else Breach.IGNORES_NEW_NODES
        if not self.breaks(ignored):
            self._help()

    def _put_pod(self, pod: pod_pb2.Pod, now_ns: int, *, is_update: bool) -> None:
        uid = pod.metadata.uid
        old = self.pods.get(uid)
        held_room = old is not None and bool(self._node_of(uid)) and self._holds_room(old)
        if is_update and self.breaks(Breach.KEEPS_GATED) and old and old.spec.scheduling_gates:
            pod.spec.scheduling_gates.extend(old.spec.scheduling_gates)
        self.pods[uid] = pod
        if pod.spec.node_name:
            self.assumed.pop(uid, None)
            self.nominated.pop(uid, None)
        if pod.status.nominated_node_name and not self.breaks(Breach.IGNORES_NOMINATED_STATUS):
            self.nominated[uid] = pod.status.nominated_node_name
        if not self._is_pending(pod) or uid in self.assumed:
            self._drop(uid)
        elif uid not in self.pending:
            self.pending[uid] = Pending(now_ns, now_ns)
        elif is_update and not self.breaks(Breach.IGNORES_POD_UPDATES):
            self.pending[uid].is_ready = True
        if held_room and not self._holds_room(pod) and not self.breaks(Breach.IGNORES_ENDS):
            self._help()

    def _drop(self, uid: str) -> None:
        """Take a pod from those that wait."""
        self.pending.pop(uid, None)
        if uid in self.nominated and not self._is_pending(self.pods[uid]):
            del self.nominated[uid]

    def _is_pending(self, pod: pod_pb2.Pod) -> bool:
        """Return whether a pod is to be tried, once it has no node."""
        spec = pod.spec
        if spec.node_name and not self.breaks(Breach.TRIES_BOUND_PODS):
            return False
        if pod.status.phase in ENDED and not self.breaks(Breach.TRIES_ENDED):
            return False
        if _is_deleted(pod) and not self.breaks(Breach.TRIES_DELETED):
            return False
        if spec.scheduling_gates and not self.breaks(Breach.IGNORES_GATES):
            return len(spec.scheduling_gates) == 1 and self.breaks(Breach.OPENS_ONE_GATE)
        names = {"default-scheduler", ""}
        if self.breaks(Breach.WANTS_A_NAME):
            names.discard("")
        return spec.scheduler_name in names or self.breaks(Breach.TRIES_OTHERS)

    def _patch(self, patch: scheduler_pb2.PodPatch, now_ns: int) -> None:
        uid = patch.pod.uid
        pod = _copy(self.pods[uid])
        if patch.WhichOneof("binding"):
            self._bound(pod, patch.node_name)
        if patch.HasField("status"):
            if patch.status.phase in ENDED and self.breaks(Breach.COUNTS_ENDED_BY_PATCH):
                return
            pod.status.CopyFrom(patch.status)
            if self.breaks(Breach.STATUS_TAKES_NODE):
                pod.spec.node_name = ""
                self.assumed.pop(uid, None)
            if self.breaks(Breach.STATUS_TAKES_DELETION):
                pod.metadata.ClearField("deletion_timestamp")
        if patch.HasField("deletion_time_ns") and not self.breaks(Breach.TRIES_DELETED_BY_PATCH):
            pod.metadata.deletion_timestamp.FromNanoseconds(patch.deletion_time_ns)
        self._put_pod(pod, now_ns, is_update=False)
        if uid in self.pending and self.breaks(Breach.TRIES_AT_STATUS):
            self.pending[uid].is_ready = True

    def _bound(self, pod: pod_pb2.Pod, node_name: str) -> None:
        """Take a binding, or the confirmation of one, which has no name."""
        uid = pod.metadata.uid
        if not node_name and self.breaks(Breach.CONFIRMATIONS_UNBIND):
            self.assumed.pop(uid, None)
            return
        is_ours = uid in self.assumed
        if not is_ours and self.breaks(Breach.IGNORES_OTHERS_BINDINGS):
            pod.metadata.ClearField("deletion_timestamp")
            return
        if not is_ours and self.breaks(Breach.TRIES_BOUND_BY_OTHERS):
            return
        pod.spec.node_name = node_name or self._unconfirmed[uid]
        if is_ours and self.breaks(Breach.COUNTS_CONFIRMED_TWICE):
            self._ghosts.append(self._wrapped(_copy(pod)))

    def _remove(self, reference: meta_pb2.ObjectReference) -> None:
        uid = reference.uid
        if reference.kind == "Node":
            if not self.breaks(Breach.KEEPS_REMOVED_NODES):
                self.nodes.pop(reference.name, None)
        elif reference.kind == "PodDisruptionBudget":
            self.budgets.pop(f"{reference.namespace}/{reference.name}", None)
        elif uid not in self.pods:
            if self.breaks(Breach.REFUSES_UNKNOWN):
                raise RuntimeError("no such pod")
        elif self._node_of(uid) or not self.breaks(Breach.TRIES_REMOVED):
            if not self.breaks(Breach.KEEPS_NOMINATIONS):
                self.nominated.pop(uid, None)
            self.pending.pop(uid, None)
            self.assumed.pop(uid, None)
            if self.breaks(Breach.KEEPS_NOMINATIONS) and uid in self.nominated:
                self.pods[uid].spec.scheduler_name = "gone"
            else:
                del self.pods[uid]
            if not self.breaks(Breach.IGNORES_REMOVALS):
                self._help()

    def _help(self) -> None:
        """Let all pods that wait be tried again, after their backoff."""
        if not self.breaks(Breach.NEVER_TRIES_AGAIN):
            for pending in self.pending.values():
                pending.is_ready = True

    # Reads

    def evaluate(self, pod: pod_pb2.Pod) -> scheduler_pb2.Evaluation:
        """Return every verdict about a pod."""
        if self.breaks(Breach.EVALUATING_COUNTS) and pod.metadata.uid in self.pending:
            self.pending[pod.metadata.uid].attempts += 1
        refusals = self.judge(pod)
        made = scheduler_pb2.Evaluation()
        for name, refusal in sorted(refusals.items(), key=lambda it: (it[1] is not None, it[0])):
            if refusal is not None and self.breaks(Breach.EVALUATES_FEASIBLE):
                continue
            verdict = made.nodes.add(node_name=name)
            if refusal is not None:
                verdict.refusal.plugin = refusal.plugin
                verdict.refusal.reasons.extend(refusal.reasons)
            else:
                made.feasible_nodes += 1
                if not made.HasField("host"):
                    made.host = name
        if not made.feasible_nodes:
            made.fit_error = self._verdict(refusals).message
        return made

    def state(self) -> scheduler_pb2.SchedulerState:
        """Return the complete state."""
        made = scheduler_pb2.SchedulerState()
        for node in () if self.breaks(Breach.SHOWS_NO_NODES) else self.nodes.values():
            made.objects.add(node=node)
        for pod in self.pods.values():
            made.objects.add(pod=pod)
        for budget in self.budgets.values():
            made.objects.add(pod_disruption_budget=budget)
        for uid, assumed in () if self.breaks(Breach.SHOWS_NO_ASSUMED) else self.assumed.items():
            pop = session_pb2.PopId(uid=uid, cycle=assumed.cycle)
            made.assumed.add(pop=pop, node_name=assumed.node_name)
        made.queue.entries.extend(self._entries())
        return made

    def _entries(self) -> Iterator[queue_pb2.Entry]:
        if self.breaks(Breach.SHOWS_NO_WAITING):
            return
        for uid, pending in self.pending.items():
            yield queue_pb2.Entry(
                pod=_reference(self.pods[uid]),
                attempts=pending.attempts,
                queued_time_ns=pending.queued_ns,
            )


def _copy(message: _M) -> _M:
    copy = type(message)()
    copy.CopyFrom(message)
    return copy


def _is_deleted(pod: pod_pb2.Pod) -> bool:
    return pod.metadata.HasField("deletion_timestamp")


def _reference(pod: pod_pb2.Pod) -> meta_pb2.ObjectReference:
    meta = pod.metadata
    return meta_pb2.ObjectReference(
        kind="Pod", namespace=meta.namespace, name=meta.name, uid=meta.uid
    )
