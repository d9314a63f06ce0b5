"""The state of a Job: its succeeded and failed pods, completed indexes and failure backoffs.

A pod counts once: when it succeeds, when it fails, or when its deletion is requested before it has
succeeded. Pods that the Job itself deletes because there are too many do not count.

Source: kubernetes v1.34 pkg/controller/job/job_controller.go, getNewFinishedPods, isPodFailed,
trackJobStatusAndRemoveFinalizers; indexed_job_utils.go, firstPendingIndexes;
pkg/apis/batch/v1/defaults.go, SetDefaults_Job; pod_failure_policy.go, matchPodFailurePolicy;
backoff_utils.go, getRemainingTimeForFailuresCount; job_controller.go, DefaultJobPodFailureBackOff,
MaxJobPodFailureBackOff (10 min; the documentation speaks of six).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from itertools import islice

from replay.world.api.pod_record import JOB_TRACKING, PodRecord
from reprieve.kube.v1beta1 import pod_pb2, workloads_pb2
from services.kube.time import SECOND_NS
from services.rpc.errors import FieldError
from services.rpc.kube.fields import set_time, time_ns

INDEX = "batch.kubernetes.io/job-completion-index"
BACKOFF_LIMIT = 6
_INT32_MAX = 2**31 - 1
_INDEXES_MAX = 10**6
"""The length at which an interval of indexes in a recorded status is cut off."""
BACKOFF_NS = 10 * SECOND_NS
BACKOFF_MAX_NS = 600 * SECOND_NS


@dataclass(slots=True)
class Failures:
    """Failures in a row, and when the last one was (ns)."""

    number: int = 0
    last_ns: int = 0

    def due_ns(self) -> int:
        """Return when the next pod may be created, ns."""
        return self.last_ns + backoff_ns(self.number)


@dataclass(slots=True, kw_only=True)
class JobState:
    """A Job and its counted pods.

    `uncounted` are the pods that have been seen and not counted, `counted` those that have been
    counted and still exist. `condition` is "" while the Job runs, else "Complete" or "Failed", with
    its `reason`; `finished_ns` is when all of its pods had ended, too. `row` are the failures since
    the last success, `by_index` those of each index.
    """

    message: workloads_pb2.Job
    uncounted: dict[str, PodRecord] = field(default_factory=dict)
    counted: dict[str, None] = field(default_factory=dict)
    start_ns: int | None = None
    succeeded: int = 0
    failed: int = 0
    row: Failures = field(default_factory=Failures)
    completed_indexes: set[int] = field(default_factory=set)
    by_index: dict[int, Failures] = field(default_factory=dict)
    failed_indexes: set[int] = field(default_factory=set)
    condition: str = ""
    reason: str = ""
    finished_ns: int | None = None

    @classmethod
    def of(cls, message: workloads_pb2.Job) -> JobState:
        """Return the state of a Job according to its status."""
        status = message.status
        state = cls(message=message, succeeded=status.succeeded, failed=status.failed)
        if status.HasField("start_time"):
            state.start_ns = time_ns(status.start_time)
        state.completed_indexes.update(_numbers(status.completed_indexes))
        state.failed_indexes.update(_numbers(status.failed_indexes))
        for condition in status.conditions:
            if condition.type in {"Complete", "Failed"} and condition.status == "True":
                state.condition, state.reason = condition.type, condition.reason
                state.finished_ns = time_ns(condition.last_transition_time)
        return state

    def with_status(self) -> workloads_pb2.Job:
        """Return a copy of the Job with the status that its controller writes at its end."""
        made = workloads_pb2.Job()
        made.CopyFrom(self.message)
        status = made.status
        status.Clear()
        status.succeeded, status.failed = self.succeeded, self.failed
        if self.start_ns is not None:
            set_time(status.start_time, self.start_ns)
        if self.finished_ns is not None:
            condition = status.conditions.add(type=self.condition, status="True")
            condition.reason = self.reason
            set_time(condition.last_transition_time, self.finished_ns)
            if self.condition == "Complete":
                set_time(status.completion_time, self.finished_ns)
        return made

    @property
    def completions(self) -> int | None:
        """Return how many pods must succeed; None: one success completes the Job."""
        spec = self.message.spec
        if spec.HasField("completions"):
            return spec.completions
        return None if spec.HasField("parallelism") else 1

    @property
    def parallelism(self) -> int:
        """Return how many pods may run at once."""
        spec = self.message.spec
        return spec.parallelism if spec.HasField("parallelism") else 1

    @property
    def backoff_limit(self) -> int:
        """Return how many failures are allowed."""
        spec = self.message.spec
        if spec.HasField("backoff_limit"):
            return spec.backoff_limit
        return _INT32_MAX if spec.HasField("backoff_limit_per_index") else BACKOFF_LIMIT

    @property
    def is_indexed(self) -> bool:
        """Return whether each completion has its own index."""
        return self.message.spec.completion_mode == "Indexed"

    @property
    def counts_by_index(self) -> bool:
        """Return whether failures are limited for each index."""
        return self.message.spec.HasField("backoff_limit_per_index")

    @property
    def waits_for_end(self) -> bool:
        """Return whether a terminating pod is replaced only after it has failed."""
        spec = self.message.spec
        return spec.HasField("pod_failure_policy") or spec.pod_replacement_policy == "Failed"

    @property
    def successes(self) -> int:
        """Return the number of completions so far."""
        return len(self.completed_indexes) if self.is_indexed else self.succeeded

    def count(self, now_ns: int, pods: Iterable[PodRecord], present: dict[str, PodRecord]) -> None:
        """Count the pods that have ended, or were removed, since the last call.

        A pod that had ended when it was first seen was counted before, unless it still has the
        tracking finalizer.
        """
        self.counted = {uid: None for uid in self.counted if uid in present}
        for pod in pods:
            if pod.uid in self.counted or pod.uid in self.uncounted:
                continue
            is_tracked = JOB_TRACKING in pod.message.metadata.finalizers
            if self._is_over(pod, is_present=True) and not is_tracked:
                self.counted[pod.uid] = None
            else:
                self.uncounted[pod.uid] = pod
        ended = [
            pod
            for uid, pod in self.uncounted.items()
            if self._is_over(pod, is_present=uid in present)
        ]
        succeeded = [pod for pod in ended if pod.message.status.phase == "Succeeded"]
        failed = [pod for pod in ended if pod.message.status.phase != "Succeeded"]
        for pod in ended:
            self.leave_out(pod)
        for pod in succeeded:
            self.succeeded += 1
            self._complete(pod)
        for pod in failed:
            self._fail(now_ns, pod)
        if succeeded:
            self.row = Failures()
        elif failed:
            self.row = Failures(self.row.number + len(failed), now_ns)

    def leave_out(self, pod: PodRecord) -> None:
        """Mark a pod as counted."""
        self.uncounted.pop(pod.uid, None)
        self.counted[pod.uid] = None

    def pending_indexes(self, now_ns: int, missing: int) -> tuple[list[int], int | None]:
        """Return the lowest indexes that need a pod now, and when the next one will, ns."""
        taken = {index_of(pod.message) for pod in self.uncounted.values()}
        taken |= self.completed_indexes | self.failed_indexes
        free = (index for index in range(self.completions or 0) if index not in taken)
        lowest = list(islice(free, missing))
        if not self.counts_by_index:
            return lowest, None
        due = {index: self.by_index.get(index, Failures()).due_ns() for index in lowest}
        ready = [index for index in lowest if due[index] <= now_ns]
        later = [at_ns for at_ns in due.values() if at_ns > now_ns]
        return ready, min(later, default=None)

    def _is_over(self, pod: PodRecord, *, is_present: bool) -> bool:
        if pod.is_terminal or not is_present:
            return True
        return pod.is_terminating and not self.waits_for_end

    def _complete(self, pod: PodRecord) -> None:
        index = index_of(pod.message)
        if self.is_indexed and index is not None and index < (self.completions or 0):
            self.completed_indexes.add(index)

    def _fail(self, now_ns: int, pod: PodRecord) -> None:
        spec = self.message.spec
        action = failure_action(spec.pod_failure_policy, pod.message.status)
        if action is FailureAction.FAIL_JOB and not self.condition:
            self.condition, self.reason = "Failed", "PodFailurePolicy"
        if action is FailureAction.IGNORE:
            return
        self.failed += 1
        index = index_of(pod.message)
        if index is None or not self.counts_by_index:
            return
        before = self.by_index.get(index, Failures())
        self.by_index[index] = Failures(before.number + 1, now_ns)
        if action is FailureAction.FAIL_INDEX or before.number >= spec.backoff_limit_per_index:
            self.failed_indexes.add(index)


def index_of(pod: pod_pb2.Pod) -> int | None:
    """Return a pod's completion index, None if it has none."""
    text = pod.metadata.annotations.get(INDEX, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def _numbers(text: str) -> Iterator[int]:
    """Yield the numbers of a list such as "0-2,5"; malformed parts are skipped."""
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        last = last or first
        if all(bound.isascii() and bound.isdigit() and len(bound) < 10 for bound in (first, last)):
            yield from range(int(first), min(int(last), int(first) + _INDEXES_MAX) + 1)


class FailureAction(Enum):
    """The actions of a pod failure policy's rules."""

    COUNT = "Count"
    IGNORE = "Ignore"
    FAIL_INDEX = "FailIndex"
    FAIL_JOB = "FailJob"


def check_policy(policy: workloads_pb2.PodFailurePolicy) -> None:
    """Refuse a policy with an unknown action. Raises FieldError."""
    actions = [action.value for action in FailureAction]
    for index, rule in enumerate(policy.rules):
        if rule.action not in actions:
            raise FieldError(
                f"spec.podFailurePolicy.rules[{index}].action",
                f"{rule.action!r} is not one of {', '.join(actions)}",
            )


def failure_action(
    policy: workloads_pb2.PodFailurePolicy, status: pod_pb2.PodStatus
) -> FailureAction:
    """Return the action of the first rule that matches a failed pod's status, else Count."""
    for rule in policy.rules:
        if _matches(rule, status):
            return FailureAction(rule.action)
    return FailureAction.COUNT


def backoff_ns(failures: int) -> int:
    """Return the backoff after that many consecutive failures, ns."""
    if failures < 1:
        return 0
    return min(BACKOFF_NS << min(failures - 1, 16), BACKOFF_MAX_NS)


def _matches(rule: workloads_pb2.PodFailurePolicyRule, status: pod_pb2.PodStatus) -> bool:
    if rule.HasField("on_exit_codes"):
        return _exit_code_matches(rule.on_exit_codes, status)
    return any(
        condition.type == pattern.type and condition.status == (pattern.status or "True")
        for pattern in rule.on_pod_conditions
        for condition in status.conditions
    )


def _exit_code_matches(
    rule: workloads_pb2.PodFailurePolicyOnExitCodes, status: pod_pb2.PodStatus
) -> bool:
    """Return whether a container's exit code meets the rule; 0 never does."""
    for container in status.container_statuses:
        if rule.HasField("container_name") and container.name != rule.container_name:
            continue
        if not container.state.HasField("terminated"):
            continue
        code = container.state.terminated.exit_code
        if code and (code in rule.values) == (rule.operator == "In"):
            return True
    return False
