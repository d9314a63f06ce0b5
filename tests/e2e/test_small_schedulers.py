"""Schedulers of a few lines in place of ours: what the smallest one needs, and what goes round."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest

from replay.backends.services import SchedulerService
from replay.errors import BackendError
from replay.results.run.directory import RunDirectory
from reprieve.kube.v1beta1 import pod_pb2
from reprieve.scheduler.v1beta1 import scheduler_pb2, scheduler_service_pb2_grpc
from reprieve.scheduler.v1beta1 import scheduler_service_pb2 as rpc
from tests.e2e.commands import LOOP, SERVICE, reprieve

CLUSTER = """
apiVersion: v1
kind: Node
metadata: {name: node-a}
status: {allocatable: {cpu: "4", memory: 8Gi, pods: "10"}}
---
apiVersion: v1
kind: Node
metadata: {name: node-b}
status: {allocatable: {cpu: "4", memory: 8Gi, pods: "10"}}
---
apiVersion: v1
kind: Pod
metadata: {name: runs, namespace: default}
spec: {nodeName: node-b, containers: [{name: c}]}
---
apiVersion: v1
kind: Pod
metadata: {name: comes, namespace: default}
spec: {%scontainers: [{name: c}]}
"""
GATED = "schedulingGates: [{name: wait}], "
Decide = Callable[[scheduler_pb2.Outcome], None]


class Small(scheduler_service_pb2_grpc.SchedulerServiceServicer):
    """Serves RunRound alone, by `decide` for the pods that come and, `again`, with each round.

    `answers` are those that it was sent.
    """

    def __init__(self, decide: Decide, *, again: bool = False) -> None:
        self._decide = decide
        self._again = again
        self._pending: list[str] = []
        self._cycle = 0
        self.answers: list[scheduler_pb2.Answer] = []

    def CreateSession(  # noqa: N802 - gRPC's name
        self, request: rpc.CreateSessionRequest, context: grpc.ServicerContext
    ) -> rpc.Session:
        """Start the only session."""
        del request, context
        return rpc.Session(session_id="small")

    def RunRound(  # noqa: N802 - gRPC's name
        self, request: rpc.RunRoundRequest, context: grpc.ServicerContext
    ) -> rpc.RunRoundResponse:
        """Decide about what has come."""
        del context
        round_, outcomes = request.round, scheduler_pb2.RoundOutcomes()
        self.answers.extend(round_.answers)
        self._pending += [pod.metadata.uid for pod in _pending(round_)]
        for uid in self._pending:
            self._cycle += 1
            outcome = outcomes.outcomes.add(time_ns=round_.time_ns, attempts=1)
            outcome.pop.uid, outcome.pop.cycle = uid, self._cycle
            self._decide(outcome)
        if not self._again:
            self._pending = []
        return rpc.RunRoundResponse(rounds=[outcomes], sequence=request.stamp.sequence)


def _pending(round_: scheduler_pb2.Round) -> Iterator[pod_pb2.Pod]:
    for event in round_.events:
        if event.add.HasField("pod") and not event.add.pod.spec.node_name:
            yield event.add.pod


class Wrong(Small):
    """Answers by `spoil`, which may add to what is right."""

    def __init__(self, decide: Decide, spoil: Callable[[rpc.RunRoundResponse], None]) -> None:
        super().__init__(decide)
        self._spoil = spoil

    def RunRound(  # noqa: N802 - gRPC's name
        self, request: rpc.RunRoundRequest, context: grpc.ServicerContext
    ) -> rpc.RunRoundResponse:
        """Decide, and spoil it."""
        answer = super().RunRound(request, context)
        self._spoil(answer)
        return answer


@contextmanager
def served(scheduler: Small) -> Iterator[tuple[str, ...]]:
    """Serve a scheduler; yield the options that put it in place of ours."""
    server = grpc.server(ThreadPoolExecutor(2))
    scheduler_service_pb2_grpc.add_SchedulerServiceServicer_to_server(scheduler, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield "--scheduler", f"127.0.0.1:{port}", "--no-eviction", "--run", "run"
    finally:
        server.stop(0).wait()


@pytest.fixture
def trace(tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """Write the cluster."""
    (tmp_path / "cluster.yaml").write_text(CLUSTER % getattr(request, "param", ""))
    return "cluster.yaml"


def observed(folder: Path, kind: str) -> list[str]:
    """Return the pods of which the run's log has such decisions, but for refused ones."""
    decisions = RunDirectory.open(folder / "run").decisions()
    return [
        decision.observed.object.name
        for decision in decisions
        if decision.observed.WhichOneof("observed") == kind and not decision.refused
    ]


