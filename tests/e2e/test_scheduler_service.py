"""The scheduler service by its proto: refusals, failure paths, and what makes it observable."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

import grpc
import pytest
from google.protobuf.json_format import ParseDict
from google.protobuf.message import Message
from google.rpc import error_details_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_status import rpc_status

from replay.backends.processes import EmbeddedServices
from replay.results.run.decision_log import one_by_one
from reprieve.kube.v1beta1 import meta_pb2, node_pb2, pod_pb2
from reprieve.queue.v1beta1 import queue_pb2
from reprieve.scheduler.v1beta1 import scheduler_pb2, scheduler_service_pb2_grpc
from reprieve.scheduler.v1beta1 import scheduler_service_pb2 as service_pb2
from reprieve.session.v1beta1 import session_pb2
from services.kube.time import SECOND_NS
from services.rpc.parts import merged
from tests.builders import make_node, make_pod

_Detail = TypeVar("_Detail", bound=Message)

pytestmark = pytest.mark.e2e


def node(name: str, cpu: str) -> node_pb2.Node:
    """Return a node of that many cores."""
    return make_node(name).capacity(cpu=cpu, memory="8Gi").message()


def pod(name: str, cpu: str, *, priority: int = 0, node_name: str = "") -> pod_pb2.Pod:
    """Return a pod of one container."""
    made = make_pod(name).uid(f"uid-{name}").priority(priority).node(node_name)
    return made.container("c", requests={"cpu": cpu}).message()


class Caller:
    """One session with the scheduler, sent round after round."""

    def __init__(self, address: str, **config: object) -> None:
        self.channel = grpc.insecure_channel(address)
        self.stub = scheduler_service_pb2_grpc.SchedulerServiceStub(self.channel)
        wanted = scheduler_pb2.SchedulerConfig(**config)  # type: ignore[arg-type] # as given
        made = self.stub.CreateSession(service_pb2.CreateSessionRequest(config=wanted), timeout=10)
        self.stamp = session_pb2.Stamp(session_id=made.session_id)
        self.sequence = 0

    def tell(
        self,
        second: int,
        *events: scheduler_pb2.Event,
        answers: list[scheduler_pb2.Answer] | None = None,
    ) -> list[scheduler_pb2.Outcome]:
        """Run a round at a virtual second and return its outcomes."""
        round_ = scheduler_pb2.Round(time_ns=second * SECOND_NS, answers=answers or [])
        for event in events:
            event.time_ns = second * SECOND_NS
            round_.events.append(event)
        self.sequence += 1
        answer = self.stub.RunRound(self.request(round_), timeout=30)
        assert answer.sequence == self.sequence
        (outcomes,) = answer.rounds
        return list(one_by_one(outcomes))

    def request(self, round_: scheduler_pb2.Round) -> service_pb2.RunRoundRequest:
        """Return the request of a round, with the present sequence number."""
        request = service_pb2.RunRoundRequest(stamp=self.stamp, round=round_)
        request.stamp.sequence = self.sequence
        return request

    def state(self) -> scheduler_pb2.SchedulerState:
        """Return all that the session holds."""
        parts = self.stub.GetState(session_pb2.GetStateRequest(stamp=self.stamp), timeout=10)
        return merged(parts, service_pb2.GetStateResponse()).state


@pytest.fixture
def caller(services: EmbeddedServices) -> Iterator[Caller]:
    """Open a session under v1.34's rules."""
    made = Caller(services.addresses["scheduler"])
    yield made
    made.channel.close()


@pytest.fixture
def older(services: EmbeddedServices) -> Iterator[Caller]:
    """Open a session under v1.34's rules with a queue that tries no pod again at once."""
    queue = queue_pb2.QueueConfig(rules="v1.20")
    made = Caller(services.addresses["scheduler"], queue=queue)
    yield made
    made.channel.close()


def add_node(name: str, cpu: str) -> scheduler_pb2.Event:
    """Return the event of a node that comes."""
    event = scheduler_pb2.Event()
    event.add.node.CopyFrom(node(name, cpu))
    return event


def add_pod(message: pod_pb2.Pod) -> scheduler_pb2.Event:
    """Return the event of a pod that comes."""
    event = scheduler_pb2.Event()
    event.add.pod.CopyFrom(message)
    return event


