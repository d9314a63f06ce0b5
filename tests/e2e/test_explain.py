"""What explain says of a run is what the run's decision log says."""

from __future__ import annotations

import io
import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

from replay.backends.processes import EmbeddedServices
from replay.cli.errors import ExitError
from replay.cli.main import command
from replay.explain.explain import explain
from replay.explain.explanation import PodExplanation
from replay.explain.table import print_explanation
from replay.explain.target import ExplainQuery, attempt_of
from replay.generate.workload import GenerateOptions, generate
from replay.results.run.directory import RunDirectory
from replay.results.run.files import HISTORY
from replay.runner import run_replay
from replay.settings import ReplaySettings
from reprieve.trace.v1beta1 import trace_pb2
from services.kube.time import SECOND_NS
from tests.e2e.replays import DEMOS, NO_SPANS, run, trace

pytestmark = pytest.mark.e2e

WORKLOAD = GenerateOptions(
    seed=5,
    nodes=5,
    pods=130,
    deployments=5,
    budgets=30,
    window_ns=120 * SECOND_NS,
    service_ns=90 * SECOND_NS,
)
BURST_NS = 60 * SECOND_NS
WIDTH = 80
GATED = """
apiVersion: v1
kind: Node
metadata: {name: n1}
status: {allocatable: {cpu: "2", memory: 4Gi, pods: "10"}}
---
apiVersion: v1
kind: Pod
metadata: {name: held, namespace: default}
spec:
  schedulingGates: [{name: example.com/wait}]
  containers: [{name: c, image: x, resources: {requests: {cpu: "1"}}}]
"""
PREFERRING = """
apiVersion: v1
kind: Node
metadata: {name: n1, labels: {zone: a}}
status: {allocatable: {cpu: "2", memory: 4Gi, pods: "10"}}
---
apiVersion: v1
kind: Node
metadata: {name: n2, labels: {zone: b}}
status: {allocatable: {cpu: "2", memory: 4Gi, pods: "10"}}
---
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: default}
spec:
  affinity:
    nodeAffinity:
      preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 5
        preference: {matchExpressions: [{key: zone, operator: In, values: [b]}]}
  containers: [{name: c, image: x, resources: {requests: {cpu: "1"}}}]
"""


@dataclass(slots=True)
class Logged:
    """An attempt as the decision log has it."""

    uid: str
    attempt: int
    node: str = ""
    message: str = ""
    score: int | None = None
    decided_by: str = ""
    victims: list[str] = field(default_factory=list)


def bursts() -> Iterator[trace_pb2.Record]:
    """Yield the workload with all of a minute's arrivals at the minute's beginning."""
    for record in generate(WORKLOAD):
        record.time_ns -= record.time_ns % BURST_NS
        yield record


CONFIGS = {
    "v1.36": ReplaySettings(seed=3),
    "v1.34": ReplaySettings(seed=3, rules="v1.34"),
    "v1.34 with its queue": ReplaySettings(seed=3, rules="v1.34", queue_rules="v1.34"),
    "v1.16": ReplaySettings(seed=3, rules="v1.16", batch_size=7),
}


@pytest.fixture(scope="module", params=list(CONFIGS))
def finished(
    request: pytest.FixtureRequest, here: EmbeddedServices, tmp_path_factory: pytest.TempPathFactory
) -> RunDirectory:
    """Replay bursts on a full cluster, so that rounds hold many pods."""
    settings = replace(
        CONFIGS[request.param],
        version="test",
        scheduler_address=here.addresses["scheduler"],
        no_eviction=True,
        run_path=tmp_path_factory.mktemp("explain") / "run",
        sampling=NO_SPANS,
    )
    return run_replay(settings, bursts, lambda _now_ns, _cluster, _tally: None).run


def logged(finished: RunDirectory) -> list[Logged]:
    """Return the attempts of a log in order, each with the nomination that came of it."""
    attempts: list[Logged] = []
    for decision in finished.decisions():
        observed = decision.observed
        uid = observed.object.uid
        match observed.WhichOneof("observed"):
            case "scheduled":
                bound = observed.scheduled
                score = bound.score if bound.HasField("score") else None
                attempts.append(Logged(uid, bound.attempts, bound.node_name, score=score))
            case "failed_scheduling":
                failed = observed.failed_scheduling
                attempts.append(Logged(uid, failed.attempts, message=failed.message))
            case "nominated" if observed.nominated.node_name:
                nominated = observed.nominated
                attempts[-1].node = nominated.node_name
                attempts[-1].decided_by = nominated.decided_by
                attempts[-1].victims = [f"{v.namespace}/{v.name}" for v in nominated.victims]
    return attempts


