"""The eviction service against what upstream's own code did, through gRPC."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest

import grpc
import pytest

from replay.conform.vectors.eviction import (
    ScriptedNode,
    config_message,
    eviction_difference,
    step_difference,
)
from replay.conform.vectors.vectors import Json
from reprieve.eviction.v1beta1 import eviction_pb2 as ev
from reprieve.eviction.v1beta1 import eviction_service_pb2 as pb
from tests.e2e.eviction_client import Client, running_eviction
from tests.eviction_scripts import scripts

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def channel() -> Iterator[grpc.Channel]:
    """Yield a channel to a service that lives as long as this module's tests."""
    with running_eviction() as (_, opened):
        yield opened


@pytest.mark.parametrize("rules", ["v1.32", "v1.27"])
def test_every_script_decides_as_upstream_does_call_by_call(
    channel: grpc.Channel, rules: str
) -> None:
    """One session a script, of every fourth, with a call for each operation."""
    played = list(scripts(rules))[::4]
    said = {script["id"]: eviction_difference(channel, rules, script) for script in played}
    assert not [item for item in said.items() if item[1]]
    assert any("config_error" in script for script in played)


@pytest.mark.parametrize("rules", ["v1.32", "v1.27"])
def test_all_scripts_at_once_decide_as_upstream_does_batch_by_batch(
    channel: grpc.Channel, rules: str
) -> None:
    """Each script is a node of one session, and each batch holds the next step of all of them.

    Half-way the session is saved, thrown away and restored.
    """
    client = Client(channel)
    played = {script["id"]: script for script in scripts(rules) if "config_error" not in script}
    nodes = {name: ScriptedNode(name) for name in played}
    for name, script in played.items():
        client.configure(name, config_message(script["config"], rules))
    rounds = list(zip_longest(*(script["script"] for script in played.values())))
    differences: dict[str, str] = {}
    for number, steps in enumerate(rounds):
        due = {name: plain for name, plain in zip(played, steps, strict=True) if plain is not None}
        for name, result in _round(client, nodes, due).items():
            recorded = played[name]["expected"][number]
            difference = step_difference(
                nodes[name].seen(result, due[name]), recorded, ranked_max=10
            )
            if difference:
                differences.setdefault(name, f"{name} step {number}: {difference}")
        if number == 3:
            chunks, before = client.checkpoint(), client.state()
            client.close()
            client.restore(chunks)
            assert client.state() == before
    assert not differences, f"{len(differences)}:\n" + "\n".join(list(differences.values())[:3])


def _round(
    client: Client, nodes: dict[str, ScriptedNode], due: dict[str, Json]
) -> dict[str, ev.StepResult]:
    """Step all that are due in one batch, and collect for those that request it in a second."""
    steps = [pb.Operation(step=nodes[name].step(plain)) for name, plain in due.items()]
    results = client.batch(steps)
    resumes = [
        pb.Operation(
            resume=nodes[result.node_name].resume(due[result.node_name], result.need_reclaim)
        )
        for result in results
        if result.HasField("need_reclaim")
    ]
    results += client.batch(resumes)
    return {result.node_name: result.step for result in results if result.HasField("step")}
