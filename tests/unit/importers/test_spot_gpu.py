"""Tests of Alibaba's trace of spot GPUs."""

from __future__ import annotations

from pathlib import Path

import pytest

from replay.errors import TraceError
from replay.importers.records import ImportOptions
from replay.importers.registry import open_trace, recognise
from reprieve.kube.v1beta1.object_pb2 import KubernetesObject
from reprieve.trace.v1beta1.trace_pb2 import Record
from tests.unit.importers.builders import S, issues

_NODES = "gpu_model,gpu_capacity_num,cpu_num,node_name\nA10,1,128,0\nA100-SXM4-80GB,8,128,3\n"
_HEAD = (
    "job_name,organization,gpu_model,cpu_request,gpu_request,worker_num,submit_time,duration,"
    "job_type\n"
)
_JOBS = (
    "437260,57,A100-SXM4-80GB,15,1,16,60,41060,Spot\n"
    "239255,13,A10,20,1,1,0,2764799,HP\n"
    "1,13,,0.5,0,1,90,10,HP\n"
)


def _imported(path: Path, jobs: str = _JOBS, **options: bool) -> list[Record]:
    (path / "node_info_df.csv").write_text(_NODES)
    (path / "job_info_df.csv").write_text(_HEAD + jobs)
    assert recognise(path / "node_info_df.csv") == "spot-gpu"
    assert recognise(path / "job_info_df.csv") == "spot-gpu"
    return list(open_trace([path], options=ImportOptions(**options)))  # type: ignore[arg-type]  # flags only


def _made(records: list[Record], kind: str) -> list[KubernetesObject]:
    return [record.create for record in records if record.create.HasField(kind)]  # type: ignore[arg-type]  # a field's name


def test_each_node_has_a_slice_of_its_gpus(tmp_path: Path) -> None:
    """Devices have the model as an attribute, which the model's class selects."""
    records = _imported(tmp_path)
    assert records[0].header.has_devices
    slices = [made.resource_slice for made in _made(records, "resource_slice")]
    assert [(one.spec.node_name, len(one.spec.devices)) for one in slices] == [
        ("node-0", 1),
        ("node-3", 8),
    ]
    assert slices[1].metadata.owner_references[0].name == "node-3"
    assert slices[1].spec.devices[7].attributes["model"].string_value == "A100-SXM4-80GB"
    classes = {
        made.device_class.metadata.name: made.device_class.spec.selectors[0].cel.expression
        for made in _made(records, "device_class")
    }
    assert set(classes) == {"a10", "a100-sxm4-80gb", "gpu"}
    assert classes["a10"].endswith('.model == "A10"')


def test_a_job_has_its_workers_claims_and_priority(tmp_path: Path) -> None:
    """They come in order of submission; times are whole seconds."""
    records = _imported(tmp_path)
    jobs = [record for record in records if record.create.HasField("job")]
    assert [(record.time_ns, record.create.job.metadata.name) for record in jobs] == [
        (0, "job-239255"),
        (60 * S, "job-437260"),
        (90 * S, "job-1"),
    ]
    spot = jobs[1].create.job
    assert (spot.spec.parallelism, spot.spec.completions) == (16, 16)
    pod = spot.spec.template.spec
    assert (pod.priority_class_name, pod.priority) == ("spot", 0)
    assert dict(pod.containers[0].resources.requests) == {"cpu": "15000m"}
    assert pod.resource_claims[0].resource_claim_template_name == "a100-sxm4-80gb-x1"
    assert spot.spec.template.metadata.annotations["reprieve/service-time"] == "41060s"
    assert jobs[0].create.job.spec.template.spec.priority == 1000
    assert not jobs[2].create.job.spec.template.spec.resource_claims
    templates = [
        made.resource_claim_template.metadata.name
        for made in _made(records, "resource_claim_template")
    ]
    assert sorted(templates) == ["a10-x1", "a100-sxm4-80gb-x1"]


def test_gpus_may_be_an_extended_resource(tmp_path: Path) -> None:
    """Then a worker selects the nodes of its model."""
    records = _imported(tmp_path, gpu_claims=False)
    assert not records[0].header.has_devices
    assert not _made(records, "resource_slice")
    nodes = [made.node for made in _made(records, "node")]
    assert [node.status.allocatable["nvidia.com/gpu"] for node in nodes] == ["1", "8"]
    pod = _made(records, "job")[1].job.spec.template.spec
    assert pod.containers[0].resources.requests["nvidia.com/gpu"] == "1"
    assert dict(pod.node_selector) == {"gpu.alibabacloud.com/model": "a100-sxm4-80gb"}
    assert nodes[1].metadata.labels["gpu.alibabacloud.com/model"] == "a100-sxm4-80gb"


def test_shares_are_rounded_up_and_a_missing_duration_has_no_end(tmp_path: Path) -> None:
    """Both are counted."""
    records = _imported(tmp_path, "1,1,A10,1,0.5,1,0,,HP\n")
    assert sorted(issue.kind for issue in issues(records)) == ["censored", "shared-gpu"]
    (template,) = _made(records, "resource_claim_template")
    assert template.resource_claim_template.spec.spec.devices.requests[0].exactly.count == 1


@pytest.mark.parametrize(
    ("job", "problem"),
    [
        ("1,1,A10,1,1,1,0,5,Best", "job_type: 'Best' is not HP or Spot"),
        ("1,1,A10,1,1,1,-1,5,HP", "submit_time: is not a time from 0 on"),
        ("1,1,A10,1,33,1,0,5,HP", "gpu_request: 33 is not a number from 0 to 32"),
        ("1,1,A10,1,1,-2,0,5,HP", "worker_num: -2"),
        (",1,A10,1,1,1,0,5,HP", "job_name"),
    ],
)
def test_a_broken_row_is_refused_with_its_line(tmp_path: Path, job: str, problem: str) -> None:
    """And its column."""
    with pytest.raises(TraceError, match="line 2") as refused:
        _imported(tmp_path, job + "\n")
    assert problem in str(refused.value)
