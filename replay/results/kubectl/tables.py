"""The columns and rows of kubectl's table for each type: TABLES.

A value that an API server would have and a trace does not is "<unknown>" where kubectl has no other
word for it; one that is not set is "<none>" or "<unset>", as upstream has it.

Source: kubernetes v1.34 pkg/printers/internalversion/printers.go, AddHandlers, printService,
printPodDisruptionBudget, printResourceQuota, printLimitRange, printRuntimeClass,
printPriorityClass, printNamespace, printPersistentVolume,
printPersistentVolumeClaim, printStorageClass, printCSINode, printVolumeAttachment, printEvent;
pkg/apis/core/v1/defaults.go (volumes and claims).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import Message

from replay.results import durations
from replay.results.kubectl import rows
from replay.results.kubectl import workload_rows as workloads
from replay.results.kubectl.events import KubeEvent
from replay.results.kubectl.rows import NONE, UNKNOWN, age, pairs
from reprieve.kube.v1beta1 import meta_pb2, pod_pb2
from services.rpc.kube import rfc3339

Row = Callable[[Any, int], Sequence[str]]
_UNSET = "<unset>"
_MODES = {
    "ReadWriteOnce": "RWO",
    "ReadOnlyMany": "ROX",
    "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}
_DEFAULT_CLASS = (
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
)
_CLASS_OF_VOLUME = "volume.beta.kubernetes.io/storage-class"


@dataclass(frozen=True, slots=True)
class Table:
    """A type's columns; `row` has a cell for each, and `narrow` are those without -o wide."""

    columns: Sequence[str]
    narrow: Sequence[int]
    row: Row

    @classmethod
    def of(cls, row: Row, columns: str) -> Table:
        """Return the table of columns with | between, and + before those of -o wide."""
        each = columns.split("|")
        narrow = [number for number, name in enumerate(each) if not name.startswith("+")]
        return cls([name.removeprefix("+") for name in each], narrow, row)

    def chosen(self, cells: Sequence[str], *, wide: bool) -> Sequence[str]:
        """Return the cells of a row, or of the header, that are printed."""
        return cells if wide else [cells[number] for number in self.narrow]

    def shown(self, *, wide: bool) -> Sequence[str]:
        """Return the columns that are printed."""
        return self.chosen(self.columns, wide=wide)

    @property
    def name_column(self) -> int:
        """Return the number of the column with the objects' names."""
        return self.columns.index("NAME")


def cells(kind: str, item: Message | KubeEvent, now_ns: int, *, shows_phase: bool) -> Sequence[str]:
    """Return an object's cells at `now_ns`; `shows_phase` as in rows.pod_status."""
    if isinstance(item, pod_pb2.Pod):
        return rows.pod_row(item, now_ns, shows_phase=shows_phase)
    return TABLES[kind].row(item, now_ns)


def _budget(each: Any, now_ns: int) -> Sequence[str]:
    spec = each.spec
    return (
        each.metadata.name,
        _amount(spec, "min_available"),
        _amount(spec, "max_unavailable"),
        str(each.status.disruptions_allowed),
        age(each, now_ns),
    )


def _amount(spec: Message, name: str) -> str:
    value: meta_pb2.IntOrString = getattr(spec, name)
    case = value.WhichOneof("value")
    return "N/A" if case is None else str(getattr(value, case))


def _quota(each: Any, now_ns: int) -> Sequence[str]:
    status = each.status
    requests, limits = list[str](), list[str]()
    for name in sorted(status.hard):
        side = limits if name.startswith("limits.") else requests
        side.append(f"{name}: {status.used.get(name, UNKNOWN)}/{status.hard[name]}")
    return each.metadata.name, ", ".join(requests), ", ".join(limits), age(each, now_ns)


def _limit_range(each: Any, _now_ns: int) -> Sequence[str]:
    meta = each.metadata
    return meta.name, rfc3339.text(meta.creation_timestamp.ToNanoseconds())


def _runtime_class(each: Any, now_ns: int) -> Sequence[str]:
    return each.metadata.name, each.handler, age(each, now_ns)


