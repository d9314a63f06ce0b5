"""Importers of other tools' formats and public data sets, on the real files."""

from __future__ import annotations

import gzip
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest

from replay.errors import TraceError
from replay.importers.records import ImportOptions
from replay.importers.registry import open_trace
from replay.trace.reader import OrderCheck
from replay.trace.validate import TraceReport, validate
from reprieve.trace.v1beta1.trace_pb2 import Record

_TRACES = Path(__file__).resolve().parents[2] / ".." / "shared" / "traces"
_PERF = _TRACES / "scheduler_perf"

pytestmark = pytest.mark.skipif(not _TRACES.is_dir(), reason="../shared/traces is not there")


def _report(paths: Sequence[Path], **options: object) -> TraceReport:
    """Import, hold the order, and report."""
    chosen = ImportOptions(**options)  # type: ignore[arg-type]  # a test's few options
    check = OrderCheck()

    def checked() -> Iterator[Record]:
        for record in open_trace(list(paths), options=chosen):
            assert not check.problem(record)
            yield record

    return validate(checked())


@pytest.mark.parametrize(
    ("workload", "nodes", "pods"),
    [
        ("PreemptionBasic/1000Nodes", 1000, 5000),
        ("PreemptionAsync/500Nodes", 500, 2500 + 50),
        ("Unschedulable/5Nodes/1Init/10Pods", 5, 11 + 50),
    ],
)
def test_upstreams_preemption_tests_are_read(workload: str, nodes: int, pods: int) -> None:
    """A churn of five pods a second continues for the ten seconds of the last wait."""
    config = _PERF / "default_preemption" / "performance-config.yaml"
    report = _report([config], workload=workload)
    assert (report.objects["node"], report.objects["pod"]) == (nodes, pods)


def test_a_template_that_is_missing_is_named() -> None:
    """The excerpt refers to templates that were not handed out."""
    config = _PERF / "misc" / "performance-config.excerpt.yaml"
    basic = _report([config], workload="SchedulingBasic/500Nodes")
    assert (basic.objects["node"], basic.objects["pod"]) == (500, 1500)
    with pytest.raises(TraceError, match=r"node-with-name\.yaml: the template cannot"):
        _report([config], workload="SchedulingWhileGated/1Node_10GatedPods")


@pytest.mark.parametrize(
    ("name", "objects", "updates", "deletes"),
    [
        ("bare-pods.sktrace", {"pod": 4}, 0, 0),
        ("cronjob.sktrace", {"cron_job": 1}, 0, 1),
        ("dsb-scaling.sktrace", {"deployment": 27}, 19, 0),
        ("k8s-sims/trace-100.sktrace", {"pod": 1067}, 0, 0),
        ("large_trace.json", {"deployment": 27}, 223, 0),
        ("validation_trace.json", {"deployment": 1}, 0, 0),
    ],
)
def test_simkubes_traces_are_read(
    name: str, objects: dict[str, int], updates: int, deletes: int
) -> None:
    """In MessagePack with array keys, and in JSON; four bare pods have four lives."""
    report = _report([_TRACES / "simkube" / name])
    assert report.objects == objects
    assert (report.counts["update"], report.counts["delete"]) == (updates, deletes)
    assert "unknown-object" not in {issue.kind for issue in report.issues}


def test_audit_events_of_googles_log_are_read() -> None:
    """A pod is created; patches of its status come in files of their own."""
    folder = _TRACES / "k8s" / "khi"
    created = _report([folder / "container_recorder_test_1_1.yaml"])
    assert (created.objects["pod"], len(created.issues)) == (1, 0)
    paths = [folder / f"container_recorder_test_1_{number}.yaml" for number in (1, 2, 3)]
    run = _report(paths)
    assert next(issue.count for issue in run.issues if issue.kind == "put-together") == 2


@pytest.mark.parametrize("path", sorted((_TRACES / "openb").glob("openb_pod_list_*.csv")))
def test_every_variant_of_openb_is_read(path: Path) -> None:
    """Each row is a pod; only the lists of several GPUs have neither qos nor times."""
    report = _report([path])
    assert report.objects["pod"] == sum(1 for _ in path.open()) - 1
    is_short = "multigpu" in path.name
    assert report.objects["priority_class"] == (0 if is_short else 4)
    assert {issue.kind for issue in report.issues} <= {"no-request"}
    if not is_short:
        timed = {issue.kind for issue in _report([path], openb_timed=True).issues}
        assert "never-ran" in timed


def test_the_dlrm_trace_is_read() -> None:
    """Counts of FORMATS.md: 7,280 were there before, 8,878 at the end."""
    path = _TRACES / "alibaba" / "dlrm2025" / "disaggregated_DLRM_trace.csv"
    report = _report([path], made_nodes=100)
    assert (report.objects["pod"], report.objects["node"]) == (23_871, 100)
    counted = {issue.kind: issue.count for issue in report.issues if issue.kind != "not-simulated"}
    assert counted == {"there-before": 7280, "censored": 8878}
    limits = sum(issue.count for issue in report.issues if issue.kind == "not-simulated")
    assert limits == 23_871 - 12_248


def test_the_nodes_of_the_spot_gpu_trace_are_read() -> None:
    """Counts of FORMATS.md: 4,278 nodes with 10,412 GPUs, of six models."""
    path = _TRACES / "alibaba" / "spot2026" / "node_info_df.csv"
    records = list(open_trace([path]))
    slices = [
        made.create.resource_slice for made in records if made.create.resource_slice.ByteSize()
    ]
    assert len(slices) == 4_278
    assert sum(len(slice_.spec.devices) for slice_ in slices) == 10_412
    assert sum(record.create.HasField("device_class") for record in records) == 6


