"""What explain says of an evicted pod: its rank, the threshold, and what was observed."""

from __future__ import annotations

import io
import json

import pytest
from click.testing import CliRunner
from rich.console import Console

from replay.backends.processes import EmbeddedServices
from replay.cli.main import command
from replay.errors import RunError
from replay.explain.explain import explain
from replay.explain.explanation import EvictionReason, PodRank
from replay.explain.table import print_eviction
from replay.explain.target import ExplainQuery
from replay.results.run.directory import RunDirectory
from reprieve.kube.v1beta1 import object_pb2
from reprieve.trace.v1beta1 import trace_pb2
from services.kube.time import SECOND_NS
from services.telemetry.span import Sampling
from tests.builders import make_node
from tests.e2e.replays import run

pytestmark = pytest.mark.e2e

MIB = 1 << 20
THRESHOLD = "memory.available<100Mi grace=0s min_reclaim="
WIDTH = 80


def records() -> list[trace_pb2.Record]:
    """Return a node of 4 GiB with a static pod, a greedy one that came bound, and a modest one."""
    node = make_node("n1").capacity(cpu="4", memory="4Gi").message()
    trace_records = [trace_pb2.Record(create=object_pb2.KubernetesObject(node=node))]
    for name, mib, priority in (("static", 1500, 0), ("greedy", 2550, 5)):
        usage, created = trace_pb2.Record(), trace_pb2.Record()
        usage.usage.id = 1 + len(trace_records)
        usage.usage.segments.add(offset_duration_ns=0, memory_bytes=100 * MIB)
        usage.usage.segments.add(offset_duration_ns=25 * SECOND_NS, memory_bytes=mib * MIB)
        pod = created.pod_create.pod
        pod.metadata.name, pod.metadata.uid = name, f"uid-{name}"
        pod.spec.node_name, pod.spec.priority = "n1", priority
        if name == "static":
            pod.metadata.annotations["kubernetes.io/config.source"] = "file"
        pod.spec.containers.add(name="c").resources.requests["memory"] = "1Gi"
        pod.status.phase = "Running"
        created.pod_create.life.usage_id = usage.usage.id
        trace_records += [usage, created]
    usage, modest = trace_pb2.Record(), trace_pb2.Record()
    usage.usage.id = modest.pod_create.life.usage_id = 9
    usage.usage.segments.add(offset_duration_ns=0, memory_bytes=MIB)
    modest.pod_create.pod.metadata.name = "modest"
    modest.pod_create.pod.spec.containers.add(name="c").resources.requests["memory"] = "1Gi"
    trace_records += [usage, modest]
    for sequence, record in enumerate(trace_records, 1):
        record.sequence = sequence
    return trace_records


@pytest.fixture(scope="module")
def finished(here: EmbeddedServices, tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """Replay the node under pressure, with spans."""
    path = tmp_path_factory.mktemp("evicted") / "run"
    return run(here, records(), path, sampling=Sampling(1.0)).run


def evicted_names(finished: RunDirectory) -> list[str]:
    """Return who was evicted, in order."""
    entries = [entry.observed for entry in finished.decisions()]
    return [entry.object.name for entry in entries if entry.HasField("evicted")]


def shown(eviction: EvictionReason) -> str:
    """Return what a terminal of 80 columns shows of an eviction."""
    out = io.StringIO()
    print_eviction(eviction, "default/greedy", 0, Console(file=out, width=WIDTH))
    return out.getvalue()


def test_an_evicted_pod_is_explained_by_its_rank_the_threshold_and_the_observation(
    finished: RunDirectory,
) -> None:
    """The static pod ranks before it and stays; a pod that came bound has nothing else to tell."""
    assert evicted_names(finished) == ["greedy"]
    explanation = explain(finished, ExplainQuery(pod="greedy"))
    assert (explanation.decision, explanation.node, explanation.attempts) == ("came bound", "n1", 0)
    eviction = explanation.eviction
    assert eviction is not None
    assert (eviction.node, eviction.signal, eviction.threshold) == (
        "n1",
        "memory.available",
        THRESHOLD,
    )
    assert (eviction.available, eviction.capacity) == (45 * MIB, 4096 * MIB)
    assert (eviction.rank, eviction.ranked_pods) == (2, 3)
    ranked = [pod.pod for pod in eviction.ranking]
    assert ranked == ["default/static", "default/greedy", "default/modest"]
    assert eviction.at_ns == 30 * SECOND_NS
    assert [event.what for event in explanation.afterwards][-1] == "ended: Failed"


def test_a_moment_before_the_eviction_does_not_know_it(finished: RunDirectory) -> None:
    """The pod was running then, and nobody had decided anything about it."""
    with pytest.raises(RunError, match="was created with node n1"):
        explain(finished, ExplainQuery(pod="greedy", offset_ns=20 * SECOND_NS))


def test_the_command_shows_it_on_a_terminal_and_as_json(finished: RunDirectory) -> None:
    """Both forms say the same."""
    arguments = ["explain", "greedy", str(finished.path)]
    table = CliRunner().invoke(command, arguments, catch_exceptions=False).output
    assert "default/greedy was created with node n1" in table
    assert "threshold: memory.available<100Mi (hard)" in table
    assert "observed: 45Mi available of 4Gi" in table
    assert "rank: 2 of 3 pods on the node" in table
    output = CliRunner().invoke(command, [*arguments, "-o", "json"], catch_exceptions=False).output
    eviction = json.loads(output)["eviction"]
    assert (eviction["threshold"], eviction["available"]) == (THRESHOLD, 45 * MIB)
    place = eviction["ranking"][eviction["rank"] - 1]
    assert place == {
        "pod": "default/greedy",
        "priority": 5,
        "usage": 2550 * MIB,
        "request": 1024 * MIB,
        "exceeds_request": True,
    }


def test_the_spans_name_the_threshold_and_the_rankings_head(finished: RunDirectory) -> None:
    """In the attributes of synchronize."""
    spans = (finished.path / "spans.jsonl").read_text(encoding="utf-8")
    assert f"n1: {THRESHOLD}" in spans
    assert "reprieve.ranking_head" in spans


def test_other_evictions_are_put_into_words_too() -> None:
    """A soft threshold with a minimum reclaim on inodes, and a limit on local storage."""
    soft = EvictionReason(
        at_ns=90 * SECOND_NS,
        node="n1",
        signal="nodefs.inodesFree",
        threshold="nodefs.inodesFree<5% grace=1m30s min_reclaim=1k",
        available=40_000,
        capacity=1_000_000,
        grace_period_s=None,
        message="The node was low on resource: inodes. ",
        rank=2,
        ranked_pods=30,
        ranking=(
            PodRank(
                pod="kube-system/dns",
                priority=2_000_000_000,
                usage=None,
                request=0,
                exceeds_request=False,
            ),
        ),
    )
    text = shown(soft)
    assert "nodefs.inodesFree<5% (soft, after 1m30s, minimum reclaim 1k)" in text
    assert "observed: 40,000 available of 1,000,000" in text
    assert "The first 1 of the ranking" in text
    assert "unknown" in text
    limit = EvictionReason(
        at_ns=0,
        node="n1",
        signal="",
        threshold="",
        available=None,
        capacity=None,
        grace_period_s=1,
        message="Pod ephemeral local storage usage exceeds the total limit of containers 1Gi. ",
        rank=0,
        ranked_pods=0,
        ranking=(),
    )
    text = shown(limit)
    assert "with a grace period of 1 s" in text
    assert "a limit on local storage was exceeded" in text
    assert "threshold:" not in text