def test_run_round_alone_is_enough(tmp_path: Path, trace: str) -> None:
    """Where the stream is not served, rounds go by the unary RPC, and none is lost."""

    def decide(outcome: scheduler_pb2.Outcome) -> None:
        outcome.bind.node_name = "node-a"

    small = Small(decide)  # type: ignore[abstract] # gRPC refuses the others
    with served(small) as options:
        reprieve(tmp_path, "replay", trace, *options)
    assert observed(tmp_path, "scheduled") == ["comes"]
    assert [answer.pop.cycle for answer in small.answers] == [1]


@pytest.mark.parametrize("trace", [GATED], indirect=True)
def test_a_loop_is_named_with_the_last_refusal(tmp_path: Path, trace: str) -> None:
    """A gated pod that is bound again and again: the API server's words say why that never ends."""

    def decide(outcome: scheduler_pb2.Outcome) -> None:
        outcome.bind.node_name = "node-a"

    with served(Small(decide, again=True)) as options:  # type: ignore[abstract] # as above
        output = reprieve(tmp_path, "replay", trace, *options, code=LOOP).stderr
    words = "the last refusal: pod comes has non-empty .spec.schedulingGates"
    assert words in " ".join(output.split())


def test_a_victim_that_is_elsewhere_is_a_refusal(tmp_path: Path, trace: str) -> None:
    """The scheduler learns it with the next round; the pod lives on, and the run ends with 3."""

    def decide(outcome: scheduler_pb2.Outcome) -> None:
        outcome.unschedulable.message = "no room"
        preemption = outcome.unschedulable.preemption
        preemption.node_name = "node-a"
        preemption.victims.add().pod.uid = runs

    runs = ""
    small = Small(decide)  # type: ignore[abstract] # as above
    taken = small.RunRound

    def noting(request: rpc.RunRoundRequest, context: grpc.ServicerContext) -> rpc.RunRoundResponse:
        nonlocal runs
        for event in request.round.events:
            if event.add.pod.metadata.name == "runs":
                runs = event.add.pod.metadata.uid
        return taken(request, context)

    small.RunRound = noting  # type: ignore[method-assign] # to learn the victim's uid
    with served(small) as options:
        done = reprieve(tmp_path, "replay", trace, *options, code=SERVICE)
    assert "were refused for its mistakes: 1 victim elsewhere; the run is complete" in " ".join(
        done.stderr.split()
    )
    (answer,) = small.answers
    assert answer.refused == scheduler_pb2.REFUSAL_STAGE_DELETE_VICTIM
    assert answer.message == "pod runs is on node-b, not on node-a"
    assert answer.victim.uid == runs
    assert observed(tmp_path, "preempted") == []


def test_refused_decisions_are_counted_and_shown_wherever_a_run_is(
    tmp_path: Path, trace: str
) -> None:
    """In the summary, the table of decisions, the report, figures and checks; the run is whole."""
    nodes = iter(["nowhere", "node-a", "node-a"])

    def decide(outcome: scheduler_pb2.Outcome) -> None:
        outcome.bind.node_name = next(nodes, "node-a")

    class Twice(Small):
        """Binds the pod three times in its first answer."""

        def RunRound(  # noqa: N802 - gRPC's name
            self, request: rpc.RunRoundRequest, context: grpc.ServicerContext
        ) -> rpc.RunRoundResponse:
            """Decide, and decide again."""
            answer = super().RunRound(request, context)
            for number, outcome in enumerate(list(answer.rounds[0].outcomes) * 2):
                again = answer.rounds[0].outcomes.add()
                again.CopyFrom(outcome)
                again.pop.cycle += number + 1
                self._decide(again)
            return answer

    with served(Twice(decide)) as options:  # type: ignore[abstract] # as above
        done = reprieve(tmp_path, "replay", trace, *options, code=SERVICE)
        tolerated = [*options, "--force", "--tolerate-refusals"]
        nodes = iter(["nowhere", "node-a", "node-a"])
        checked = reprieve(
            tmp_path, "replay", trace, *tolerated, "--assert", "refusals == 2", reports=True
        )
    assert "1 assigned pod, 1 unknown node" in " ".join(done.stderr.split())
    assert "1 assigned pod, 1 unknown node" in " ".join(checked.stdout.split())
    run = RunDirectory.open(tmp_path / "run")
    assert run.manifest().finished
    assert run.summary()["decided"]["refusals"] == [
        {"name": "assigned pod", "count": 1},
        {"name": "unknown node", "count": 1},
    ]
    query = "SELECT kind, name, refusal_cause FROM decisions WHERE refused IS NOT NULL"
    shown = reprieve(tmp_path, "query", "run", query, "-o", "csv").stdout.split()
    assert shown[1:] == ["scheduled,comes,unknown", "node", "scheduled,comes,assigned", "pod"]
    assert "2 mistakes of the scheduler" in (tmp_path / "run" / "report.html").read_text()
    pods = reprieve(tmp_path, "get", "pods", "run").stdout
    assert pods.count("Running") == 2


