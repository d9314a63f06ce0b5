"""What explain says of a run that another scheduler has decided."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
from click.testing import CliRunner
from google.protobuf.empty_pb2 import Empty

from replay.backends.processes import EmbeddedServices
from replay.cli.errors import REFUSED, ExitError
from replay.cli.main import command
from replay.results.run.directory import RunDirectory
from replay.runner import run_replay
from replay.settings import ReplaySettings
from reprieve.scheduler.v1beta1 import scheduler_pb2, scheduler_service_pb2_grpc
from reprieve.scheduler.v1beta1 import scheduler_service_pb2 as scheduler_rpc
from reprieve.session.v1beta1 import session_pb2
from tests.e2e.replays import DEMOS, NO_SPANS, trace

pytestmark = pytest.mark.e2e
REFUSAL = "0/1 nodes are available: 1 Insufficient cpu."
"""What ours writes, too, where it finds no node and preempts."""


class Grumpy(scheduler_service_pb2_grpc.SchedulerServiceServicer):
    """A scheduler that refuses every pod once, and explains itself where it `judges`."""

    def __init__(self, *, judges: bool) -> None:
        self.judges = judges

    def CreateSession(  # noqa: N802 - gRPC's name
        self, request: scheduler_rpc.CreateSessionRequest, context: grpc.ServicerContext
    ) -> scheduler_rpc.Session:
        """Start a session."""
        del request, context
        return scheduler_rpc.Session(session_id="s", implementation="grumpy", version="7")

    def DeleteSession(  # noqa: N802 - gRPC's name
        self, request: session_pb2.DeleteSessionRequest, context: grpc.ServicerContext
    ) -> Empty:
        """Forget nothing."""
        del request, context
        return Empty()

    def StreamingRunRound(  # noqa: N802 - gRPC's name
        self,
        request_iterator: Iterator[scheduler_rpc.RunRoundRequest],
        context: grpc.ServicerContext,
    ) -> Iterator[scheduler_rpc.RunRoundResponse]:
        """Refuse the pods that come, one at a time where that is requested."""
        del context
        waiting: list[str] = []
        cycles = itertools.count(1)
        for request in request_iterator:
            round_ = request.round
            added = (event.add.pod for event in round_.events if event.add.HasField("pod"))
            waiting += [pod.metadata.uid for pod in added if not pod.spec.node_name]
            answer = scheduler_pb2.RoundOutcomes()
            for _ in range(0 if round_.events_only else round_.max_pods or len(waiting)):
                if waiting:
                    outcome = answer.outcomes.add(time_ns=round_.time_ns, attempts=1)
                    outcome.pop.uid, outcome.pop.cycle = waiting.pop(0), next(cycles)
                    outcome.unschedulable.message = REFUSAL
            answer.more = bool(waiting)
            yield scheduler_rpc.RunRoundResponse(rounds=[answer], sequence=request.stamp.sequence)

    def EvaluatePod(  # noqa: N802 - gRPC's name
        self, request: scheduler_rpc.EvaluatePodRequest, context: grpc.ServicerContext
    ) -> Iterator[scheduler_rpc.EvaluatePodResponse]:
        """Say why."""
        del request
        if not self.judges:
            context.abort(grpc.StatusCode.UNIMPLEMENTED, "never explains itself")
        answer = scheduler_rpc.EvaluatePodResponse()
        answer.evaluation.fit_error = REFUSAL
        answer.evaluation.nodes.add(node_name="test-worker").refusal.plugin = "Weekday"
        yield answer


class Elsewhere:
    """A server with that scheduler, which may stop and begin again at its address."""

    def __init__(self) -> None:
        self.port = 0
        self._server: grpc.Server | None = None

    @property
    def address(self) -> str:
        """Return where it is."""
        return f"127.0.0.1:{self.port}"

    def start(self, scheduler: scheduler_service_pb2_grpc.SchedulerServiceServicer) -> None:
        """Serve a scheduler."""
        self.stop()
        self._server = grpc.server(ThreadPoolExecutor(4))
        scheduler_service_pb2_grpc.add_SchedulerServiceServicer_to_server(scheduler, self._server)
        self.port = self._server.add_insecure_port(self.address)
        self._server.start()

    def stop(self) -> None:
        """Serve no longer."""
        if self._server is not None:
            self._server.stop(0).wait()


@pytest.fixture
def elsewhere() -> Iterator[Elsewhere]:
    """Return where the foreign scheduler is, which serves all but its reasons."""
    server = Elsewhere()
    server.start(Grumpy(judges=False))  # type: ignore[abstract] # gRPC itself refuses the other methods
    yield server
    server.stop()


@pytest.fixture
def run(elsewhere: Elsewhere, tmp_path: Path) -> RunDirectory:
    """Return a run in which nginx-a is refused, which ours lets preempt."""
    settings = ReplaySettings(
        version="test",
        scheduler_address=elsewhere.address,
        no_eviction=True,
        run_path=tmp_path / "run",
        sampling=NO_SPANS,
    )
    records = iter(trace([DEMOS / "nginx-preemption.jsonl"]))
    return run_replay(settings, lambda: records, lambda _now_ns, _cluster, _tally: None).run


def explained(run: RunDirectory, *options: str) -> str:
    """Return what the command prints as JSON."""
    arguments = ["explain", "nginx-a", str(run.path), *options, "-o", "json"]
    return CliRunner().invoke(command, arguments, catch_exceptions=False).output


def refusal(run: RunDirectory, *options: str) -> str:
    """Return why the command refuses."""
    with pytest.raises(ExitError) as caught:
        explained(run, *options)
    assert caught.value.code == REFUSED
    return str(caught.value)


def test_a_run_keeps_what_decided_it(run: RunDirectory, elsewhere: Elsewhere) -> None:
    """The service's address, and what it calls itself."""
    manifest = run.manifest()
    assert (manifest.scheduler_address, manifest.decided_by) == (elsewhere.address, "grumpy 7")