def delete_pod(name: str) -> scheduler_pb2.Event:
    """Return the event of a pod that goes."""
    event = scheduler_pb2.Event()
    event.remove.kind, event.remove.uid = "Pod", f"uid-{name}"
    event.remove.namespace, event.remove.name = "default", name
    return event


def refused(
    outcome: scheduler_pb2.Outcome, stage: scheduler_pb2.RefusalStage.ValueType, victim: str = ""
) -> scheduler_pb2.Answer:
    """Return the answer that a decision could not be carried out."""
    answer = scheduler_pb2.Answer(pop=outcome.pop, refused=stage, message="refused by the test")
    if victim:
        answer.victim.uid = f"uid-{victim}"
    return answer


def test_a_pod_without_any_node_waits_in_upstreams_words(caller: Caller) -> None:
    """No nodes at all is unschedulable, and nothing is preempted."""
    (outcome,) = caller.tell(0, add_pod(pod("a", "1")))
    assert outcome.unschedulable.message == "no nodes available to schedule pods"
    assert not outcome.unschedulable.HasField("preemption")


def test_a_refused_binding_gives_the_pod_back_and_frees_its_room(caller: Caller) -> None:
    """The pod is tried again when its backoff has ended, and the node is free meanwhile."""
    (bound,) = caller.tell(0, add_node("n", "2"), add_pod(pod("a", "2")))
    assert bound.bind.node_name == "n"
    answer = refused(bound, scheduler_pb2.REFUSAL_STAGE_BIND)
    (other,) = caller.tell(1, add_pod(pod("b", "2")), answers=[answer])
    assert other.pop.uid == "uid-b"
    assert other.bind.node_name == "n"
    places = {entry.pod.name: entry.sub_queue for entry in caller.state().queue.entries}
    assert "a" in places


def test_a_binding_that_goes_through_ends_the_pop(caller: Caller) -> None:
    """Nothing is in flight or assumed once the world has said so."""
    (bound,) = caller.tell(0, add_node("n", "2"), add_pod(pod("a", "2")))
    assert [assumed.node_name for assumed in caller.state().assumed] == ["n"]
    patch = scheduler_pb2.Event()
    patch.patch.pod.uid = "uid-a"
    patch.patch.node_name = "n"
    caller.tell(0, patch, answers=[scheduler_pb2.Answer(pop=bound.pop)])
    state = caller.state()
    assert not state.assumed
    assert not state.queue.entries


def preempting(caller: Caller) -> scheduler_pb2.Outcome:
    """Let a high pod preempt two low ones on the one node."""
    lows = [add_pod(pod(f"low-{i}", "1", node_name="n")) for i in range(2)]
    (outcome,) = caller.tell(0, add_node("n", "2"), *lows, add_pod(pod("high", "2", priority=9)))
    assert [v.pod.name for v in outcome.unschedulable.preemption.victims] == ["low-0", "low-1"]
    return outcome


def nominated(state: scheduler_pb2.SchedulerState) -> list[tuple[str, list[str]]]:
    """Return who is nominated where; the scheduler's mirror and its queue must agree."""
    mirror = [
        (nomination.node_name, [pod.uid for pod in nomination.pods])
        for nomination in state.nominations
    ]
    queue = [
        (nomination.node_name, [pod.uid for pod in nomination.pods])
        for nomination in state.queue.nominations
    ]
    assert mirror == queue
    return mirror


def is_answered(caller: Caller, outcome: scheduler_pb2.Outcome) -> bool:
    """Return whether a pop was answered already: it then takes an answer with any victim."""
    stray = refused(outcome, scheduler_pb2.REFUSAL_STAGE_DELETE_VICTIM, "stranger")
    try:
        caller.tell(0, answers=[stray])
    except grpc.RpcError as error:
        if error.code() is not grpc.StatusCode.INVALID_ARGUMENT:
            raise
        caller.sequence -= 1
        return False
    return True


