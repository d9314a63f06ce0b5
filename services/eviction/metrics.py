"""The kubelet's metrics of eviction, with upstream's names and labels, as Prometheus' text.

Source: kubernetes v1.32 pkg/kubelet/metrics/metrics.go (Evictions, EvictionStatsAge) and
pkg/kubelet/eviction/eviction_manager.go (synchronize, localStorageEviction), which count them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from services.eviction.core.results import StepResult
from services.rpc.prometheus import PrometheusHistogram, header, line

_EVICTIONS = "kubelet_evictions"
_STATS_AGE = "kubelet_eviction_stats_age_seconds"
_LABEL = "eviction_signal"
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_NS_PER_S = 1e9


class EvictionMetrics:
    """The metrics of one process, over all its sessions."""

    __slots__ = ("_evictions", "_stats_age")

    def __init__(self) -> None:
        self._evictions: Counter[str] = Counter()
        self._stats_age: dict[str, PrometheusHistogram] = {}

    def absorb(self, result: StepResult) -> None:
        """Count a step that has ended.

        An eviction counts under its signal, or under the limit on local storage that the pod
        exceeds.
        """
        for eviction in result.evictions:
            self._evictions[eviction.cause] += 1
        for signal, age_ns in result.stats_ages_ns:
            histogram = self._stats_age.get(signal.value)
            if histogram is None:
                histogram = self._stats_age[signal.value] = PrometheusHistogram(_SECONDS)
            histogram.observe(age_ns / _NS_PER_S)

    def text(self) -> str:
        """Return the metrics."""
        return "".join(f"{each}\n" for each in self._lines())

    def _lines(self) -> Iterator[str]:
        help_text = "Cumulative number of pod evictions by eviction signal"
        yield from header(_EVICTIONS, "counter", help_text)
        for signal, count in sorted(self._evictions.items()):
            yield line(_EVICTIONS, ((_LABEL, signal),), count)
        help_text = (
            "Time between when stats are collected, and when pod is evicted based on those stats "
            "by eviction signal"
        )
        yield from header(_STATS_AGE, "histogram", help_text)
        for signal, histogram in sorted(self._stats_age.items()):
            yield from histogram.lines(_STATS_AGE, ((_LABEL, signal),))
