"""Rules 55 to 58: what can be read of a session, and windows of rounds."""

from __future__ import annotations

from itertools import pairwise

from google.protobuf.empty_pb2 import Empty

from replay.conform.contract.checks import (
    Checks,
    ContractClient,
    NotServedError,
    expect,
    expect_refusal,
    expect_same,
    only,
)
from replay.conform.contract.scheduler.small_cluster import (
    SmallCluster,
    bound,
    node,
    patched,
    pod,
    round_at,
)
from replay.results.run.decision_log import one_by_one
from reprieve.kube.v1beta1 import pod_pb2
from reprieve.scheduler.v1beta1 import scheduler_pb2
from reprieve.scheduler.v1beta1 import scheduler_service_pb2 as pb
from reprieve.scheduler.v1beta1.scheduler_pb2 import Event

CHECKS = Checks()


@CHECKS.level(4, rule=55)
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


@CHECKS.level(4, rule=56)
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
    expect("state.queue.entries has the pod that waits", "uid-b" in places, expected=True)


def _windowed(events: list[Event]) -> pb.RunRoundRequest:
    """Return a request with a round for each pod that comes, one a second from second 1."""
    request = pb.RunRoundRequest(round=round_at(1, events[0]))
    for second, (first, event) in enumerate(pairwise(events), 1):
        confirmed = patched(first.add.pod.metadata.name, confirms_binding=Empty())
        confirmed.time_ns = round_at(second).time_ns
        request.window.add(confirmations=[confirmed], round=round_at(second + 1, event))
    return request


def _with_windows(client: ContractClient) -> SmallCluster:
    cluster = SmallCluster(client)
    if not cluster.session.opened.windows:
        raise NotServedError("Session.windows is false")
    return cluster


@CHECKS.level(5, rule=57)
def runs_a_window_as_rounds_one_by_one(client: ContractClient) -> None:
    """Check that a window runs up to a pod that is not bound, and that the rest is left."""
    windowed, plain = _with_windows(client), SmallCluster(client)
    for cluster in (windowed, plain):
        cluster.round(0, node("n", 4))
    coming = [pod("a", 1), pod("b", 2), pod("c", 99), pod("d", 1)]
    expected_rounds = [plain.round(second, event) for second, event in enumerate(coming[:3], 1)]
    answer = windowed.session.send(_windowed(coming))
    window_continues = [outcome.window_continues for outcome in answer.rounds]
    expect("window_continues of the rounds", window_continues, [True, True, False])
    for outcomes, other in zip(answer.rounds, expected_rounds, strict=True):
        seen = list(one_by_one(outcomes))
        expect("outcomes of a round of a window", len(seen), len(other))
        for together, single in zip(seen, other, strict=True):
            expect_same("an outcome of a window", together, single)
    expect("bind on a node that is full", bound(windowed.round(4, pod("e", 2))), {})
    expect("bind after a window", bound(windowed.round(5, coming[3])), {"d": "n"})


@CHECKS.level(5, rule=58)
def runs_a_window_to_its_end(client: ContractClient) -> None:
    """Check a window of bindings alone, in a call and in a stream."""
    events = [pod("a", 1), pod("b", 1), pod("c", 1)]
    for streams in (False, True):
        cluster = _with_windows(client)
        cluster.round(0, node("n", 4))
        request = cluster.session.stamped(_windowed(events))
        stub = cluster.session.client
        if streams:
            answers = list(stub.call("StreamingRunRound", iter([request])))
        else:
            answers = [stub.call("RunRound", request)]
        rounds = [outcomes for answer in answers for outcomes in answer.rounds]
        expect(
            "window_continues of the rounds",
            [it.window_continues for it in rounds],
            [True, True, False],
        )
        names = [name for outcomes in rounds for name in bound(one_by_one(outcomes))]
        expect("pods bound", names, ["a", "b", "c"])