def test_a_refused_nomination_is_kept_by_v1_34(older: Caller) -> None:
    """v1.34 logs a status that cannot be written: its queue keeps the nomination and the pod."""
    caller = older
    outcome = preempting(caller)
    before = caller.state()
    assert not is_answered(caller, outcome)
    caller.tell(0, answers=[refused(outcome, scheduler_pb2.REFUSAL_STAGE_NOMINATE)])
    after = caller.state()
    assert is_answered(caller, outcome)
    assert nominated(before) == nominated(after) == [("n", ["uid-high"])]
    assert list(after.queue.entries) == list(before.queue.entries)
    (other,) = caller.tell(0, delete_pod("low-0"), add_pod(pod("other", "1")))
    assert other.pop.uid == "uid-other"
    assert not other.HasField("bind"), "the nominated pod's room is kept for it"


def test_a_refused_nomination_is_forgotten_by_v1_16(services: EmbeddedServices) -> None:
    """The documents' scheduler takes the nomination back and goes no further."""
    caller = Caller(services.addresses["scheduler"], rules="v1.16")
    outcome = preempting(caller)
    caller.tell(0, answers=[refused(outcome, scheduler_pb2.REFUSAL_STAGE_NOMINATE)])
    state = caller.state()
    assert not nominated(state)
    (other,) = caller.tell(0, delete_pod("low-0"), add_pod(pod("other", "1")))
    assert other.bind.node_name == "n", "no room is kept for a pod that is not nominated"


def test_a_pod_whose_victim_cannot_be_deleted_is_tried_again_at_once(caller: Caller) -> None:
    """A queue of v1.34 can be asked to, for no victim's end may ever wake the pod."""
    outcome = preempting(caller)
    again = [refused(outcome, scheduler_pb2.REFUSAL_STAGE_DELETE_VICTIM, "low-1")]
    tried = caller.tell(0, answers=again)
    assert [(outcome.pop.uid, outcome.attempts) for outcome in tried] == [("uid-high", 2)]


def test_a_victim_that_cannot_be_deleted_leaves_the_nomination(older: Caller) -> None:
    """Half-way through the victims: the pod stays nominated and waits, in older queues."""
    caller = older
    outcome = preempting(caller)
    before = caller.state()
    assert not is_answered(caller, outcome)
    caller.tell(0, answers=[refused(outcome, scheduler_pb2.REFUSAL_STAGE_DELETE_VICTIM, "low-1")])
    after = caller.state()
    assert is_answered(caller, outcome)
    assert nominated(after) == nominated(before) == [("n", ["uid-high"])]
    assert list(after.queue.entries) == list(before.queue.entries)
    assert [entry.pod.uid for entry in after.queue.entries] == ["uid-high"]


def details(error: grpc.RpcError, into: _Detail) -> _Detail:
    """Return what a refusal's status carries of a kind, read `into` a message."""
    status = rpc_status.from_call(error)  # type: ignore[arg-type] # it is a Call as well
    assert status is not None
    assert any(detail.Unpack(into) for detail in status.details)
    return into


def error_info(error: grpc.RpcError) -> error_details_pb2.ErrorInfo:
    """Return a refusal's reason for programs."""
    return details(error, error_details_pb2.ErrorInfo())


def field_of(error: grpc.RpcError) -> str:
    """Return the field that a refusal names."""
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    (violation,) = details(error, error_details_pb2.BadRequest()).field_violations
    return str(violation.field)


def test_an_answer_names_a_pop_and_one_of_its_victims(caller: Caller) -> None:
    """A malformed answer is refused; one of an unknown pop may be a retried one."""
    outcome = preempting(caller)
    stage = scheduler_pb2.REFUSAL_STAGE_DELETE_VICTIM
    for answer, field in (
        (scheduler_pb2.Answer(), "pop"),
        (refused(outcome, stage, "stranger"), "victim.uid"),
        (refused(outcome, stage), "victim.uid"),
    ):
        with pytest.raises(grpc.RpcError) as caught:
            caller.tell(1, answers=[answer])
        assert field_of(caught.value) == f"round.answers[0].{field}"
        caller.sequence -= 1
    unknown = refused(outcome, stage, "stranger")
    unknown.pop.cycle += 99
    caller.tell(1, answers=[unknown, refused(outcome, stage, "low-0")])


def test_a_time_before_the_epoch_is_refused(caller: Caller) -> None:
    """Virtual time begins at 0."""
    caller.sequence = 1
    request = caller.request(scheduler_pb2.Round(time_ns=-1))
    with pytest.raises(grpc.RpcError) as caught:
        caller.stub.RunRound(request, timeout=10)
    assert field_of(caught.value) == "round.time_ns"


