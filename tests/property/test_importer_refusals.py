"""Whatever stands in a source, its importer reads it or refuses it: nothing else ever comes out."""

from __future__ import annotations

import copy
import itertools
import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgpack
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from replay.errors import TraceError
from replay.importers.records import ImportOptions
from replay.importers.registry import IMPORTERS

_Keys = tuple[str | int, ...]
_JUNK: st.SearchStrategy[Any] = st.one_of(
    st.sampled_from([None, True, "", "x", "$y", [], [1], {}, {"a": 1}, ["a"], [{}], 1e300]),
    st.integers(-(10**20), 10**20),
    st.floats(allow_nan=False, allow_infinity=False),
)
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
_OPENB = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,"
    "deletion_time,scheduled_time\np,1,1,1,1,P|T,LS,Running,5,9,6\n"
)


def _lines(values: Any) -> bytes:
    return b"\n".join(json.dumps(each).encode() for each in values)


def _documents(values: Any) -> bytes:
    return yaml.safe_dump_all(values).encode()


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


_SOURCES: dict[str, tuple[Any, Callable[[Any], bytes]]] = {
    "audit": ([_LOG_ENTRY, _LOG_ENTRY], _lines),
    "azure-packing": (_PACKING, _database),
    "google-2019": ([_MACHINE, _INSTANCE, _RUNNING, {**_USAGE, "average_usage": _USED}], _lines),
    "kwok": ([_POD, _PATCH, {**_PATCH, "method": "delete"}], _documents),
    "recorder": ([{"time": _TIME, "event": "Add", "resource": _POD}] * 2, _lines),
    "scheduler-perf": (_PERF, lambda value: yaml.safe_dump(value).encode()),
    "simkube": (_SIMKUBE, msgpack.packb),
}
_TABLES = {
    "alibaba-2017": "5,9,1,2,1,Terminated,50,0.1\n",
    "dlrm": _DLRM,
    "google-2011": _GOOGLE,
    "openb": _OPENB,
}
_QUICK = settings(
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


def _places(value: Any, keys: _Keys = ()) -> Iterator[_Keys]:
    """Yield the keys of everything within a value."""
    parts: Any = value.items() if isinstance(value, dict) else ()
    parts = enumerate(value) if isinstance(value, list) else parts
    for key, part in parts:
        yield (*keys, key)
        yield from _places(part, (*keys, key))


def _with(value: Any, keys: _Keys, junk: Any) -> Any:
    """Return the value with something else at a place."""
    result = copy.deepcopy(value)
    part = result
    for key in keys[:-1]:
        part = part[key]
    part[keys[-1]] = junk
    return result


def _read_or_refuse(name: str, file: Path) -> None:
    options = ImportOptions(openb_timed=name == "openb")
    refusal = ""
    try:
        for _ in itertools.islice(IMPORTERS[name].load([file], options), 5000):
            pass
    except TraceError as error:
        refusal = str(error)
    assert not refusal or file.name in refusal


def test_every_importer_has_a_source_here() -> None:
    """But those of Kubernetes' objects as they are, and Reprieve's own."""
    assert set(IMPORTERS) == {*_SOURCES, *_TABLES, "native", "manifests", "watch"}


@pytest.mark.parametrize("name", sorted(_SOURCES))
@_QUICK
@given(data=st.data())
def test_a_value_of_another_kind_is_read_or_refused(
    name: str, tmp_path: Path, data: st.DataObject
) -> None:
    """Anywhere in a source: with the file's name, and without any other error."""
    source, written = _SOURCES[name]
    place = data.draw(st.sampled_from(sorted(_places(source), key=str)))
    file = tmp_path / "source"
    try:
        file.write_bytes(written(_with(source, place, data.draw(_JUNK))))
    except OverflowError:
        return  # MessagePack has no integer as large
    _read_or_refuse(name, file)


@pytest.mark.parametrize("name", sorted(_TABLES))
@_QUICK
@given(data=st.data())
def test_a_field_of_another_kind_is_read_or_refused(
    name: str, tmp_path: Path, data: st.DataObject
) -> None:
    """In any column of any row, the names of columns among them."""
    rows = [row.split(",") for row in _TABLES[name].strip().split("\n")]
    row = data.draw(st.sampled_from(rows))
    texts = st.one_of(
        st.sampled_from(["", "x", "-1", "1e3", "nan", "inf", '"', "\x00", "9" * 30]),
        st.decimals(-(10**12), 10**12, places=3).map(str),
        st.text(max_size=3),
    )
    row[data.draw(st.integers(0, len(row) - 1))] = data.draw(texts)
    file = tmp_path / "source"
    file.write_text("\n".join(",".join(row) for row in rows), encoding="utf-8", newline="")
    _read_or_refuse(name, file)
