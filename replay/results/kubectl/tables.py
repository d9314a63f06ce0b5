"""The columns and rows of kubectl's table for each type: TABLES.

A value that an API server has but a trace does not is printed as "<unknown>", unless kubectl has
another word for it; an unset value is "<none>" or "<unset>", as in kubectl.

Source: kubernetes v1.34 pkg/printers/internalversion/printers.go, AddHandlers, printService,
printPodDisruptionBudget, printResourceQuota, printLimitRange, printRuntimeClass,
printPriorityClass, printNamespace, printPersistentVolume,
printPersistentVolumeClaim, printStorageClass, printCSINode, printVolumeAttachment, printEvent,
printResourceClaim, printResourceSlice, printDeviceClass, printResourceClaimTemplate;
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
    """A type's columns; `row` returns a cell for each, and `narrow` lists those without -o wide."""

    columns: Sequence[str]
    narrow: Sequence[int]
    row: Row

    @classmethod
    def of(cls, row: Row, columns: str) -> Table:
        """Parse columns separated by |; a + marks a column of -o wide."""
        titles = columns.split("|")
        narrow = [number for number, name in enumerate(titles) if not name.startswith("+")]
        return cls([name.removeprefix("+") for name in titles], narrow, row)

    def chosen(self, cells: Sequence[str], *, wide: bool) -> Sequence[str]:
        """Return the cells of a row, or of the header, that are printed."""
        return cells if wide else [cells[number] for number in self.narrow]

    def shown(self, *, wide: bool) -> Sequence[str]:
        """Return the columns that are printed."""
        return self.chosen(self.columns, wide=wide)

    @property
    def name_column(self) -> int:
        """Return the index of the column with the objects' names."""
        return self.columns.index("NAME")


def cells(kind: str, item: Message | KubeEvent, now_ns: int, *, shows_phase: bool) -> Sequence[str]:
    """Return an object's cells at `now_ns`; `shows_phase` as in rows.pod_status."""
    if isinstance(item, pod_pb2.Pod):
        return rows.pod_row(item, now_ns, shows_phase=shows_phase)
    return TABLES[kind].row(item, now_ns)


def _budget(budget: Any, now_ns: int) -> Sequence[str]:
    spec = budget.spec
    return (
        budget.metadata.name,
        _amount(spec, "min_available"),
        _amount(spec, "max_unavailable"),
        str(budget.status.disruptions_allowed),
        age(budget, now_ns),
    )


def _amount(spec: Message, name: str) -> str:
    value: meta_pb2.IntOrString = getattr(spec, name)
    case = value.WhichOneof("value")
    return "N/A" if case is None else str(getattr(value, case))


def _quota(quota: Any, now_ns: int) -> Sequence[str]:
    status = quota.status
    requests, limits = list[str](), list[str]()
    for name in sorted(status.hard):
        side = limits if name.startswith("limits.") else requests
        side.append(f"{name}: {status.used.get(name, UNKNOWN)}/{status.hard[name]}")
    return quota.metadata.name, ", ".join(requests), ", ".join(limits), age(quota, now_ns)


def _limit_range(limit_range: Any, _now_ns: int) -> Sequence[str]:
    meta = limit_range.metadata
    return meta.name, rfc3339.text(meta.creation_timestamp.ToNanoseconds())


def _runtime_class(runtime_class: Any, now_ns: int) -> Sequence[str]:
    return runtime_class.metadata.name, runtime_class.handler, age(runtime_class, now_ns)


def _priority_class(priority_class: Any, now_ns: int) -> Sequence[str]:
    policy = priority_class.preemption_policy or "PreemptLowerPriority"
    is_default = str(priority_class.global_default).lower()
    return (
        priority_class.metadata.name,
        str(priority_class.value),
        is_default,
        age(priority_class, now_ns),
        policy,
    )


def _namespace(namespace: Any, now_ns: int) -> Sequence[str]:
    return namespace.metadata.name, namespace.status.phase or "Active", age(namespace, now_ns)


def _service(service: Any, now_ns: int) -> Sequence[str]:
    spec = service.spec
    address, type_ = spec.cluster_ip or NONE, spec.type or "ClusterIP"
    outside = UNKNOWN if type_ in ("LoadBalancer", "ExternalName") else NONE
    selector = pairs(spec.selector)
    return service.metadata.name, type_, address, outside, UNKNOWN, age(service, now_ns), selector


