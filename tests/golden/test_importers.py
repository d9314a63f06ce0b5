"""The importers on recordings of a real control plane and on public data sets."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from replay.importers.records import ImportOptions
from replay.importers.registry import open_trace, recognise
from replay.trace.reader import OrderCheck, read
from replay.trace.validate import TraceReport, validate
from replay.trace.writer import write
from reprieve.trace.v1beta1.trace_pb2 import Record

_TRACES = Path(__file__).resolve().parents[2] / ".." / "shared" / "traces"
_RECORDINGS = _TRACES / "recordings"
_OPENB = _TRACES / "openb"
_MANIFESTS = _TRACES / "k8s-sims-results" / "vanilla"

pytestmark = pytest.mark.skipif(not _TRACES.is_dir(), reason="../shared/traces is not there")


def _summary(name: str) -> dict[str, Any]:
    summary: dict[str, Any] = json.loads((_RECORDINGS / name / "summary.json").read_text())
    return summary


def _deletes(records: list[Record]) -> Counter[tuple[str, str]]:
    return Counter(
        (record.delete.object.kind, record.delete.cause)
        for record in records
        if record.HasField("delete")
    )


def _check_order(records: list[Record]) -> None:
    check = OrderCheck()
    assert not [problem for record in records if (problem := check.problem(record))]


def _check_counts(report: TraceReport, summary: dict[str, Any]) -> None:
    """Hold what was imported against what the recorder counted."""
    pods, changes = summary["pods"], summary["condition_changes"]
    nominations = summary["nomination_changes"]["count"]
    assert report.observed["scheduled"] == pods["bound"]
    assert report.observed["preempted"] == changes["DisruptionTarget=True:PreemptionByScheduler"]
    assert report.observed["nominated"] == sum(nominations.values())
    assert report.observed["removed"] == summary["counts"]["pods.watch.jsonl.gz"]["DELETED"]
    made = report.observed["made"] - summary["counts"]["replicasets.watch.jsonl.gz"].get("ADDED", 0)
    assert report.objects["pod"] + made == pods["unique"]


@pytest.mark.parametrize("name", ["a", "e", "c"])
def test_a_recording_has_what_its_recorder_counted(name: str) -> None:
    """Every pod, binding, nomination, preemption and removal."""
    records = list(open_trace([_RECORDINGS / name]))
    _check_order(records)
    report = validate(records)
    _check_counts(report, _summary(name))
    assert report.header.source_sha256
    assert report.first_ns < report.header.window_end_time_ns


def test_the_big_recording_has_what_its_recorder_and_its_driver_counted(tmp_path: Path) -> None:
    """2,112 pods, 36 Deployments, drains, taints, cordons, gates and dropped nodes."""
    records = list(open_trace(sorted((_RECORDINGS / "b2").glob("*.watch.jsonl.gz"))))
    _check_order(records)
    report = validate(records)
    _check_counts(report, _summary("b2"))
    assert report.objects["pod"] == 1700
    assert report.objects["deployment"] == 36
    assert report.objects["node"] == 105
    assert report.counts["controller_pod"] == 412 + 36
    updates = Counter(
        record.update.WhichOneof("object") for record in records if record.HasField("update")
    )
    assert updates["pod"] == 64  # gates lifted
    assert updates["deployment"] == 5  # scalings
    deletes = _deletes(records)
    assert deletes["Node", "user"] == 2
    assert deletes["Deployment", "user"] == 4
    cleaned = sum(issue.count for issue in report.issues if issue.kind == "clean-up")
    drained = _summary("b2")["condition_changes"]["DisruptionTarget=True:EvictionByEvictionAPI"]
    assert drained - cleaned <= deletes["Pod", "drain"] <= drained
    assert not deletes["Pod", "taint"]  # the world's own taint manager deletes those
    write(tmp_path / "b2.ktr", records)
    assert list(read(tmp_path / "b2.ktr")) == records


@pytest.mark.parametrize("name", ["a", "e", "c"])
def test_the_audit_log_gives_the_same_as_the_watches(name: str) -> None:
    """Two sources that share no line."""
    folder = _RECORDINGS / name
    log = validate(open_trace([folder / "audit.jsonl.gz"]))
    watches = validate(open_trace(sorted(folder.glob("*.watch.jsonl.gz"))))
    assert log.observed == watches.observed
    assert log.objects == watches.objects
    counted = ("pod_create", "create", "update", "delete", "controller_pod")
    assert {kind: log.counts[kind] for kind in counted} == {
        kind: watches.counts[kind] for kind in counted
    }


def test_kubectls_recording_gives_the_same_as_the_raw_one() -> None:
    """Without bookmarks, and with the first list's end unmarked."""
    folder = _RECORDINGS / "e"
    raw = validate(open_trace(sorted(folder.glob("*.watch.jsonl.gz"))))
    kubectl = validate(open_trace(sorted(folder.glob("*.kubectl.jsonl.gz"))))
    assert kubectl.observed == raw.observed
    assert kubectl.objects == raw.objects


