"""The queue's metrics, with upstream's names and labels, as Prometheus' text.

The cores count, and their counts are taken after each request, so that an operation spends no time
on metrics; only hints are timed where they run.

Source: kubernetes v1.34 pkg/scheduler/metrics/metrics.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from time import perf_counter_ns

from services.queue.core.cluster_event import ObjectEvent, QueueingHintFn, Registration
from services.queue.core.queued_pod import QueuedPod
from services.queue.core.results import SubQueue
from services.queue.core.scheduling_queue import SchedulingQueue
from services.rpc.prometheus import PrometheusHistogram, header, line

_PENDING = {
    SubQueue.ACTIVE: "active",
    SubQueue.BACKOFF: "backoff",
    SubQueue.ERROR_BACKOFF: "backoff",
    SubQueue.UNSCHEDULABLE: "unschedulable",
    SubQueue.GATED: "gated",
}
_ATTEMPTS = tuple(2.0**power for power in range(5))
_SECONDS = tuple(0.00001 * 2**power for power in range(12))
_NS_PER_S = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedHint:
    """A hint that records its latency and result."""

    plugin: str
    hint: QueueingHintFn
    metrics: QueueMetrics

    def __call__(self, pod: QueuedPod, object_event: ObjectEvent) -> bool:
        """Return the hint's result."""
        started_ns = perf_counter_ns()
        queued = self.hint(pod, object_event)
        took_s = (perf_counter_ns() - started_ns) / _NS_PER_S
        self.metrics.record_hint(self.plugin, object_event.event.label, took_s, queued=queued)
        return queued


class QueueMetrics:
    """The metrics of one process, over all its sessions."""

    __slots__ = ("_attempts", "_hints", "_incoming")

    def __init__(self) -> None:
        self._incoming: dict[tuple[str, str], int] = {}
        self._attempts = PrometheusHistogram(_ATTEMPTS)
        self._hints: dict[tuple[str, str, bool], PrometheusHistogram] = {}

    def timed(self, registrations: Iterable[Registration]) -> tuple[Registration, ...]:
        """Return the registrations with their hints timed."""
        return tuple(
            each
            if each.hint is None
            else replace(each, hint=TimedHint(plugin=each.plugin, hint=each.hint, metrics=self))
            for each in registrations
        )

    def record_hint(self, plugin: str, event: str, took_s: float, *, queued: bool) -> None:
        """Record one call of a hint; `took_s` in seconds."""
        key = (plugin, event, queued)
        histogram = self._hints.get(key)
        if histogram is None:
            histogram = self._hints[key] = PrometheusHistogram(_SECONDS)
        histogram.observe(took_s)

    def absorb(self, queue: SchedulingQueue) -> None:
        """Add what a queue has counted since the last call."""
        for (where, event), count in queue.take_incoming().items():
            key = (where.value, event)
            self._incoming[key] = self._incoming.get(key, 0) + count
        for attempts, count in queue.take_finished().items():
            self._attempts.observe(attempts, count)

    def text(self, queues: Iterable[SchedulingQueue]) -> str:
        """Return the metrics, with the pods pending in `queues` now."""
        pending = dict.fromkeys(_PENDING.values(), 0)
        for queue in queues:
            for where, size in queue.sizes().items():
                pending[_PENDING[where]] += size
        return "".join(f"{line}\n" for line in self._lines(pending))

    def _lines(self, pending: Mapping[str, int]) -> Iterator[str]:
        name = "scheduler_pending_pods"
        yield from header(name, "gauge", "Number of pending pods, by the queue type.")
        for where, count in pending.items():
            yield line(name, (("queue", where),), count)
        name = "scheduler_queue_incoming_pods_total"
        help_text = "Number of pods added to scheduling queues by event and queue type."
        yield from header(name, "counter", help_text)
        for (where, event), count in sorted(self._incoming.items()):
            yield line(name, (("event", event), ("queue", where)), count)
        name = "scheduler_pod_scheduling_attempts"
        help_text = "Number of attempts to successfully schedule a pod."
        yield from header(name, "histogram", help_text)
        yield from self._attempts.lines(name)
        name = "scheduler_queueing_hint_execution_duration_seconds"
        yield from header(name, "histogram", "Latency for running a queueing hint of a plugin.")
        for (plugin, event, queued), histogram in sorted(self._hints.items()):
            hint = "Queue" if queued else "QueueSkip"
            labels = (("event", event), ("hint", hint), ("plugin", plugin))
            yield from histogram.lines(name, labels)
