"""The queue's metrics, with upstream's names, labels and buckets.

The core counts, and its counts are collected after each request, so that operations spend no time
on metrics. Only hints are timed during an operation.

Source: kubernetes v1.34 pkg/scheduler/metrics/metrics.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from time import perf_counter_ns
from typing import TYPE_CHECKING

from services.framework.cluster_event import ObjectEvent, PendingPod, QueueingHintFn, Registration
from services.kube.time import SECOND_NS
from services.queue.core.results import SubQueue
from services.queue.core.scheduling_queue import SchedulingQueue
from services.rpc.prometheus import HistogramCounts, counter, exponential, gauge, histogram

if TYPE_CHECKING:
    from prometheus_client import Metric

_PENDING = {
    SubQueue.ACTIVE: "active",
    SubQueue.BACKOFF: "backoff",
    SubQueue.ERROR_BACKOFF: "backoff",
    SubQueue.UNSCHEDULABLE: "unschedulable",
    SubQueue.GATED: "gated",
}
_ATTEMPTS = exponential(1, 2, 5)
_SECONDS = exponential(0.00001, 1.5, 20)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedHint:
    """A hint that records its latency and result."""

    plugin: str
    hint: QueueingHintFn
    metrics: QueueMetrics

    def __call__(self, pod: PendingPod, object_event: ObjectEvent) -> bool:
        """Return the hint's result."""
        started_ns = perf_counter_ns()
        queued = self.hint(pod, object_event)
        took_s = (perf_counter_ns() - started_ns) / SECOND_NS
        self.metrics.record_hint(self.plugin, object_event.event.label, took_s, queued=queued)
        return queued


class QueueMetrics:
    """The metrics of one process, over all its sessions."""

    __slots__ = ("_attempts", "_hints", "_incoming")

    def __init__(self) -> None:
        self._incoming: dict[tuple[str, str], int] = {}
        self._attempts = HistogramCounts(_ATTEMPTS)
        self._hints: dict[tuple[str, str, str], HistogramCounts] = {}

    def timed(self, registrations: Iterable[Registration]) -> tuple[Registration, ...]:
        """Return the registrations with their hints timed."""
        return tuple(
            registration
            if registration.hint is None
            else replace(
                registration,
                hint=TimedHint(plugin=registration.plugin, hint=registration.hint, metrics=self),
            )
            for registration in registrations
        )

    def record_hint(self, plugin: str, event: str, took_s: float, *, queued: bool) -> None:
        """Record one call of a hint; `took_s` in seconds."""
        key = (plugin, event, "Queue" if queued else "QueueSkip")
        counts = self._hints.get(key)
        if counts is None:
            counts = self._hints[key] = HistogramCounts(_SECONDS)
        counts.observe(took_s)

    def absorb(self, queue: SchedulingQueue) -> None:
        """Add the counts of a queue since the last call."""
        for (where, event), count in queue.take_incoming().items():
            key = (where.value, event)
            self._incoming[key] = self._incoming.get(key, 0) + count
        for attempts, count in queue.take_finished().items():
            self._attempts.observe(attempts, count)

    def collect(self, queues: Iterable[SchedulingQueue]) -> Iterator[Metric]:
        """Describe the metrics, with the pods pending in `queues` now."""
        pending = dict.fromkeys(_PENDING.values(), 0)
        for queue in queues:
            for where, size in queue.sizes().items():
                pending[_PENDING[where]] += size
        yield gauge(
            "scheduler_pending_pods",
            "Number of pending pods, by the queue type.",
            ("queue",),
            {(where,): count for where, count in pending.items()},
        )
        yield counter(
            "scheduler_queue_incoming_pods_total",
            "Number of pods added to scheduling queues by event and queue type.",
            ("queue", "event"),
            self._incoming,
        )
        yield histogram(
            "scheduler_pod_scheduling_attempts",
            "Number of attempts to successfully schedule a pod.",
            (),
            {(): self._attempts},
        )
        yield histogram(
            "scheduler_queueing_hint_execution_duration_seconds",
            "Duration for running a queueing hint function of a plugin.",
            ("plugin", "event", "hint"),
            self._hints,
        )
