"""The content of a trace, and what in it a replay does not simulate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from replay.trace.observed import kind_in_logs
from reprieve.kube.v1beta1.object_pb2 import KubernetesObject
from reprieve.kube.v1beta1.pod_pb2 import PodSpec
from reprieve.kube.v1beta1.workloads_pb2 import PodTemplateSpec
from reprieve.trace.v1beta1.trace_pb2 import Header, ImportIssue, PodCreate, Record
from services.kube.pod import SYSTEM_CLASSES

CONTROLLERS = (
    "deployment",
    "replica_set",
    "replication_controller",
    "stateful_set",
    "daemon_set",
    "job",
    "cron_job",
)
"""The kinds of controllers that make pods, by their fields of KubernetesObject."""
NO_DEVICES = (
    "device claims (resourceClaims) are not simulated, since the trace has no devices: they always "
    "fit"
)
_NO_NODES = (
    "no node is added for pods that fit on none, and none is removed, unless --autoscaler does so"
)
_ACTORS = {
    "cluster-autoscaler": _NO_NODES,
    "karpenter": _NO_NODES,
    "descheduler": "it evicts no pods",
    "vertical-pod-autoscaler": "requests stay as they are",
    "vpa-updater": "it evicts no pods, and requests stay as they are",
    "keda": "replicas stay as they are",
}
"""Components that change a cluster and are not simulated, by a part of their images' names."""


def pod_template(message: KubernetesObject) -> PodTemplateSpec | None:
    """Return the pod template of a controller's object, which may be changed; None for others."""
    kind = message.WhichOneof("object")
    if kind not in CONTROLLERS:
        return None
    spec = getattr(message, kind).spec
    if kind == "cron_job":
        spec = spec.job_template.spec
    template: PodTemplateSpec = spec.template
    return template


def claims_devices(spec: PodSpec) -> bool:
    """Return whether a pod or one of its containers has resource claims."""
    return bool(spec.resource_claims) or any(
        container.resources.claims for container in spec.containers
    )


def pod_features(spec: PodSpec, *, has_devices: bool) -> Iterator[str]:
    """Yield a message for each part of a pod's spec that is not simulated.

    has_devices: the trace has the devices that pods claim.
    """
    if not has_devices and claims_devices(spec):
        yield NO_DEVICES
    for container in spec.containers:
        for actor, effect in _ACTORS.items():
            if actor in container.image:
                yield f"{actor} is not simulated: {effect}, beyond what was recorded of it"


@dataclass(slots=True, kw_only=True)
class TraceReport:
    """The content of a trace.

    `counts` are records, `objects` created objects and `observed` observations, each by kind; times
    are ns. `warnings` counts, by text, what a replay does not simulate.
    """

    header: Header = field(default_factory=Header)
    counts: Counter[str] = field(default_factory=Counter)
    objects: Counter[str] = field(default_factory=Counter)
    observed: Counter[str] = field(default_factory=Counter)
    first_ns: int = 0
    last_ns: int = 0
    issues: list[ImportIssue] = field(default_factory=list)
    warnings: Counter[str] = field(default_factory=Counter)


def validate(records: Iterable[Record]) -> TraceReport:
    """Read a whole trace and return its report. Raises what `records` raises."""
    validation = _Validation()
    for record in records:
        validation.add(record)
    return validation.finished()


class _Validation:
    def __init__(self) -> None:
        self._report = TraceReport()
        self._classes = {system_class.name for system_class in SYSTEM_CLASSES}
        self._templates: dict[int, tuple[str, ...]] = {}

    def add(self, record: Record) -> None:
        report, kind = self._report, record.WhichOneof("record") or "unknown"
        if not report.counts:
            report.first_ns = record.time_ns
        report.counts[kind] += 1
        report.last_ns = record.time_ns
        match kind:
            case "header":
                report.header = record.header
            case "template":
                self._templates[record.template.id] = self._of_pod(record.template.pod.spec)
            case "pod_create":
                report.objects["pod"] += 1
                report.warnings.update(self._of_create(record.pod_create))
            case "create":
                report.objects[record.create.WhichOneof("object") or "unknown"] += 1
                report.warnings.update(self._of_object(record.create))
            case "observed":
                report.observed[kind_in_logs(record.observed) or "unknown"] += 1
            case "issue":
                report.issues.append(record.issue)
            case "unknown":
                report.warnings["a record of a kind that this version does not know"] += 1

    def finished(self) -> TraceReport:
        report = self._report
        if not report.objects["node"]:
            report.warnings["no node is created: nothing can be scheduled"] += 1
        made = report.counts["controller_pod"]
        if not made and not any(report.objects[kind] for kind in ("pod", *CONTROLLERS)):
            report.warnings["no pod is created"] += 1
        return report

    def _of_create(self, create: PodCreate) -> tuple[str, ...]:
        if not create.template_id:
            return self._of_pod(create.pod.spec)
        missing = (f"template {create.template_id} is not in the trace",)
        return self._templates.get(create.template_id, missing)

    def _of_pod(self, spec: PodSpec) -> tuple[str, ...]:
        result = list(pod_features(spec, has_devices=self._report.header.has_devices))
        name = spec.priority_class_name
        if name and name not in self._classes:
            if spec.HasField("priority"):
                result.append(f"PriorityClass {name!r} is missing: spec.priority is kept")
            else:
                result.append(f"PriorityClass {name!r} is missing: its pods will be refused")
        return tuple(result)

    def _of_object(self, created: KubernetesObject) -> tuple[str, ...]:
        if created.HasField("priority_class"):
            self._classes.add(created.priority_class.metadata.name)
        template = pod_template(created)
        return () if template is None else self._of_pod(template.spec)
