"""The queue's metrics, with upstream's names and labels, as Prometheus' text.

Counts are kept by the cores and taken from them after each request, so that no operation pays for
a metric; only hints are timed where they run.

Source: kubernetes v1.34 pkg/scheduler/metrics/metrics.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from time import perf_counter_ns

from services.queue.core.cluster_event import Happening, HintFunction
from services.queue.core.queued_pod import QueuedPod
from services.queue.core.registrations import Registration
from services.queue.core.results import SubQueue
from services.queue.core.scheduling_queue import SchedulingQueue
from services.rpc.prometheus import Histogram, header, line

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
    """A hint function that tells how long it took, and what it said."""

    plugin: str
    hint: HintFunction
    metrics: QueueMetrics

    def __call__(self, pod: QueuedPod, happening: Happening) -> bool:
        """Answer as the hint does."""
        started_ns = perf_counter_ns()
        queued = self.hint(pod, happening)
        took_s = (perf_counter_ns() - started_ns) / _NS_PER_S
        self.metrics.hint_ran(self.plugin, happening.event.label, took_s, queued=queued)
        return queued


class QueueMetrics:
    """What one process counts over all its sessions."""

    __slots__ = ("_attempts", "_hints", "_incoming")

    def __init__(self) -> None:
        self._incoming: dict[tuple[str, str], int] = {}
        self._attempts = Histogram(_ATTEMPTS)
        self._hints: dict[tuple[str, str, bool], Histogram] = {}

    def timed(self, registrations: Iterable[Registration]) -> tuple[Registration, ...]:
        """Return the registrations with their hints timed."""
        return tuple(
            each
            if each.hint is None
            else replace(each, hint=TimedHint(plugin=each.plugin, hint=each.hint, metrics=self))
            for each in registrations
        )

    def hint_ran(self, plugin: str, event: str, took_s: float, *, queued: bool) -> None:
        """Take in one run of a hint."""
        key = (plugin, event, queued)
        histogram = self._hints.get(key)
        if histogram is None:
            histogram = self._hints[key] = Histogram(_SECONDS)
        histogram.observe(took_s)

    def absorb(self, queue: SchedulingQueue) -> None:
        """Take over what a queue has counted since the last time."""
        for (where, event), count in queue.take_incoming().items():
            key = (where.value, event)
            self._incoming[key] = self._incoming.get(key, 0) + count
        for attempts, count in queue.take_finished().items():
            self._attempts.observe(attempts, count)

    def text(self, queues: Iterable[SchedulingQueue]) -> str:
        """Return the metrics, with what is pending in `queues` now."""
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
        said = "Number of pods added to scheduling queues by event and queue type."
        yield from header(name, "counter", said)
        for (where, event), count in sorted(self._incoming.items()):
            yield line(name, (("event", event), ("queue", where)), count)
        name = "scheduler_pod_scheduling_attempts"
        said = "Number of attempts to successfully schedule a pod."
        yield from header(name, "histogram", said)
        yield from self._attempts.lines(name)
        name = "scheduler_queueing_hint_execution_duration_seconds"
        yield from header(name, "histogram", "Latency for running a queueing hint of a plugin.")
        for (plugin, event, queued), histogram in sorted(self._hints.items()):
            hint = "Queue" if queued else "QueueSkip"
            labels = (("event", event), ("hint", hint), ("plugin", plugin))
            yield from histogram.lines(name, labels)
