"""Tables of data-centre traces: rows of CSV files, the objects made of them, records by time.

A trace says how long a pod runs when it creates the pod; a table has that only where the pod ends.
Importers therefore collect record drafts, which are sorted on disk, so that memory is bounded.

Rows are read and records sorted by Python's own csv and sqlite3, not by DuckDB, which makes the
tables of a run: a refusal names the line of a row, which DuckDB's readers do not report, and
records come one by one, which costs 0.5 ms each there and 3 us here (in batches 2.3 us there).
"""

from __future__ import annotations

import csv
import sqlite3
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import ROUND_CEILING, Decimal, InvalidOperation
from enum import IntEnum
from pathlib import Path
from typing import NoReturn, Self

from replay import bounds
from replay.errors import TraceError
from replay.hashing import object_uid
from replay.importers.records import ImportOptions, Issues, PodTemplates, RecordNumbering
from replay.trace.files import open_plain
from reprieve.kube.v1beta1.meta_pb2 import ObjectReference
from reprieve.kube.v1beta1.node_pb2 import Node
from reprieve.kube.v1beta1.object_pb2 import KubernetesObject
from reprieve.kube.v1beta1.pod_pb2 import Pod
from reprieve.kube.v1beta1.scheduling_pb2 import PriorityClass
from reprieve.trace.v1beta1.trace_pb2 import Header, ImportIssue, PodLife, Record
from services.kube.time import SECOND_NS

NAMESPACE = "default"
SECONDS_MAX = 4_000_000_000
"""The largest time in s: int64 ns since 1970 end in 2262."""
SHARE_MAX = 1000
"""The largest share of a machine."""
_DIGITS_MAX = 30
"""Digits of a number before its point; a text of a table has no larger one."""
_TEXT_MAX = 100
_COPIES = struct.Struct("<i")


class TableRow:
    """A row of a table, by the names of its columns; `line` is its last line in the file, from 1.

    Every method that reads a field raises TraceError, with file, line and column, for a text that
    is not such a value.
    """

    __slots__ = ("_path", "_values", "line")

    def __init__(self, path: Path, line: int, values: Mapping[str, str]) -> None:
        self._path = path
        self.line = line
        self._values = values

    @property
    def where(self) -> str:
        """Return "FILE, line N"."""
        return f"{self._path}, line {self.line}"

    def has(self, name: str) -> bool:
        """Return whether the table has the column."""
        return self._values.get(name) is not None

    def text(self, name: str) -> str:
        """Return a field, "" if it is empty or the table does not have the column."""
        return self._values.get(name) or ""

    def required(self, name: str) -> str:
        """Return a field. Raises TraceError if `text` returns ""."""
        text = self.text(name)
        if not text:
            raise TraceError(self.where, f"{name} is missing")
        return text

    def integer(self, name: str) -> int | None:
        """Return an integer, also one written as "3.0"; None for an empty field."""
        text = self.text(name)
        if not text:
            return None
        try:
            if len(text) > _DIGITS_MAX:
                raise ValueError
            return int(text)
        except ValueError:
            number = decimal(text)
            if number is None or number != int(number):
                self._refuse(name, text)
            return int(number)

    def count(self, name: str, largest: int) -> int | None:
        """Return an integer from 0 to `largest`, None for an empty field."""
        count = self.integer(name)
        if count is not None and not 0 <= count <= largest:
            raise TraceError(self.where, f"{name}: {count} is not a number from 0 to {largest:,}")
        return count

    def number(self, name: str) -> Decimal | None:
        """Return a finite number, None for an empty field."""
        text = self.text(name)
        if not text:
            return None
        number = decimal(text)
        if number is None:
            self._refuse(name, text)
        return number

    def share(self, name: str) -> Decimal | None:
        """Return a share of a machine, from 0 to SHARE_MAX; None for an empty field."""
        share = self.number(name)
        if share is not None and not 0 <= share <= SHARE_MAX:
            raise TraceError(self.where, f"{name}: {share} is not a share from 0 to {SHARE_MAX}")
        return share

    def seconds_ns(self, name: str) -> int | None:
        """Return a time in s as ns, None for an empty field; at most SECONDS_MAX either way."""
        seconds = self.number(name)
        if seconds is None:
            return None
        if abs(seconds) > SECONDS_MAX:
            raise TraceError(self.where, f"{name}: {self.text(name)!r} is not a time in s")
        return int((seconds * SECOND_NS).to_integral_value())

    def _refuse(self, name: str, text: str) -> NoReturn:
        raise TraceError(self.where, f"{name}: {text!r} is not a number")


