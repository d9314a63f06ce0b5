"""The checks of a scheduler, in small clusters; of several suitable nodes it may take any."""

from __future__ import annotations

from itertools import pairwise

from replay.conform.contract.checks import (
    CheckError,
    ConformanceLevel,
    ContractClient,
    NotServedError,
    ServiceContract,
    expect,
    expect_refusal,
    expect_same,
    only,
)
from replay.conform.contract.sessions import session_checks
from replay.conform.contract.small_cluster import (
    BIND,
    SmallCluster,
    bound,
    budget,
    check_answer,
    gone,
    node,
    pod,
    round_at,
    terminating,
)
from replay.results.run.decision_log import one_by_one
from reprieve.kube.v1beta1 import pod_pb2
from reprieve.scheduler.v1beta1 import scheduler_pb2, scheduler_service_pb2_grpc
from reprieve.scheduler.v1beta1 import scheduler_service_pb2 as pb
from reprieve.scheduler.v1beta1.scheduler_pb2 import Event, Outcome
from services.kube.time import SECOND_NS

CHECKS = session_checks(stream_level=5)


@CHECKS.level(1)
def places_a_pod_where_it_fits(client: ContractClient) -> None:
    """Check room, taints, cordons and node selectors, with one node that will do."""
    cordoned = node("cordoned", 64)
    cordoned.add.node.spec.unschedulable = True
    gpu = {"key": "gpu", "operator": "Exists"}
    cluster = SmallCluster(client)
    nodes = [node("small", 2), node("tainted", 64, taint="gpu", disk="ssd"), cordoned]
    expect("outcomes", cluster.round(0, *nodes, node("large", 8)), [])
    for name, node_name, event in (
        ("big", "large", pod("big", 7)),
        ("tolerant", "tainted", pod("tolerant", 9, tolerations=[gpu])),
        ("choosy", "small", pod("choosy", 1, node_selector={"kubernetes.io/hostname": "small"})),
        ("wide", None, pod("wide", 2)),
    ):
        expect(f"bind.node_name of {name}", bound(cluster.round(1, event)).get(name), node_name)


@CHECKS.level(1)
def uses_free_resources_once(client: ContractClient) -> None:
    """Check that of two pods with room for one, one waits until the other one has gone."""
    cluster = SmallCluster(client)
    first = bound(cluster.round(0, node("n", 2), pod("a", 2), pod("b", 2)))
    expect("pods bound to a node with room for one", len(first), 1)
    (one,) = first
    other = "b" if one == "a" else "a"
    outcome = cluster.tried(other, cluster.round(5, gone(one)))
    expect(f"bind of {other} once {one} has gone", bound([outcome]), {other: "n"})


@CHECKS.level(1)
def follows_changes_of_pods_and_nodes(client: ContractClient) -> None:
    """Check pods that came bound, a node that changes and one that goes."""
    cluster = SmallCluster(client)
    expect("binds on a full node", bound(cluster.round(0, node("n", 2), pod("old", 2, on="n"))), {})
    expect("binds on a full node", bound(cluster.round(1, pod("a", 2))), {})
    larger = Event(update=node("n", 4).add)
    outcome = cluster.tried("a", cluster.round(20, larger))
    expect("bind of a on a larger node", bound([outcome]), {"a": "n"})
    expect("binds on a node gone", bound(cluster.round(3600, gone("n", "Node"), pod("b", 1))), {})


@CHECKS.level(1)
def forgets_a_deleted_pod(client: ContractClient) -> None:
    """Check that it is not tried again, and that unknown objects may go."""
    cluster = SmallCluster(client)
    cluster.round(0, gone("nobody"), gone("nowhere", "Node"), node("n", 2), pod("a", 4))
    outcome = cluster.tried("b", cluster.round(5, gone("a"), node("m", 8), pod("b", 8)))
    expect("bind of b", bound([outcome]), {"b": "m"})


@CHECKS.level(1)
def waits_for_an_event_that_helps(client: ContractClient) -> None:
    """Check that a pod is not tried again for its own status, in which its failure is written."""
    cluster = SmallCluster(client)
    expect("binds without room", bound(cluster.round(0, node("n", 2), pod("a", 4))), {})
    failed = pod_pb2.PodStatus(phase="Pending")
    failed.conditions.add(type="PodScheduled", status="False", reason="Unschedulable")
    written = Event(patch=scheduler_pb2.PodPatch(pod=gone("a").remove, status=failed))
    expect("outcomes after the pod's own status", len(cluster.round(0, written)), 0)


