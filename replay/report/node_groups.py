"""The nodes of each node group over time, if an autoscaler scales node groups."""

from __future__ import annotations

from replay.report.section import (
    BUCKETS,
    OTHER,
    Cell,
    ReportSection,
    ReportTables,
    bucket_s,
    line,
    over_time,
    points,
    stepped,
)
from replay.results import durations

NODES = """
SELECT node_group AS name, added_ns AS t, 1 AS d FROM nodes WHERE node_group IS NOT NULL
UNION ALL
SELECT node_group, removed_ns, -1 FROM nodes
WHERE node_group IS NOT NULL AND removed_ns IS NOT NULL
"""
ALL_NODES = """
SELECT 'all' AS name, added_ns AS t, 1 AS d FROM nodes
UNION ALL
SELECT 'all', removed_ns, -1 FROM nodes WHERE removed_ns IS NOT NULL
"""
OF_GROUP = f"SELECT name, t, d FROM ({NODES}) WHERE name = '{{group}}'"  # noqa: S608 - own constants
_GROUPS = """
SELECT node_group, count(*) FILTER (added_ns = $start), count(*) FILTER (removed_ns IS NULL),
    (SELECT count(*) FROM decisions AS d
     WHERE d.kind = 'scaledUp' AND d.refused IS NULL AND d.name = node_group),
    count(*) FILTER (added_ns > $start), count(*) FILTER (removed_ns IS NOT NULL),
    round(sum(coalesce(removed_ns, $end) - added_ns) / 3600e9, 2)
FROM nodes WHERE node_group IS NOT NULL GROUP BY node_group ORDER BY node_group
"""


def node_groups(source: ReportTables) -> ReportSection:
    """Return a chart of each group's node count, and a table of the groups.

    A group's row has its number of nodes at the start and at the end, scale-ups, and node-hours.
    """
    times = {"start": source.start_ns, "end": source.end_ns}
    rows: list[list[Cell]] = [list(row) for row in source.rows(_GROUPS, times)]
    steps = stepped(source, {"": NODES})[""] if rows else {}
    series = [
        line(name, points(source, steps[name].peaks), stack="all")
        for name in sorted(steps, key=lambda name: (name == OTHER, name))
    ]
    chart = over_time(series, end_s=source.end_s, y_format="@count", y_max=None)
    interval = durations.simulated(round(bucket_s(source) * 1e9))
    return ReportSection(
        key="node-groups",
        title="Nodes by node group",
        note="Nodes that the autoscaler adds and removes, and those of the trace that are in their "
        f"groups: the maximum within each {interval} of simulated time ({BUCKETS} intervals).",
        empty="No node group is scaled: that needs --autoscaler.",
        charts={"": chart} if series else {},
        columns=(
            *("Node group", "Nodes at first", "At the end", "Scale-ups"),
            *("Nodes added", "Removed", "Node-hours"),
        ),
        rows=rows,
    )