def table_rows(path: Path, columns: Sequence[str] = ()) -> Iterator[TableRow]:
    """Yield the rows of a CSV file; without `columns` its first line has the names of the columns.

    Empty lines and lines that begin with "#" are skipped. Raises TraceError if the file is not
    CSV, and where the number of a row's fields is not that of the columns.
    """
    with open_plain(path) as file:
        reader = csv.reader(bounds.text_lines(file, str(path)))
        names: Sequence[str] = columns
        try:
            for fields in reader:
                if not fields or fields[0][:1] == "#":
                    continue
                if not names:
                    names = [name.strip() for name in fields]
                    continue
                if len(fields) != len(names):
                    where = f"{path}, line {reader.line_num}"
                    raise TraceError(where, f"has {len(fields)} fields; expected {len(names)}")
                yield TableRow(path, reader.line_num, dict(zip(names, fields, strict=False)))
        except (csv.Error, UnicodeDecodeError) as error:
            raise TraceError(f"{path}, line {reader.line_num}", f"is not CSV: {error}") from error


def decimal(text: str) -> Decimal | None:
    """Return a finite number below 10^30, of 100 characters at most; None for any other text."""
    try:
        number = Decimal(text) if len(text) <= _TEXT_MAX else None
    except InvalidOperation:
        return None
    if number is None or not number.is_finite():
        return None
    return number if abs(number.adjusted()) < _DIGITS_MAX or not number else None


def first_fields(start: bytes) -> list[str]:
    """Return the fields of the first row of content that begins with `start`; [] without a row."""
    for line in start.decode("utf-8-sig", "replace").splitlines():
        if line.strip() and line[0] != "#":
            return [field.strip() for field in next(csv.reader([line]), [])]
    return []


def make_node(name: str, capacity: Mapping[str, str], allocatable: Mapping[str, str]) -> Node:
    """Return a node with the condition Ready and the labels kubernetes.io/hostname and os.

    Resources are quantities by name. `allocatable` needs "cpu", "memory" and "pods": no pod fits on
    a node without them.
    """
    node = Node()
    node.metadata.name, node.metadata.uid = name, object_uid("Node", "", name)
    node.metadata.labels.update({"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"})
    node.status.capacity.update(capacity)
    node.status.allocatable.update(allocatable)
    node.status.conditions.add(type="Ready", status="True", reason="KubeletReady")
    return node


def make_pod(name: str, container: str, requests: Mapping[str, str]) -> Pod:
    """Return a pod of one container, in NAMESPACE; its UID is a hash of its name.

    Names must be unique. A priority needs both `spec.priority_class_name` and `spec.priority`.
    """
    pod = Pod()
    pod.metadata.name, pod.metadata.namespace = name, NAMESPACE
    pod.metadata.uid = object_uid("Pod", NAMESPACE, name)
    pod.spec.containers.add(name=container).resources.requests.update(requests)
    return pod


def pod_ref(pod: Pod) -> ObjectReference:
    """Return the reference by which a Delete or an Observed names the pod."""
    meta = pod.metadata
    return ObjectReference(kind="Pod", namespace=meta.namespace, name=meta.name, uid=meta.uid)


def priority_class(name: str, value: int) -> KubernetesObject:
    """Return the PriorityClass that gives its pods the priority `value`."""
    result = PriorityClass(value=value)
    result.metadata.name = name
    return KubernetesObject(priority_class=result)


def generated_nodes(resources: Mapping[str, str], options: ImportOptions) -> Iterator[Node]:
    """Yield `options.made_nodes` nodes; `options.node_amounts` overrides `resources`."""
    resources = {**resources, **options.node_amounts}
    for index in range(options.made_nodes):
        yield make_node(f"node-{index:05d}", resources, resources)


def with_nodes_and_issues(
    records: Iterable[Record], nodes: Sequence[Node], issues: Iterable[ImportIssue]
) -> Iterator[Record]:
    """Yield the records, with `nodes` after the header and `issues` at the end."""
    last, shift = Record(), 0
    for record in records:
        record.sequence += shift
        yield record
        last = record
        if record.HasField("header"):
            for node in nodes:
                create = KubernetesObject(node=node)
                last = Record(time_ns=last.time_ns, sequence=last.sequence + 1, create=create)
                yield last
            shift = len(nodes)
    for issue in issues:
        last = Record(time_ns=last.time_ns, sequence=last.sequence + 1, issue=issue)
        yield last


