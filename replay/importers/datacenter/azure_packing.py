"""Azure's packing trace of 2020: virtual machines as pods, from its SQLite database.

Table `vm` has the start and end of each virtual machine, in days since the trace's start (below 0:
it existed before; no end: it ended after the trace), and a priority, of which 0 is the HIGH one.
Table `vmType` has sizes as fractions of a machine: a type has a row for each machineId that can
hold it, with different fractions. A pod's requests do not depend on its node, so that a replay is
for one machineId. The trace has no nodes; a generated node has a million parts of each resource.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

from replay.errors import TraceError
from replay.importers.records import (
    Importer,
    ImportOptions,
    Issues,
    PodTemplates,
    RecordNumbering,
    new_header,
    single_path,
)
from replay.importers.rows import ceil_product, decimal, make_pod, pod_life, priority_class
from reprieve.kube.v1beta1.pod_pb2 import Pod
from reprieve.trace.v1beta1.trace_pb2 import PodLife, Record
from services.kube.time import DAY_NS

NAME = "azure-packing"

PARTS = 1_000_000
"""Parts of a machine: each is a millicore, a MiB, or one of an extended resource."""
PRIORITIES = {0: ("high", 1000), 1: ("low", 0)}
"""PriorityClasses by the trace's priority, whose order is reversed."""
_MAGIC = b"SQLite format 3\x00"
_DAYS_MAX = 40_000
_SIZES = ("core", "memory", "hdd", "ssd", "nic")
_EXTRA = "packing.azure.com/"
_Requests = Mapping[str, str]


def sniff(_path: Path, start: bytes) -> bool:
    """Return whether a file whose content begins with `start` is the trace's database."""
    return start.startswith(_MAGIC) and b"vmTypeId" in start


def node_resources(_options: ImportOptions) -> Mapping[str, str]:
    """Return all parts of a machine."""
    amounts = {f"{_EXTRA}{name}": str(PARTS) for name in ("hdd", "ssd", "nic")}
    return {"cpu": f"{PARTS}m", "memory": f"{PARTS}Mi", "pods": "1000", **amounts}


def load(paths: Sequence[Path], options: ImportOptions) -> Iterator[Record]:
    """Yield the trace of the database. Raises TraceError if it cannot be read.

    Raises TraceError, too, where it has several machineIds and `options.machine` is not one.
    """
    path, issues, numbering = single_path(paths, "one database"), Issues(), RecordNumbering()
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as database:
            database.text_factory = lambda data: data.decode("utf-8", "replace")
            _check_tables(path, database)
            types = _types(path, database, options.machine)
            header = new_header(NAME, paths, options)
            header.times_recorded = True
            yield numbering.header(header)
            for name, value in PRIORITIES.values():
                yield numbering.record(0, create=priority_class(name, value))
            yield from _machines(path, database, types, numbering, issues)
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise TraceError(str(path), f"cannot be read as the trace's database: {error}") from error
    yield from numbering.issues(issues)


def _check_tables(path: Path, database: sqlite3.Connection) -> None:
    """Raise TraceError if a table is something else: a view may compute without end."""
    database.execute("PRAGMA trusted_schema = OFF")
    sql_by_table = dict(
        database.execute("SELECT lower(name), sql FROM sqlite_master WHERE type='table'")
    )
    for name in ("vm", "vmtype"):
        sql = str(sql_by_table.get(name) or "").upper()
        if not sql.startswith("CREATE TABLE") or " AS (" in sql or "GENERATED" in sql:
            problem = f"has no plain table {name}: expected the trace's vm and vmType"
            raise TraceError(str(path), problem)


