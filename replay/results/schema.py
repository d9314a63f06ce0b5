"""The tables of a run: their columns, with types and meanings.

Times are simulated, in ns since the Unix epoch (a relative trace begins at 0), as in the decision
log; only the columns in WALL_COLUMNS are measured on the wall clock. An unknown value is NULL.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Column:
    """A column; `type` is DuckDB's.

    is_wall: whether the column is measured on the wall clock, or counts such measurements, and so
    differs between two runs of the same inputs.
    """

    name: str
    type: str
    meaning: str
    is_wall: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table; `row` describes what a row stands for, `order` is the ORDER BY of the rows."""

    name: str
    row: str
    order: str
    columns: tuple[Column, ...]

    @property
    def file_name(self) -> str:
        """Return the file's name in the run directory."""
        return f"{self.name}.parquet"


_POD = (
    Column("namespace", "VARCHAR", "the pod's namespace"),
    Column("name", "VARCHAR", "the pod's name"),
    Column("uid", "VARCHAR", "the pod's UID, which joins the tables"),
)
_AT = (
    Column("sequence", "BIGINT", "number in the decision log, from 1"),
    Column("at_ns", "BIGINT", "simulated time, ns since the Unix epoch"),
)

_TABLES = (
    Table(
        name="run",
        row="the run itself",
        order="",
        columns=(
            Column("start_ns", "BIGINT", "time of the first round"),
            Column("end_ns", "BIGINT", "time of the last round or decision"),
            Column("version", "VARCHAR", "Reprieve's version"),
            Column("rules", "VARCHAR", "version of the scheduling rules, such as v1.34"),
            Column("seed", "UBIGINT", "seed that breaks ties"),
            Column("end", "VARCHAR", "why the run ended; empty where it was aborted"),
        ),
    ),
    Table(
        name="pods",
        row="a pod",
        order="created_ns, uid",
        columns=(
            *_POD,
            Column("owner_kind", "VARCHAR", "kind of the controller that manages it"),
            Column("owner_name", "VARCHAR", "name of that controller"),
            Column(
                "workload_kind",
                "VARCHAR",
                "kind of the controller that no other one manages, such as Deployment",
            ),
            Column("workload_name", "VARCHAR", "name of that controller"),
            Column("priority", "INTEGER", "spec.priority"),
            Column("priority_class", "VARCHAR", "spec.priorityClassName"),
            Column("cpu_milli", "BIGINT", "requested CPU, thousandths of a core"),
            Column("memory_bytes", "BIGINT", "requested memory"),
            Column(
                "requests", "MAP(VARCHAR, BIGINT)", "all requests by resource; cpu in thousandths"
            ),
            Column("created_ns", "BIGINT", "when the scheduler first received it"),
            Column(
                "waiting_since_ns",
                "BIGINT",
                "from when it waits for a node: its creation, or the removal of its scheduling "
                "gates; NULL where these stay, and where it was created with its node",
            ),
            Column(
                "scheduled_ns",
                "BIGINT",
                "when it was bound; NULL where it was created with its node",
            ),
            Column("node_name", "VARCHAR", "its node"),
            Column(
                "waited_ns",
                "BIGINT",
                "from its creation, or the removal of its scheduling gates, to the binding",
            ),
            Column("attempts", "INTEGER", "scheduling attempts that were made for it"),
            Column(
                "last_message", "VARCHAR", "kube-scheduler's message at its last failed attempt"
            ),
            Column("nominations", "INTEGER", "how often preemption nominated it to a node"),
            Column("started_ns", "BIGINT", "when it was first Running"),
            Column("ended_ns", "BIGINT", "when it Succeeded or Failed, or was removed before that"),
            Column("removed_ns", "BIGINT", "when its object was removed"),
            Column(
                "ending",
                "VARCHAR",
                "Preempted, Evicted, Succeeded, Failed, Deleted; Running or Pending at the run's "
                "end",
            ),
            Column("preempted_ns", "BIGINT", "when it was chosen as a victim"),
            Column("preempted_by", "VARCHAR", "namespace/name of the preemptor"),
            Column("evicted_ns", "BIGINT", "when a kubelet evicted it"),
            Column("evicted_signal", "VARCHAR", "by which signal"),
        ),
    ),
    Table(
        name="decisions",
        row="a line of the decision log",
        order="sequence",
        columns=(
            *_AT,
            Column("kind", "VARCHAR", "what was decided, such as scheduled or preempted"),
            Column("object_kind", "VARCHAR", "Pod, Node or NodeGroup"),
            *_POD,
            Column("node_name", "VARCHAR", "the node that it is about"),
            Column("detail", "VARCHAR", "message, reason, phase, cause or condition"),
            Column("refused", "VARCHAR", "why it could not be carried out; NULL: it was"),
            Column(
                "refusal_cause",
                "VARCHAR",
                "the scheduler's mistake, such as victim elsewhere; NULL: it made none",
            ),
        ),
    ),
    Table(
        name="attempts",
        row="a scheduling attempt",
        order="sequence",
        columns=(
            *_AT,
            *_POD,
            Column("attempt", "INTEGER", "number of the attempt, from 1, as the scheduler counts"),
            Column("result", "VARCHAR", "Scheduled, Unschedulable or SchedulerError"),
            Column("node_name", "VARCHAR", "the node that was chosen"),
            Column(
                "waited_ns",
                "BIGINT",
                "from the pod's creation, or the removal of its scheduling gates, to the binding",
            ),
            Column(
                "took_ns",
                "BIGINT",
                "from the decision to the binding, which takes time with some models",
            ),
            Column(
                "moved_by",
                "VARCHAR",
                "the event that moved the pod since its last attempt, as the queue names it; "
                "NULL: a first attempt, or the scheduler does not say it",
            ),
            Column("moved_ns", "BIGINT", "when that event moved it to activeQ or a backoffQ"),
            Column(
                "active_ns",
                "BIGINT",
                "when the pod entered activeQ; NULL: it was taken from a backoffQ before its end",
            ),
            Column("feasible_nodes", "INTEGER", "nodes that fitted, as the scheduler reports"),
            Column(
                "tied_nodes", "INTEGER", "nodes with the same best score, as the scheduler reports"
            ),
            Column(
                "score",
                "BIGINT",
                "total score of the node, as the scheduler reports; NULL where it was not scored",
            ),
            Column("message", "VARCHAR", "kube-scheduler's message where no node was chosen"),
            Column("nominated_node", "VARCHAR", "the node on which preemption makes room"),
            Column(
                "decided_by",
                "VARCHAR",
                "the criterion that picked that node, as the scheduler reports",
            ),
            Column(
                "candidates",
                "INTEGER",
                "nodes on which preemption could have made room, as the scheduler reports",
            ),
            Column("victims", "INTEGER", "pods that preemption displaces"),
            Column("refused", "VARCHAR", "why it could not be carried out; NULL: it was"),
        ),
    ),
    Table(
        name="preemptions",
        row="a victim of a preemption",
        order="sequence",
        columns=(
            *_AT,
            *_POD,
            Column("priority", "INTEGER", "the victim's priority"),
            Column("owner", "VARCHAR", "the victim's controller, as Kind namespace/name"),
            Column("node_name", "VARCHAR", "the node"),
            Column("by_namespace", "VARCHAR", "the preemptor's namespace"),
            Column("by_name", "VARCHAR", "the preemptor's name"),
            Column("by_uid", "VARCHAR", "the preemptor's UID"),
            Column("by_priority", "INTEGER", "the preemptor's priority"),
            Column("by_owner", "VARCHAR", "the preemptor's controller, as Kind namespace/name"),
            Column(
                "violates_budget",
                "BOOLEAN",
                "the status of a disruption budget did not allow its deletion when it was deleted",
            ),
            Column(
                "decided_by",
                "VARCHAR",
                "the criterion that picked the node, as the scheduler reports",
            ),
            Column(
                "candidates",
                "INTEGER",
                "nodes on which preemption could have made room, as the scheduler reports",
            ),
        ),
    ),
    Table(
        name="evictions",
        row="a pod that a kubelet evicted",
        order="sequence",
        columns=(
            *_AT,
            *_POD,
            Column("priority", "INTEGER", "the pod's priority"),
            Column("owner", "VARCHAR", "its controller, as Kind namespace/name"),
            Column("node_name", "VARCHAR", "the node"),
            Column("signal", "VARCHAR", "such as memory.available; NULL: a local storage limit"),
            Column("threshold", "VARCHAR", "the threshold's quantity, as the kubelet prints it"),
            Column("available", "VARCHAR", "what was available, as the kubelet prints it"),
            Column("threshold_amount", "BIGINT", "the threshold in bytes, inodes or processes"),
            Column("available_amount", "BIGINT", "what was available, in the same unit"),
            Column("grace_period_s", "BIGINT", "grace period; NULL: the pod's own"),
            Column("message", "VARCHAR", "the kubelet's message"),
        ),
    ),
    Table(
        name="oom_kills",
        row="a container that the kernel killed at a memory limit",
        order="sequence",
        columns=(
            *_AT,
            *_POD,
            Column("priority", "INTEGER", "the pod's priority"),
            Column("owner", "VARCHAR", "its controller, as Kind namespace/name"),
            Column("node_name", "VARCHAR", "the node"),
            Column("container", "VARCHAR", "the container that was killed"),
            Column(
                "limit_of",
                "VARCHAR",
                "whose limit was reached: container, pod, kubepods (all pods of the node) or node",
            ),
            Column("limit_bytes", "BIGINT", "that limit"),
            Column("usage_bytes", "BIGINT", "memory that the container used"),
            Column("oom_score_adj", "INTEGER", "the container's; NULL: its own limit was reached"),
            Column(
                "container_survives", "BOOLEAN", "one process was killed and the container goes on"
            ),
        ),
    ),
    Table(
        name="failed_creates",
        row="pods that admission refused, as Events FailedCreate report them",
        order="sequence",
        columns=(
            *_AT,
            Column("namespace", "VARCHAR", "the namespace"),
            Column("name", "VARCHAR", "the pod, or the first of several"),
            Column(
                "owner",
                "VARCHAR",
                "the controller that asked for it, as Kind namespace/name; NULL: the trace did",
            ),
            Column("pods", "BIGINT", "pods that were not created because of it"),
            Column("message", "VARCHAR", "the API server's message"),
        ),
    ),
    Table(
        name="workloads",
        row="a workload that exists at the run's end",
        order="place",
        columns=(
            Column("place", "BIGINT", "1 for the workload with the worst verdict"),
            Column("kind", "VARCHAR", "such as Deployment; a ReplicaSet only without an owner"),
            Column("namespace", "VARCHAR", "its namespace"),
            Column("name", "VARCHAR", "its name"),
            Column("priority", "INTEGER", "priority of its pods"),
            Column("priority_class", "VARCHAR", "their priorityClassName"),
            Column("desired", "BIGINT", "desired pods at the end"),
            Column("pods", "BIGINT", "pods at the end, without those that terminate"),
            Column("ready", "BIGINT", "ready pods at the end, as in kubectl's column READY"),
            Column("refused", "BIGINT", "its pods that admission refused"),
            Column("not_created", "BIGINT", "desired pods that are missing since"),
            Column("least_ready", "BIGINT", "ready pods when most of the desired were missing"),
            Column("least_desired", "BIGINT", "desired pods then"),
            Column("below_times", "BIGINT", "how often fewer pods were ready than desired"),
            Column("below_ns", "BIGINT", "how long in total"),
            Column("below_longest_from_ns", "BIGINT", "when the longest of these times began"),
            Column("below_longest_ns", "BIGINT", "how long it was"),
            Column("below_budget_times", "BIGINT", "how often a budget of it was not met, too"),
            Column("below_budget_ns", "BIGINT", "how long in total"),
            Column("below_budget_longest_from_ns", "BIGINT", "when the longest of these began"),
            Column("below_budget_longest_ns", "BIGINT", "how long it was"),
            Column("budgets", "VARCHAR", "the disruption budgets that were not met"),
        ),
    ),
    Table(
        name="nodes",
        row="a node",
        order="node_name, added_ns",
        columns=(
            Column("node_name", "VARCHAR", "the node"),
            Column("added_ns", "BIGINT", "when the scheduler first received it"),
            Column(
                "removed_ns", "BIGINT", "when it was removed; NULL: it existed at the run's end"
            ),
            Column("cpu_milli", "BIGINT", "allocatable CPU at first, thousandths of a core"),
            Column("memory_bytes", "BIGINT", "allocatable memory at first"),
            Column(
                "allocatable", "MAP(VARCHAR, BIGINT)", "all of it by resource; cpu in thousandths"
            ),
            Column("labels", "MAP(VARCHAR, VARCHAR)", "its labels at first"),
            Column(
                "node_group",
                "VARCHAR",
                "the node group that it is in; NULL: none, or the run scales no groups",
            ),
        ),
    ),
    Table(
        name="node_usage",
        row="what a node's pods request of a resource, from this moment on",
        order="at_ns, node_name, resource",
        columns=(
            Column("at_ns", "BIGINT", "simulated time, ns since the Unix epoch"),
            Column("node_name", "VARCHAR", "the node"),
            Column("resource", "VARCHAR", "such as cpu (in thousandths of a core), memory or pods"),
            Column("requested", "BIGINT", "the sum over its bound pods that have not ended"),
            Column("allocatable", "BIGINT", "what the node has for pods; 0 after its removal"),
        ),
    ),
    Table(
        name="device_usage",
        row="the devices of a class that claims request by its name, from this moment on",
        order="at_ns, device_class",
        columns=(
            Column("at_ns", "BIGINT", "simulated time, ns since the Unix epoch"),
            Column("device_class", "VARCHAR", "name of the DeviceClass"),
            Column("devices", "BIGINT", "devices that the class selects, of the newest slices"),
            Column("in_use", "BIGINT", "of these, those of which a claim has at least a share"),
            Column(
                "blocked",
                "BIGINT",
                "free ones that consume more of a shared counter than is left: their parts are in "
                "use",
            ),
            Column("wanted", "BIGINT", "devices of the class that unallocated claims request"),
        ),
    ),
    Table(
        name="free_capacity",
        row="what was free of a resource at a moment, by why waiting pods could not use it",
        order="at_ns, resource, reason",
        columns=(
            Column("at_ns", "BIGINT", "simulated time; some moments only, evenly over the run"),
            Column("resource", "VARCHAR", "such as cpu (in thousandths of a core) or memory"),
            Column(
                "reason",
                "VARCHAR",
                "why nodes refuse the average waiting pod, judged by requests, taints and node "
                "affinity; '' where no pod waits",
            ),
            Column("free", "BIGINT", "allocatable less requested, on nodes that refuse for this"),
            Column("allocatable", "BIGINT", "what all nodes have of it"),
            Column("waiting_pods", "BIGINT", "pods without a node"),
        ),
    ),
    Table(
        name="latencies",
        row="a step, as measured on the wall clock",
        order="step",
        columns=(
            Column("step", "VARCHAR", "such as schedulingCycle or queueExchange"),
            Column("count", "BIGINT", "how often it was measured", is_wall=True),
            Column("pods", "BIGINT", "pods (or nodes) that went through it", is_wall=True),
            Column("sum_ns", "BIGINT", "wall time in total", is_wall=True),
            Column("p50_ns", "BIGINT", "median, at most 1/16 too high", is_wall=True),
            Column("p90_ns", "BIGINT", "90th percentile, at most 1/16 too high", is_wall=True),
            Column("p99_ns", "BIGINT", "99th percentile, at most 1/16 too high", is_wall=True),
            Column("max_ns", "BIGINT", "the longest", is_wall=True),
        ),
    ),
    Table(
        name="latency_buckets",
        row="how often a step took so long on the wall clock",
        order="step, upto_ns",
        columns=(
            Column("step", "VARCHAR", "such as schedulingCycle or queueExchange"),
            Column("upto_ns", "BIGINT", "the longest of the bucket", is_wall=True),
            Column("count", "BIGINT", "measurements in it", is_wall=True),
        ),
    ),
)
TABLES = {table.name: table for table in _TABLES}
FILE_NAMES = tuple(table.file_name for table in _TABLES)
WALL_COLUMNS = {
    table.name: tuple(column.name for column in table.columns if column.is_wall)
    for table in _TABLES
    if any(column.is_wall for column in table.columns)
}
"""By table, the columns that differ between two runs of the same inputs."""
WALL_FIGURES = (
    "attempts_per_s",
    "batch_size_mean",
    "batches",
    "latencies",
    "messages",
    "queue_exchanges",
    "spans",
    "wall_ns",
    "windows",
)
"""The keys of summary.json that differ between two runs of the same inputs.

They are wall times, how rounds and pods were grouped into messages, and the number of spans, which
depends on the number of messages.
"""