def _priority_class(each: Any, now_ns: int) -> Sequence[str]:
    policy = each.preemption_policy or "PreemptLowerPriority"
    is_default = str(each.global_default).lower()
    return each.metadata.name, str(each.value), is_default, age(each, now_ns), policy


def _namespace(each: Any, now_ns: int) -> Sequence[str]:
    return each.metadata.name, each.status.phase or "Active", age(each, now_ns)


def _service(each: Any, now_ns: int) -> Sequence[str]:
    spec = each.spec
    address, type_ = spec.cluster_ip or NONE, spec.type or "ClusterIP"
    outside = UNKNOWN if type_ in ("LoadBalancer", "ExternalName") else NONE
    selector = pairs(spec.selector)
    return each.metadata.name, type_, address, outside, UNKNOWN, age(each, now_ns), selector


def _volume(each: Any, now_ns: int) -> Sequence[str]:
    spec = each.spec
    claim = f"{spec.claim_ref.namespace}/{spec.claim_ref.name}" if spec.claim_ref.name else ""
    return (
        each.metadata.name,
        spec.capacity.get("storage", "0"),
        _modes(spec.access_modes),
        spec.persistent_volume_reclaim_policy or "Retain",
        _volume_phase(each, "Pending"),
        claim,
        _volume_class(each),
        _set(spec, "volume_attributes_class_name"),
        "",
        age(each, now_ns),
        spec.volume_mode or "Filesystem",
    )


def _claim(each: Any, now_ns: int) -> Sequence[str]:
    spec, status = each.spec, each.status
    is_bound = bool(spec.volume_name)
    return (
        each.metadata.name,
        _volume_phase(each, "Bound" if is_bound else "Pending"),
        spec.volume_name,
        status.capacity.get("storage", "0") if is_bound else "",
        _modes(status.access_modes) if is_bound else "",
        _volume_class(each),
        _set(spec, "volume_attributes_class_name"),
        age(each, now_ns),
        spec.volume_mode or "Filesystem",
    )


def _volume_phase(each: Any, default: str) -> str:
    is_deleted = each.metadata.HasField("deletion_timestamp")
    return "Terminating" if is_deleted else each.status.phase or default


def _volume_class(each: Any) -> str:
    name: str = each.metadata.annotations.get(_CLASS_OF_VOLUME, each.spec.storage_class_name)
    return name


def _modes(modes: Sequence[str]) -> str:
    return ",".join(short for mode, short in _MODES.items() if mode in modes)


def _set(spec: Message, name: str) -> str:
    return str(getattr(spec, name)) if spec.HasField(name) else _UNSET


def _storage_class(each: Any, now_ns: int) -> Sequence[str]:
    is_default = any(each.metadata.annotations.get(key) == "true" for key in _DEFAULT_CLASS)
    return (
        f"{each.metadata.name} (default)" if is_default else each.metadata.name,
        each.provisioner,
        each.reclaim_policy or "Delete",
        each.volume_binding_mode or "Immediate",
        str(each.allow_volume_expansion).lower(),
        age(each, now_ns),
    )


def _csi_node(each: Any, now_ns: int) -> Sequence[str]:
    return each.metadata.name, str(len(each.spec.drivers)), age(each, now_ns)


def _attachment(each: Any, now_ns: int) -> Sequence[str]:
    spec = each.spec
    return (
        each.metadata.name,
        spec.attacher,
        spec.source.persistent_volume_name,
        spec.node_name,
        str(each.status.attached).lower(),
        age(each, now_ns),
    )


def _event(each: KubeEvent, now_ns: int) -> Sequence[str]:
    return (
        durations.age(now_ns - each.last_ns),
        each.type,
        each.reason,
        f"{each.kind.lower()}/{each.object_name}",
        "",
        f"{each.component}, {each.host}" if each.host else each.component,
        each.message.strip(),
        durations.age(now_ns - each.first_ns),
        str(each.count),
        each.name,
    )