def refused(outcome: scheduler_pb2.Outcome) -> None:
    """Decide that a pod fits nowhere."""
    outcome.unschedulable.message = "no room"


def test_outcomes_of_more_rounds_than_were_sent_end_the_replay(tmp_path: Path, trace: str) -> None:
    """The scheduler takes no windows: a request has one round."""

    def spoil(answer: rpc.RunRoundResponse) -> None:
        answer.rounds[0].window_continues = True
        answer.rounds.add()

    with served(Wrong(refused, spoil)) as options:  # type: ignore[abstract] # as above
        output = reprieve(tmp_path, "replay", trace, *options, code=SERVICE).stderr
    assert "returned an invalid response: rounds: has 1 more than rounds were sent" in " ".join(
        output.split()
    )


def test_rounds_after_one_that_ends_the_window_are_refused() -> None:
    """Even where so many rounds were sent."""

    def spoil(answer: rpc.RunRoundResponse) -> None:
        answer.rounds.add()

    wrong = Wrong(refused, spoil)  # type: ignore[abstract] # as above
    with served(wrong) as (_, address, *_others):
        scheduler = SchedulerService(address, scheduler_pb2.SchedulerConfig())
        try:
            scheduler.send_round(
                scheduler_pb2.Round(), rpc.RunRoundRequest(window=[rpc.Foreseen()])
            )
            with pytest.raises(
                BackendError,
                match=r"returned an invalid response: rounds\[0\]\.window_continues: is",
            ):
                scheduler.receive_outcomes()
        finally:
            scheduler.close()


@pytest.mark.parametrize(
    ("round_", "problem"),
    [
        ({"events_only": True}, "has pods, but the round has events only"),
        ({"max_pods": 1}, "has more pods than the round's max_pods, 1"),
    ],
)
def test_outcomes_that_the_round_does_not_allow_are_refused(
    round_: dict[str, bool | int], problem: str
) -> None:
    """By their place in the answer; the replay ends with the same error."""

    def spoil(answer: rpc.RunRoundResponse) -> None:
        for _ in range(2):
            answer.rounds[0].outcomes.add()

    wrong = Wrong(refused, spoil)  # type: ignore[abstract] # as above
    with served(wrong) as (_, address, *_others):
        scheduler = SchedulerService(address, scheduler_pb2.SchedulerConfig())
        try:
            scheduler.send_round(scheduler_pb2.Round(**round_))  # type: ignore[arg-type] # as given
            with pytest.raises(BackendError) as caught:
                scheduler.receive_outcomes()
        finally:
            scheduler.close()
    text = f"returned an invalid response: rounds[0].outcomes: {problem} (request 1 at 0s)"
    assert str(caught.value).endswith(text)


ALL_IGNORED = (
    "--rules, --seed, --scheduler-config, --queue-rules, --disable-preemption, --sample-nodes, "
    "--ties"
)
OPTIONS = [
    *("--disable-preemption", "--sample-nodes", "--rules", "v1.16", "--queue-rules", "v1.20"),
    *("--ties", "name", "--seed", "7", "--batch-size", "9", "--scheduler-config", "scheduler.yaml"),
]


def _bind(outcome: scheduler_pb2.Outcome) -> None:
    outcome.bind.node_name = "node-a"


class Following(Small):
    """Reports in Session.config that it follows some settings, and one that nobody requested."""

    def CreateSession(  # noqa: N802 - gRPC's name
        self, request: rpc.CreateSessionRequest, context: grpc.ServicerContext
    ) -> rpc.Session:
        """Start the only session."""
        session = super().CreateSession(request, context)
        session.implementation, session.version = "following", "1.0"
        session.config.seed = request.config.seed
        session.config.disable_preemption = True
        return session


@pytest.mark.parametrize(
    ("scheduler", "ignored"),
    [
        (Small, ALL_IGNORED),
        (Following, "--rules, --scheduler-config, --queue-rules, --sample-nodes, --ties"),
    ],
)
def test_options_that_a_scheduler_does_not_report_as_its_configuration_do_not_bind_it(
    tmp_path: Path, trace: str, scheduler: type[Small], ignored: str
) -> None:
    """A warning names them, at once and in the run; options with their defaults request nothing."""
    (tmp_path / "scheduler.yaml").write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
    )
    warning = f"does not follow {ignored}: it reports no such setting"
    with served(scheduler(_bind)) as options:
        plain = reprieve(tmp_path, "replay", trace, *options)
        assert "does not follow" not in plain.stderr
        done = reprieve(tmp_path, "replay", trace, *options, "--force", *OPTIONS)
    assert warning in " ".join(done.stderr.split())
    notes = RunDirectory.open(tmp_path / "run").notes()
    assert [note.kind for note in notes if warning in note.text] == ["configuration"]