def ceil_product(amount: Decimal, factor: int) -> int:
    """Return `amount` times `factor`, rounded up: cores in millicores, shares in bytes."""
    return int((amount * factor).to_integral_value(ROUND_CEILING))


def share_quantities(
    cpu: Decimal | None, memory: Decimal | None, options: ImportOptions, percent: int = 100
) -> dict[str, str]:
    """Return `percent` of the shares of a machine as quantities; None is left out."""
    factor = Decimal(percent) / 100
    result = {}
    if cpu is not None:
        result["cpu"] = f"{ceil_product(cpu * factor, options.unit_cpu_milli)}m"
    if memory is not None:
        result["memory"] = str(ceil_product(memory * factor, options.unit_memory_bytes))
    return result


def pod_life(
    where: str,
    start_ns: int,
    end_ns: int | None,
    issues: Issues,
    *,
    no_end: str = "no end within the trace",
    negative: str = "ended before it began",
) -> PodLife:
    """Return the service time from start to end, 0 at least; `end_ns` None: the pod is censored.

    `no_end` and `negative` are the messages of the issues `censored` and `negative-time`.
    """
    if end_ns is None:
        issues.add("censored", where, f"{no_end}: runs until it is deleted")
        return PodLife(censored=True)
    if end_ns < start_ns:
        issues.add("negative-time", where, f"{negative}: taken as 0 s")
    return PodLife(service_duration_ns=max(0, end_ns - start_ns))


class RecordRank(IntEnum):
    """The order of records at equal times: what pods need, pods, what is observed of them."""

    NODE = 1
    USAGE = 2
    POD = 3
    UPDATE = 4
    OBSERVED = 5
    DELETE = 6


class DiskSorter:
    """Sorts data by (time, rank, number), in a temporary SQLite database, on disk where large."""

    def __init__(self) -> None:
        self._database = sqlite3.connect("")
        self._database.execute(
            "CREATE TABLE item (at INTEGER, rank INTEGER, number INTEGER, data BLOB)"
        )
        self._count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._database.close()

    def put(self, at: int, rank: int, data: bytes, number: int | None = None) -> None:
        """Add an item; `number` None is the number of items before it."""
        row = (at, rank, self._count if number is None else number, data)
        self._database.execute("INSERT INTO item VALUES (?, ?, ?, ?)", row)
        self._count += 1

    def sorted(self) -> Iterator[bytes]:
        """Yield the data of all items in order."""
        query = "SELECT data FROM item ORDER BY at, rank, number, data"
        for (data,) in self._database.execute(query):
            yield data


class RecordDrafts(DiskSorter):
    """Sorts records that are added in any order, and numbers them in order of time."""

    def add(
        self,
        record: Record,
        rank: RecordRank = RecordRank.POD,
        number: int | None = None,
        copies: int = 0,
    ) -> None:
        """Add a record; at equal times lower ranks come first, then lower numbers.

        `number` None is the number of records added before it. `copies` replaces a pod's record by
        as many pods, named by the pod's name and a number from 0.
        """
        data = _COPIES.pack(copies) + record.SerializeToString()
        self.put(record.time_ns, rank, data, number)

    def trace(self, header: Header, classes: Mapping[str, int], issues: Issues) -> Iterator[Record]:
        """Yield a whole trace: header, PriorityClasses (values by name), sorted records, issues.

        Records before `header.start_ns` are moved to it.
        """
        numbering = RecordNumbering()
        yield numbering.header(header)
        for name, value in classes.items():
            yield numbering.record(0, create=priority_class(name, value))
        yield from self.records(numbering, PodTemplates(numbering))
        yield from numbering.issues(issues)

    def records(self, numbering: RecordNumbering, templates: PodTemplates) -> Iterator[Record]:
        """Yield the numbered records in order; what pods share becomes templates."""
        for data in self.sorted():
            (copies,) = _COPIES.unpack_from(data)
            record = Record.FromString(data[_COPIES.size :])
            kind = record.WhichOneof("record") or ""
            if kind != "pod_create":
                yield numbering.record(record.time_ns, **{kind: getattr(record, kind)})
                continue
            create = record.pod_create
            life = create.life if create.HasField("life") else None
            for pod in _copied(create.pod, copies) if copies else (create.pod,):
                yield from templates.pod_create(record.time_ns, pod, life)


def _copied(pod: Pod, copies: int) -> Iterator[Pod]:
    for index in range(copies):
        copy = Pod()
        copy.CopyFrom(pod)
        copy.metadata.name = f"{pod.metadata.name}-{index}"
        copy.metadata.uid = object_uid("Pod", copy.metadata.namespace, copy.metadata.name)
        yield copy