def test_pod_lifetimes_in_the_demonstration_are_those_of_its_driver() -> None:
    """nginx-high runs 20 s; the victim takes its whole grace period of 30 s."""
    records = list(open_trace([_RECORDINGS / "a"]))
    high = next(record.pod_create for record in records if record.HasField("pod_create"))
    assert high.pod.metadata.name == "nginx-high"
    assert high.life.service_duration_ns == pytest.approx(20e9, rel=0.01)
    assert not high.life.censored
    expected = [record.controller_pod for record in records if record.HasField("controller_pod")]
    assert [entry.owner.kind for entry in expected] == ["Deployment", "ReplicaSet", "ReplicaSet"]
    assert expected[1].life.shutdown_duration_ns == pytest.approx(30e9, rel=0.01)


def test_a_folder_of_a_recording_is_read_as_its_watches() -> None:
    """The audit log of the same run, and what its recorder noted, are told and left out."""
    ignored = [
        Path(issue.where).name
        for issue in validate(open_trace([_RECORDINGS / "a"])).issues
        if issue.kind == "ignored-file"
    ]
    assert "audit.jsonl.gz" in ignored


def test_manifests_of_thousands_of_pods_are_read_in_seconds() -> None:
    """162,471 lines, of which most repeat each other."""
    paths = [_MANIFESTS / "nodes-1200.yaml.gz", _MANIFESTS / "pods-1200.yaml.gz"]
    began = time.process_time()
    report = validate(open_trace(paths))
    assert time.process_time() - began < 8
    assert report.objects == {"node": 1213, "pod": 7064}
    assert report.counts["template"] < 120
    assert not report.issues


def test_openb_lists_are_read_whole() -> None:
    """8,152 pods of 125 shapes and more that come once."""
    paths = [_OPENB / "openb_node_list_gpu_node.csv", _OPENB / "openb_pod_list_default.csv"]
    report = validate(open_trace(paths))
    assert report.objects == {"node": 1213, "pod": 8152, "priority_class": 4}
    timed = list(open_trace(paths, options=ImportOptions(openb_timed=True)))
    lives = [record.pod_create.life for record in timed if record.HasField("pod_create")]
    assert sum(life.censored for life in lives) == 34
    never = [record.issue for record in timed if record.issue.kind == "never-ran"]
    assert [group.count for group in never] == [897]


@pytest.mark.parametrize(
    ("path", "format_"),
    [
        ("k8s/watch/kubeclient_watch_stream.json", "watch"),
        ("k8s/audit/audit2rbac_demo.log", "audit"),
        ("k8s/troubleshoot/nodes.json", "manifests"),
        ("openb/openb_node_list_gpu_node.yaml", "manifests"),
        ("openb/openb_pod_list_multigpu20.csv", "openb"),
        ("recordings/a/driver.json", ""),
        ("FORMATS.md", ""),
    ],
)
def test_formats_are_detected_by_content(path: str, format_: str) -> None:
    """Files of other projects."""
    assert recognise(_TRACES / path) == format_