@CHECKS.level(1)
def tries_a_pod_again_whose_binding_was_refused(client: ContractClient) -> None:
    """Check that it is bound at last, and its room free for others."""
    cluster = SmallCluster(client)
    cluster.refuses.add("a")
    expect("bind of a", bound(cluster.round(0, node("n", 2), pod("a", 2))), {"a": "n"})
    outcome = cluster.tried("a", cluster.round(1, node("m", 2)))
    expect("the pod is bound again", list(bound([outcome])), ["a"])
    outcome = cluster.tried("b", cluster.round(3600, pod("b", 2)))
    expect("the room of a refused binding is free", list(bound([outcome])), ["b"])


@CHECKS.level(1)
def takes_events_in_parts(client: ContractClient) -> None:
    """Check that events only take no pod, and what follows is as if they had come at once."""
    whole, parts = SmallCluster(client), SmallCluster(client)
    events = [*(node(f"n{cpu}", cpu) for cpu in (1, 2, 4)), *(pod(f"p{i}", i) for i in (4, 2))]
    at_once = whole.round(0, *events)
    for event in events[:-1]:
        expect("outcomes of events only", parts.round(0, event, events_only=True), [])
    seen = parts.round(0, events[-1])
    expect("outcomes after events in parts", len(seen), len(at_once))
    for one, other in zip(seen, at_once, strict=True):
        expect_same("an outcome after events in parts", one, other)


@CHECKS.level(1)
def takes_as_many_pods_as_it_may(client: ContractClient) -> None:
    """Check that `more` is set while pods are left, and that none is lost or taken twice."""
    cluster = SmallCluster(client)
    pods = [pod(f"p{number}", 1) for number in range(5)]
    decided = cluster.round(0, node("n", 4), *pods, max_pods=2)
    expect("pods bound in parts of two", len(bound(decided)), 4)
    expect("pods tried in parts of two", len({outcome.pop.uid for outcome in decided}), 5)


@CHECKS.level(2)
def gives_reasons_as_upstream_does(client: ContractClient) -> None:
    """Check that nodes are counted by reasons, and plugins are named."""
    cluster = SmallCluster(client)
    verdict = cluster.tried("a", cluster.round(0, pod("a", 1))).unschedulable
    expect("message", verdict.message, "no nodes available to schedule pods")
    nodes = (node("n", 2), node("m", 2), node("tainted", 64, taint="gpu"))
    verdict = cluster.tried("b", cluster.round(1, *nodes, pod("b", 4))).unschedulable
    start = "0/3 nodes are available: "
    words = ("2 Insufficient cpu", "1 node(s) had untolerated taint")
    if not verdict.message.startswith(start) or not all(word in verdict.message for word in words):
        raise CheckError(f"message is {verdict.message!r}, expected {start!r} with {words}")
    expect("unschedulable_plugins is set", bool(verdict.unschedulable_plugins), wanted=True)
    counts = {reason.reason: reason.nodes for reason in verdict.reasons}
    expect("reasons[Insufficient cpu].nodes", counts.get("Insufficient cpu"), 2)
    expect("nodes of all reasons", sum(counts.values()), 3)


@CHECKS.level(2)
def counts_attempts_and_nodes(client: ContractClient) -> None:
    """Check an attempt that fails and one that binds, with the time at which the pod came."""
    cluster = SmallCluster(client)
    outcome = cluster.tried("a", cluster.round(1, node("n", 2), pod("a", 4)))
    expect("attempts", outcome.attempts, 1)
    again = cluster.tried("a", cluster.round(60, node("m", 8)))
    expect("attempts", again.attempts, 2)
    expect("first_enqueued_time_ns", again.first_enqueued_time_ns, SECOND_NS)
    expect("pop.cycle grows", again.pop.cycle > outcome.pop.cycle, wanted=True)
    nodes = (again.bind.evaluated_nodes, again.bind.feasible_nodes)
    expect("bind.evaluated_nodes and feasible_nodes", nodes, (2, 1))


def _preemption(outcome: Outcome, victims: set[str]) -> str:
    verdict = outcome.unschedulable
    expect("preemption is set", verdict.HasField("preemption"), wanted=True)
    names = {victim.pod.uid.removeprefix("uid-") for victim in verdict.preemption.victims}
    expect("preemption.victims", names, victims)
    expect("nominated_node_name", verdict.nominated_node_name, verdict.preemption.node_name)
    return verdict.preemption.node_name


