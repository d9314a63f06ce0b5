"""A workload as its object describes it, and the counts of its pods."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from replay.results.workloads.verdict import History, Numbers
from replay.world.api.cluster import replicas
from replay.world.api.conditions import is_ready
from replay.world.api.pod_record import controller_uid
from replay.world.controllers.workloads.job_state import JobState
from reprieve.kube.v1beta1 import pod_pb2, workloads_pb2
from reprieve.scheduler.v1beta1 import scheduler_pb2
from services.kube.pod import TERMINAL_PHASES
from services.kube.workloads import WORKLOAD_KINDS

_KINDS = {field: kind for field, kind in WORKLOAD_KINDS.items() if kind != "CronJob"}
"""Kinds of workloads whose pods are counted, by their field names in KubernetesObject."""
_JOB_ENDS = frozenset({"Complete", "Failed"})


@dataclass(slots=True)
class PodCounts:
    """Pods of one controller; `pods` and `ready` exclude terminating and ended pods.

    came_ready: whether a pod was ready when the run first saw it, as in a snapshot.
    """

    all: int = 0
    pods: int = 0
    ready: int = 0
    ready_also_terminating: int = 0
    succeeded: int = 0
    came_ready: bool = False


NO_PODS = PodCounts()


@dataclass(slots=True, kw_only=True)
class OwnedPod:
    """A pod with a controller; node_name: for a pod of a DaemonSet, its node or intended node."""

    owner_uid: str
    node_name: str = ""
    is_terminating: bool = False
    is_over: bool = False
    has_succeeded: bool = False
    is_ready: bool = False

    def take(self, status: pod_pb2.PodStatus) -> None:
        """Take a new status."""
        self.is_over = status.phase in TERMINAL_PHASES
        self.has_succeeded = status.phase == "Succeeded"
        self.is_ready = not self.is_over and is_ready(status)


@dataclass(slots=True, kw_only=True)
class Workload:
    """A workload as its object describes it.

    wanted: desired replicas; a Job's parallelism. completions: a Job's, None if one success
    completes it. succeeded: the successes in a Job's recorded status. is_idle: whether a Job has
    ended or is suspended. template: a DaemonSet's pod template.
    """

    kind: str
    namespace: str
    name: str
    owner_uid: str
    labels: dict[str, str]
    priority_class: str
    priority: int | None
    wanted: int = 0
    completions: int | None = None
    succeeded: int = 0
    is_idle: bool = False
    template: workloads_pb2.PodTemplateSpec | None = None
    history: History = field(default_factory=History)

    @property
    def key(self) -> str:
        """Return the workload's name, such as "StatefulSet shop/kafka"."""
        return f"{self.kind} {self.namespace}/{self.name}"

    def job_pods(self, counts: PodCounts) -> int:
        """Return how many pods of a Job should run, by the rule of the Job controller (jobs.py)."""
        if self.is_idle:
            return 0
        succeeded = self.succeeded + counts.succeeded
        if self.completions is None:
            return counts.pods if succeeded else self.wanted
        return max(0, min(self.completions - succeeded, self.wanted))

    def judge(self, now_ns: int, numbers: Numbers, budgets: list[str], *, came_ready: bool) -> None:
        """Record the numbers from `now_ns` on, and the budgets with too few healthy pods.

        A workload that came with ready pods (`came_ready`) has no start that is left out of the
        verdict, even if it loses those pods at its first instant.
        """
        history, is_short = self.history, numbers.ready < numbers.desired
        if history.starts is None:
            history.starts = is_short and not numbers.ready and not came_ready
        elif history.starts and not is_short:
            history.starts = False
            history.least = None
            history.below.drop()
            history.below_budget.drop()
            history.budgets.clear()
        history.below.note(now_ns, holds=is_short)
        history.below_budget.note(now_ns, holds=bool(budgets))
        history.budgets |= dict.fromkeys(budgets)
        least = history.least
        if is_short and (least is None or numbers.missing > least.missing):
            history.least = numbers


@dataclass(frozen=True, slots=True)
class WorkloadChange:
    """A workload that was added or changed; removed if `workload` is None."""

    at_ns: int
    uid: str
    workload: Workload | None


def workload_change(event: scheduler_pb2.Event) -> WorkloadChange | None:
    """Return the change of a workload; None for that of another object."""
    case = event.WhichOneof("event")
    if case == "remove":
        if event.remove.kind not in _KINDS.values():
            return None
        return WorkloadChange(event.time_ns, event.remove.uid, None)
    if case not in ("add", "update"):
        return None
    holder = getattr(event, case)
    name = holder.WhichOneof("object") or ""
    if name not in _KINDS:
        return None
    message: Any = getattr(holder, name)
    meta, template = message.metadata, message.spec.template
    workload = Workload(
        kind=_KINDS[name],
        namespace=meta.namespace,
        name=meta.name,
        owner_uid=controller_uid(meta),
        labels=dict(template.metadata.labels),
        priority_class=template.spec.priority_class_name,
        priority=template.spec.priority if template.spec.HasField("priority") else None,
    )
    match message:
        case workloads_pb2.Job():
            job = JobState.of(message)
            workload.wanted, workload.completions = job.parallelism, job.completions
            workload.succeeded = len(job.completed_indexes) if job.is_indexed else job.succeeded
            workload.is_idle = bool(job.condition) or message.spec.suspend
        case workloads_pb2.DaemonSet():
            workload.template = workloads_pb2.PodTemplateSpec()
            workload.template.CopyFrom(template)
        case _:
            workload.wanted = replicas(message.spec)
    return WorkloadChange(event.time_ns, meta.uid, workload)
