"""What is kept of a Job: how many pods succeeded and failed, and which completion indexes.

A pod counts once: when it succeeds, when it fails, or when its deletion is asked for before it has
succeeded. Pods that the Job deletes itself because they are too many do not count.

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

from replay.world.api.pod_record import PodRecord
from replay.world.models import SECOND_NS
from reprieve.kube.v1beta1 import pod_pb2, workloads_pb2
from services.rpc.errors import FieldError
from services.rpc.kube.fields import time_ns

INDEX = "batch.kubernetes.io/job-completion-index"
TRACKING = "batch.kubernetes.io/job-tracking"
"""The finalizer of a pod that its Job has not counted yet."""
BACKOFF_LIMIT = 6
_INT32_MAX = 2**31 - 1
_INDEXES_MAX = 10**6
"""Most indexes that one interval of a recorded status is believed to hold."""
BACKOFF_NS = 10 * SECOND_NS
BACKOFF_MAX_NS = 600 * SECOND_NS


@dataclass(slots=True)
class Failures:
    """Failures in a row, and when the last one was (ns)."""

    number: int = 0
    last_ns: int = 0

    def due_ns(self) -> int:
        """Return when the next pod may be made."""
        return self.last_ns + backoff_ns(self.number)


@dataclass(slots=True, kw_only=True)
class JobState:
    """A Job and what has become of its pods.

    `known` are the pods that were seen and have not been counted, `counted` those that have and
    are still there. `verdict` is "" while it runs,
    else "Complete" or "Failed", `reason` why, `finished_ns` when all of its pods had ended, too.
    """

    message: workloads_pb2.Job
    known: dict[str, PodRecord] = field(default_factory=dict)
    counted: dict[str, None] = field(default_factory=dict)
    start_ns: int | None = None
    succeeded: int = 0
    failed: int = 0
    row: Failures = field(default_factory=Failures)
    done: set[int] = field(default_factory=set)
    by_index: dict[int, Failures] = field(default_factory=dict)
    failed_indexes: set[int] = field(default_factory=set)
    verdict: str = ""
    reason: str = ""
    finished_ns: int | None = None

    @classmethod
    def of(cls, message: workloads_pb2.Job) -> JobState:
        """Return the state of a Job as its status tells it."""
        status = message.status
        state = cls(message=message, succeeded=status.succeeded, failed=status.failed)
        if status.HasField("start_time"):
            state.start_ns = time_ns(status.start_time)
        state.done.update(_numbers(status.completed_indexes))
        state.failed_indexes.update(_numbers(status.failed_indexes))
        for condition in status.conditions:
            if condition.type in {"Complete", "Failed"} and condition.status == "True":
                state.verdict, state.reason = condition.type, condition.reason
                state.finished_ns = time_ns(condition.last_transition_time)
        return state

    @property
    def completions(self) -> int | None:
        """Return how many pods must succeed; None lets the success of any end the Job."""
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
        """Return how many failures are put up with."""
        spec = self.message.spec
        if spec.HasField("backoff_limit"):
            return spec.backoff_limit
        return _INT32_MAX if spec.HasField("backoff_limit_per_index") else BACKOFF_LIMIT

    @property
    def is_indexed(self) -> bool:
        """Tell whether each completion has a number of its own."""
        return self.message.spec.completion_mode == "Indexed"

    @property
    def counts_by_index(self) -> bool:
        """Tell whether failures are limited for each index."""
        return self.message.spec.HasField("backoff_limit_per_index")

    @property
    def waits_for_end(self) -> bool:
        """Tell whether a pod that terminates is replaced only once it has failed."""
        spec = self.message.spec
        return spec.HasField("pod_failure_policy") or spec.pod_replacement_policy == "Failed"

    @property
    def successes(self) -> int:
        """Return how many completions there are."""
        return len(self.done) if self.is_indexed else self.succeeded

    def count(self, now_ns: int, pods: Iterable[PodRecord], present: dict[str, PodRecord]) -> None:
        """Count the pods that have ended, or have gone, since this was last done.

        A pod that was over when it was first seen was counted before, unless its finalizer tells
        otherwise.
        """
        self.counted = {uid: None for uid in self.counted if uid in present}
        for pod in pods:
            if pod.uid in self.counted or pod.uid in self.known:
                continue
            if (
                self._is_over(pod, is_present=True)
                and TRACKING not in pod.message.metadata.finalizers
            ):
                self.counted[pod.uid] = None
            else:
                self.known[pod.uid] = pod
        ended = [
            pod for uid, pod in self.known.items() if self._is_over(pod, is_present=uid in present)
        ]
        good = [pod for pod in ended if pod.message.status.phase == "Succeeded"]
        bad = [pod for pod in ended if pod.message.status.phase != "Succeeded"]
        for pod in ended:
            self.leave_out(pod)
        for pod in good:
            self.succeeded += 1
            self._complete(pod)
        for pod in bad:
            self._fail(now_ns, pod)
        if good:
            self.row = Failures()
        elif bad:
            self.row = Failures(self.row.number + len(bad), now_ns)

    def leave_out(self, pod: PodRecord) -> None:
        """Count a pod no more."""
        self.known.pop(pod.uid, None)
        self.counted[pod.uid] = None

    def pending_indexes(self, now_ns: int, wanted: int) -> tuple[list[int], int | None]:
        """Return the lowest indexes that need a pod now, and when the next one will."""
        held = {index_of(pod.message) for pod in self.known.values()}
        free = (
            index
            for index in range(self.completions or 0)
            if index not in held and index not in self.done and index not in self.failed_indexes
        )
        lowest = list(islice(free, wanted))
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
            self.done.add(index)

    def _fail(self, now_ns: int, pod: PodRecord) -> None:
        spec = self.message.spec
        effect = effect_of(spec.pod_failure_policy, pod.message.status)
        if effect is Effect.FAIL_JOB and not self.verdict:
            self.verdict, self.reason = "Failed", "PodFailurePolicy"
        if effect is Effect.IGNORE:
            return
        self.failed += 1
        index = index_of(pod.message)
        if index is None or not self.counts_by_index:
            return
        before = self.by_index.get(index, Failures())
        self.by_index[index] = Failures(before.number + 1, now_ns)
        if effect is Effect.FAIL_INDEX or before.number >= spec.backoff_limit_per_index:
            self.failed_indexes.add(index)


def index_of(pod: pod_pb2.Pod) -> int | None:
    """Return a pod's completion index, None where it has none."""
    text = pod.metadata.annotations.get(INDEX, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def _numbers(text: str) -> Iterator[int]:
    """Yield the numbers of a list such as "0-2,5"; what is none is passed over."""
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        last = last or first
        if all(each.isascii() and each.isdigit() and len(each) < 10 for each in (first, last)):
            yield from range(int(first), min(int(last), int(first) + _INDEXES_MAX) + 1)


class Effect(Enum):
    """What a pod's failure does to its Job."""

    COUNT = "Count"
    IGNORE = "Ignore"
    FAIL_INDEX = "FailIndex"
    FAIL_JOB = "FailJob"


def check_policy(policy: workloads_pb2.PodFailurePolicy) -> None:
    """Refuse a policy with an action that is none. Raises FieldError."""
    known = [each.value for each in Effect]
    for index, rule in enumerate(policy.rules):
        if rule.action not in known:
            raise FieldError(
                f"spec.podFailurePolicy.rules[{index}].action",
                f"{rule.action!r} is none of {', '.join(known)}",
            )


def effect_of(policy: workloads_pb2.PodFailurePolicy, status: pod_pb2.PodStatus) -> Effect:
    """Return what a failed pod's status means by the first rule that fits; Count without one."""
    for rule in policy.rules:
        if _fits(rule, status):
            return Effect(rule.action)
    return Effect.COUNT


def backoff_ns(failures: int) -> int:
    """Return how long no pod is made after so many failures in a row, ns."""
    if failures < 1:
        return 0
    return min(BACKOFF_NS << min(failures - 1, 16), BACKOFF_MAX_NS)


def _fits(rule: workloads_pb2.PodFailurePolicyRule, status: pod_pb2.PodStatus) -> bool:
    if rule.HasField("on_exit_codes"):
        return _exit_code_fits(rule.on_exit_codes, status)
    return any(
        condition.type == wanted.type and condition.status == (wanted.status or "True")
        for wanted in rule.on_pod_conditions
        for condition in status.conditions
    )


def _exit_code_fits(
    wanted: workloads_pb2.PodFailurePolicyOnExitCodes, status: pod_pb2.PodStatus
) -> bool:
    """Tell whether a container ended as the rule says; one that succeeded never did."""
    for container in status.container_statuses:
        if wanted.HasField("container_name") and container.name != wanted.container_name:
            continue
        if not container.state.HasField("terminated"):
            continue
        code = container.state.terminated.exit_code
        if code and (code in wanted.values) == (wanted.operator == "In"):
            return True
    return False
