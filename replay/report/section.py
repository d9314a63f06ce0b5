"""The parts of a section of the report: charts, a table, and queries of the run's tables.

A chart is an options object of Apache ECharts as plain JSON. A text that begins with "@" names a
formatter in assets/page.js: "@duration" for simulated seconds, "@wall" for ns, "@percent",
"@count".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from replay.results.tables.query import Parameters, Row, RunTables
from services.kube.time import SECOND_NS
from services.terminal import one_line

Option = dict[str, Any]
_Part = TypeVar("_Part")
Cell = str | int | float | None
GROUPS_MAX = 8
"""Limit for the series in one chart; smaller series are merged as OTHER."""
OTHER = "other"
BUCKETS = 240
"""Number of intervals of a chart over time."""
_STEPS = f"""
WITH deltas AS ({{deltas}}),
ranked AS (
    SELECT part, name,
        row_number() OVER (PARTITION BY part ORDER BY count(*) DESC, name) AS place
    FROM deltas GROUP BY part, name
),
merged AS (
    SELECT part, CASE WHEN place <= {GROUPS_MAX} THEN name ELSE '{OTHER}' END AS name, t,
        sum(d) AS d
    FROM deltas JOIN ranked USING (part, name) GROUP BY ALL
),
steps AS (
    SELECT part, name, t, CAST(sum(d) OVER (PARTITION BY part, name ORDER BY t) AS DOUBLE) AS v,
        lead(t) OVER (PARTITION BY part, name ORDER BY t) - t AS stood
    FROM merged
),
areas AS (
    SELECT part, name, t, v, coalesce(sum(v * stood) OVER (
        PARTITION BY part, name ORDER BY t ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ), 0) AS area
    FROM steps
),
edges AS (
    SELECT part, name, i, $start + i * $width AS t
    FROM (SELECT DISTINCT part, name FROM merged), (SELECT range AS i FROM range({BUCKETS} + 1))
),
reached AS (
    SELECT edges.part, edges.name, edges.i, coalesce(v, 0) AS v,
        coalesce(area + v * (edges.t - areas.t), 0) AS area
    FROM edges ASOF LEFT JOIN areas
        ON edges.part = areas.part AND edges.name = areas.name AND edges.t >= areas.t
),
peaks AS (
    SELECT part, name, least({BUCKETS} - 1, CAST(floor((t - $start) / $width) AS BIGINT)) AS i,
        max(v) AS peak
    FROM steps GROUP BY ALL
)
SELECT part, name,
    (lead(area) OVER (PARTITION BY part, name ORDER BY i) - area) / $width AS mean,
    greatest(v, coalesce(peak, 0)) AS peak
FROM reached LEFT JOIN peaks USING (part, name, i)
QUALIFY i < {BUCKETS} ORDER BY part, name, i
"""  # noqa: S608 - made of this module's own constants


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportSection:
    """A section of the page.

    key: its name in the page. note: one or two sentences: what it shows and how to read it.
    charts: a chart for each item that the reader can choose, such as a node; a single chart has the
    key "". choice: the label of the selection, such as "Node". tabular: whether the section has a
    table and no charts. empty: the text shown without charts; in a tabular section, without rows.
    search: the label of a field that filters the rows; "" for no field.
    columns, rows: the table. left_out: a note about rows that the table leaves out.
    height: of the chart, CSS pixels. wide: whether the section has the page's whole width.
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
    tabular: bool = False
    search: str = ""


_TICKS = 6
_INTERVALS_S = (
    *(0.001, 0.01, 0.1, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0),
    *(60.0 * minutes for minutes in (1, 2, 3, 5, 10, 15, 30, 60, 120, 180, 360, 720)),
    *(86_400.0 * days for days in (1, 2, 5, 10, 20)),
)


