"""The columns and rows of kubectl's table for each type.

Source: kubernetes v1.34 pkg/printers/internalversion/printers.go, AddHandlers, printDeployment,
printReplicaSet, printStatefulSet, printDaemonSet, printJob, printCronJob, printService,
printPodDisruptionBudget, printPriorityClass, printNamespace, printPersistentVolume,
printPersistentVolumeClaim, printStorageClass, printCSINode, printVolumeAttachment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import Message

from replay.results import durations
from replay.results.kubectl import rows
from replay.results.kubectl.rows import NONE, UNKNOWN
from replay.world.api.cluster import replicas
from reprieve.kube.v1beta1 import meta_pb2, pod_pb2
from services.rpc.kube.fields import optional_time_ns

Row = Callable[[Any, int], Sequence[str]]
_UNSET = "<unset>"
_MODES = {
    "ReadWriteOnce": "RWO",
    "ReadOnlyMany": "ROX",
    "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}
_DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
_SYMBOLS = {"In": "in", "NotIn": "notin"}


@dataclass(frozen=True, slots=True)
class Table:
    """A type's columns: the first `narrow` of them without -o wide. `row` has a cell for each."""

    columns: Sequence[str]
    narrow: int
    row: Row

    def shown(self, *, wide: bool) -> Sequence[str]:
        """Return the columns to print."""
        return self.columns if wide else self.columns[: self.narrow]


def row_of(kind: str, message: Message, now_ns: int, *, shows_phase: bool) -> Sequence[str]:
    """Return an object's cells at `now_ns`; `shows_phase` as in rows.pod_status."""
    if isinstance(message, pod_pb2.Pod):
        return rows.pod_row(message, now_ns, shows_phase=shows_phase)
    return TABLES[kind].row(message, now_ns)


def _age(message: Any, now_ns: int) -> str:
    return _since(message.metadata, "creation_timestamp", now_ns)


def _since(message: Message, name: str, now_ns: int, unknown: str = UNKNOWN) -> str:
    at_ns = optional_time_ns(message, name)
    return unknown if at_ns is None else durations.age(now_ns - at_ns)


def _containers(template: Any) -> tuple[str, str]:
    containers = template.spec.containers
    return ",".join(each.name for each in containers), ",".join(each.image for each in containers)


def _pairs(labels: Mapping[str, str]) -> str:
    return ",".join(f"{key}={labels[key]}" for key in sorted(labels)) or NONE


def selector_text(selector: meta_pb2.LabelSelector) -> str:
    """Return a selector as kubectl writes it; "<none>" for an empty one.

    Source: kubernetes v1.34 apimachinery pkg/apis/meta/v1/helpers.go, FormatLabelSelector.
    """
    found = {key: f"{key}={value}" for key, value in selector.match_labels.items()}
    parts = [found[key] for key in sorted(found)]
    for each in selector.match_expressions:
        if each.operator in _SYMBOLS:
            values = ",".join(sorted(each.values))
            parts.append(f"{each.key} {_SYMBOLS[each.operator]} ({values})")
        else:
            parts.append(each.key if each.operator == "Exists" else f"!{each.key}")
    return ",".join(parts) or NONE


def _deployment(each: Any, now_ns: int) -> Sequence[str]:
    status = each.status
    return (
        each.metadata.name,
        f"{status.ready_replicas}/{replicas(each.spec)}",
        str(status.updated_replicas),
        str(status.available_replicas),
        _age(each, now_ns),
        *_containers(each.spec.template),
        selector_text(each.spec.selector),
    )


def _replica_set(each: Any, now_ns: int) -> Sequence[str]:
    return (*_replicated(each, now_ns), selector_text(each.spec.selector))


def _replication_controller(each: Any, now_ns: int) -> Sequence[str]:
    return (*_replicated(each, now_ns), _pairs(each.spec.selector))


def _replicated(each: Any, now_ns: int) -> Sequence[str]:
    return (
        each.metadata.name,
        str(replicas(each.spec)),
        str(each.status.replicas),
        str(each.status.ready_replicas),
        _age(each, now_ns),
        *_containers(each.spec.template),
    )


def _stateful_set(each: Any, now_ns: int) -> Sequence[str]:
    ready = f"{each.status.ready_replicas}/{replicas(each.spec)}"
    return (each.metadata.name, ready, _age(each, now_ns), *_containers(each.spec.template))


