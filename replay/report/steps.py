"""Values that step over time, brought to a fixed number of buckets, exactly.

A bucket's mean weighs each value with how long it stood; its peak is the largest that stood in it
at the end of any instant.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from replay.report.source import BUCKETS, GROUPS_MAX, OTHER, Source

_STEPS = f"""
WITH deltas AS ({{deltas}}),
ranked AS (
    SELECT name, row_number() OVER (ORDER BY count(*) DESC, name) AS place FROM deltas GROUP BY name
),
merged AS (
    SELECT CASE WHEN place <= {GROUPS_MAX} THEN name ELSE '{OTHER}' END AS name, t, sum(d) AS d
    FROM deltas JOIN ranked USING (name) GROUP BY ALL
),
steps AS (
    SELECT name, t, CAST(sum(d) OVER (PARTITION BY name ORDER BY t) AS DOUBLE) AS v,
        lead(t) OVER (PARTITION BY name ORDER BY t) - t AS stood
    FROM merged
),
areas AS (
    SELECT name, t, v, coalesce(sum(v * stood) OVER (
        PARTITION BY name ORDER BY t ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS area
    FROM steps
),
edges AS (
    SELECT DISTINCT name, i, $start + i * $width AS t
    FROM (SELECT DISTINCT name FROM merged), (SELECT range AS i FROM range({BUCKETS} + 1))
),
reached AS (
    SELECT edges.name, edges.i, coalesce(v, 0) AS v,
        coalesce(area + v * (edges.t - areas.t), 0) AS area
    FROM edges ASOF LEFT JOIN areas ON edges.name = areas.name AND edges.t >= areas.t
),
peaks AS (
    SELECT name, least({BUCKETS} - 1, CAST(floor((t - $start) / $width) AS BIGINT)) AS i,
        max(v) AS peak
    FROM steps GROUP BY ALL
)
SELECT name, i, (lead(area) OVER (PARTITION BY name ORDER BY i) - area) / $width AS mean,
    greatest(v, coalesce(peak, 0)) AS peak
FROM reached LEFT JOIN peaks USING (name, i)
QUALIFY i < {BUCKETS} ORDER BY name, i
"""  # noqa: S608 - made of this module's own constants


@dataclass(slots=True)
class Steps:
    """A value in each bucket: `means` over its time, and `peaks`."""

    means: list[float]
    peaks: list[float]


def bucket_s(source: Source) -> float:
    """Return how long a bucket is, in simulated seconds."""
    return source.end_s / BUCKETS


def stepped(source: Source, deltas: str) -> Mapping[str, Steps]:
    """Return the value of each name over the run.

    `deltas` is a SELECT of (name, t, d): by how much the value changes, and when, ns. Names
    of which least is told are put together.
    """
    width = max(1, source.end_ns - source.start_ns) / BUCKETS
    sql = _STEPS.format(deltas=deltas)
    found: dict[str, Steps] = {}
    for name, _, mean, peak in source.rows(sql, {"start": source.start_ns, "width": width}):
        steps = found.setdefault(name, Steps([], []))
        steps.means.append(mean)
        steps.peaks.append(peak)
    return found