@pytest.mark.parametrize(
    ("round_", "field"),
    [
        ({"time_ns": 1, "max_pods": 0}, "round.max_pods"),
        (
            {"time_ns": 1, "answers": [{"pop": {"uid": "u", "cycle": 1}, "refused": 0}]},
            "round.answers[0].refused",
        ),
        (
            {"time_ns": 1, "answers": [{"pop": {"uid": "u", "cycle": 1}, "refused": 9}]},
            "round.answers[0].refused",
        ),
        ({"time_ns": 1, "answers": [{}]}, "round.answers[0].pop"),
        ({"time_ns": 1, "answers": [{"pop": {"uid": "u"}}]}, "round.answers[0].pop.cycle"),
        ({"time_ns": 1, "events": [{"time_ns": 1, "remove": {}}]}, "round.events[0].remove.kind"),
        (
            {"time_ns": 1, "events": [{"time_ns": 1, "remove": {"kind": "Node", "uid": "u"}}]},
            "round.events[0].remove.name",
        ),
        ({"time_ns": 1, "recorded": [{"pod": {}, "attempt": 1}]}, "round.recorded[0].pod.uid"),
        ({"time_ns": 1, "recorded": [{"pod": {"uid": "u"}}]}, "round.recorded[0].attempt"),
    ],
)
def test_a_round_that_cannot_be_read_is_refused_by_its_field(
    caller: Caller, round_: dict[str, Any], field: str
) -> None:
    """And nothing of it is taken: the same number is free for another one."""
    caller.sequence = 1
    request = caller.request(ParseDict(round_, scheduler_pb2.Round()))
    with pytest.raises(grpc.RpcError) as caught:
        caller.stub.RunRound(request, timeout=10)
    assert field_of(caught.value) == field
    caller.sequence = 0
    caller.tell(1)


@pytest.mark.parametrize(
    ("foreseen", "field"),
    [
        ({"confirmations": []}, "window[0].round"),
        ({"round": {"time_ns": 6, "answers": [{"pop": {"uid": "u"}}]}}, "window[0].round"),
        ({"round": {"time_ns": 6, "events_only": True}}, "window[0].round"),
        ({"round": {"time_ns": 4, "events": [{"time_ns": 4, "tick": {}}]}}, "window[0].round"),
        (
            {"confirmations": [{"time_ns": 5, "tick": {}}], "round": {"time_ns": 6}},
            "window[0].confirmations",
        ),
        ({"round": {"time_ns": 6, "events": [{"time_ns": 6}]}}, "window[0].round.events[0].event"),
    ],
    ids=[
        *("no round", "answers", "no pods taken", "going back"),
        *("a confirmation that is no patch", "no event"),
    ],
)
def test_a_window_that_cannot_be_read_is_refused_as_a_whole(
    caller: Caller, foreseen: dict[str, Any], field: str
) -> None:
    """The round before it is not taken either."""
    caller.sequence = 1
    request = caller.request(scheduler_pb2.Round(time_ns=5))
    ParseDict(foreseen, request.window.add())
    with pytest.raises(grpc.RpcError) as caught:
        list(caller.stub.StreamingRunRound(iter([request]), timeout=10))
    assert field in str(caught.value.details())
    caller.sequence = 0
    caller.tell(1)


def test_sessions_cannot_be_guessed(caller: Caller) -> None:
    """Each has a long name of its own."""
    names = set()
    for _ in range(3):
        session = caller.stub.CreateSession(
            service_pb2.CreateSessionRequest(), timeout=10
        ).session_id
        caller.stub.DeleteSession(session_pb2.DeleteSessionRequest(session_id=session), timeout=10)
        names.add(session)
    assert len(names) == 3
    assert min(map(len, names)) >= 20


def test_deleting_names_a_session(caller: Caller) -> None:
    """An unknown name is accepted, an empty one is a mistake."""
    caller.stub.DeleteSession(session_pb2.DeleteSessionRequest(session_id="nobody"), timeout=10)
    with pytest.raises(grpc.RpcError) as caught:
        caller.stub.DeleteSession(session_pb2.DeleteSessionRequest(), timeout=10)
    assert field_of(caught.value) == "session_id"


