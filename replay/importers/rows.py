"""Rows of tables: their fields, the objects made of them, and drafts sorted by time.

Objects of traces that are no Kubernetes objects: nodes, pods, priority classes, and amounts.

Records that come in any order of time, given back in order.

A trace must tell how long a pod runs when it creates it, which a source tells only when the pod has
ended. Drafts are therefore gathered and sorted, on disk where they are many, so that memory stays
bounded.
"""

from __future__ import annotations

import csv
import io
import sqlite3
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import ROUND_CEILING, Decimal, InvalidOperation
from pathlib import Path
from typing import NoReturn, Self

from replay.errors import TraceError
from replay.importers.records import SECOND_NS, ImportOptions, Issues, Numbering, Templates
from replay.kube.identity import object_uid
from replay.trace.files import open_plain
from reprieve.kube.v1beta1.meta_pb2 import ObjectReference
from reprieve.kube.v1beta1.node_pb2 import Node
from reprieve.kube.v1beta1.object_pb2 import KubernetesObject
from reprieve.kube.v1beta1.pod_pb2 import Pod
from reprieve.kube.v1beta1.scheduling_pb2 import PriorityClass
from reprieve.trace.v1beta1.trace_pb2 import Header, ImportIssue, Record

SECONDS_MAX = 4_000_000_000
"""A time of more is none: ns since 1970 end in 2262."""
SHARE_MAX = 1000
"""Machines that a share may be at most: what is larger is no share."""


class Row:
    """A row by the names of its columns."""

    __slots__ = ("_line", "_path", "_values")

    def __init__(self, path: Path, line: int, values: Mapping[str, str]) -> None:
        self._path = path
        self._line = line
        self._values = values

    @property
    def where(self) -> str:
        """Return "FILE, line N"."""
        return f"{self._path}, line {self._line}"

    def has(self, name: str) -> bool:
        """Tell whether the column is there."""
        return self._values.get(name) is not None

    def text(self, name: str) -> str:
        """Return a field, "" where it is empty or the column is not there."""
        return self._values.get(name) or ""

    def integer(self, name: str) -> int | None:
        """Return a whole number, None for an empty field. Raises TraceError for anything else."""
        text = self.text(name)
        if not text:
            return None
        try:
            return int(text)
        except ValueError:
            number = decimal(text)
            if number is None or number != int(number):
                self._refuse(name, text)
            return int(number)

    def number(self, name: str) -> Decimal | None:
        """Return a number, None for an empty field. Raises TraceError for anything else."""
        text = self.text(name)
        if not text:
            return None
        number = decimal(text)
        if number is None:
            self._refuse(name, text)
        return number

    def share(self, name: str) -> Decimal | None:
        """Return a share of a machine, None for an empty field. Raises TraceError out of bounds."""
        share = self.number(name)
        if share is not None and not 0 <= share <= SHARE_MAX:
            raise TraceError(self.where, f"{name}: {share} is no share from 0 to {SHARE_MAX}")
        return share

    def seconds_ns(self, name: str) -> int | None:
        """Return a time in s as ns, None for an empty field. Raises TraceError out of bounds."""
        seconds = self.number(name)
        if seconds is None:
            return None
        if abs(seconds) > SECONDS_MAX:
            raise TraceError(self.where, f"{name}: {self.text(name)!r} where a time in s is wanted")
        return int((seconds * SECOND_NS).to_integral_value())

    def _refuse(self, name: str, text: str) -> NoReturn:
        raise TraceError(self.where, f"{name}: {text!r} where a number is wanted")


def rows(path: Path, columns: Sequence[str] = ()) -> Iterator[Row]:
    """Yield the rows of a file; `columns` names those of a file without a first line of names.

    Empty lines, and lines that begin with "#", are passed over. Raises TraceError where the file
    is no CSV, or where a row has another number of fields than there are columns.
    """
    with open_plain(path) as file:
        text = io.TextIOWrapper(file, encoding="utf-8-sig", newline="")
        reader = csv.reader(text)
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
                    problem = f"{len(fields)} fields where {len(names)} are wanted"
                    raise TraceError(where, problem)
                yield Row(path, reader.line_num, dict(zip(names, fields, strict=False)))
        except (csv.Error, UnicodeDecodeError) as error:
            raise TraceError(f"{path}, line {reader.line_num}", f"is no CSV: {error}") from error


def decimal(text: str) -> Decimal | None:
    """Return a number that is finite; None where the text is none."""
    try:
        number = Decimal(text)
    except InvalidOperation:
        return None
    return number if number.is_finite() else None


def first_fields(start: bytes) -> list[str]:
    """Return the fields of the first row of content that begins with `start`, [] for none."""
    for line in start.decode("utf-8-sig", "replace").splitlines():
        if line.strip() and line[0] != "#":
            return [field.strip() for field in next(csv.reader([line]), [])]
    return []


NAMESPACE = "default"


def machine_amounts(options: ImportOptions) -> Mapping[str, str]:
    """Return what a made node has where nothing else is said: one whole machine."""
    return {
        "cpu": f"{options.unit_cpu_milli}m",
        "memory": str(options.unit_memory_bytes),
        "pods": "110",
    }


def make_node(name: str, capacity: Mapping[str, str], allocatable: Mapping[str, str]) -> Node:
    """Return a ready node with the usual labels and these amounts."""
    node = Node()
    node.metadata.name, node.metadata.uid = name, object_uid("Node", "", name)
    node.metadata.labels.update({"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"})
    node.status.capacity.update(capacity)
    node.status.allocatable.update(allocatable)
    node.status.conditions.add(type="Ready", status="True", reason="KubeletReady")
    return node


