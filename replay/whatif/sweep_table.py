"""The result of a sweep: for each place on its axes, the mean and the deviation over seeds."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from replay.whatif.ci import figure_name, markdown_table, plain
from replay.whatif.sweep import FinishedCell
from services.terminal import csv_text

_ROW, _TOP, _LEFT, _WIDE, _RIGHT = 34, 56, 250, 460, 110
_STYLE = """
text { font: 13px system-ui, sans-serif; fill: #1f2328 }
.title { font-size: 15px; font-weight: 600 }
.bar { fill: #3b6fb6 }
.whisker { stroke: #1f2328; stroke-width: 1.5 }
.axis { stroke: #c5ccd3; stroke-width: 1 }
.ground { fill: #ffffff }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 }
  .bar { fill: #6ea0e8 }
  .whisker { stroke: #e6edf3 }
  .axis { stroke: #444c56 }
  .ground { fill: #0d1117 }
}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureSpread:
    """One figure over `count` runs; the deviation is a sample's, 0 for a single run."""

    mean: float
    deviation: float
    least: float
    most: float
    count: int

    def text(self, digits: int) -> str:
        """Return "mean ± deviation", and the value alone where there is one run."""
        mean = f"{self.mean:,.{digits}g}"
        return mean if self.count == 1 else f"{mean} ± {self.deviation:,.2g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRow:
    """One place, without the seed, and each figure there; `failed` runs have no figures."""

    place: tuple[tuple[str, str], ...]
    figures: dict[str, FigureSpread]
    failed: int = 0
    is_baseline: bool = False

    @property
    def runs(self) -> int:
        """Return the number of runs with figures."""
        return max((figure.count for figure in self.figures.values()), default=0)

    def cells(self, figures: Sequence[str]) -> list[str]:
        """Return the values on the axes, the number of runs, and the figures."""
        values = [value for _, value in self.place]
        return [*values, str(self.runs), *(self.spread(name) for name in figures)]

    def spread(self, figure: str) -> str:
        """Return a figure as text, "-" where no run has it; with the runs that do, if not all."""
        spread = self.figures.get(figure)
        if spread is None:
            return "-"
        return spread.text(5) + (
            f" ({spread.count} of {self.runs})" if spread.count < self.runs else ""
        )


def table(finished: Sequence[FinishedCell]) -> list[SweepRow]:
    """Return the rows in the grid's order."""
    groups: dict[tuple[tuple[str, str], ...], list[FinishedCell]] = {}
    for ended in finished:
        groups.setdefault(ended.cell.group, []).append(ended)
    return [
        SweepRow(
            place=place,
            figures={
                name: _summed(values)
                for name in dict.fromkeys(name for ended in group for name in ended.figures)
                if (values := [v for ended in group if (v := ended.figures.get(name)) is not None])
            },
            failed=sum(bool(ended.problem) for ended in group),
            is_baseline=all(ended.cell.is_baseline for ended in group),
        )
        for place, group in groups.items()
    ]


def columns(rows: Sequence[SweepRow], figures: Sequence[str]) -> list[str]:
    """Return the columns of SweepRow.cells: the axes, the number of runs, and figures."""
    return [*(axis.removeprefix("set:") for axis, _ in rows[0].place), "runs", *figures]


def markdown(rows: Sequence[SweepRow], figures: Sequence[str]) -> str:
    """Return the grid as a Markdown table; the baseline is in bold."""
    if not rows:
        return ""
    lines = []
    for row in rows:
        cells = [plain(cell) for cell in row.cells(figures)]
        lines.append([f"**{cell}**" for cell in cells] if row.is_baseline else cells)
    head = [plain(column) for column in columns(rows, list(map(figure_name, figures)))]
    text = markdown_table(head, lines, numbers=1 + len(figures))
    return text + ("\nIn bold: the baseline.\n" if any(row.is_baseline for row in rows) else "")


def cells_csv(finished: Sequence[FinishedCell]) -> str:
    """Return a line for each run: its place, and every figure."""
    names = list(dict.fromkeys(name for ended in finished for name in ended.figures))
    axes = [axis for axis, _ in finished[0].cell.place] if finished else []
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*axes, "cell", "problem", *names])
    for ended in finished:
        values = ["" if (v := ended.figures.get(name)) is None else v for name in names]
        place = [value for _, value in ended.cell.place]
        writer.writerow([*place, ended.cell.name, csv_text(ended.problem), *values])
    return text.getvalue()


def table_csv(rows: Sequence[SweepRow]) -> str:
    """Return a line for each place and figure: mean, deviation, lowest, highest, runs."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    axes = [axis for axis, _ in rows[0].place] if rows else []
    writer.writerow([*axes, "figure", "mean", "deviation", "least", "most", "runs", "failed"])
    for row in rows:
        for name, figure in row.figures.items():
            numbers = [
                figure.mean,
                figure.deviation,
                figure.least,
                figure.most,
                figure.count,
                row.failed,
            ]
            writer.writerow([*(value for _, value in row.place), name, *numbers])
    return text.getvalue()


def _summed(values: Sequence[float]) -> FigureSpread:
    count = len(values)
    mean = math.fsum(values) / count
    spread = math.fsum((value - mean) ** 2 for value in values)
    return FigureSpread(
        mean=mean,
        deviation=math.sqrt(spread / (count - 1)) if count > 1 else 0.0,
        least=min(values),
        most=max(values),
        count=count,
    )


def plot(rows: Sequence[SweepRow], figure: str, unit: str) -> str:
    """Return the plot of a figure as SVG; places without the figure are left out.

    A value is a bar where the scale begins at 0, and a point otherwise.
    """
    spreads = [(row, row.figures[figure]) for row in rows if figure in row.figures]
    low, high = _scale([spread for _, spread in spreads])
    height = _TOP + _ROW * len(spreads) + 44
    width = _LEFT + _WIDE + _RIGHT
    label = f"{figure}{', ' + unit if unit else ''}: mean and deviation over the runs at each place"
    parts = [
        _open(width, height, label),
        f"<style>{_STYLE}</style>",
        f'<rect class="ground" width="{width}" height="{height}"/>',
        f'<text class="title" x="16" y="28">{escape(label)}</text>',
    ]
    for index, (row, summed) in enumerate(spreads):
        parts += _bar(row, summed, _TOP + index * _ROW, low, high)
    base = _TOP + _ROW * len(spreads) + 4
    parts.append(f'<line class="axis" x1="{_LEFT}" x2="{_LEFT + _WIDE}" y1="{base}" y2="{base}"/>')
    for value, x in ((low, _LEFT), (high, _LEFT + _WIDE)):
        parts.append(f'<text x="{x}" y="{base + 20}" text-anchor="middle">{value:,.4g}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _bar(row: SweepRow, summed: FigureSpread, y: int, low: float, high: float) -> list[str]:
    def at(value: float) -> float:
        share = (value - low) / (high - low) if high > low else 1.0
        return round(_LEFT + _WIDE * min(1.0, max(0.0, share)), 1)

    name = ", ".join(_short(value) for _, value in row.place) or "all"
    middle, x = y + 12, at(summed.mean)
    label = summed.text(4)
    if low == 0:
        mark = f'<rect class="bar" x="{_LEFT}" y="{y}" width="{x - _LEFT:.1f}" height="24"/>'
    else:
        mark = f'<circle class="bar" cx="{x}" cy="{middle}" r="6"/>'
    first, last = at(summed.mean - summed.deviation), at(summed.mean + summed.deviation)
    return [
        f'<text x="{_LEFT - 10}" y="{y + 17}" text-anchor="end">{escape(name)}</text>',
        mark,
        f'<line class="whisker" x1="{first}" x2="{last}" y1="{middle}" y2="{middle}"/>',
        f'<text x="{max(x, last) + 8}" y="{y + 17}">{label}</text>',
    ]


def _open(width: int, height: int, label: str) -> str:
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{escape(label)}">'
    )


def _scale(spreads: Sequence[FigureSpread]) -> tuple[float, float]:
    """Return the ends of the scale: from 0, unless the values are close together far from 0."""
    if not spreads:
        return 0.0, 1.0
    least, most = min(spread.least for spread in spreads), max(spread.most for spread in spreads)
    low = 0.0 if least < 0.7 * most or least < 0 else least - 0.3 * (most - least)
    low = min(low, least)
    return low, most if most > low else low + 1.0


def _short(value: str) -> str:
    """Return a value as a label of at most 30 characters; a path's last part."""
    last = value.rpartition("/")[2] or value
    return last if len(last) <= 30 else f"...{last[-27:]}"
