"""The small cluster of the scheduler's checks, and the check of every response."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from replay.conform.contract.checks import CheckError, ContractClient, only
from replay.results.run.decision_log import one_by_one
from replay.world.answers import check_outcomes, check_window_continues
from reprieve.kube.v1beta1 import meta_pb2, node_pb2, object_pb2, pod_pb2, policy_pb2
from reprieve.scheduler.v1beta1 import scheduler_pb2
from reprieve.scheduler.v1beta1 import scheduler_service_pb2 as pb
from reprieve.scheduler.v1beta1.scheduler_pb2 import Event, Outcome
from services.kube.time import SECOND_NS
from services.kube.workloads import PodDisruptionBudget
from services.rpc.kube.codec import budget_from_message

TICKS_MAX = 50
"""The number of ticks within which a pod must be tried again."""
OUTCOMES_MAX = 100
"""More outcomes than any round of these checks can have."""
BIND = scheduler_pb2.REFUSAL_STAGE_BIND
DELETE_VICTIM = scheduler_pb2.REFUSAL_STAGE_DELETE_VICTIM


def node(name: str, cpu: int, taint: str = "", **labels: str) -> Event:
    """Return the event that adds a node with so many cores."""
    made = node_pb2.Node(metadata=meta_pb2.ObjectMeta(name=name, uid=f"uid-{name}", labels=labels))
    made.metadata.labels["kubernetes.io/hostname"] = name
    for held in (made.status.capacity, made.status.allocatable):
        held.update({"cpu": str(cpu), "memory": "64Gi", "pods": "110"})
    if taint:
        made.spec.taints.add(key=taint, effect="NoSchedule")
    return Event(add=object_pb2.KubernetesObject(node=made))


def pod(name: str, cpu: int, priority: int = 0, on: str = "", **spec: Any) -> Event:
    """Return the event that adds a pod, pending or `on` a node."""
    meta = meta_pb2.ObjectMeta(name=name, namespace="default", uid=f"uid-{name}")
    made = pod_pb2.Pod(metadata=meta, spec=pod_pb2.PodSpec(priority=priority, node_name=on, **spec))
    made.spec.scheduler_name = "default-scheduler"
    container = made.spec.containers.add(name="c", image="image")
    container.resources.requests.update({"cpu": str(cpu), "memory": "1Gi"})
    return Event(add=object_pb2.KubernetesObject(pod=made))


def budget(name: str, allowed: int) -> Event:
    """Return the event that adds a budget of the pods with the label app=`name`."""
    made = policy_pb2.PodDisruptionBudget()
    made.metadata.name, made.metadata.namespace, made.metadata.uid = name, "default", f"uid-{name}"
    made.spec.selector.match_labels["app"] = name
    made.status.disruptions_allowed = allowed
    return Event(add=object_pb2.KubernetesObject(pod_disruption_budget=made))


def terminating(name: str, second: float) -> Event:
    """Return the event by which a pod's deletion is requested, with a grace period of 30 s."""
    deletion_ns = round((second + 30) * SECOND_NS)
    return Event(patch=scheduler_pb2.PodPatch(pod=gone(name).remove, deletion_time_ns=deletion_ns))


def gone(name: str, kind: str = "Pod") -> Event:
    """Return the event that removes an object."""
    namespace = "default" if kind == "Pod" else ""
    ref = meta_pb2.ObjectReference(kind=kind, namespace=namespace, name=name, uid=f"uid-{name}")
    return Event(remove=ref)


def round_at(second: float, *events: Event, **more: Any) -> scheduler_pb2.Round:
    """Return a round whose events all happen at its time."""
    made = scheduler_pb2.Round(time_ns=round(second * SECOND_NS), events=events, **more)
    for event in made.events:
        event.time_ns = made.time_ns
    return made