def _daemon_set(each: Any, now_ns: int) -> Sequence[str]:
    status = each.status
    return (
        each.metadata.name,
        str(status.desired_number_scheduled),
        str(status.current_number_scheduled),
        str(status.number_ready),
        str(status.updated_number_scheduled),
        str(status.number_available),
        _pairs(each.spec.template.spec.node_selector),
        _age(each, now_ns),
        *_containers(each.spec.template),
        selector_text(each.spec.selector),
    )


def _job(each: Any, now_ns: int) -> Sequence[str]:
    spec, status = each.spec, each.status
    completions = f"{status.succeeded}/1"
    if spec.HasField("completions"):
        completions = f"{status.succeeded}/{spec.completions}"
    elif spec.parallelism > 1:
        completions += f" of {spec.parallelism}"
    start_ns = optional_time_ns(status, "start_time")
    end_ns = optional_time_ns(status, "completion_time")
    taken = "" if start_ns is None else durations.age((end_ns or now_ns) - start_ns)
    selector = selector_text(spec.selector)
    if selector == NONE:
        selector = f"batch.kubernetes.io/controller-uid={each.metadata.uid}"
    name, age = each.metadata.name, _age(each, now_ns)
    return (name, _job_status(each), completions, taken, age, *_containers(spec.template), selector)


def _job_status(job: Any) -> str:
    holding = {each.type for each in job.status.conditions if each.status == "True"}
    for end in ("Complete", "Failed"):
        if end in holding:
            return end
    return "Suspended" if job.spec.suspend else "Running"


def _cron_job(each: Any, now_ns: int) -> Sequence[str]:
    spec, template = each.spec, each.spec.job_template.spec.template
    return (
        each.metadata.name,
        spec.schedule,
        spec.time_zone or NONE,
        str(spec.suspend),
        str(len(each.status.active)),
        _since(each.status, "last_schedule_time", now_ns, NONE),
        _age(each, now_ns),
        *_containers(template),
        selector_text(spec.job_template.spec.selector),
    )


def _budget(each: Any, now_ns: int) -> Sequence[str]:
    spec = each.spec
    return (
        each.metadata.name,
        _amount(spec, "min_available"),
        _amount(spec, "max_unavailable"),
        str(each.status.disruptions_allowed),
        _age(each, now_ns),
    )


def _amount(spec: Message, name: str) -> str:
    value: meta_pb2.IntOrString = getattr(spec, name)
    case = value.WhichOneof("value")
    return "N/A" if case is None else str(getattr(value, case))


def _priority_class(each: Any, now_ns: int) -> Sequence[str]:
    policy = each.preemption_policy or "PreemptLowerPriority"
    is_default = str(each.global_default).lower()
    return each.metadata.name, str(each.value), is_default, _age(each, now_ns), policy


def _namespace(each: Any, now_ns: int) -> Sequence[str]:
    return each.metadata.name, each.status.phase or "Active", _age(each, now_ns)


def _service(each: Any, now_ns: int) -> Sequence[str]:
    spec = each.spec
    address, type_ = spec.cluster_ip or NONE, spec.type or "ClusterIP"
    selector = _pairs(spec.selector)
    return each.metadata.name, type_, address, NONE, NONE, _age(each, now_ns), selector


def _volume(each: Any, now_ns: int) -> Sequence[str]:
    spec = each.spec
    claim = f"{spec.claim_ref.namespace}/{spec.claim_ref.name}" if spec.claim_ref.name else ""
    return (
        each.metadata.name,
        spec.capacity.get("storage", ""),
        _modes(spec.access_modes),
        spec.persistent_volume_reclaim_policy or "Retain",
        each.status.phase or "Pending",
        claim,
        spec.storage_class_name,
        _set(spec, "volume_attributes_class_name"),
        "",
        _age(each, now_ns),
        _set(spec, "volume_mode"),
    )


def _claim(each: Any, now_ns: int) -> Sequence[str]:
    spec, status = each.spec, each.status
    is_bound = bool(spec.volume_name)
    return (
        each.metadata.name,
        status.phase or ("Bound" if is_bound else "Pending"),
        spec.volume_name,
        status.capacity.get("storage", "0") if is_bound else "",
        _modes(status.access_modes) if is_bound else "",
        spec.storage_class_name,
        _set(spec, "volume_attributes_class_name"),
        _age(each, now_ns),
        _set(spec, "volume_mode"),
    )


