"""Prometheus' text format, version 0.0.4: counters, gauges and histograms as lines."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate

Labels = tuple[tuple[str, str], ...]


class Histogram:
    """Counts below bounds, with the sum of what was observed."""

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float, count: int = 1) -> None:
        """Take `value` in, `count` times."""
        self._counts[bisect_left(self._bounds, value)] += count
        self._sum += value * count

    def lines(self, name: str, labels: Labels = ()) -> Iterator[str]:
        """Yield the series of the histogram."""
        bounds = [*(f"{bound:g}" for bound in self._bounds), "+Inf"]
        for bound, count in zip(bounds, accumulate(self._counts), strict=True):
            yield line(f"{name}_bucket", (*labels, ("le", bound)), count)
        yield line(f"{name}_sum", labels, self._sum)
        yield line(f"{name}_count", labels, sum(self._counts))


def header(name: str, kind: str, said: str) -> Iterator[str]:
    """Yield the two lines that say what a metric is."""
    yield f"# HELP {name} {said}"
    yield f"# TYPE {name} {kind}"


def line(name: str, labels: Labels, value: float) -> str:
    """Return one sample."""
    said = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels)
    return f"{name}{{{said}}} {value:g}" if said else f"{name} {value:g}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
