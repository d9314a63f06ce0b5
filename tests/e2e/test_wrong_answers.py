"""What a foreign service answers is checked: each fault ends a replay with 3 and names the field.

The faults follow from the contract's descriptors and comments (faults.py), applied to what our own
services answer. A decision about a pod or a node that there is not is refused instead, and the run
ends as ever, with 3 for the scheduler's mistake.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from replay.backends.processes import EmbeddedServices
from reprieve.eviction.v1beta1 import eviction_service_pb2
from reprieve.queue.v1beta1 import queue_service_pb2
from reprieve.scheduler.v1beta1 import scheduler_pb2, scheduler_service_pb2
from tests.e2e.commands import SERVICE, reprieve
from tests.e2e.faults import Between, Fault, faults_of
from tests.e2e.replays import DEMOS, ROOT
from tests.e2e.test_budgets import preemptors, web, write_list

CLUSTER = """
apiVersion: v1
kind: Node
metadata: {name: node-a}
status: {allocatable: {cpu: "4", memory: 8Gi, pods: "10"}}
---
apiVersion: v1
kind: Pod
metadata: {name: low, namespace: default, creationTimestamp: "2026-01-01T00:00:00Z"}
spec: {priority: 1, nodeName: node-a, containers: [{name: c, resources: {requests: {cpu: "2"}}}]}
---
apiVersion: v1
kind: Pod
metadata: {name: least, namespace: default, creationTimestamp: "2026-01-01T00:00:00Z"}
spec: {priority: 0, containers: [{name: c, resources: {requests: {cpu: "1"}}}]}
---
apiVersion: v1
kind: Pod
metadata: {name: high, namespace: default, creationTimestamp: "2026-01-01T00:01:00Z"}
spec: {priority: 9, containers: [{name: c, resources: {requests: {cpu: "3"}}}]}
---
apiVersion: v1
kind: Pod
metadata: {name: large, namespace: default, creationTimestamp: "2026-01-01T00:02:00Z"}
spec: {priority: 0, containers: [{name: c, resources: {requests: {cpu: "40"}}}]}
---
apiVersion: v1
kind: Pod
metadata: {name: vast, namespace: default, creationTimestamp: "2026-01-01T00:02:00Z"}
spec: {priority: 0, containers: [{name: c, resources: {requests: {cpu: "50"}}}]}
"""
"""A pod that preempts another, one that is bound, and two that are refused together."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the trace."""
    path = tmp_path_factory.mktemp("trace") / "cluster.yaml"
    path.write_text(CLUSTER)
    return path


def replayed(trace: Path, run: Path, *options: str, code: int = 0) -> str:
    """Replay a trace, which ends with `code`, and return what is said of it in one line."""
    arguments = ["replay", str(trace), "--run", str(run), "--force", "-q", "--spans", "off"]
    arguments += ["--reconnect", "0s"]
    return reprieve(run.parent, *arguments, *options, code=code).stderr.replace("\n", " ")


@contextmanager
def between(address: str, method: str, answer: Any) -> Iterator[Between]:
    """Serve what is at `address`, through what can spoil it."""
    made = Between(address, method, answer)
    try:
        yield made
    finally:
        made.close()


REFUSED_DECISIONS = {
    "pop.uid": "were refused for its mistakes: 1 unknown pod",
    "refusals.uids": "were refused for its mistakes: 1 unknown pod",
    "bind.node_name": "were refused for its mistakes: 1 unknown node",
    "preemption.node_name": "were refused for its mistakes: 1 victim elsewhere",
    # Our scheduler refuses to hear of a victim that it has not named itself.
    "victims.pod.uid": "'nobody' is not one of the pods whose deletion was requested",
}
"""What a replay says of an unknown identity in a decision, by the end of the identity's path."""
NO_MISTAKES: Mapping[str, str] = {}


def not_refused(
    proxy: Between,
    faults: Iterable[Fault],
    trace: Path,
    run: Path,
    *options: str,
    mistakes: Mapping[str, str] = NO_MISTAKES,
) -> list[str]:
    """Return the faults that a replay does not refuse by the field with its exit code.

    `mistakes` has what is said of those that it refuses as a decision, by the end of their path.
    """
    wrong: list[str] = []
    for fault in faults:
        proxy.begin(fault.spoil)
        try:
            output = replayed(trace, run, *options, code=SERVICE)
        except AssertionError as error:
            output = str(error)
        assert proxy.spoiled, f"{fault} could not be made"
        pattern = f"(an invalid response|answers wrongly): {fault.pattern}"
        path = ".".join(fault.path)
        mistake = next((text for end, text in mistakes.items() if path.endswith(end)), "")
        if mistake and fault.kind == "unknown":
            pattern = mistake
        if not re.search(pattern, output):
            wrong.append(f"{fault}: {output[:200]}".replace("\n", " "))
    return wrong


def test_a_schedulers_answers(services: EmbeddedServices, cluster: Path, tmp_path: Path) -> None:
    """Outcomes of every form, and what stands around them."""
    answer = scheduler_service_pb2.RunRoundResponse
    with between(services.addresses["scheduler"], "StreamingRunRound", answer) as proxy:
        options = ("--scheduler", proxy.address, "--no-eviction", "--in-process")
        replayed(cluster, tmp_path / "run", *options)
        kinds = {
            outcome.WhichOneof("decision")
            for message in proxy.seen
            for outcomes in message.rounds  # type: ignore[attr-defined]
            for outcome in outcomes.outcomes
        }
        assert {"bind", "unschedulable", "refusals"} <= kinds
        faults = faults_of(proxy.seen)
        sys.stdout.write(f"{len(faults)} faults of a scheduler's answers\n")
        wrong = not_refused(
            proxy, faults, cluster, tmp_path / "run", *options, mistakes=REFUSED_DECISIONS
        )
        assert "\n".join(wrong) == ""