def _types(path: Path, database: sqlite3.Connection, machine: str) -> dict[str, _Requests]:
    """Return the requests of each type of virtual machine on `machine`, by vmTypeId."""
    counted = database.execute(
        "SELECT CAST(machineId AS TEXT), COUNT(DISTINCT vmTypeId) FROM vmType "
        "GROUP BY machineId ORDER BY COUNT(DISTINCT vmTypeId) DESC, machineId"
    ).fetchall()
    type_counts = dict(counted)
    if not machine and len(type_counts) == 1:
        machine = next(iter(type_counts))
    if machine not in type_counts:
        listed = ", ".join(f"{name} ({count} types)" for name, count in counted[:20])
        problem = f"no machineId {machine!r}" if machine else "sizes differ by machine"
        raise TraceError(str(path), f"{problem}; choose one with --machine: {listed}")
    types: dict[str, _Requests] = {}
    rows = database.execute(
        "SELECT vmTypeId, core, memory, hdd, ssd, nic FROM vmType "
        "WHERE CAST(machineId AS TEXT) = ? ORDER BY id",
        (machine,),
    )
    for name, *sizes in rows:
        where = f"{path}, vmType {name}"
        types.setdefault(str(name), _requests(where, sizes))
    return types


def _requests(where: str, sizes: Sequence[Any]) -> _Requests:
    result = {}
    for name, size in zip(_SIZES, sizes, strict=True):
        share = None if size is None else decimal(str(size))
        if size is not None and (share is None or share < 0):
            raise TraceError(where, f"{name}: {size!r} is not a share of a machine")
        if share:
            result.update(_request(name, ceil_product(share, PARTS)))
    return result


def _request(name: str, parts: int) -> dict[str, str]:
    match name:
        case "core":
            return {"cpu": f"{parts}m"}
        case "memory":
            return {"memory": f"{parts}Mi"}
    return {f"{_EXTRA}{name}": str(parts)}


def _machines(
    path: Path,
    database: sqlite3.Connection,
    types: Mapping[str, _Requests],
    numbering: RecordNumbering,
    issues: Issues,
) -> Iterator[Record]:
    """Yield the virtual machines in the order of their starts."""
    templates = PodTemplates(numbering)
    rows = database.execute(
        "SELECT vmId, tenantId, vmTypeId, priority, starttime, endtime FROM vm "
        "ORDER BY CAST(starttime AS REAL), vmId"
    )
    for name, tenant, type_, priority, start, end in rows:
        where = f"{path}, vm {name}"
        requests = types.get(str(type_))
        if requests is None:
            issues.add("no-size", where, "of a type that this machine does not hold: left out")
            continue
        if priority not in PRIORITIES:
            raise TraceError(where, f"priority: {priority!r} is neither 0 (high) nor 1 (low)")
        start_ns, end_ns = _time_ns(where, "starttime", start), _time_ns(where, "endtime", end)
        if start_ns is None:
            raise TraceError(where, "starttime is missing")
        life = _life(where, start_ns, end_ns, priority, issues)
        pod = _pod(str(name), str(tenant), priority, requests)
        yield from templates.pod_create(max(0, start_ns), pod, life)


def _life(where: str, start_ns: int, end_ns: int | None, priority: int, issues: Issues) -> PodLife:
    """Return the service time within the trace; censored for low ones, which may be evicted."""
    if start_ns < 0:
        issues.add("there-before", where, "was there before the trace began: created at its start")
    life = pod_life(where, max(0, start_ns), end_ns, issues, no_end="lived beyond the trace")
    if end_ns is not None and PRIORITIES[priority][0] == "low":
        message = "a low priority may have ended by an eviction: runs until it is deleted"
        issues.add("censored", where, message)
        life.censored = True
    return life


def _pod(name: str, tenant: str, priority: int, requests: _Requests) -> Pod:
    pod = make_pod(f"vm-{name}", "vm", requests)
    pod.metadata.annotations["packing.azure.com/tenant"] = tenant
    pod.spec.priority_class_name, pod.spec.priority = PRIORITIES[priority]
    return pod


def _time_ns(where: str, column: str, days: object) -> int | None:
    if days is None or days == "":
        return None
    number: Decimal | None = decimal(str(days))
    if number is None or abs(number) > _DAYS_MAX:
        raise TraceError(where, f"{column}: {days!r} is not a number of days")
    return int((number * DAY_NS).to_integral_value())


IMPORTER = Importer(
    name=NAME,
    description='Azure\'s packing trace: an SQLite database with tables "vm" and "vmType"',
    sniff=sniff,
    load=load,
    no_outcomes="Azure's packing trace has virtual machines without their hosts",
    node_resources=node_resources,
)
