"""Small sources of every importer's format, for tests that damage them."""

from __future__ import annotations

import csv
import io
import json
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgpack
import orjson
import zstandard
from google.protobuf import json_format

from replay.generate.workload import GenerateOptions, generate
from replay.kube.documents import read_json
from replay.trace.files import delimited
from replay.trace.reader import line
from reprieve.trace.v1beta1.trace_pb2 import Record
from services.kube.yaml_scalars import written

ROOT = Path(__file__).resolve().parents[2]
_POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p", "namespace": "n", "creationTimestamp": "2026-01-01T00:00:00Z"},
    "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
}
_TIME = "2026-01-01T00:00:09Z"
_PATCH = {
    "kind": "ResourcePatch",
    "resource": {"version": "v1", "resource": "pods"},
    "target": {"name": "p", "namespace": "n"},
    "durationNanosecond": 5,
    "method": "patch",
    "template": {"status": {"conditions": [{"type": "PodScheduled", "status": "True"}]}},
}
_LOG_ENTRY = {
    "protoPayload": {
        "@type": "type.googleapis.com/google.cloud.audit.AuditLog",
        "methodName": "io.k8s.core.v1.pods.create",
        "resourceName": "core/v1/namespaces/n/pods/p",
        "response": _POD,
    },
    "timestamp": _TIME,
}
_INSTANCE = {
    "time": "601000000",
    "type": 0,
    "collection_id": "1",
    "instance_index": 0,
    "priority": 200,
    "resource_request": {"cpus": 0.1, "memory": 0.1},
    "constraint": [{"name": "k", "value": "2", "relation": 5}],
}
_RUNNING = {**_INSTANCE, "time": "602000000", "type": 3, "machine_id": "5"}
_MACHINE = {"time": "0", "machine_id": "5", "type": 1, "capacity": {"cpus": 0.5, "memory": 0.5}}
_USED = {"cpus": 0.1, "memory": 0.1}
_USAGE = {"start_time": "603000000", "collection_id": "1", "instance_index": 0}
_SIMKUBE = {
    "version": 2,
    "config": {"trackedObjects": {}},
    "events": [
        {"ts": 1_700_000_000, "applied_objs": [_POD], "deleted_objs": []},
        {"ts": 1_700_000_009, "applied_objs": [], "deleted_objs": [_POD]},
    ],
    "pod_lifecycles": {"v1.Pod:n/p": {"1": [{"Finished": [1_700_000_000, 1_700_000_005]}]}},
}
_PERF = [
    {
        "name": "T",
        "workloadTemplate": [
            {
                "opcode": "createNodes",
                "countParam": "$nodes",
                "labelNodePrepareStrategy": {"labelKey": "z", "labelValues": ["a"]},
                "nodeAllocatableStrategy": {
                    "nodeAllocatable": {"x/y": "3"},
                    "csiNodeAllocatable": {"d": {"count": 3}},
                    "migratedPlugins": ["m"],
                },
            },
            {"opcode": "createPods", "count": 2, "collectMetrics": True, "namespace": "n"},
            {"opcode": "createPodSets", "count": 1, "createPodsOp": {"count": 1}},
            {"opcode": "deletePods", "namespace": "n", "deletePodsPerSecond": 5},
            {"opcode": "sleep", "duration": "5s"},
        ],
        "workloads": [{"name": "w", "params": {"nodes": 2}, "featureGates": {"G": True}}],
    }
]
_PACKING: dict[str, Any] = {
    "vm": [
        {"vmId": 1, "tenantId": 2, "vmTypeId": 3, "priority": 0, "starttime": -1.0, "endtime": 0.5},
        {"vmId": 4, "tenantId": 2, "vmTypeId": 3, "priority": 1, "starttime": 0.1, "endtime": 0.5},
    ],
    "vmType": [
        {"id": 1, "vmTypeId": 3, "machineId": 16}
        | {"core": 0.1, "memory": 0.2, "hdd": 0.0, "ssd": 0.1, "nic": None}
    ],
}
_GOOGLE = "0,,77,0,5,0,u,3,9,0.1,0.1,0.1,0\n0,,77,0,5,1,u,3,9,0.1,0.1,0.1,0\n"
_DLRM = (
    "instance_sn,role,app_name,cpu_request,cpu_limit,gpu_request,rdma_request,memory_request,"
    "max_instance_per_node,creation_time,scheduled_time,deletion_time\n"
    "i,HN,a,1,1,1,1,1,2,5,6,7\n"
)
_SPOT_JOBS = (
    "job_name,organization,gpu_model,cpu_request,gpu_request,worker_num,submit_time,duration,"
    "job_type\n7,1,A10,2,1,3,5,60,Spot\n"
)
_SPOT_NODES = "gpu_model,gpu_capacity_num,cpu_num,node_name\nA10,2,64,n0\n"
_OPENB = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,"
    "deletion_time,scheduled_time\np,1,1,1,1,P|T,LS,Running,5,9,6\n"
)