def make_pod(name: str, container: str, requests: Mapping[str, str]) -> Pod:
    """Return a pod of one container, in NAMESPACE."""
    pod = Pod()
    pod.metadata.name, pod.metadata.namespace = name, NAMESPACE
    pod.metadata.uid = object_uid("Pod", NAMESPACE, name)
    pod.spec.containers.add(name=container).resources.requests.update(requests)
    return pod


def pod_ref(pod: Pod) -> ObjectReference:
    """Return the name of a pod for a record."""
    meta = pod.metadata
    return ObjectReference(kind="Pod", namespace=meta.namespace, name=meta.name, uid=meta.uid)


def priority_class(name: str, value: int) -> KubernetesObject:
    """Return a class that pods name."""
    result = PriorityClass(value=value)
    result.metadata.name = name
    return KubernetesObject(priority_class=result)


def made_nodes(amounts: Mapping[str, str], options: ImportOptions) -> Iterator[Node]:
    """Yield `options.made_nodes` nodes.

    Each has `amounts`, and `options.node_amounts` in place of those of the same name.
    """
    chosen = {**amounts, **options.node_amounts}
    for index in range(options.made_nodes):
        yield make_node(f"node-{index:05d}", chosen, chosen)


def completed(
    records: Iterable[Record], nodes: Sequence[Node], issues: Iterable[ImportIssue]
) -> Iterator[Record]:
    """Yield the records, with nodes behind the header and issues at the end."""
    last, shift = Record(), 0
    for record in records:
        record.sequence += shift
        yield record
        last = record
        if record.HasField("header"):
            for node in nodes:
                create = KubernetesObject(node=node)
                last = Record(at_ns=last.at_ns, sequence=last.sequence + 1, create=create)
                yield last
            shift = len(nodes)
    for issue in issues:
        last = Record(at_ns=last.at_ns, sequence=last.sequence + 1, issue=issue)
        yield last


def scaled(share: Decimal, unit: int) -> int:
    """Return `share` of `unit`, rounded up; equal shares stay equal, so that what fitted fits."""
    return int((share * unit).to_integral_value(ROUND_CEILING))


def amounts(
    cpu: Decimal | None, memory: Decimal | None, options: ImportOptions, percent: int = 100
) -> dict[str, str]:
    """Return quantities of the shares that are known, `percent` of them."""
    factor = Decimal(percent) / 100
    result = {}
    if cpu is not None:
        result["cpu"] = f"{scaled(cpu * factor, options.unit_cpu_milli)}m"
    if memory is not None:
        result["memory"] = str(scaled(memory * factor, options.unit_memory_bytes))
    return result


_COPIES = struct.Struct("<i")


class Sorter:
    """Gives back data in order of (time, rank, number), where numbers count what is added.

    It is a database without a name, which SQLite keeps on disk where it is large; a context, at
    whose end it is gone.
    """

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
        """Take an item; `number` None is the next one."""
        row = (at, rank, self._count if number is None else number, data)
        self._database.execute("INSERT INTO item VALUES (?, ?, ?, ?)", row)
        self._count += 1

    def sorted(self) -> Iterator[bytes]:
        """Yield the items' data in order; nothing is added any more."""
        query = "SELECT data FROM item ORDER BY at, rank, number, data"
        for (data,) in self._database.execute(query):
            yield data


class Drafts(Sorter):
    """Gathers records without numbers."""

    def add(
        self, record: Record, rank: int = 0, number: int | None = None, copies: int = 0
    ) -> None:
        """Take a record; of those of one time, lower ranks come first, then lower numbers.

        `number` None counts what is added. With `copies`, a pod stands for as many, which differ
        in their names: the pod's name and a number from 0.
        """
        data = _COPIES.pack(copies) + record.SerializeToString()
        self.put(record.at_ns, rank, data, number)

    def trace(self, header: Header, classes: Mapping[str, int], issues: Issues) -> Iterator[Record]:
        """Yield a whole trace: the header, priority classes, the drafts in order, and issues."""
        numbering = Numbering()
        yield numbering.header(header)
        for name, value in classes.items():
            yield numbering.record(0, create=priority_class(name, value))
        yield from self.records(numbering, Templates(numbering))
        yield from numbering.issues(issues)

    def records(self, numbering: Numbering, templates: Templates) -> Iterator[Record]:
        """Yield the records in order and numbered; what pods have in common is taken out."""
        for data in self.sorted():
            (copies,) = _COPIES.unpack_from(data)
            record = Record.FromString(data[_COPIES.size :])
            kind = record.WhichOneof("record") or ""
            if kind != "pod_create":
                yield numbering.record(record.at_ns, **{kind: getattr(record, kind)})
                continue
            create = record.pod_create
            life = create.life if create.HasField("life") else None
            for pod in _copied(create.pod, copies) if copies else (create.pod,):
                yield from templates.pod_create(record.at_ns, pod, life)


def _copied(pod: Pod, copies: int) -> Iterator[Pod]:
    for index in range(copies):
        copy = Pod()
        copy.CopyFrom(pod)
        copy.metadata.name = f"{pod.metadata.name}-{index}"
        copy.metadata.uid = object_uid("Pod", copy.metadata.namespace, copy.metadata.name)
        yield copy