def test_a_pod_that_the_session_does_not_have_is_judged(caller: Caller) -> None:
    """As if it were pending; nothing of it stays, and one that is there is requested by its uid."""
    bound = scheduler_pb2.Event()
    bound.add.pod.CopyFrom(pod("bound", "1", node_name="node-1"))
    caller.tell(0, add_node("node-1", "4"), bound)

    def asked(message: pod_pb2.Pod, **more: object) -> scheduler_pb2.Evaluation:
        request = service_pb2.EvaluatePodRequest(stamp=caller.stamp, new_pod=message, **more)  # type: ignore[arg-type] # as given
        parts = caller.stub.EvaluatePod(request, timeout=10)
        return merged(parts, service_pb2.EvaluatePodResponse()).evaluation

    assert asked(pod("small", "3")).host == "node-1"
    assert "Insufficient cpu" in asked(pod("large", "4")).fit_error
    assert [
        assumed.pod.metadata.uid for assumed in caller.state().objects if assumed.HasField("pod")
    ] == ["uid-bound"]
    with pytest.raises(grpc.RpcError) as caught:
        asked(pod("bound", "1"))
    assert field_of(caught.value) == "new_pod.metadata.uid"
    with pytest.raises(grpc.RpcError) as caught:
        asked(pod("small", "1"), pod={"uid": "uid-small"})
    assert field_of(caught.value) == "pod"


def evaluated(caller: Caller, uid: str, **wanted: int) -> service_pb2.EvaluatePodResponse:
    """Return every verdict about a pod."""
    request = service_pb2.EvaluatePodRequest(
        stamp=caller.stamp, pod=meta_pb2.ObjectReference(uid=uid)
    )
    for name, value in wanted.items():
        setattr(request, name, value)
    parts = caller.stub.EvaluatePod(request, timeout=10)
    return merged(parts, service_pb2.EvaluatePodResponse())


def test_evaluate_pod_needs_a_pending_pod_that_a_profile_serves(caller: Caller) -> None:
    """A pod of another scheduler may be known to the session, and is not ours to judge."""
    foreign = pod("b", "1")
    foreign.spec.scheduler_name = "someone-else"
    placed = pod("placed", "1", node_name="n")
    assert not caller.tell(0, add_node("n", "2"), add_pod(foreign), add_pod(placed))
    for uid, field in (("", "pod.uid"), ("uid-b", "pod.spec.scheduler_name")):
        with pytest.raises(grpc.RpcError) as caught:
            evaluated(caller, uid)
        assert field_of(caught.value) == field
    for uid in ("uid-placed", "uid-nobody"):
        with pytest.raises(grpc.RpcError) as caught:
            evaluated(caller, uid)
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND
        assert error_info(caught.value).reason == "NOT_FOUND"


def test_preemption_can_be_switched_off_by_the_documents_file(services: EmbeddedServices) -> None:
    """A v1alpha1 file says disablePreemption: nothing is displaced."""
    text = (
        "apiVersion: kubescheduler.config.k8s.io/v1alpha1\n"
        "kind: KubeSchedulerConfiguration\ndisablePreemption: true\n"
    )
    caller = Caller(
        services.addresses["scheduler"], rules="v1.16", kube_scheduler_configuration=text
    )
    low, high = pod("low", "2", node_name="n"), pod("high", "2", priority=9)
    (outcome,) = caller.tell(0, add_node("n", "2"), add_pod(low), add_pod(high))
    assert not outcome.unschedulable.HasField("preemption")


def test_a_refused_round_changes_nothing_and_names_the_field(caller: Caller) -> None:
    """An invalid quantity: INVALID_ARGUMENT with its path; the session lives on."""
    bad = pod("bad", "1x")
    with pytest.raises(grpc.RpcError) as caught:
        caller.tell(0, add_node("n", "2"), add_pod(bad))
    field = "round.events[1].add.pod.spec.containers[0].resources.requests[cpu]"
    assert field_of(caught.value) == field
    caller.sequence -= 1
    assert not caller.state().objects
    (outcome,) = caller.tell(0, add_node("n", "2"), add_pod(pod("good", "1")))
    assert outcome.bind.node_name == "n"