def test_the_service_that_made_a_run_explains_it(run: RunDirectory, elsewhere: Elsewhere) -> None:
    """In its own words, and with no candidate for preemption."""
    elsewhere.start(Grumpy(judges=True))  # type: ignore[abstract] # gRPC itself refuses the other methods
    explanation = json.loads(explained(run, "--scheduler", elsewhere.address))
    assert (explanation["decision"], explanation["message"]) == ("unschedulable", REFUSAL)
    assert [refusal["plugin"] for refusal in explanation["refused"]] == ["Weekday"]
    assert explanation["notes"] == []


def test_no_address_that_a_run_names_is_connected_to(
    run: RunDirectory, elsewhere: Elsewhere, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stranger may have made the run; the refusal gives the option that allows it."""
    monkeypatch.setattr("replay.backends.services.channel", lambda *_: pytest.fail("connected"))
    assert f"add `--scheduler {elsewhere.address}`" in refusal(run)


def test_a_service_without_reasons_is_named(run: RunDirectory, elsewhere: Elsewhere) -> None:
    """It serves rounds, and nothing that explains them."""
    output = refusal(run, "--scheduler", elsewhere.address)
    assert f"at {elsewhere.address} does not serve EvaluatePod" in output


def test_a_run_whose_service_is_gone_is_not_explained_by_another(
    run: RunDirectory, elsewhere: Elsewhere
) -> None:
    """What made it is named, with where it was and what to do."""
    elsewhere.stop()
    output = refusal(run, "--scheduler", elsewhere.address)
    assert f"the scheduler at {elsewhere.address} (grumpy 7), which does not answer" in output
    assert "name another with --scheduler" in output


def test_what_ours_decides_otherwise_is_not_reported_of_a_foreign_run(
    run: RunDirectory, services: EmbeddedServices
) -> None:
    """Ours would preempt for nginx-a: that is no explanation of a refusal."""
    ours = services.addresses["scheduler"]
    assert "does not lead to that decision" in refusal(run, "--scheduler", ours)
