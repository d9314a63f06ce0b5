"""A figure of the report: charts as options of Apache ECharts, and the same as a table.

Options are plain JSON. A text that begins with "@" names a formatter of assets/page.js: "@duration"
for simulated seconds, "@wall" for ns, "@percent", "@count".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Option = dict[str, Any]
Cell = str | int | float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One figure.

    key: its name in the page. note: what is shown and how to read it, a sentence or two.
    charts: an option for each choice, such as a node; one of "" where there is none to make.
    choice: what is chosen, such as "Node". empty: what is said instead where there are no charts.
    columns, rows: the table; `left_out` says what it does not hold.
    height: of the chart, in CSS pixels. wide: takes the page's whole width.
    """

    key: str
    title: str
    note: str
    empty: str
    charts: Mapping[str, Option] = field(default_factory=dict)
    choice: str = ""
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[Cell]] = ()
    left_out: str = ""
    height: int = 300
    wide: bool = False


_TICKS = 6
_INTERVALS_S = (
    *(0.001, 0.01, 0.1, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0),
    *(60.0 * each for each in (1, 2, 3, 5, 10, 15, 30, 60, 120, 180, 360, 720)),
    *(86_400.0 * each for each in (1, 2, 5, 10, 20)),
)


def grid(*, right: int = 16, bottom: int = 8) -> Option:
    """Return a chart's margins, CSS pixels; its axes' labels are within."""
    return {"left": 8, "right": right, "top": 40, "bottom": bottom, "containLabel": True}


def time_axis(end_s: float) -> Option:
    """Return an axis of simulated time since the run's beginning, in seconds."""
    return {
        "type": "value",
        "min": 0,
        "max": end_s,
        "interval": _interval_s(end_s),
        "axisLabel": {"formatter": "@duration", "hideOverlap": True, "showMaxLabel": False},
        "axisPointer": {"label": {"formatter": "@pointer"}},
    }


def _interval_s(end_s: float) -> float:
    """Return a length of time that people count in, of which a handful make up the run."""
    for each in _INTERVALS_S:
        if each * _TICKS >= end_s:
            return each
    return 10 * 86_400 * float(f"{end_s / _TICKS / 864_000:.1g}")


def over_time(
    series: Sequence[Option], *, end_s: float, y_format: str, y_max: float | None
) -> Option:
    """Return a chart of lines over simulated time, with a legend and zoom."""
    return {
        "grid": grid(),
        "legend": {"type": "scroll", "top": 0},
        "tooltip": {"trigger": "axis", "valueFormatter": y_format},
        "dataZoom": [{"type": "inside", "filterMode": "none"}],
        "xAxis": time_axis(end_s),
        "yAxis": {
            "type": "value",
            "min": 0,
            **({"max": y_max} if y_max is not None else {"minInterval": 1}),
            "axisLabel": {"formatter": y_format},
        },
        "series": list(series),
    }


def line(name: str, points: Sequence[Sequence[float]], *, stack: str = "") -> Option:
    """Return a line that holds each value until the next; `stack` adds lines up as areas."""
    option: Option = {
        "type": "line",
        "name": name,
        "step": "end",
        "symbol": "none",
        "data": points,
        "lineStyle": {"width": 1.5},
        "emphasis": {"focus": "series"},
    }
    if stack:
        option |= {"stack": stack, "areaStyle": {"opacity": 0.55}, "lineStyle": {"width": 0.5}}
    return option
