"""Alibaba's cluster trace of 2017: machines, online containers and batch tasks, in CSV.

The importer reads server_event (7 columns), container_event (8), batch_task (8) and batch_instance
(12), with or without a first line of names, and recognises each by its content. Times are s. CPU is
in cores in server_event and container_event, and in hundredths of a core in batch_task; memory is a
share of the largest machine. A batch instance is a pod; without batch_instance all instances of a
task run as long as the task. The trace has no priorities: online is above batch here.

Source: the trace's schema.csv.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path

from replay import bounds
from replay.errors import TraceError
from replay.importers.records import Importer, ImportOptions, Issues, new_header
from replay.importers.rows import (
    RecordDrafts,
    RecordRank,
    TableRow,
    first_fields,
    make_node,
    make_pod,
    pod_life,
    pod_ref,
    share_quantities,
    table_rows,
)
from replay.trace.files import head
from reprieve.kube.v1beta1.meta_pb2 import ObjectReference
from reprieve.kube.v1beta1.node_pb2 import Node
from reprieve.kube.v1beta1.object_pb2 import KubernetesObject
from reprieve.kube.v1beta1.pod_pb2 import Pod
from reprieve.trace.v1beta1.trace_pb2 import Delete, Observed, PodCreate, PodLife, Record, Scheduled

NAME = "alibaba-2017"
PRIORITIES = {"online": 1000, "batch": 0}
_COLUMNS: Mapping[str, Sequence[str]] = {
    "server_event": ("time", "machine", "event", "detail", "cpus", "memory", "disk"),
    "container_event": (
        *("time", "event", "instance", "machine", "cpus", "memory", "disk"),
        "cpu_ids",
    ),
    "batch_task": ("create", "end", "job", "task", "instances", "status", "cpu", "memory"),
    "batch_instance": (
        *("start", "end", "job", "task", "machine", "status", "number", "of"),
        *("max_cpu", "mean_cpu", "max_memory", "mean_memory"),
    ),
}
_STATUSES = frozenset(
    {"Terminated", "Waiting", "Running", "Failed", "Ready", "Interrupted", "Cancelled"}
)
_NAMES_BEGIN = {"task_create_time": "batch_task", "start_timestamp": "batch_instance"}
_PODS_OF_A_NODE = "1000"
_INT32_MAX = 2**31 - 1
_Task = tuple[int, Decimal | None, Decimal | None]


def sniff(_path: Path, start: bytes) -> bool:
    """Return whether a file whose content begins with `start` is one of the tables."""
    return bool(_table(start))


def load(paths: Sequence[Path], options: ImportOptions) -> Iterator[Record]:
    """Yield the trace of the tables. Raises TraceError, with file and line, for a broken row."""
    issues = Issues()
    files: dict[str, list[Path]] = {}
    for path in paths:
        table = _table(head(path))
        files.setdefault(table, []).append(path)
        if not table:
            issues.add("ignored-file", str(path), "no table of the trace: left out")
    header = new_header(NAME, paths, options)
    header.times_recorded = True
    header.memory_bytes_per_unit = options.unit_memory_bytes
    with RecordDrafts() as drafts:
        tables = _Tables(drafts, issues, options)
        for row in _rows(files, "server_event"):
            tables.server(row)
        for row in _rows(files, "container_event"):
            tables.container(row)
        with_instances = "batch_instance" in files
        for row in _rows(files, "batch_task"):
            tables.task(row, pods=not with_instances)
        for row in _rows(files, "batch_instance"):
            tables.instance(row)
        yield from drafts.trace(header, PRIORITIES, issues)


def _table(start: bytes) -> str:
    """Return the name of the table that begins with `start`, "" for no table."""
    fields = first_fields(start)
    if not fields:
        return ""
    if fields[0] in _NAMES_BEGIN:
        return _NAMES_BEGIN[fields[0]]
    if not fields[0].lstrip("-").isdecimal():
        return ""
    match len(fields):
        case 7 if fields[2] in {"add", "softerror", "harderror"}:
            return "server_event"
        case 8 if fields[1] == "Create":
            return "container_event"
        case 8 if fields[5] in _STATUSES:
            return "batch_task"
        case 12 if fields[5] in _STATUSES:
            return "batch_instance"
    return ""


def _rows(files: Mapping[str, Sequence[Path]], table: str) -> Iterator[TableRow]:
    for path in sorted(files.get(table, ())):
        for row in table_rows(path, _COLUMNS[table]):
            if row.text(_COLUMNS[table][0]) not in _NAMES_BEGIN:
                yield row


class _Tables:
    """Makes records of rows; memory is bounded by machines and batch tasks."""

    def __init__(self, drafts: RecordDrafts, issues: Issues, options: ImportOptions) -> None:
        self._drafts = drafts
        self._issues = issues
        self._options = options
        self._nodes: dict[str, Node] = {}
        self._tasks: dict[tuple[str, str], _Task] = {}

    def server(self, row: TableRow) -> None:
        """Add a machine's event: a soft error cordons its node, a hard error deletes it."""
        machine, at_ns = row.text("machine"), self._time_ns(row, "time")
        node = self._nodes.get(machine)
        match row.text("event"):
            case "add" if node is None:
                node = self._nodes[machine] = self._node(row)
                made = KubernetesObject(node=node)
                self._drafts.add(Record(time_ns=at_ns, create=made), RecordRank.NODE)
            case "softerror" if node is not None:
                message = "a soft error cordons its machine for good: no recovery is recorded"
                self._issues.add("no-recovery", row.where, message)
                if not node.spec.unschedulable:
                    node.spec.unschedulable = True
                    made = KubernetesObject(node=node)
                    self._drafts.add(Record(time_ns=at_ns, update=made), RecordRank.NODE)
            case "harderror" if node is not None:
                del self._nodes[machine]
                ref = ObjectReference(kind="Node", name=node.metadata.name)
                delete = Delete(object=ref, cause="user")
                self._drafts.add(Record(time_ns=at_ns, delete=delete), RecordRank.DELETE)
            case "add" | "softerror" | "harderror":
                message = f"{row.text('event')} of a machine that is there already, or is not there"
                self._issues.add("unknown-machine", row.where, message)
            case event:
                raise TraceError(row.where, f"event: {event!r} is not an event of a machine")

    def container(self, row: TableRow) -> None:
        """Add an online container: bound at the start of the trace, created and observed later."""
        at_ns, machine = self._time_ns(row, "time"), row.text("machine")
        cpu, memory = row.number("cpus"), row.share("memory")
        pod = self._pod(f"online-{row.text('instance')}", "online", cpu, memory)
        node_name = f"machine-{machine}"
        if at_ns == 0 and machine in self._nodes:
            pod.spec.node_name, pod.status.phase = node_name, "Running"
            pod.status.start_time.SetInParent()
        elif machine:
            self._observe(at_ns, pod, node_name)
        self._create(at_ns, pod, PodLife(censored=True))

    def task(self, row: TableRow, *, pods: bool) -> None:
        """Add a batch task; `pods` creates its instances, too."""
        created_ns, cpu, memory = self._created(row), row.number("cpu"), row.share("memory")
        name = row.text("job"), row.text("task")
        cores = None if cpu is None else cpu / 100
        if not pods:
            self._tasks[name] = created_ns, cores, memory
            return
        count = row.count("instances", _INT32_MAX) or 0
        bounds.check_count(count, row.where, "instances")
        message = "instances live as long as their task: batch_instance has their own times"
        self._issues.add("task-time", row.where, message, count)
        life = self._life(row, row.seconds_ns("create"), row.seconds_ns("end"))
        if cpu is None and memory is None:
            self._issues.add("no-request", row.where, "instances without requests", count)
        if count:
            pod = self._pod(f"batch-{name[0]}-{name[1]}", "batch", cores, memory)
            self._create(created_ns, pod, life, copies=count)

    def instance(self, row: TableRow) -> None:
        """Add a run of a batch instance."""
        name = row.text("job"), row.text("task")
        task = self._tasks.get(name)
        started_ns, ended_ns = row.seconds_ns("start"), row.seconds_ns("end")
        if task is None:
            message = "an instance of a task that batch_task does not have: without requests"
            self._issues.add("unknown-task", row.where, message)
        start_ns = max(0, started_ns or 0)
        created_ns, cores, memory = task or (start_ns, None, None)
        pod = self._pod(f"batch-{name[0]}-{name[1]}-l{row.line}", "batch", cores, memory)
        life = self._life(row, started_ns, ended_ns)
        if started_ns and row.text("machine"):
            self._observe(start_ns, pod, f"machine-{row.text('machine')}")
        self._create(min(created_ns, start_ns) if started_ns else created_ns, pod, life)

    def _created(self, row: TableRow) -> int:
        if (row.seconds_ns("create") or 0) < 0:
            message = "was asked for before the trace began: created at its start"
            self._issues.add("there-before", row.where, message)
        return self._time_ns(row, "create")

    def _life(self, row: TableRow, start_ns: int | None, end_ns: int | None) -> PodLife:
        status = row.text("status")
        if status in {"Waiting", "Ready"} or start_ns is None:
            self._issues.add("never-ran", row.where, "never ran: its service time is not known")
            return PodLife(censored=True)
        ended_ns = None if status == "Running" else end_ns or None
        no_end = "was still running at the end"
        life = pod_life(row.where, max(0, start_ns), ended_ns, self._issues, no_end=no_end)
        life.fails = ended_ns is not None and status == "Failed"
        return life

    def _node(self, row: TableRow) -> Node:
        cpus, memory = row.integer("cpus"), row.share("memory")
        if cpus is None or memory is None:
            self._issues.add("no-capacity", row.where, "a machine of unknown size: nothing fits")
        base = {"cpu": str(cpus or 0), "pods": _PODS_OF_A_NODE}
        capacity = {**base, **share_quantities(None, memory, self._options)}
        percent = self._options.allocatable_percent
        allocatable = {**base, **share_quantities(None, memory, self._options, percent)}
        allocatable["cpu"] = f"{(cpus or 0) * 10 * percent}m"
        return make_node(f"machine-{row.text('machine')}", capacity, allocatable)

    def _pod(self, name: str, class_: str, cpu: Decimal | None, memory: Decimal | None) -> Pod:
        requests = share_quantities(None, memory, self._options)
        if cpu is not None:
            requests["cpu"] = f"{int((cpu * 1000).to_integral_value())}m"
        pod = make_pod(name, "main", requests)
        pod.spec.priority_class_name, pod.spec.priority = class_, PRIORITIES[class_]
        return pod

    def _create(self, at_ns: int, pod: Pod, life: PodLife, copies: int = 0) -> None:
        create = Record(time_ns=at_ns, pod_create=PodCreate(pod=pod, life=life))
        self._drafts.add(create, RecordRank.POD, copies=copies)

    def _observe(self, at_ns: int, pod: Pod, node_name: str) -> None:
        scheduled = Scheduled(node_name=node_name)
        observed = Observed(object=pod_ref(pod), scheduled=scheduled)
        self._drafts.add(Record(time_ns=at_ns, observed=observed), RecordRank.OBSERVED)

    def _time_ns(self, row: TableRow, name: str) -> int:
        row.required(name)
        return max(0, row.seconds_ns(name) or 0)


IMPORTER = Importer(
    name=NAME,
    description="Alibaba's tables of 2017: CSV of 7 (server_event), 8 or 12 columns",
    sniff=sniff,
    load=load,
)