class SmallCluster:
    """A session with a cluster that applies its outcomes and reports them in the next round.

    The bindings (or preemptions) of pods in `refuses` are refused, each once. `host` has the nodes
    of the bound pods.
    """

    def __init__(self, client: ContractClient) -> None:
        self.session = client.session()
        self.refuses: set[str] = set()
        self.host: dict[str, str] = {}
        self._unanswered: list[Outcome] = []
        self._wakeup_ns: int | None = None

    def round(self, second: float, *events: Event, **more: Any) -> list[Outcome]:
        """Run a round, in parts if the scheduler does not decide all pods, and return its outcomes.

        It ends when the remaining pods wait for effects of the outcomes.
        """
        answers, patches = self._carry_out()
        round_ = round_at(second, *patches, *events, answers=answers, **more)
        decided: list[Outcome] = []
        outcomes = scheduler_pb2.RoundOutcomes(more=True)
        while outcomes.more and not outcomes.awaits_effects:
            answer = self.session.send(pb.RunRoundRequest(round=round_))
            outcomes = only("rounds", answer.rounds)
            part = list(one_by_one(outcomes))
            if round_.HasField("max_pods") and len(part) > round_.max_pods:
                most = round_.max_pods
                raise CheckError(f"outcomes are of {len(part)} pods, expected at most {most}")
            decided += part
            self._unanswered += [it for it in outcomes.outcomes if not it.HasField("refusals")]
            if len(decided) > OUTCOMES_MAX:
                raise CheckError(f"more is set after {OUTCOMES_MAX} outcomes of a few pods")
            round_ = round_at(second, **more)
        wakes = outcomes.HasField("next_wakeup_time_ns")
        self._wakeup_ns = outcomes.next_wakeup_time_ns if wakes else None
        return decided

    def tried(self, name: str, decided: Iterable[Outcome] = ()) -> Outcome:
        """Return a pod's outcome: from `decided`, or after ticks at the requested times."""
        for _ in range(TICKS_MAX):
            for outcome in decided:
                if outcome.pop.uid == f"uid-{name}":
                    return outcome
            if self._wakeup_ns is None:
                break
            tick = Event()
            tick.tick.SetInParent()
            decided = self.round(self._wakeup_ns / SECOND_NS, tick)
        raise CheckError(
            f"outcomes and next_wakeup_time_ns: pod {name} is not tried, expected a try"
        )

    def _carry_out(self) -> tuple[list[scheduler_pb2.Answer], list[Event]]:
        answers, patches = [], []
        for outcome in self._unanswered:
            answer = scheduler_pb2.Answer(pop=outcome.pop)
            name = outcome.pop.uid.removeprefix("uid-")
            if outcome.HasField("bind") and name in self.refuses:
                self.refuses.discard(name)
                answer.refused, answer.message = BIND, "refused by the check"
            elif outcome.HasField("bind"):
                self.host[name] = outcome.bind.node_name
                patches.append(Event(patch=scheduler_pb2.PodPatch(node_name=self.host[name])))
                patches[-1].patch.pod.CopyFrom(gone(name).remove)
            elif outcome.unschedulable.HasField("preemption") and name in self.refuses:
                self.refuses.discard(name)
                answer.refused, answer.message = DELETE_VICTIM, "refused by the check"
                answer.victim.CopyFrom(outcome.unschedulable.preemption.victims[0].pod)
            answers.append(answer)
        self._unanswered = []
        return answers, patches


def bound(decided: Iterable[Outcome]) -> dict[str, str]:
    """Return the nodes of the pods that are bound."""
    binds = (outcome for outcome in decided if outcome.HasField("bind"))
    return {bind.pop.uid.removeprefix("uid-"): bind.bind.node_name for bind in binds}


class _SentObjects:
    """The pods and nodes that a scheduler has been sent."""

    def __init__(self, requests: Iterable[pb.RunRoundRequest]) -> None:
        self._found: set[tuple[str, str]] = set()
        self._pods: dict[str, pod_pb2.Pod] = {}
        self._budgets: dict[str, PodDisruptionBudget] = {}
        for request in requests:
            for round_ in (request.round, *(foreseen.round for foreseen in request.window)):
                for event in round_.events:
                    self._take(event)

    def _take(self, event: Event) -> None:
        for thing in (event.add, event.update):
            if thing.HasField("pod"):
                self._found.add(("Pod", thing.pod.metadata.uid))
                self._pods[thing.pod.metadata.uid] = thing.pod
            elif thing.HasField("pod_disruption_budget"):
                budget = budget_from_message(thing.pod_disruption_budget)
                self._budgets[f"{budget.namespace}/{budget.name}"] = budget
            elif thing.HasField("node"):
                self._found.add(("Node", thing.node.metadata.name))
        removed = event.remove
        self._found.discard((removed.kind, removed.uid if removed.kind == "Pod" else removed.name))

    def has_pod(self, uid: str) -> bool:
        """Return whether there is a pod of that UID."""
        return ("Pod", uid) in self._found

    def has_node(self, name: str) -> bool:
        """Return whether there is a node of that name."""
        return ("Node", name) in self._found

    def guarding_budget(self, uid: str) -> str:
        """Return namespace/name of a budget that guards a pod, "" if none."""
        meta = self._pods[uid].metadata if uid in self._pods else meta_pb2.ObjectMeta()
        guarding = (
            key
            for key, budget in self._budgets.items()
            if budget.guards(meta.namespace, meta.labels)
        )
        return next(guarding, "")


def check_answer(request: Any, answer: Any, sent: Sequence[Any]) -> None:
    """Check a scheduler's response by the requests that were sent, including this one."""
    rounds = [request.round, *(foreseen.round for foreseen in request.window)]
    if not 1 <= len(answer.rounds) <= len(rounds):
        seen = len(answer.rounds)
        raise CheckError(
            f"rounds has {seen} entries, expected one for each of {len(rounds)} rounds"
        )
    sent_objects = _SentObjects(sent)
    for index, outcomes in enumerate(answer.rounds):
        is_followed = index + 1 < len(rounds)
        check_outcomes(outcomes, rounds[index].time_ns, sent_objects)
        check_window_continues(outcomes, is_followed=is_followed)
