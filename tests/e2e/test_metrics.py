"""The metrics of real services after a replay: upstream's names, and what was decided."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest
from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as plain_metrics

from reprieve.queue.v1beta1 import queue_service_pb2 as pb
from reprieve.queue.v1beta1 import queue_service_pb2_grpc
from reprieve.session.v1beta1 import session_pb2
from tests.e2e.commands import reprieve
from tests.e2e.node_groups import growing
from tests.e2e.replays import ROOT
from tests.e2e.services_with_metrics import Started, start_all

TRACE = ROOT / "examples" / "traces" / "nginx-preemption.jsonl"
UPSTREAM = {
    "queue": {
        "scheduler_pending_pods",
        "scheduler_pod_scheduling_attempts",
        "scheduler_queue_incoming_pods",
        "scheduler_queueing_hint_execution_duration_seconds",
    },
    "scheduler": {
        "scheduler_cache_size",
        "scheduler_framework_extension_point_duration_seconds",
        "scheduler_pod_scheduling_sli_duration_seconds",
        "scheduler_preemption_attempts",
        "scheduler_preemption_victims",
        "scheduler_schedule_attempts",
        "scheduler_scheduling_algorithm_duration_seconds",
        "scheduler_scheduling_attempt_duration_seconds",
    },
    "eviction": {"kubelet_evictions", "kubelet_eviction_stats_age_seconds"},
    "autoscaler": {
        "cluster_autoscaler_failed_scale_ups",
        "cluster_autoscaler_scaled_down_nodes",
        "cluster_autoscaler_scaled_up_nodes",
    },
}
"""Families of kubernetes v1.34 pkg/scheduler/metrics, v1.32 pkg/kubelet/metrics, and 1.36's
cluster-autoscaler/metrics."""
Services = dict[str, Started]
CALLS = {
    f"grpc_server_{name}"
    for name in ("started", "handled", "msg_received", "msg_sent", "handling_seconds")
}


def scrape(service: Started, accept: str = "") -> dict[str, Metric]:
    """Return the families that a service serves, by name."""
    request = urllib.request.Request(
        f"http://{service.metrics}/metrics", headers={"Accept": accept}
    )
    with urllib.request.urlopen(request, timeout=10) as response:  # noqa: S310 - http
        text = response.read().decode()
        is_open = "openmetrics" in response.headers["Content-Type"]
    parse: Any = open_metrics if is_open else plain_metrics
    families: Iterator[Metric] = parse(text)
    return {family.name: family for family in families}


def samples(family: Metric, suffix: str) -> dict[tuple[str, ...], float]:
    """Return the values of the samples with that suffix, by the labels' values in order of name."""
    return {
        tuple(value for _, value in sorted(sample.labels.items())): sample.value
        for sample in family.samples
        if sample.name == family.name + suffix
    }


@pytest.fixture(scope="module")
def replayed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Services, Path]]:
    """Replay a trace against services; yield them, and the run."""
    run = tmp_path_factory.mktemp("metrics") / "run"
    with ExitStack() as stack:
        services = start_all(stack)
        command = ("replay", str(TRACE), "--run", str(run), "--no-report", "--quiet")
        scheduler, eviction = services["scheduler"].address, services["eviction"].address
        reprieve(ROOT, *command, "--scheduler", scheduler, "--eviction", eviction)
        yield services, run


@pytest.mark.e2e
@pytest.mark.parametrize("service", sorted(UPSTREAM))
@pytest.mark.parametrize(
    "accept", ["", "application/openmetrics-text; version=1.0.0"], ids=["plain", "openmetrics"]
)
def test_families_have_upstreams_names(
    replayed: tuple[Services, Path], service: str, accept: str
) -> None:
    """Beside those of gRPC servers and processes, in both formats."""
    families = scrape(replayed[0][service], accept)
    others = {name for name in families if name.startswith("process_")} | CALLS
    assert set(families) == UPSTREAM[service] | others