def explained(finished: RunDirectory, here: EmbeddedServices, attempt: Logged) -> PodExplanation:
    """Explain an attempt with the services that run."""
    wish = ExplainQuery(pod=attempt.uid, attempt=attempt.attempt)
    return explain(finished, wish, address=here.addresses["scheduler"])


def printed(explanation: PodExplanation) -> str:
    """Return what a terminal of 80 columns shows."""
    out = io.StringIO()
    print_explanation(explanation, Console(file=out, width=WIDTH))
    return out.getvalue()


def test_an_explained_attempt_is_the_one_in_the_log(
    finished: RunDirectory, here: EmbeddedServices
) -> None:
    """Of every kind of attempt, in the middle of a burst: node, victims and words are the log's."""
    kinds: dict[str, list[Logged]] = defaultdict(list)
    for attempt in logged(finished):
        kind = (
            "nominated" if attempt.victims else "unschedulable" if attempt.message else "scheduled"
        )
        kinds[kind].append(attempt)
    assert set(kinds) == {"nominated", "unschedulable", "scheduled"}
    for kind, attempts in kinds.items():
        last = attempts[-1:] if kind == "nominated" else []
        for tried_pod in (attempts[len(attempts) // 3], *last):
            explanation = explained(finished, here, tried_pod)
            assert (explanation.decision, explanation.attempt) == (kind, tried_pod.attempt)
            assert (explanation.node, explanation.message) == (tried_pod.node, tried_pod.message)
            assert all(len(line) <= WIDTH for line in printed(explanation).splitlines())
            if kind == "nominated":
                assert explanation.preemption is not None
                assert explanation.preemption.picked == tried_pod.node
                assert explanation.preemption.decided_by == tried_pod.decided_by
                picked = explanation.preemption.candidates[0]
                assert [victim.pod for victim in picked.victims] == tried_pod.victims
            if kind == "scheduled":
                assert explanation.best[0].name == tried_pod.node
            if tried_pod.score is not None and explanation.best[0].scores:
                assert explanation.best[0].total == tried_pod.score
                assert explanation.runner_up is None or explanation.runner_up.lost_by >= 0
            if kind == "unschedulable":
                assert sum(group.count for group in explanation.refused) == explanation.nodes == 5


def test_each_attempt_of_a_pod_at_one_moment_is_explained(
    finished: RunDirectory, here: EmbeddedServices
) -> None:
    """One that fails can be tried again in a later round of the moment, with v1.34's queue.

    The binding of a nominated pod moves others there; since v1.36 it does not.
    """
    times = [attempt.time_ns for attempt in finished.decisions() if attempt_of(attempt)]
    tried = list(zip(times, logged(finished), strict=True))
    count = Counter((at_ns, attempt.uid) for at_ns, attempt in tried)
    again = [attempt for at_ns, attempt in tried if count[at_ns, attempt.uid] > 1][:2]
    assert len(again) == (2 if finished.manifest().rules == "v1.34" else 0)
    for tried_pod in again:
        explanation = explained(finished, here, tried_pod)
        assert (explanation.attempt, explanation.node, explanation.message) == (
            tried_pod.attempt,
            tried_pod.node,
            tried_pod.message,
        )


def test_a_pod_that_waits_is_explained_by_where_and_for_what(
    finished: RunDirectory, here: EmbeddedServices
) -> None:
    """Right after a failed attempt it stands in the queue, refused by the plugins that it names."""
    failed = next(attempt for attempt in logged(finished) if attempt.message)
    explanation = explained(finished, here, failed)
    assert explanation.waiting is not None
    assert explanation.waiting.sub_queue in {"unschedulable pods", "backoffQ"}
    assert "NodeResourcesFit" in explanation.waiting.plugins
    assert explanation.waiting.leftover_ns or explanation.waiting.until_ns
    assert "it waits in" in " ".join(printed(explanation).split())


def test_the_nginx_demo_is_explained(here: EmbeddedServices, tmp_path: Path) -> None:
    """nginx-a displaces a replica, whose replacement waits in vain; later attempts go by time."""
    finished = run(here, trace([DEMOS / "nginx-preemption.jsonl"]), tmp_path / "run").run
    address = here.addresses["scheduler"]
    first = explain(finished, ExplainQuery(pod="nginx-a", offset_ns=9 * SECOND_NS), address=address)
    at_ns = first.start_ns + 9 * SECOND_NS
    assert explain(finished, ExplainQuery(pod="nginx-a", at_ns=at_ns), address=address) == first
    assert (first.attempt, first.attempts, first.node) == (1, 2, "test-worker")
    assert first.preemption is not None
    (candidate,) = first.preemption.candidates
    assert [v.pod for v in candidate.victims] == ["default/nginx-5754944d6c-9mnxa"]
    second = explain(finished, ExplainQuery(pod="default/nginx-a"), address=address)
    assert (second.attempt, second.decision) == (2, "scheduled")
    assert second.fast_path == "nominatedNode"
    assert [event.what for event in second.afterwards] == ["started on test-worker"]
    waits = explain(finished, ExplainQuery(pod="nginx-5754944d6c-7xk2p"), address=address)
    assert waits.waiting is not None
    assert waits.waiting.sub_queue == "unschedulable pods"
    assert waits.waiting.at_ns - waits.start_ns == 20 * SECOND_NS
    assert "PodDelete" in waits.waiting.events["NodeResourcesFit"]


def test_a_gated_pod_is_explained_by_its_gates(here: EmbeddedServices, tmp_path: Path) -> None:
    """It was not tried; the nodes are judged as they stand."""
    manifest = tmp_path / "gated.yaml"
    manifest.write_text(GATED, encoding="utf-8")
    finished = run(here, trace([manifest]), tmp_path / "run").run
    explanation = explain(finished, ExplainQuery(pod="held"), address=here.addresses["scheduler"])
    assert (explanation.decision, explanation.attempt, explanation.gates) == (
        "not tried",
        0,
        ("example.com/wait",),
    )
    assert explanation.feasible_nodes == 1
    assert "scheduling gates: example.com/wait" in printed(explanation)


def test_a_plugin_with_points_is_not_reported_as_skipped(
    here: EmbeddedServices, tmp_path: Path
) -> None:
    """NodeAffinity has nothing to filter here, and scores all the same."""
    manifest = tmp_path / "preferring.yaml"
    manifest.write_text(PREFERRING, encoding="utf-8")
    finished = run(here, trace([manifest]), tmp_path / "run").run
    explanation = explain(finished, ExplainQuery(pod="web"), address=here.addresses["scheduler"])
    assert explanation.best[0].scores["NodeAffinity"].normalized == 100
    assert "NodeAffinity" in explanation.skipped_filters
    output = printed(explanation).partition("skipped score plugins: ")[2].partition("runner-up")[0]
    idle = output.replace(",", " ").split()
    assert {*idle, *explanation.best[0].scores} == set(explanation.weights)
    assert list(explanation.weights) == sorted(explanation.weights), "the same JSON in each process"
    assert not set(idle) & explanation.best[0].scores.keys()


def test_the_command_prints_tables_and_json(here: EmbeddedServices, tmp_path: Path) -> None:
    """Both forms say the same; -o json is one object."""
    path = tmp_path / "run"
    run(here, trace([DEMOS / "nginx-preemption.jsonl"]), path)
    address = here.addresses["scheduler"]
    arguments = ["explain", "nginx-a", str(path), "--attempt", "1", "--scheduler", address]
    shown = CliRunner().invoke(command, arguments, catch_exceptions=False)
    assert shown.exit_code == 0
    assert "victim  default/nginx-5754944d6c-9mnxa         0  -" in shown.output
    done = CliRunner().invoke(command, [*arguments, "-o", "json"], catch_exceptions=False)
    explanation = json.loads(done.output)
    assert (explanation["pod"], explanation["decision"]) == ("default/nginx-a", "nominated")
    assert explanation["preemption"]["candidates"][0]["victims"][0]["priority"] == 0
    assert explanation["offset_ns"] == 8 * SECOND_NS


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nginx-b"], "did you mean default/nginx-a"),
        (["nginx-a", "--attempt", "3"], "it has 1 to 2"),
        (["nginx-a", "--at", "1s"], "does not exist yet: it is created at 8s"),
        (["nginx-5754944d6c-9mnxa"], "was created with node test-worker"),
        (["nginx-a", "-n", "other"], "no pod other/nginx-a"),
    ],
)
def test_an_unknown_pod_or_attempt_is_refused_with_similar_names(
    here: EmbeddedServices, tmp_path: Path, arguments: list[str], said: str
) -> None:
    """An unknown pod has near names beside it, an unknown attempt those that there are."""
    run(here, trace([DEMOS / "nginx-preemption.jsonl"]), tmp_path / "run")
    pod, *options = arguments
    with pytest.raises(ExitError, match=said) as caught:
        CliRunner().invoke(
            command, ["explain", pod, str(tmp_path / "run"), *options], catch_exceptions=False
        )
    assert caught.value.code == 2


def test_a_run_without_its_history_cannot_be_explained(
    here: EmbeddedServices, tmp_path: Path
) -> None:
    """The file that is missing is named."""
    run(here, trace([DEMOS / "nginx-preemption.jsonl"]), tmp_path / "run")
    (tmp_path / "run" / HISTORY).unlink()
    with pytest.raises(ExitError, match=HISTORY):
        CliRunner().invoke(
            command, ["explain", "nginx-a", str(tmp_path / "run")], catch_exceptions=False
        )