_AUDIT = [
    {
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "stage": "ResponseComplete",
        "verb": verb,
        "user": {"username": "u"},
        "responseStatus": {"code": 200},
        "objectRef": {"resource": "pods", "namespace": "n", "name": "p", "subresource": sub},
        "requestObject": request,
        "responseObject": answer,
        "stageTimestamp": _TIME,
    }
    for verb, sub, request, answer in (
        ("create", "", _POD, _POD),
        ("create", "binding", {"target": {"name": "node"}}, {"kind": "Status"}),
        ("patch", "status", {"status": {"phase": "Running"}}, None),
        ("create", "eviction", {"deleteOptions": {"gracePeriodSeconds": 5}}, {"kind": "Status"}),
        ("delete", "", None, {**_POD, "metadata": {**_POD["metadata"], "finalizers": ["f"]}}),  # type: ignore[dict-item]
    )
]
_TEMPLATE = {
    "metadata": {"labels": {"a": "b"}},
    "spec": {**_POD["spec"], "priorityClassName": "high", "tolerations": [{"operator": "Exists"}]},  # type: ignore[dict-item]
}
_JOB_TEMPLATE = {**_TEMPLATE, "spec": {**_TEMPLATE["spec"], "restartPolicy": "Never"}}  # type: ignore[dict-item]
_SELECTOR = {"selector": {"matchLabels": {"a": "b"}}}


def _object(kind: str, version: str, name: str, spec: Any, **more: Any) -> dict[str, Any]:
    own = {"name": name, "namespace": "n"}
    return {"apiVersion": version, "kind": kind, "metadata": own, "spec": spec, **more}


_MANIFESTS = [
    _object(
        "Node",
        "v1",
        "node",
        {"taints": [{"key": "k", "effect": "NoSchedule"}]},
        status={
            "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": _TIME}],
        },
    ),
    {**_object("PriorityClass", "scheduling.k8s.io/v1", "high", {}), "value": 1000},
    _object("Deployment", "apps/v1", "web", {"replicas": 3, **_SELECTOR, "template": _TEMPLATE}),
    _object(
        *("Job", "batch/v1", "job"), {"parallelism": 2, "completions": 4, "template": _JOB_TEMPLATE}
    ),
    _object(
        *("CronJob", "batch/v1", "cron"),
        {"schedule": "*/5 * * * *", "jobTemplate": {"spec": {"template": _JOB_TEMPLATE}}},
    ),
    _object("PodDisruptionBudget", "policy/v1", "web", {"minAvailable": "50%", **_SELECTOR}),
    {**_POD, "status": {"phase": "Running", "startTime": _TIME}},
]
_SIMKUBE_JSON = {
    **_SIMKUBE,
    "pod_lifecycles": {"apps/v1.Deployment:n/web": {"1": [{"start_ts": 1, "end_ts": 9}]}},
}
_ALIBABA = {
    "batch_task": "20,50,3,4,2,Terminated,50,0.0625\n10,15,3,5,1,Failed,100,0.125\n",
    "server_event": "0,1,add,,64,0.5,1\n100,1,softerror,disk_full,,,\n200,1,harderror,,,,\n",
    "batch_instance": "30,45,3,4,7,Terminated,1,1,1,1,1,1\n50,60,9,9,8,Failed,1,2,,,,\n",
    "container_event": "0,Create,3,1,4,0.1,0.2,1|2\n",
}
_OPENB_NODES = "sn,cpu_milli,memory_mib,num_gpu,gpu,model\nn0,64000,262144,2,2,P100\n"
_MACHINES = "0,5,0,platform,0.5,0.25\n1,6,0,platform,1,1\n2,5,1,platform,,\n"
_PERF_WITH_TEMPLATE = b"""\
- name: T
  workloadTemplate:
  - {opcode: createNodes, count: 1}
  - {opcode: createAny, count: 2, templatePath: source, templateParams: {size: big}}
  - {opcode: churn, mode: recreate, number: 2, templatePaths: [pod.yaml], intervalMilliseconds: 100}
  - {opcode: sleep, duration: 2s}
  workloads:
  - name: w
"""
_PERF_OBJECT = """\
apiVersion: v1
kind: Pod
metadata: {generateName: "low-{{Mod .Index 2}}-{{AddInt .Index 1}}-"}
spec:
  priority: 5
  containers:
  - name: c
    resources: {requests: {cpu: "{{MultiplyInt .Index 2}}"}}
"""


def _lines(values: Any) -> bytes:
    return b"\n".join(json.dumps(value).encode() for value in values)


def _documents(values: Any) -> bytes:
    return "---\n".join(map(written, values)).encode()


def _rows(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text)))


def _table(rows: Any) -> bytes:
    texts = [[str(cell) for cell in row] if isinstance(row, list) else [str(row)] for row in rows]
    return "\n".join(map(",".join, texts)).encode("utf-8", "surrogatepass")