@pytest.mark.parametrize(
    ("change", "code", "reason"),
    [
        ({"session_id": "nobody"}, grpc.StatusCode.NOT_FOUND, "SESSION_EXPIRED"),
        ({"session_id": ""}, grpc.StatusCode.INVALID_ARGUMENT, "BAD_FIELD"),
        ({"sequence": 9}, grpc.StatusCode.ABORTED, "SEQUENCE_MISMATCH"),
        ({"sequence": None}, grpc.StatusCode.INVALID_ARGUMENT, "BAD_FIELD"),
    ],
)
def test_a_stamp_that_does_not_fit_is_refused(
    caller: Caller, change: dict[str, str | int | None], code: grpc.StatusCode, reason: str
) -> None:
    """Unknown session, a gap in the sequence, none at all."""
    caller.sequence = 1
    request = caller.request(scheduler_pb2.Round(time_ns=1))
    for name, value in change.items():
        if value is None:
            request.stamp.ClearField("sequence")
        else:
            setattr(request.stamp, name, value)
    with pytest.raises(grpc.RpcError) as caught:
        caller.stub.RunRound(request, timeout=10)
    assert caught.value.code() is code
    info = error_info(caught.value)
    assert info.reason == reason
    if reason == "SEQUENCE_MISMATCH":
        assert dict(info.metadata) == {"expected_sequence": "1"}


def test_time_does_not_go_backwards(caller: Caller) -> None:
    """A round before the last one is refused as a failed precondition."""
    caller.tell(5)
    with pytest.raises(grpc.RpcError) as caught:
        caller.tell(4)
    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION


def test_a_repeated_round_returns_the_same_answer(caller: Caller) -> None:
    """The last sequence number again, with the same request, does nothing."""
    event = [add_node("n", "1"), add_pod(pod("a", "1"))]
    first = caller.tell(0, *event)
    caller.sequence -= 1
    assert caller.tell(0, *event) == first
    assert len(caller.state().assumed) == 1


def test_a_sequence_number_is_of_one_request(caller: Caller) -> None:
    """Another request under the last one is refused; another span of the same one is not."""
    caller.tell(0, add_node("n", "1"))
    caller.sequence -= 1
    with pytest.raises(grpc.RpcError) as caught:
        caller.tell(0, add_node("m", "1"))
    assert caught.value.code() is grpc.StatusCode.ABORTED
    info = error_info(caught.value)
    assert (info.reason, info.metadata["expected_sequence"]) == ("SEQUENCE_REUSED", "2")
    caller.sequence -= 1
    caller.stamp.traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    caller.tell(0, add_node("n", "1"))


def test_evaluate_pod_answers_every_verdict(caller: Caller) -> None:
    """Who refuses, what the others score, who would be taken, and where the pod waits."""
    gated = pod("a", "2")
    gated.spec.scheduling_gates.add(name="wait")
    assert not caller.tell(0, add_node("small", "1"), add_node("large", "8"), add_pod(gated))
    answer = evaluated(caller, "uid-a")
    found = answer.evaluation
    assert found.host == "large"
    assert found.fast_path == scheduler_pb2.FAST_PATH_SINGLE_FEASIBLE_NODE
    refusal = {node.node_name: node.refusal for node in found.nodes}["small"]
    assert (refusal.plugin, list(refusal.reasons)) == ("NodeResourcesFit", ["Insufficient cpu"])
    assert answer.entry.sub_queue == queue_pb2.SUB_QUEUE_GATED
    assert [node.node_name for node in evaluated(caller, "uid-a", top_k=1).evaluation.nodes] == [
        "large"
    ]
    assert evaluated(caller, "uid-a", attempt=2).evaluation.host == "large"
    for name in ("top_k", "attempt"):
        with pytest.raises(grpc.RpcError) as caught:
            evaluated(caller, "uid-a", **{name: 0})
        assert field_of(caught.value) == name


def test_the_service_answers_health_checks(caller: Caller) -> None:
    """grpc.health.v1, for the service by its full name."""
    stub = health_pb2_grpc.HealthStub(caller.channel)
    request = health_pb2.HealthCheckRequest(service="reprieve.scheduler.v1beta1.SchedulerService")
    assert stub.Check(request, timeout=10).status == health_pb2.HealthCheckResponse.SERVING
