"""The page of a sweep: its grid, and charts of each figure over each parameter."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from replay.report.page import ReportHead, page
from replay.report.section import Option, ReportSection, grid, line
from replay.results.summary.figures import FIGURES
from replay.whatif.ci import figure_name
from replay.whatif.sweep_table import SweepRow, columns

_SERIES_MAX = 8
Place = tuple[tuple[str, str], ...]


def sweep_page(name: str, rows: Sequence[SweepRow], shown: Sequence[str]) -> str:
    """Return the page of a sweep; `shown` lists the figures in the grid, which has at least a row.

    The charts show all figures. Names of files and folders are not links.
    """
    figures = list(dict.fromkeys([*shown, *(figure for row in rows for figure in row.figures)]))
    axes = [axis for axis, _ in rows[0].place]
    sections = [_grid(rows, shown)]
    sections += [_over(index, axis, rows, figures) for index, axis in enumerate(axes)]
    failed = sum(row.failed for row in rows)
    facts = [
        ("places", f"{len(rows):,}"),
        ("runs with figures", f"{sum(row.runs for row in rows):,}"),
        ("failed runs", f"{failed:,}"),
    ]
    baseline = next((_label(row.place) for row in rows if row.is_baseline), "")
    described = [("Over", ", ".join(map(_axis_name, axes)) or "seeds alone")]
    described += [("Baseline", baseline)] if baseline else []
    head = ReportHead(kind="sweep", title=name, facts=facts, described=described)
    return page(head, sections)


def _grid(rows: Sequence[SweepRow], shown: Sequence[str]) -> ReportSection:
    has_baseline = any(row.is_baseline for row in rows)
    marks = ("",) if has_baseline else ()
    return ReportSection(
        key="grid",
        title="The grid",
        note="The mean and the deviation over the seeds at each place.",
        empty="No replay has ended.",
        columns=(*columns(rows, list(map(figure_name, shown))), *marks),
        rows=[
            [*row.cells(shown), *(("baseline" if row.is_baseline else "",) if marks else ())]
            for row in rows
        ],
        wide=True,
        tabular=True,
        search="Search",
    )


def _over(index: int, axis: str, rows: Sequence[SweepRow], figures: Sequence[str]) -> ReportSection:
    """Return a chart of each figure over one axis, with a line for each value of the other axes."""
    values = list(dict.fromkeys(row.place[index][1] for row in rows))
    baseline_values = {row.place[index][1] for row in rows if row.is_baseline}
    labels = [f"{label} (baseline)" if label in baseline_values else label for label in values]
    lines: dict[Place, dict[str, SweepRow]] = {}
    for row in rows:
        others = tuple(value for at, value in enumerate(row.place) if at != index)
        lines.setdefault(others, {})[row.place[index][1]] = row
    drawn = dict(itertools.islice(lines.items(), _SERIES_MAX))
    charts = {
        figure_name(figure): _chart(figure, values, labels, drawn)
        for figure in figures
        if any(figure in row.figures for row in rows)
    }
    return ReportSection(
        key=f"over-{index}",
        title=f"Figures over {_axis_name(axis)}",
        note="The mean over the seeds; a line for each place on the other axes.",
        empty="No replay has figures.",
        charts=charts,
        choice="Figure",
        columns=(
            _axis_name(axis),
            *(["Other axes"] if any(lines) else []),
            "Figure",
            "Mean",
            "Deviation",
            "Lowest",
            "Highest",
        ),
        rows=[
            [
                value,
                *([_label(others)] if any(lines) else []),
                figure_name(name),
                *(spread.mean, spread.deviation, spread.least, spread.most),
            ]
            for others, places in lines.items()
            for value, row in places.items()
            for name, spread in row.figures.items()
        ],
        left_out=(
            ""
            if len(lines) <= _SERIES_MAX
            else f"nothing; the chart has {_SERIES_MAX} lines of {len(lines):,}"
        ),
    )


def _chart(
    figure: str,
    values: Sequence[str],
    labels: Sequence[str],
    lines: dict[Place, dict[str, SweepRow]],
) -> Option:
    series = []
    for others, places in lines.items():
        cells = [places[value].figures.get(figure) if value in places else None for value in values]
        points = [
            None if figure_value is None else round(figure_value.mean, 6) for figure_value in cells
        ]
        option = line(_label(others) or figure, points)  # type: ignore[arg-type] # by category
        series.append(option | {"step": False, "symbol": "circle", "symbolSize": 7})
    is_share = FIGURES[figure.partition("{")[0]].unit == "%"
    y_format = "@percent" if is_share else "@count"
    return {
        "grid": grid(),
        "legend": {"type": "scroll", "top": 0},
        "tooltip": {"trigger": "axis", "valueFormatter": y_format},
        "xAxis": {"type": "category", "data": labels},
        "yAxis": {"type": "value", "scale": True, "axisLabel": {"formatter": y_format}},
        "series": series,
    }


def _axis_name(axis: str) -> str:
    return axis.removeprefix("set:")


def _label(place: Place) -> str:
    return ", ".join(f"{_axis_name(axis)}={value}" for axis, value in place)