def _modes(modes: Sequence[str]) -> str:
    return ",".join(short for mode, short in _MODES.items() if mode in modes)


def _set(spec: Message, name: str) -> str:
    return str(getattr(spec, name)) if spec.HasField(name) else _UNSET


def _storage_class(each: Any, now_ns: int) -> Sequence[str]:
    is_default = each.metadata.annotations.get(_DEFAULT_CLASS) == "true"
    return (
        f"{each.metadata.name} (default)" if is_default else each.metadata.name,
        each.provisioner,
        each.reclaim_policy or "Delete",
        each.volume_binding_mode or "Immediate",
        str(each.allow_volume_expansion).lower(),
        _age(each, now_ns),
    )


def _csi_node(each: Any, now_ns: int) -> Sequence[str]:
    return each.metadata.name, str(len(each.spec.drivers)), _age(each, now_ns)


def _attachment(each: Any, now_ns: int) -> Sequence[str]:
    spec = each.spec
    return (
        each.metadata.name,
        spec.attacher,
        spec.source.persistent_volume_name,
        spec.node_name,
        str(each.status.attached).lower(),
        _age(each, now_ns),
    )


def _table(text: str, row: Row, wide: str = "") -> Table:
    columns, more = text.split("|"), wide.split("|") if wide else []
    return Table((*columns, *more), len(columns), row)


_PODS_OF = "CONTAINERS|IMAGES|SELECTOR"
_REPLICATED = "NAME|DESIRED|CURRENT|READY|AGE"
TABLES: Mapping[str, Table] = {
    "Pod": Table(rows.POD_COLUMNS_WIDE, len(rows.POD_COLUMNS), rows.pod_row),
    "Node": Table(rows.NODE_COLUMNS_WIDE, len(rows.NODE_COLUMNS), rows.node_row),
    "Deployment": _table("NAME|READY|UP-TO-DATE|AVAILABLE|AGE", _deployment, _PODS_OF),
    "ReplicaSet": _table(_REPLICATED, _replica_set, _PODS_OF),
    "ReplicationController": _table(_REPLICATED, _replication_controller, _PODS_OF),
    "StatefulSet": _table("NAME|READY|AGE", _stateful_set, "CONTAINERS|IMAGES"),
    "DaemonSet": _table(
        "NAME|DESIRED|CURRENT|READY|UP-TO-DATE|AVAILABLE|NODE SELECTOR|AGE", _daemon_set, _PODS_OF
    ),
    "Job": _table("NAME|STATUS|COMPLETIONS|DURATION|AGE", _job, _PODS_OF),
    "CronJob": _table(
        "NAME|SCHEDULE|TIMEZONE|SUSPEND|ACTIVE|LAST SCHEDULE|AGE", _cron_job, _PODS_OF
    ),
    "PodDisruptionBudget": _table(
        "NAME|MIN AVAILABLE|MAX UNAVAILABLE|ALLOWED DISRUPTIONS|AGE", _budget
    ),
    "PriorityClass": _table("NAME|VALUE|GLOBAL-DEFAULT|AGE|PREEMPTIONPOLICY", _priority_class),
    "Namespace": _table("NAME|STATUS|AGE", _namespace),
    "Service": _table("NAME|TYPE|CLUSTER-IP|EXTERNAL-IP|PORT(S)|AGE", _service, "SELECTOR"),
    "PersistentVolume": _table(
        "NAME|CAPACITY|ACCESS MODES|RECLAIM POLICY|STATUS|CLAIM|STORAGECLASS|"
        "VOLUMEATTRIBUTESCLASS|REASON|AGE",
        _volume,
        "VOLUMEMODE",
    ),
    "PersistentVolumeClaim": _table(
        "NAME|STATUS|VOLUME|CAPACITY|ACCESS MODES|STORAGECLASS|VOLUMEATTRIBUTESCLASS|AGE",
        _claim,
        "VOLUMEMODE",
    ),
    "StorageClass": _table(
        "NAME|PROVISIONER|RECLAIMPOLICY|VOLUMEBINDINGMODE|ALLOWVOLUMEEXPANSION|AGE", _storage_class
    ),
    "CSINode": _table("NAME|DRIVERS|AGE", _csi_node),
    "VolumeAttachment": _table("NAME|ATTACHER|PV|NODE|ATTACHED|AGE", _attachment),
}
