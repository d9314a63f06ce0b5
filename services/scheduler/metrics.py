"""The scheduler's metrics, with upstream's names, labels and buckets.

They are counted from decisions that the queue has applied. Durations are wall time of this process;
only pod_scheduling_sli_duration_seconds is in the simulated time of the sessions. Upstream's status
UnschedulableAndUnresolvable counts as Unschedulable, and binding takes no time here.

Source: kubernetes v1.34 pkg/scheduler/metrics/metrics.go, and where they are observed:
schedule_one.go (schedulingCycle, bindingCycle), framework/runtime/framework.go (Run...Plugins),
framework/plugins/defaultpreemption (PostFilter), framework/preemption/preemption.go.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from services.framework.runtime.diagnosis import Unschedulable
from services.kube.pod import DEFAULT_SCHEDULER
from services.kube.time import SECOND_NS
from services.rpc.prometheus import HistogramCounts, counter, exponential, gauge, histogram
from services.scheduler.core.decisions import Binding, Decision, Failed, HeldAtPermit, Skipped
from services.scheduler.core.session.scheduler import Scheduler
from services.scheduler.outcomes import PHASES

if TYPE_CHECKING:
    from prometheus_client import Metric

_ATTEMPT_SECONDS = exponential(0.001, 2, 15)
_EXTENSION_POINT_SECONDS = exponential(0.0001, 2, 12)
_SLI_SECONDS = exponential(0.01, 2, 20)
_VICTIMS = exponential(1, 2, 7)
_ATTEMPTS_SHOWN = 15
_RESULTS = {Binding: "scheduled", Unschedulable: "unschedulable", Failed: "error"}


class SchedulerMetrics:
    """The metrics of one process, over all its sessions."""

    def __init__(self) -> None:
        # Counts of the usual profile are there before they grow: a scraper sees no growth in the
        # first value of a series, and a replay may end within two scrapes.
        usual = [(result, DEFAULT_SCHEDULER) for result in _RESULTS.values()]
        self._attempts: Counter[tuple[str, str]] = Counter(dict.fromkeys(usual, 0))
        self._durations = {labels: HistogramCounts(_ATTEMPT_SECONDS) for labels in usual}
        self._algorithm = HistogramCounts(_ATTEMPT_SECONDS)
        self._extension_points = {
            (point, "Success", DEFAULT_SCHEDULER): HistogramCounts(_EXTENSION_POINT_SECONDS)
            for point in PHASES
        }
        self._sli = {("1",): HistogramCounts(_SLI_SECONDS)}
        self._preemptions = 0
        self._victims = HistogramCounts(_VICTIMS)

    def absorb(self, decision: Decision, wall_ns: int, now_ns: int) -> None:
        """Count a decision that took `wall_ns`, at the simulated time `now_ns`."""
        verdict = decision.verdict
        if isinstance(verdict, Skipped | HeldAtPermit):
            return
        profile = decision.attempted_pod.spec.scheduler_name
        key, wall_s = (_RESULTS[type(verdict)], profile), wall_ns / SECOND_NS
        self._attempts[key] += 1
        durations = self._durations.get(key)
        if durations is None:
            durations = self._durations[key] = HistogramCounts(_ATTEMPT_SECONDS)
        durations.observe(wall_s)
        if isinstance(verdict, Binding):
            self._algorithm.observe(wall_s)
            self._observe_sli(decision, now_ns)
        elif isinstance(verdict, Unschedulable):
            self._count_preemption(verdict, decision)
        for point, taken_ns in decision.phases_ns.items():
            series = (point, _status(point, decision), profile)
            times = self._extension_points.get(series)
            if times is None:
                times = self._extension_points[series] = HistogramCounts(_EXTENSION_POINT_SECONDS)
            times.observe(taken_ns / SECOND_NS)

    def _observe_sli(self, decision: Decision, now_ns: int) -> None:
        head = decision.head
        label = f"{head.attempts}" if head.attempts < _ATTEMPTS_SHOWN else f"{_ATTEMPTS_SHOWN}+"
        times = self._sli.get((label,))
        if times is None:
            times = self._sli[label,] = HistogramCounts(_SLI_SECONDS)
        times.observe((now_ns - head.first_enqueued_ns) / SECOND_NS)

    def _count_preemption(self, verdict: Unschedulable, decision: Decision) -> None:
        """Count an attempt to preempt; a cached refusal adds no duration."""
        if (
            verdict.nomination is not None
            or verdict.preemption_message
            or "PostFilter" in decision.phases_ns
        ):
            self._preemptions += 1
        if verdict.nomination is not None:
            self._victims.observe(len(verdict.nomination.victims))

    def collect(self, cores: Iterable[Scheduler]) -> Iterator[Metric]:
        """Describe the metrics, with what `cores` hold now."""
        yield counter(
            "scheduler_schedule_attempts_total",
            "Number of attempts to schedule pods, by the result. 'unschedulable' means a pod could "
            "not be scheduled, while 'error' means an internal scheduler problem.",
            ("result", "profile"),
            self._attempts,
        )
        yield histogram(
            "scheduler_scheduling_attempt_duration_seconds",
            "Scheduling attempt latency in seconds (scheduling algorithm + binding)",
            ("result", "profile"),
            self._durations,
        )
        yield histogram(
            "scheduler_scheduling_algorithm_duration_seconds",
            "Scheduling algorithm latency in seconds",
            (),
            {(): self._algorithm},
        )
        yield histogram(
            "scheduler_framework_extension_point_duration_seconds",
            "Latency for running all plugins of a specific extension point.",
            ("extension_point", "status", "profile"),
            self._extension_points,
        )
        yield histogram(
            "scheduler_pod_scheduling_sli_duration_seconds",
            "E2e latency for a pod being scheduled, from the time the pod enters the scheduling "
            "queue and might involve multiple scheduling attempts.",
            ("attempts",),
            self._sli,
        )
        yield counter(
            "scheduler_preemption_attempts_total",
            "Total preemption attempts in the cluster till now",
            (),
            {(): self._preemptions},
        )
        yield histogram(
            "scheduler_preemption_victims",
            "Number of selected preemption victims",
            (),
            {(): self._victims},
        )
        yield _cache_size(cores)


def _status(point: str, decision: Decision) -> str:
    """Return the status with which an extension point ended in an attempt."""
    verdict = decision.verdict
    if isinstance(verdict, Unschedulable):
        if point == "PostFilter":
            return "Success" if verdict.nomination is not None else "Unschedulable"
        if point == "PreFilter" and "Filter" not in decision.phases_ns:
            return "Unschedulable"
    if isinstance(verdict, Failed) and point == [*decision.phases_ns][-1]:
        return "Error"
    return "Success"


def _cache_size(cores: Iterable[Scheduler]) -> Metric:
    sizes: Counter[tuple[str]] = Counter({("nodes",): 0, ("pods",): 0, ("assumed_pods",): 0})
    for core in cores:
        sizes["nodes",] += core.snapshot.node_count
        sizes["pods",] += core.snapshot.pod_count
        sizes["assumed_pods",] += len(core.assumed())
    return gauge(
        "scheduler_cache_size",
        "Number of nodes, pods, and assumed (bound) pods in the scheduler cache.",
        ("type",),
        sizes,
    )
