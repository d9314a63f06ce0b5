"""The services' own spans, in the trace of the run that they serve."""

from __future__ import annotations

from pathlib import Path

import pytest

from replay.generate.workload import GenerateOptions, generate
from replay.runner import run_replay
from replay.settings import ReplaySettings
from services.kube.time import SECOND_NS
from services.telemetry.span import Sampling
from tests.otlp_collector import running_collector

WORKLOAD = GenerateOptions(
    seed=1, nodes=1, pods=60, deployments=1, budgets=0, window_ns=5 * SECOND_NS
)
NAMES = {
    "reprieve-scheduler": "reprieve.scheduler.v1beta1.SchedulerService/StreamingRunRound",
    "reprieve-queue": "reprieve.queue.v1beta1.QueueService/StreamingApply",
    "reprieve-eviction": "reprieve.eviction.v1beta1.EvictionService/StreamingApply",
}


@pytest.mark.e2e
@pytest.mark.parametrize("in_process", [False, True])
def test_each_service_sends_its_spans_into_the_runs_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, in_process: bool
) -> None:
    """The queue's stand below the scheduler's, the others below the run's own."""
    with running_collector() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint)
        settings = ReplaySettings(
            version="test", run_path=tmp_path / "run", sampling=Sampling(1.0), in_process=in_process
        )
        run_replay(settings, lambda: generate(WORKLOAD), lambda _now_ns, _cluster, _tally: None)
        spans = collector.spans()
    (run,) = [span for name, span in spans if (name, span.name) == ("reprieve", "replay")]
    by_service = {name: [span for service, span in spans if service == name] for name in NAMES}
    for name, own in by_service.items():
        service = NAMES[name].partition("/")[0]
        assert {span.name for span in own} == {NAMES[name], f"{service}/DeleteSession"}
        assert {span.trace_id for span in own} == {run.trace_id}
        assert all(span.start_time_unix_nano < span.end_time_unix_nano for span in own)
    of_scheduler = {span.span_id for span in by_service["reprieve-scheduler"]}
    assert {span.parent_span_id for span in by_service["reprieve-queue"]} <= of_scheduler
    for name in ("reprieve-scheduler", "reprieve-eviction"):
        assert {span.parent_span_id for span in by_service[name]} == {run.span_id}