def _volume(volume: Any, now_ns: int) -> Sequence[str]:
    spec = volume.spec
    claim = f"{spec.claim_ref.namespace}/{spec.claim_ref.name}" if spec.claim_ref.name else ""
    return (
        volume.metadata.name,
        spec.capacity.get("storage", "0"),
        _modes(spec.access_modes),
        spec.persistent_volume_reclaim_policy or "Retain",
        _volume_phase(volume, "Pending"),
        claim,
        _volume_class(volume),
        _set(spec, "volume_attributes_class_name"),
        "",
        age(volume, now_ns),
        spec.volume_mode or "Filesystem",
    )


def _claim(claim: Any, now_ns: int) -> Sequence[str]:
    spec, status = claim.spec, claim.status
    is_bound = bool(spec.volume_name)
    return (
        claim.metadata.name,
        _volume_phase(claim, "Bound" if is_bound else "Pending"),
        spec.volume_name,
        status.capacity.get("storage", "0") if is_bound else "",
        _modes(status.access_modes) if is_bound else "",
        _volume_class(claim),
        _set(spec, "volume_attributes_class_name"),
        age(claim, now_ns),
        spec.volume_mode or "Filesystem",
    )


def _volume_phase(volume: Any, default: str) -> str:
    is_deleted = volume.metadata.HasField("deletion_timestamp")
    return "Terminating" if is_deleted else volume.status.phase or default


def _volume_class(volume: Any) -> str:
    name: str = volume.metadata.annotations.get(_CLASS_OF_VOLUME, volume.spec.storage_class_name)
    return name


def _modes(modes: Sequence[str]) -> str:
    return ",".join(short for mode, short in _MODES.items() if mode in modes)


def _set(spec: Message, name: str) -> str:
    return str(getattr(spec, name)) if spec.HasField(name) else _UNSET


def _storage_class(storage_class: Any, now_ns: int) -> Sequence[str]:
    is_default = any(
        storage_class.metadata.annotations.get(key) == "true" for key in _DEFAULT_CLASS
    )
    return (
        f"{storage_class.metadata.name} (default)" if is_default else storage_class.metadata.name,
        storage_class.provisioner,
        storage_class.reclaim_policy or "Delete",
        storage_class.volume_binding_mode or "Immediate",
        str(storage_class.allow_volume_expansion).lower(),
        age(storage_class, now_ns),
    )


def _csi_node(csi_node: Any, now_ns: int) -> Sequence[str]:
    return csi_node.metadata.name, str(len(csi_node.spec.drivers)), age(csi_node, now_ns)


def _attachment(attachment: Any, now_ns: int) -> Sequence[str]:
    spec = attachment.spec
    return (
        attachment.metadata.name,
        spec.attacher,
        spec.source.persistent_volume_name,
        spec.node_name,
        str(attachment.status.attached).lower(),
        age(attachment, now_ns),
    )


def _resource_claim(claim: Any, now_ns: int) -> Sequence[str]:
    return claim.metadata.name, claim_state(claim), age(claim, now_ns)


def claim_state(claim: Any) -> str:
    """Return a ResourceClaim's state in kubectl's words. Source: resourceClaimState."""
    is_deleted = claim.metadata.HasField("deletion_timestamp")
    states = ["deleted"] if is_deleted else []
    if claim.status.HasField("allocation"):
        states += ["allocated", "reserved"] if claim.status.reserved_for else ["allocated"]
    elif not is_deleted:
        states.append("pending")
    return ",".join(states)


def _resource_slice(slice_: Any, now_ns: int) -> Sequence[str]:
    spec = slice_.spec
    return slice_.metadata.name, spec.node_name, spec.driver, spec.pool.name, age(slice_, now_ns)


def _named(item: Any, now_ns: int) -> Sequence[str]:
    return item.metadata.name, age(item, now_ns)


def _event(event: KubeEvent, now_ns: int) -> Sequence[str]:
    return (
        durations.age(now_ns - event.last_ns),
        event.type,
        event.reason,
        f"{event.kind.lower()}/{event.object_name}",
        "",
        f"{event.component}, {event.host}" if event.host else event.component,
        event.message.strip(),
        durations.age(now_ns - event.first_ns),
        str(event.count),
        event.name,
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
    "ResourceClaim": Table.of(_resource_claim, "NAME|STATE|AGE"),
    "ResourceClaimTemplate": Table.of(_named, "NAME|AGE"),
    "ResourceSlice": Table.of(_resource_slice, "NAME|NODE|DRIVER|POOL|AGE"),
    "DeviceClass": Table.of(_named, "NAME|AGE"),
    "Event": Table.of(
        _event, "LAST SEEN|TYPE|REASON|OBJECT|+SUBOBJECT|+SOURCE|MESSAGE|+FIRST SEEN|+COUNT|+NAME"
    ),
}