FORMS = {
    "failure.nominated_node_name": "failure",
    "extender_answers[0].extender": "extender",
    "extender_answers[0].call": "call",
    "extender_answers[0].answer": "answer",
}


@pytest.mark.parametrize("field", FORMS)
def test_forms_that_our_scheduler_seldom_answers(
    services: EmbeddedServices, cluster: Path, tmp_path: Path, field: str
) -> None:
    """A failed attempt, and extenders' answers."""

    def spoil(message: Any) -> bool:
        for outcomes in message.rounds:
            for outcome in outcomes.outcomes:
                if not outcome.HasField("bind"):
                    continue
                if FORMS[field] == "failure":
                    outcome.failure.nominated_node_name = "nobody"
                    return True
                response = outcome.extender_answers.add(extender="e", error="no")
                response.call = scheduler_pb2.EXTENDER_CALL_FILTER
                response.ClearField({"answer": "error"}.get(FORMS[field], FORMS[field]))
                return True
        return False

    answer = scheduler_service_pb2.RunRoundResponse
    with between(services.addresses["scheduler"], "StreamingRunRound", answer) as proxy:
        proxy.begin(spoil)
        options = ("--scheduler", proxy.address, "--no-eviction", "--in-process")
        output = replayed(cluster, tmp_path / "run", *options, code=SERVICE)
    assert f"returned an invalid response: outcomes[0].{field}: " in output


def test_more_without_an_outcome_and_a_window_that_never_ends(
    services: EmbeddedServices, cluster: Path, tmp_path: Path
) -> None:
    """Neither lets a replay wait for ever."""

    def more(message: Any) -> bool:
        message.rounds[0].ClearField("outcomes")
        message.rounds[0].more = True
        return True

    def goes_on(message: Any) -> bool:
        if not message.rounds[-1].window_continues and message.rounds[-1].more:
            return False
        message.rounds[-1].window_continues = True
        return True

    answer = scheduler_service_pb2.RunRoundResponse
    with between(services.addresses["scheduler"], "StreamingRunRound", answer) as proxy:
        for spoil, field in ((more, "more"), (goes_on, "window_continues")):
            proxy.begin(spoil)
            options = ("--scheduler", proxy.address, "--no-eviction", "--in-process")
            output = replayed(cluster, tmp_path / "run", *options, code=SERVICE)
            assert f" returned an invalid response: {field}: is set" in output


def test_an_eviction_services_answers(services: EmbeddedServices, tmp_path: Path) -> None:
    """Results of steps, with evictions, rankings and conditions."""
    trace, answer = DEMOS / "eviction-loop.jsonl", eviction_service_pb2.ApplyResponse
    with between(services.addresses["eviction"], "StreamingApply", answer) as proxy:
        options = ("--eviction", proxy.address, "--in-process")
        replayed(trace, tmp_path / "run", *options)
        faults = faults_of(proxy.seen)
        sys.stdout.write(f"{len(faults)} faults of an eviction service's answers\n")
        assert "\n".join(not_refused(proxy, faults, trace, tmp_path / "run", *options)) == ""


@contextmanager
def scheduler_of(queue: str, *options: str) -> Iterator[str]:
    """Start a scheduler that asks the queue at an address, and yield its own."""
    command = [sys.executable, "-m", "services.scheduler", "--queue", queue, *options]
    process = subprocess.Popen(
        [*command, "--listen", "127.0.0.1:0", "--no-warm-up"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "gen")])},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        yield process.stdout.readline().split()[-1]
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def test_a_queues_answers(services: EmbeddedServices, cluster: Path, tmp_path: Path) -> None:
    """Heads and results, which the scheduler checks."""
    answer = queue_service_pb2.ApplyResponse
    with (
        between(services.addresses["queue"], "StreamingApply", answer) as proxy,
        scheduler_of(proxy.address) as address,
    ):
        options = ("--scheduler", address, "--no-eviction", "--in-process")
        replayed(cluster, tmp_path / "run", *options)
        faults = faults_of(proxy.seen)
        sys.stdout.write(f"{len(faults)} faults of a queue's answers\n")
        assert "\n".join(not_refused(proxy, faults, cluster, tmp_path / "run", *options)) == ""


def test_a_scheduler_that_continues_after_a_guarded_victim_is_refused(
    services: EmbeddedServices, tmp_path: Path
) -> None:
    """A foreign scheduler that preempts four at once would read statuses that nobody has."""
    path = write_list(tmp_path, *web(4, {"maxUnavailable": 1}), *preemptors())

    def goes_on(message: Any) -> bool:
        outcomes = message.rounds[0]
        if not outcomes.awaits_effects:
            return False
        outcomes.awaits_effects = False
        return True

    answer = scheduler_service_pb2.RunRoundResponse
    with between(services.addresses["scheduler"], "StreamingRunRound", answer) as proxy:
        proxy.begin(goes_on)
        options = ("--scheduler", proxy.address, "--no-eviction", "--in-process")
        done = reprieve(tmp_path, "replay", str(path), "--run", "run", *options, code=SERVICE)
    assert "awaits_effects: outcomes[0] deletes shop/web-" in done.stderr
    assert "which budget shop/web guards" in done.stderr