@CHECKS.level(3)
def preempts_pods_of_lower_priority(client: ContractClient) -> None:
    """Check that only the fewest victims go, and that their room is reserved until then."""
    cluster = SmallCluster(client)
    pods = [pod("low", 2, 1, on="n"), pod("mid", 1, 5, on="n"), pod("top", 1, 9, on="n")]
    outcome = cluster.tried("high", cluster.round(0, node("n", 4), *pods, pod("high", 2, 9)))
    expect("preemption.node_name", _preemption(outcome, {"low"}), "n")
    late = cluster.round(1, gone("low"), pod("late", 2, 1))
    outcome = cluster.tried("high", late)
    expect("bind of the preemptor", bound([outcome]), {"high": "n"})
    expect("bind of a lower pod that came meanwhile", "late" in cluster.host | bound(late), False)


@CHECKS.level(3)
def preempts_no_pod_of_its_own_priority(client: ContractClient) -> None:
    """Check also preemptionPolicy Never, and a pod that no preemption helps."""
    never = pod("never", 2, 9, preemption_policy="Never")
    for name, event in (
        ("equal", pod("equal", 2, 5)),
        ("never", never),
        ("vast", pod("vast", 64, 9)),
    ):
        cluster = SmallCluster(client)
        old = pod("old", 2, 5, on="n")
        verdict = cluster.tried(name, cluster.round(0, node("n", 2), old, event)).unschedulable
        expect(f"preemption for {name} is set", verdict.HasField("preemption"), wanted=False)


@CHECKS.level(3)
def ends_a_round_at_a_victim_with_a_budget(client: ContractClient) -> None:
    """Check that of two preemptors of one round the second one reads the budget's new status."""
    cluster = SmallCluster(client)
    guarded = [pod(f"low-{n}", 2, 1, on=n) for n in ("n", "m")]
    for event in guarded:
        event.add.pod.metadata.labels["app"] = "web"
    preemptors = (pod("high-a", 2, 9), pod("high-b", 2, 9))
    decided = cluster.round(0, node("n", 2), node("m", 2), *guarded, budget("web", 1), *preemptors)
    expect("outcomes up to a victim with a budget", len(decided), 1)
    first = decided[0].unschedulable.preemption
    expect(
        "victims' violates_budget", [victim.violates_budget for victim in first.victims], [False]
    )
    other = "high-b" if decided[0].pop.uid == "uid-high-a" else "high-a"
    victim = first.victims[0].pod.uid.removeprefix("uid-")
    spent = Event(update=budget("web", 0).add)
    outcome = cluster.tried(other, cluster.round(0, terminating(victim, 0), spent))
    second = outcome.unschedulable.preemption
    expect(
        "victims' violates_budget", [victim.violates_budget for victim in second.victims], [True]
    )


@CHECKS.level(3)
def continues_where_a_victim_cannot_be_deleted(client: ContractClient) -> None:
    """Check that the pod is not lost: it is bound once there is room after all."""
    cluster = SmallCluster(client)
    cluster.refuses.add("high")
    low = pod("low", 2, 1, on="n")
    outcome = cluster.tried("high", cluster.round(0, node("n", 2), low, pod("high", 2, 9)))
    _preemption(outcome, {"low"})
    decided = bound(cluster.round(1))
    expect("binds without room", decided, {})
    outcome = cluster.tried("high", cluster.round(30, gone("low")))
    expect("bind of the preemptor", bound([outcome]), {"high": "n"})


@CHECKS.level(4)
def evaluates_a_pending_pod(client: ContractClient) -> None:
    """Check the verdicts, that asking changes nothing, and that an unknown pod is not found."""
    cluster = SmallCluster(client)
    cluster.round(0, node("n", 2), node("m", 8), pod("a", 4), events_only=True)

    def evaluated(uid: str, new_pod: pod_pb2.Pod | None = None) -> scheduler_pb2.Evaluation:
        request = pb.EvaluatePodRequest(new_pod=new_pod)
        if new_pod is None:
            request.pod.uid = uid
        answer = cluster.session.read("EvaluatePod", request, pb.EvaluatePodResponse())
        evaluation: scheduler_pb2.Evaluation = answer.evaluation
        return evaluation

    evaluation = evaluated("uid-a")
    expect("evaluation.host", evaluation.host, "m")
    expect("evaluation.feasible_nodes", evaluation.feasible_nodes, 1)
    refusals = {verdict.node_name: verdict.HasField("refusal") for verdict in evaluation.nodes}
    expect("evaluation.nodes that are refused", refusals, {"m": False, "n": True})
    expect("evaluation.host of a new pod", evaluated("", pod("b", 3).add.pod).host, "m")
    expect_refusal(lambda: evaluated("uid-nobody"), "NOT_FOUND", "NOT_FOUND")
    outcome = only("outcomes", cluster.round(0))
    expect("attempts after EvaluatePod", (outcome.attempts, bound([outcome])), (1, {"a": "m"}))