_PODS_OF = "+CONTAINERS|+IMAGES|+SELECTOR"
_REPLICATED = f"NAME|DESIRED|CURRENT|READY|AGE|{_PODS_OF}"
TABLES: Mapping[str, Table] = {
    "Pod": Table.of(
        rows.pod_row, "NAME|READY|STATUS|RESTARTS|AGE|+IP|+NODE|+NOMINATED NODE|+READINESS GATES"
    ),
    "Node": Table.of(
        rows.node_row,
        "NAME|STATUS|ROLES|AGE|VERSION|+INTERNAL-IP|+EXTERNAL-IP|+OS-IMAGE|+KERNEL-VERSION|"
        "+CONTAINER-RUNTIME|+CONDITIONS",
    ),
    "Deployment": Table.of(
        workloads.deployment_row, f"NAME|READY|UP-TO-DATE|AVAILABLE|AGE|{_PODS_OF}"
    ),
    "ReplicaSet": Table.of(workloads.replica_set_row, _REPLICATED),
    "ReplicationController": Table.of(workloads.replication_controller_row, _REPLICATED),
    "StatefulSet": Table.of(workloads.stateful_set_row, "NAME|READY|AGE|+CONTAINERS|+IMAGES"),
    "DaemonSet": Table.of(
        workloads.daemon_set_row,
        f"NAME|DESIRED|CURRENT|READY|UP-TO-DATE|AVAILABLE|NODE SELECTOR|AGE|{_PODS_OF}",
    ),
    "Job": Table.of(workloads.job_row, f"NAME|STATUS|COMPLETIONS|DURATION|AGE|{_PODS_OF}"),
    "CronJob": Table.of(
        workloads.cron_job_row,
        f"NAME|SCHEDULE|TIMEZONE|SUSPEND|ACTIVE|LAST SCHEDULE|AGE|{_PODS_OF}",
    ),
    "PodDisruptionBudget": Table.of(
        _budget, "NAME|MIN AVAILABLE|MAX UNAVAILABLE|ALLOWED DISRUPTIONS|AGE"
    ),
    "PriorityClass": Table.of(_priority_class, "NAME|VALUE|GLOBAL-DEFAULT|AGE|PREEMPTIONPOLICY"),
    "ResourceQuota": Table.of(_quota, "NAME|REQUEST|LIMIT|AGE"),
    "LimitRange": Table.of(_limit_range, "NAME|CREATED AT"),
    "RuntimeClass": Table.of(_runtime_class, "NAME|HANDLER|AGE"),
    "Namespace": Table.of(_namespace, "NAME|STATUS|AGE"),
    "Service": Table.of(_service, "NAME|TYPE|CLUSTER-IP|EXTERNAL-IP|PORT(S)|AGE|+SELECTOR"),
    "PersistentVolume": Table.of(
        _volume,
        "NAME|CAPACITY|ACCESS MODES|RECLAIM POLICY|STATUS|CLAIM|STORAGECLASS|"
        "VOLUMEATTRIBUTESCLASS|REASON|AGE|+VOLUMEMODE",
    ),
    "PersistentVolumeClaim": Table.of(
        _claim,
        "NAME|STATUS|VOLUME|CAPACITY|ACCESS MODES|STORAGECLASS|VOLUMEATTRIBUTESCLASS|AGE|"
        "+VOLUMEMODE",
    ),
    "StorageClass": Table.of(
        _storage_class, "NAME|PROVISIONER|RECLAIMPOLICY|VOLUMEBINDINGMODE|ALLOWVOLUMEEXPANSION|AGE"
    ),
    "CSINode": Table.of(_csi_node, "NAME|DRIVERS|AGE"),
    "VolumeAttachment": Table.of(_attachment, "NAME|ATTACHER|PV|NODE|ATTACHED|AGE"),
    "Event": Table.of(
        _event, "LAST SEEN|TYPE|REASON|OBJECT|+SUBOBJECT|+SOURCE|MESSAGE|+FIRST SEEN|+COUNT|+NAME"
    ),
}