def test_googles_tables_of_2011_are_read() -> None:
    """The first rows of each table: all are of time 0, and nothing is scheduled in them."""
    paths = sorted((_TRACES / "google2011").glob("real-*.csv"))
    report = _report(paths)
    assert (report.objects["node"], report.objects["pod"]) == (1523, 1015)
    counted = {issue.kind: issue.count for issue in report.issues}
    assert (counted["missing-info"], counted["no-request"]) == (79, 79)
    assert counted["ignored-file"] == 1  # job_events


def test_a_whole_run_of_tasks_of_2011_is_read() -> None:
    """A made trace: ten tasks, each of which ends but one, and a machine that goes and comes."""
    report = _report(sorted((_TRACES / "google2011" / "synthetic-fixtures").glob("*.csv")))
    assert (report.objects["node"], report.objects["pod"]) == (7, 10)
    assert (report.observed["finished"], report.observed["evicted"]) == (10, 1)
    assert report.counts["usage"] == 10


def test_alibabas_machines_of_2017_are_read() -> None:
    """1,313 are added; 39 soft errors."""
    report = _report([_TRACES / "alibaba" / "v2017" / "server_event.csv"])
    assert report.objects["node"] == 1313
    assert {issue.kind: issue.count for issue in report.issues} == {"no-recovery": 39}


def test_alibabas_batch_tasks_of_2017_begin_with_the_first_that_was_asked_for() -> None:
    """11.9 million pods: the first thousand records are enough here."""
    path = _TRACES / "alibaba" / "v2017" / "batch_task.csv"
    first = list(itertools.islice(open_trace([path]), 1000))
    assert first[3].pod_create.pod.metadata.name.startswith("batch-")
    assert all(record.time_ns == 0 for record in first[:4])


@pytest.mark.parametrize("name", ["e", "c"])
def test_a_recording_in_the_simulators_format_gives_the_same(name: str, tmp_path: Path) -> None:
    """The recorder follows nodes, classes and pods: all but budgets and controllers."""
    folder = _TRACES / "recordings" / name
    lines = []
    for kind in ("priorityclass", "nodes", "pods"):
        with gzip.open(folder / f"{kind}.watch.jsonl.gz") as file:
            lines += [orjson.loads(line) for line in file]
    events = {"ADDED": "Add", "MODIFIED": "Update", "DELETED": "Delete"}
    told = []
    for line in sorted(lines, key=lambda line: str(line["arrival"])):
        event = events.get(line["event"]["type"])
        resource = line["event"]["object"]
        if event == "Delete":
            kept = {key: resource["metadata"].get(key) for key in ("name", "namespace")}
            resource = {**resource, "metadata": kept, "spec": None, "status": None}
        if event:
            told.append({"time": line["arrival"], "event": event, "resource": resource})
    record = tmp_path / "record.jsonl"
    record.write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in told))
    recorded = _report([record])
    watched = _report(sorted(folder.glob("*.watch.jsonl.gz")))
    assert recorded.header.importer == "recorder 1"
    for kind in ("scheduled", "nominated", "preempted", "evicted", "started", "finished"):
        assert recorded.observed[kind] == watched.observed[kind], kind
    assert recorded.objects["node"] == watched.objects["node"]
    assert recorded.objects["priority_class"] == watched.objects["priority_class"]


def test_an_audit_log_wrapped_as_google_does_is_the_same(tmp_path: Path) -> None:
    """The same writes, in protoPayload: method and resource as names, no code but an error's."""
    log = _TRACES / "recordings" / "e" / "audit.jsonl.gz"
    wrapped = tmp_path / "entries.json"
    with gzip.open(log) as file:
        entries = [_as_google(event) for event in map(orjson.loads, file)]
    wrapped.write_bytes(b"".join(orjson.dumps(entry) + b"\n" for entry in entries))
    told, plain = _report([wrapped]), _report([log])
    assert told.observed == plain.observed
    assert told.objects == plain.objects
    assert told.counts == plain.counts


def _as_google(event: dict[str, Any]) -> dict[str, Any]:
    """Return an audit event as an entry of Cloud Logging."""
    named = event.get("objectRef") or {}
    parts = [named.get("apiGroup") or "core", named.get("apiVersion") or "v1"]
    if named.get("namespace"):
        parts += ["namespaces", named["namespace"]]
    parts += [named.get(key) for key in ("resource", "name", "subresource") if named.get(key)]
    code = (event.get("responseStatus") or {}).get("code", 0)
    payload = {
        "@type": "type.googleapis.com/google.cloud.audit.AuditLog",
        "authenticationInfo": {"principalEmail": (event.get("user") or {}).get("username")},
        "methodName": f"io.k8s.core.v1.{named.get('resource')}.{event['verb']}",
        "resourceName": "/".join(str(part) for part in parts),
        "status": {"code": 0 if code < 300 else 5},
        "request": event.get("requestObject") or {},
        "response": event.get("responseObject") or {},
    }
    last = event["stage"] == "ResponseComplete"
    operation = {"first": not last, "last": last}
    time = event["stageTimestamp"]
    return {"protoPayload": payload, "operation": operation, "timestamp": time}