def grid(*, right: int = 16, bottom: int = 8) -> Option:
    """Return a chart's margins, CSS pixels, without the space for the axes' labels."""
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
    """Return a round duration that divides the run into at most _TICKS intervals."""
    for interval_s in _INTERVALS_S:
        if interval_s * _TICKS >= end_s:
            return interval_s
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
    """Return a step line; lines with the same `stack` are stacked as areas."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportTables:
    """A run's tables, and the simulated times of its start and end, ns."""

    tables: RunTables
    start_ns: int
    end_ns: int

    @property
    def length_ns(self) -> int:
        """Return the length of the time axes: a run of one instant is drawn as a second."""
        return self.end_ns - self.start_ns or SECOND_NS

    @property
    def end_s(self) -> float:
        """Return `length_ns` in seconds."""
        return self.length_ns / SECOND_NS

    def rows(self, sql: str, parameters: Parameters = ()) -> Iterator[Row]:
        """Return the rows of a SELECT; all rows are fetched, so another SELECT may follow.

        Control characters in texts are escaped, as on a terminal, so no cell or chart has any.
        """
        rows = self.tables.select(sql, parameters).rows()
        return iter([tuple(map(_escaped, row)) for row in rows])

    def seconds(self, at_ns: int) -> float:
        """Return simulated seconds since the run's beginning."""
        return round((at_ns - self.start_ns) / 1e9, 3)


def _escaped(value: Any) -> Any:
    if isinstance(value, str):
        return one_line(value)
    if isinstance(value, list):
        return [_escaped(item) for item in value]
    if isinstance(value, dict):
        return {_escaped(key): _escaped(item) for key, item in value.items()}
    return value


def open_source(tables: RunTables) -> ReportTables:
    """Return a run's tables with its start and end."""
    start_ns, end_ns = next(tables.select("SELECT start_ns, end_ns FROM run").rows())
    return ReportTables(tables=tables, start_ns=start_ns, end_ns=end_ns)


@dataclass(slots=True)
class BucketedValue:
    """A value in each interval of a chart: the time-weighted mean and the peak; both exact.

    A peak is the largest value at the end of an instant.
    """

    means: list[float]
    peaks: list[float]


def bucket_s(source: ReportTables) -> float:
    """Return the length of an interval of a chart, in simulated seconds."""
    return source.end_s / BUCKETS


def points(source: ReportTables, values: Sequence[float]) -> list[list[float]]:
    """Return the points of a step line from one value for each interval."""
    width = bucket_s(source)
    drawn = [[round(place * width, 3), value] for place, value in enumerate(values)]
    return [*drawn, [round(source.end_s, 3), values[-1]]]


def percentages(used: Sequence[float], have: Sequence[float]) -> list[float]:
    """Return each used amount as a percentage of the available amount; 0 if none is available."""
    return [round(100 * u / h, 2) if h else 0.0 for u, h in zip(used, have, strict=False)]


def stepped(
    source: ReportTables, parts: Mapping[_Part, str]
) -> Mapping[_Part, Mapping[str, BucketedValue]]:
    """Return the value of each name over the run, for each of the parts.

    A part is a SELECT of (name, t, d): the value changes by d at t, ns. A part's names with the
    fewest changes are merged as OTHER. All parts are one query, because DuckDB takes 8 ms of CPU to
    plan one, more than to execute it.
    """
    values: list[dict[str, BucketedValue]] = [{} for _ in parts]
    if parts:
        deltas = " UNION ALL ".join(
            f"SELECT {place} AS part, name, t, d FROM ({part})"  # noqa: S608 - a caller's constants
            for place, part in enumerate(parts.values())
        )
        times = {"start": source.start_ns, "width": source.length_ns / BUCKETS}
        for place, name, mean, peak in source.rows(_STEPS.format(deltas=deltas), times):
            steps = values[place].setdefault(name, BucketedValue([], []))
            steps.means.append(mean)
            steps.peaks.append(peak)
    return dict(zip(parts, values, strict=True))