@pytest.mark.e2e
def test_the_scheduler_counts_what_the_run_decided(replayed: tuple[Services, Path]) -> None:
    """Attempts by result, preemptions, victims; a time for each attempt and extension point."""
    services, run = replayed
    summary = json.loads((run / "summary.json").read_text(encoding="utf-8"))
    decided = summary["decided"]
    families = scrape(services["scheduler"])
    profile, failed = "default-scheduler", decided["failed_attempts"]
    by_result = {
        (profile, "scheduled"): summary["attempts"] - failed,
        (profile, "unschedulable"): failed,
        (profile, "error"): 0,
    }
    assert samples(families["scheduler_schedule_attempts"], "_total") == by_result
    durations = families["scheduler_scheduling_attempt_duration_seconds"]
    assert samples(durations, "_count") == by_result
    assert sum(samples(durations, "_sum").values()) > 0
    victims = families["scheduler_preemption_victims"]
    assert samples(victims, "_count") == {(): decided["nominations"]}
    assert samples(victims, "_sum") == {(): decided["preempted"]}
    assert samples(families["scheduler_preemption_attempts"], "_total") == {(): failed}
    points = samples(families["scheduler_framework_extension_point_duration_seconds"], "_count")
    assert points["Filter", profile, "Success"] <= summary["attempts"]
    assert points["PostFilter", profile, "Success"] == decided["nominations"]
    sli = families["scheduler_pod_scheduling_sli_duration_seconds"]
    assert sum(samples(sli, "_count").values()) == decided["bound"]


@pytest.mark.e2e
def test_the_autoscaler_counts_nodes_that_came_and_went(
    replayed: tuple[Services, Path], tmp_path: Path
) -> None:
    """Those of the run's log."""
    services, _ = replayed
    replay = ("replay", *growing(tmp_path), "--run", "run", "--no-report", "--quiet")
    reprieve(tmp_path, *replay, "--autoscaler-service", services["autoscaler"].address)
    families = scrape(services["autoscaler"])
    assert samples(families["cluster_autoscaler_scaled_up_nodes"], "_total") == {(): 2}
    removed = samples(families["cluster_autoscaler_scaled_down_nodes"], "_total")
    assert removed == {("empty",): 1, ("underutilized",): 0}
    failed = samples(families["cluster_autoscaler_failed_scale_ups"], "_total")
    assert failed == {("cloudProviderError",): 0}


@pytest.mark.e2e
def test_calls_are_counted_by_method_and_code(replayed: tuple[Services, Path]) -> None:
    """A stream counts each of its messages."""
    families = scrape(replayed[0]["scheduler"])
    service = "reprieve.scheduler.v1beta1.SchedulerService"
    handled = samples(families["grpc_server_handled"], "_total")
    assert handled["OK", "CreateSession", service, "unary"] == 1
    streamed = ("StreamingRunRound", service, "bidi_stream")
    assert samples(families["grpc_server_started"], "_total")[streamed] >= 1
    received = samples(families["grpc_server_msg_received"], "_total")[streamed]
    assert 1 <= received <= samples(families["grpc_server_msg_sent"], "_total")[streamed]


@pytest.mark.e2e
def test_a_refused_call_is_counted_with_its_code(replayed: tuple[Services, Path]) -> None:
    """By the name that Go's servers use."""
    services, _ = replayed
    with grpc.insecure_channel(services["queue"].address) as channel:
        stub = queue_service_pb2_grpc.QueueServiceStub(channel)
        with pytest.raises(grpc.RpcError, match="NOT_FOUND"):
            stub.Apply(pb.ApplyRequest(stamp=session_pb2.Stamp(session_id="nobody", sequence=1)))
    handled = samples(scrape(services["queue"])["grpc_server_handled"], "_total")
    service = "reprieve.queue.v1beta1.QueueService"
    assert handled["NotFound", "Apply", service, "unary"] == 1
