"""A client of our queue, and an eviction service and an autoscaler of others, in JavaScript."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from replay.backends.processes import ServiceProcess, Starter
from tests.e2e.node_groups import growing
from tests.e2e.replays import DEMOS, ROOT
from tests.languages.programs import level_of, replay, run, serving

pytestmark = pytest.mark.languages


def test_a_client_pops_pods_in_order(examples: Path) -> None:
    """The one that failed comes last, after its backoff."""
    starter = Starter()
    queue = ServiceProcess(starter, "queue")
    try:
        environment = os.environ | {"PROTOS": str(ROOT / "protos")}
        command = ["node", "client.js", queue.wait_listening()]
        done = run(command, folder=examples / "clients" / "queue-node", env=environment)
    finally:
        queue.stop()
        starter.wait()
    assert done.stdout.splitlines() == [
        "a session by the rules of v1.34",
        "in order of priority, then of arrival: uid-web, uid-batch, uid-cron",
        "popped uid-web; it was bound",
        "popped uid-batch; no node has room for it",
        "it backs off: left are uid-cron; next flush at 2000000000 ns",
        "after the flush: uid-cron, uid-batch",
        "popped uid-cron",
        "popped uid-batch",
        "popped nothing: OUTCOME_CODE_WOULD_BLOCK",
    ]


def test_an_eviction_service_replays_the_loop(examples: Path, tmp_path: Path) -> None:
    """It evicts by its own rule, and reaches the level of its README."""
    script = str(examples / "clients" / "eviction-service-node" / "service.js")
    with serving("node", script) as address:
        trace = DEMOS / "eviction-loop.jsonl"
        summary = replay(tmp_path, trace, "run", "--eviction", address)
        assert level_of(tmp_path, "eviction", address) == 1
    ((evicted),) = summary["decided"]["evicted"]
    assert evicted["name"] == "memory.available"
    assert evicted["count"] > 10
    note = "of all thresholds only the hard one of memory.available is served"
    assert note in str(summary["notes"])


def test_an_autoscaler_grows_a_group(examples: Path, tmp_path: Path) -> None:
    """By as many nodes as pods need, and it reaches the level of its README."""
    script = str(examples / "clients" / "autoscaler-service-node" / "service.js")
    trace, *options = growing(tmp_path)
    with serving("node", script) as address:
        summary = replay(tmp_path, Path(trace), "run", *options, "--autoscaler-service", address)
        assert level_of(tmp_path, "autoscaler", address) == 2
    assert summary["decided"]["bound"] == 3
    log = (tmp_path / "run" / "decisions.jsonl").read_text(encoding="utf-8")
    grown = [json.loads(line)["observed"] for line in log.splitlines() if '"scaledUp"' in line]
    assert [entry["scaledUp"]["toSize"] for entry in grown] == [2]