@CHECKS.level(4)
def shows_objects_queue_and_assumed_pods(client: ContractClient) -> None:
    """Check GetState."""
    cluster = SmallCluster(client)
    cluster.round(0, node("n", 2), pod("a", 2), pod("b", 8))
    state = cluster.session.state().state
    kinds = sorted(held.WhichOneof("object") for held in state.objects)
    expect("state.objects", kinds, ["node", "pod", "pod"])
    assumed = [(assumed_pod.pop.uid, assumed_pod.node_name) for assumed_pod in state.assumed]
    expect("state.assumed", assumed, [("uid-a", "n")])
    places = {entry.pod.uid for entry in state.queue.entries}
    expect("state.queue.entries has the pod that waits", "uid-b" in places, wanted=True)


@CHECKS.level(5)
def runs_a_window_as_rounds_one_by_one(client: ContractClient) -> None:
    """Check a window that ends at a pod which is not bound: the rest of it is not taken."""
    windowed, plain = SmallCluster(client), SmallCluster(client)
    if not windowed.session.opened.windows:
        raise NotServedError("Session.windows is false")
    coming = [(1, pod("a", 1)), (2, pod("b", 2)), (3, pod("c", 99)), (4, pod("d", 1))]
    for cluster in (windowed, plain):
        cluster.round(0, node("n", 8))
    expected_rounds = [plain.round(second, event) for second, event in coming[:3]]
    request = pb.RunRoundRequest(round=round_at(*coming[0]))
    for (before, first), (second, event) in pairwise(coming):
        confirmed = Event(time_ns=before * SECOND_NS, patch=scheduler_pb2.PodPatch(node_name=""))
        confirmed.patch.pod.CopyFrom(gone(first.add.pod.metadata.name).remove)
        request.window.add(confirmations=[confirmed], round=round_at(second, event))
    answer = windowed.session.send(request)
    continues = [outcomes.window_continues for outcomes in answer.rounds]
    expect("window_continues of the rounds", continues, [True, True, False])
    for outcomes, other in zip(answer.rounds, expected_rounds, strict=True):
        seen = list(one_by_one(outcomes))
        expect("outcomes of a round of a window", len(seen), len(other))
        for together, single in zip(seen, other, strict=True):
            expect_same("an outcome of a window", together, single)
    expect("bind after a window", bound(windowed.round(4, coming[3][1])), {"d": "n"})


def _story() -> list[pb.RunRoundRequest]:
    rounds = [
        round_at(1, node("n", 2), pod("a", 2), pod("b", 2)),
        round_at(2, node("m", 4), pod("c", 3)),
        round_at(40, gone("a"), pod("d", 1, 9)),
        round_at(600, Event(update=node("n", 8).add)),
    ]
    return [pb.RunRoundRequest(round=round_) for round_ in rounds]


def _malformed() -> dict[str, pb.RunRoundRequest]:
    nameless = pod("x", 1)
    nameless.add.pod.metadata.uid = ""
    answer = scheduler_pb2.Answer(refused=BIND)
    return {
        "round": pb.RunRoundRequest(),
        "round.events[1]": pb.RunRoundRequest(round=round_at(0, node("x", 64), Event())),
        "round.events[2]": pb.RunRoundRequest(
            round=round_at(0, node("x", 64), pod("y", 1), nameless)
        ),
        "round.answers[0].pop": pb.RunRoundRequest(
            round=round_at(0, node("x", 64), answers=[answer])
        ),
    }


LEVELS = (
    ConformanceLevel("places pods", "`replay`, `get`, `query`, `report` and `export`"),
    ConformanceLevel("gives reasons", "`replay` and what reads its runs, with reasons in them"),
    ConformanceLevel("preempts", "`replay` and what reads its runs, with preemption"),
    ConformanceLevel(
        "checkpoints and reads", "`replay`, `explain`, `compare` and `replay --compare-recorded`"
    ),
    ConformanceLevel("windows and the stream", "every command, with the fewest messages"),
)
SCHEDULER = ServiceContract(
    service="scheduler",
    stub=scheduler_service_pb2_grpc.SchedulerServiceStub,
    create=pb.CreateSessionRequest,
    method="RunRound",
    state=pb.GetStateResponse,
    look=check_answer,
    story=_story,
    malformed=_malformed,
    levels=LEVELS,
    checks=CHECKS,
)