def _database(tables: Any) -> bytes:
    """Return a database; of a table or a row of another kind nothing is written."""
    with closing(sqlite3.connect(":memory:")) as database:
        for name, rows in tables.items():
            database.execute(f"CREATE TABLE {name} ({','.join(_PACKING[name][0])})")
            for row in rows if isinstance(rows, list) else ():
                if isinstance(row, dict) and len(row) == len(_PACKING[name][0]):
                    cells = [_cell(value) for value in row.values()]
                    marks = ",".join("?" * len(cells))
                    database.execute(f"INSERT INTO {name} VALUES ({marks})", cells)  # noqa: S608 - a name of ours
        database.commit()
        return database.serialize()


def _cell(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, dict | list) else value


def _trace() -> list[Any]:
    """Return a native trace's records as JSON."""
    options = GenerateOptions(
        seed=1, nodes=2, pods=12, deployments=1, budgets=1, zones=2, leaky_percent=40
    )
    return [orjson.loads(line(record)) for record in generate(options)]


def _records(values: Any) -> bytes:
    return b"".join(
        delimited(json_format.ParseDict(value, Record(), ignore_unknown_fields=True))
        for value in values
    )


def _watch() -> list[Any]:
    """Return events of the bundled recording: whole objects, and what became of them."""
    path = ROOT / "examples" / "recordings" / "shop" / "pods.watch.jsonl.zst"
    return [event for _, event in read_json(path)][:12]


def _yaml(value: Any) -> bytes:
    return written(value).encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A small source of one importer.

    `value` is its content as data, of which `written` makes a file; `is_ktr`: these are records,
    and frames are made of them. `beside` are other files of the folder, by name; `opened`
    is the one of them that is opened, "" for the sample itself.
    """

    importer: str
    value: Any
    written: Callable[[Any], bytes]
    is_ktr: bool = False
    beside: Mapping[str, bytes] = field(default_factory=dict)
    opened: str = ""

    @property
    def file(self) -> bytes:
        """Return the undamaged file."""
        return self.made(self.value)

    def made(self, value: Any) -> bytes:
        """Return a file of other data. Raises any error where the format has no such value."""
        plain = self.written(value)
        return zstandard.compress(plain) if self.is_ktr else plain


def samples() -> dict[str, Sample]:
    """Return the samples by name; each importer has one or more."""
    trace = _trace()
    found = {
        "native .ktr": Sample(importer="native", value=trace, written=_records, is_ktr=True),
        "native .jsonl": Sample(importer="native", value=trace, written=_lines),
        "manifests": Sample(importer="manifests", value=_MANIFESTS, written=_documents),
        "manifests list": Sample(
            importer="manifests",
            value={"apiVersion": "v1", "kind": "List", "items": _MANIFESTS},
            written=lambda value: json.dumps(value, indent=1).encode(),
        ),
        "watch": Sample(importer="watch", value=_watch(), written=_lines),
        "audit": Sample(importer="audit", value=_AUDIT, written=_lines),
        "audit of a cloud": Sample(
            importer="audit", value=[_LOG_ENTRY, _LOG_ENTRY], written=_lines
        ),
        "recorder": Sample(
            importer="recorder",
            value=[{"time": _TIME, "event": "Add", "resource": _POD}] * 2,
            written=_lines,
        ),
        "kwok": Sample(
            importer="kwok",
            value=[_POD, _PATCH, {**_PATCH, "method": "delete"}],
            written=_documents,
        ),
        "scheduler-perf": Sample(importer="scheduler-perf", value=_PERF, written=_yaml),
        "scheduler-perf template": Sample(
            importer="scheduler-perf",
            value=_PERF_OBJECT,
            written=str.encode,
            beside={"perf.yaml": _PERF_WITH_TEMPLATE, "pod.yaml": _yaml(_POD)},
            opened="perf.yaml",
        ),
        "simkube": Sample(importer="simkube", value=_SIMKUBE, written=msgpack.packb),
        "simkube JSON": Sample(importer="simkube", value=_SIMKUBE_JSON, written=orjson.dumps),
        "azure-packing": Sample(importer="azure-packing", value=_PACKING, written=_database),
        "google-2019": Sample(
            importer="google-2019",
            value=[_MACHINE, _INSTANCE, _RUNNING, {**_USAGE, "average_usage": _USED}],
            written=_lines,
        ),
        "google-2011": Sample(importer="google-2011", value=_rows(_GOOGLE), written=_table),
        "google-2011 machines": Sample(
            importer="google-2011", value=_rows(_MACHINES), written=_table
        ),
        "dlrm": Sample(importer="dlrm", value=_rows(_DLRM), written=_table),
        "spot-gpu": Sample(importer="spot-gpu", value=_rows(_SPOT_JOBS), written=_table),
        "spot-gpu nodes": Sample(importer="spot-gpu", value=_rows(_SPOT_NODES), written=_table),
        "openb": Sample(importer="openb", value=_rows(_OPENB), written=_table),
        "openb nodes": Sample(importer="openb", value=_rows(_OPENB_NODES), written=_table),
    }
    tables = {
        f"alibaba-2017 {name}": Sample(importer="alibaba-2017", value=_rows(text), written=_table)
        for name, text in _ALIBABA.items()
    }
    return {**found, **tables}
