"""The small cluster of the scheduler's checks, and the check of every response."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from replay.conform.contract.checks import CheckError, ContractClient, only
from replay.results.run.decision_log import one_by_one
from replay.world.response_checks import check_outcomes, check_window_continues
from reprieve.kube.v1beta1 import meta_pb2, node_pb2, object_pb2, pod_pb2, policy_pb2
from reprieve.scheduler.v1beta1 import scheduler_pb2
from reprieve.scheduler.v1beta1 import scheduler_service_pb2 as pb
from reprieve.scheduler.v1beta1.scheduler_pb2 import Event, Outcome
from services.kube.time import SECOND_NS
from services.kube.workloads import PodDisruptionBudget
from services.rpc.kube.codec import budget_from_message

TICKS_MAX = 50
"""The number of ticks within which a pod must be tried again."""
OUTCOMES_PER_POD_MAX = 10
"""More outcomes of a pod than any moment of these checks can have."""
ANSWER_BYTES_MAX = 2 * 1024 * 1024
NO_AMOUNTS: Mapping[str, str] = {}
BIND = scheduler_pb2.REFUSAL_STAGE_BIND
DELETE_VICTIM = scheduler_pb2.REFUSAL_STAGE_DELETE_VICTIM


def node(
    name: str,
    cpu: int | str = 8,
    *taints: str,
    amounts: Mapping[str, str] = NO_AMOUNTS,
    unschedulable: bool = False,
    **labels: str,
) -> Event:
    """Return the event that adds a node with so many cores, and with other `amounts` beside them.

    `taints` are written as kubectl does: "KEY=VALUE:EFFECT" or "KEY:EFFECT".
    """
    made = node_pb2.Node(metadata=meta_pb2.ObjectMeta(name=name, uid=f"uid-{name}", labels=labels))
    made.metadata.labels["kubernetes.io/hostname"] = name
    made.spec.unschedulable = unschedulable
    for held in (made.status.capacity, made.status.allocatable):
        held.update({"cpu": str(cpu), "memory": "64Gi", "pods": "110", **amounts})
    for taint in taints:
        pair, _, effect = taint.rpartition(":")
        key, _, value = pair.partition("=")
        made.spec.taints.add(key=key, value=value, effect=effect)
    return Event(add=object_pb2.KubernetesObject(node=made))


def pod(
    name: str, cpu: int | str = 1, priority: int | None = 0, on: str = "", **spec: Any
) -> Event:
    """Return the event that adds a pod, pending or `on` a node, with one container unless named."""
    spec.setdefault("containers", [container(cpu)])
    spec.setdefault("scheduler_name", "default-scheduler")
    made = pod_pb2.Pod(spec=pod_pb2.PodSpec(priority=priority, node_name=on, **spec))
    made.metadata.name, made.metadata.namespace, made.metadata.uid = name, "default", f"uid-{name}"
    made.status.phase = "Running" if on else "Pending"
    return Event(add=object_pb2.KubernetesObject(pod=made))


def container(cpu: int | str = 1, *, restart_policy: str | None = None) -> pod_pb2.Container:
    """Return a container with a request; `restart_policy` "Always" makes it a sidecar."""
    made = pod_pb2.Container(name="c", image="image", restart_policy=restart_policy)
    made.resources.requests.update({"cpu": str(cpu), "memory": "1Gi"})
    return made


def updated(event: Event) -> Event:
    """Return the event that updates an object to what `event` adds."""
    return Event(update=event.add)


def patched(name: str, **fields: Any) -> Event:
    """Return the event that patches a pod."""
    return Event(patch=scheduler_pb2.PodPatch(pod=gone(name).remove, **fields))


def pending() -> pod_pb2.PodStatus:
    """Return the status of a pod that no node fits."""
    status = pod_pb2.PodStatus(phase="Pending")
    status.conditions.add(type="PodScheduled", status="False", reason="Unschedulable")
    return status


def ended(phase: str = "Succeeded") -> pod_pb2.PodStatus:
    """Return the status of a pod that has ended."""
    return pod_pb2.PodStatus(phase=phase)


def budget(name: str, allowed: int) -> Event:
    """Return the event that adds a budget of the pods with the label app=`name`."""
    made = policy_pb2.PodDisruptionBudget()
    made.metadata.name, made.metadata.namespace, made.metadata.uid = name, "default", f"uid-{name}"
    made.spec.selector.match_labels["app"] = name
    made.status.disruptions_allowed = allowed
    return Event(add=object_pb2.KubernetesObject(pod_disruption_budget=made))


def terminating(name: str, second: float) -> Event:
    """Return the event by which a victim's deletion is requested, with a grace period of 30 s."""
    status = pod_pb2.PodStatus(phase="Running")
    status.conditions.add(type="DisruptionTarget", status="True", reason="PreemptionByScheduler")
    return patched(name, status=status, deletion_time_ns=round((second + 30) * SECOND_NS))


