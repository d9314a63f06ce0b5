"""A run's exported rounds, sent to a scheduler again as its author would."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from google.protobuf import json_format

from replay.backends.processes import EmbeddedServices
from replay.results.run.directory import RunDirectory
from reprieve.scheduler.v1beta1 import scheduler_service_pb2 as service_pb2
from reprieve.scheduler.v1beta1.scheduler_service_pb2_grpc import SchedulerServiceStub
from services.rpc.client import channel
from tests.e2e.commands import reprieve
from tests.e2e.replays import DEMOS

pytestmark = pytest.mark.e2e


def test_exported_rounds_lead_another_session_to_the_same_decisions(
    here: EmbeddedServices, tmp_path: Path
) -> None:
    """The session has the run's configuration; each round is a request of its own."""
    trace = str(DEMOS / "four-tiers.ktr")
    options = ("--run", "run", "--until", "4m", "--no-report", "--spans", "off", "-q")
    reprieve(tmp_path, "replay", trace, *options)
    made = RunDirectory.open(tmp_path / "run")
    created = reprieve(tmp_path, "export", "run", "--create-session").stdout
    bound: list[tuple[str, str]] = []
    with closing(channel(here.addresses["scheduler"])) as opened:
        stub = SchedulerServiceStub(opened)
        session = stub.CreateSession(
            json_format.Parse(created, service_pb2.CreateSessionRequest()), timeout=60
        )
        exported = reprieve(
            tmp_path, "export", "run", "--rounds", "--session-id", session.session_id
        ).stdout
        for line in exported.splitlines():
            request = json_format.Parse(line, service_pb2.RunRoundRequest())
            for outcomes in stub.RunRound(request, timeout=60).rounds:
                bound += [
                    (outcome.pop.uid, outcome.bind.node_name)
                    for outcome in outcomes.outcomes
                    if outcome.HasField("bind")
                ]
    assert len(bound) > 100
    assert bound == [
        (decision.observed.object.uid, decision.observed.scheduled.node_name)
        for decision in made.decisions()
        if decision.observed.HasField("scheduled")
    ]