def tick() -> Event:
    """Return the event of a timer."""
    event = Event()
    event.tick.SetInParent()
    return event


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
    of the bound pods. `awaits_effects` is that of the last response.
    """

    def __init__(self, client: ContractClient) -> None:
        self.session = client.session()
        self.refuses: set[str] = set()
        self.host: dict[str, str] = {}
        self.awaits_effects = False
        self._pods = 0
        self._now_ns = 0
        self._nominated: dict[str, str] = {}
        self._unanswered: list[Outcome] = []
        self._wakeup_ns: int | None = None
        self._last_events = "no event"

    def round(self, second: float, *events: Event, **more: Any) -> list[Outcome]:
        """Run a round after the ticks that are due by then, and return the outcomes of all."""
        decided: list[Outcome] = []
        for _ in range(TICKS_MAX):
            if self._wakeup_ns is None or self._wakeup_ns > second * SECOND_NS:
                break
            decided += self._run(self._wakeup_ns / SECOND_NS, tick())
        return decided + self._run(second, *events, **more)

    def _run(self, second: float, *events: Event, **more: Any) -> list[Outcome]:
        """Run a round, in parts if the scheduler does not decide all pods, and return its outcomes.

        It ends when the remaining pods wait for effects of the outcomes.
        """
        self._now_ns = round_at(second).time_ns
        for event in events:
            if event.add.HasField("pod"):
                self._pods += 1
                name, status = event.add.pod.metadata.name, event.add.pod.status
                if status.nominated_node_name:
                    self._nominated[name] = status.nominated_node_name
        if any(not event.HasField("tick") for event in events):
            self._last_events = ", ".join(map(_named, events))
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
            if len(decided) > OUTCOMES_PER_POD_MAX * self._pods:
                raise CheckError(f"more is set after {len(decided)} outcomes of {self._pods} pods")
            round_ = round_at(second, **more)
        self.awaits_effects = outcomes.awaits_effects
        wakes = outcomes.HasField("next_wakeup_time_ns")
        self._wakeup_ns = outcomes.next_wakeup_time_ns if wakes else None
        return decided

    def tried(self, name: str, decided: Iterable[Outcome] = ()) -> Outcome:
        """Return a pod's outcome: of the last round in `decided`, or of later ticks."""
        for _ in range(TICKS_MAX):
            for outcome in decided:
                if outcome.pop.uid == f"uid-{name}" and outcome.time_ns >= self._now_ns:
                    return outcome
            if self._wakeup_ns is None:
                break
            decided = self._run(self._wakeup_ns / SECOND_NS, tick())
        raise CheckError(
            f"outcomes and next_wakeup_time_ns: pod {name} is not tried, expected a try after "
            f"{self._last_events}"
        )

    def _carry_out(self) -> tuple[list[scheduler_pb2.Answer], list[Event]]:
        """Return the answers to the outcomes, and what a watch reports of them."""
        answers, patches = [], []
        for outcome in self._unanswered:
            answer = scheduler_pb2.Answer(pop=outcome.pop)
            name = outcome.pop.uid.removeprefix("uid-")
            if outcome.HasField("bind") and name in self.refuses:
                self.refuses.discard(name)
                answer.refused, answer.message = BIND, "refused by the check"
            elif outcome.HasField("bind"):
                self.host[name] = outcome.bind.node_name
                patches.append(patched(name, node_name=self.host[name]))
            else:
                verdict = outcome.unschedulable
                if verdict.HasField("preemption") and name in self.refuses:
                    self.refuses.discard(name)
                    answer.refused, answer.message = DELETE_VICTIM, "refused by the check"
                    answer.victim.CopyFrom(verdict.preemption.victims[0].pod)
                patches.append(patched(name, status=self._status(name, verdict)))
            answers.append(answer)
        self._unanswered = []
        return answers, patches

    def _status(self, name: str, verdict: scheduler_pb2.Unschedulable) -> pod_pb2.PodStatus:
        """Return the status of a pod after a failed attempt."""
        if verdict.WhichOneof("nomination"):
            self._nominated[name] = verdict.nominated_node_name
        status = pending()
        status.nominated_node_name = self._nominated.get(name, "")
        return status


def _named(event: Event) -> str:
    """Return what an event is and of what, for an error."""
    kind = event.WhichOneof("event") or "an event"
    match kind:
        case "add" | "update":
            sent = event.add if kind == "add" else event.update
            of = sent.WhichOneof("object") or ""
            return f"{kind} of {of} {getattr(sent, of).metadata.name}" if of else kind
        case "patch":
            return f"patch of pod {event.patch.pod.name}"
        case "remove":
            return f"remove of {event.remove.kind} {event.remove.name}"
    return kind


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
    answer = _copied(answer)  # the checks fill in what may be absent
    if answer.ByteSize() > ANSWER_BYTES_MAX:
        raise CheckError(f"the answer has {answer.ByteSize()} bytes, expected at most 2 MiB")
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
        _check_names(outcomes, sent_objects)
        check_window_continues(outcomes, is_followed=is_followed)


def _copied(answer: Any) -> Any:
    return type(answer).FromString(answer.SerializeToString())


def _check_names(outcomes: scheduler_pb2.RoundOutcomes, sent: _SentObjects) -> None:
    """Check that decisions are about pods and nodes that there are; a replay refuses others."""
    for place, outcome in enumerate(outcomes.outcomes):
        preemption = outcome.unschedulable.preemption
        pods = {
            "pop.uid": outcome.pop.uid,
            **{f"refusals.uids[{i}]": uid for i, uid in enumerate(outcome.refusals.uids)},
            **{
                f"unschedulable.preemption.victims[{i}].pod.uid": victim.pod.uid
                for i, victim in enumerate(preemption.victims)
            },
        }
        nodes = {
            "bind.node_name": outcome.bind.node_name,
            "unschedulable.preemption.node_name": preemption.node_name,
        }
        for path, uid in pods.items():
            if uid and not sent.has_pod(uid):
                raise CheckError(f"outcomes[{place}].{path}: {uid!r}: no pod has this uid")
        for path, name in nodes.items():
            if name and not sent.has_node(name):
                raise CheckError(f"outcomes[{place}].{path}: {name!r}: no node has this name")
