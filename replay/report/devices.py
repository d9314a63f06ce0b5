"""The devices of each class over time: in use, free, and free with parts in use elsewhere."""

from __future__ import annotations

from replay.report.section import (
    Cell,
    Option,
    ReportSection,
    ReportTables,
    bucket_s,
    line,
    over_time,
    points,
    stepped,
)
from replay.results import durations

_CLASSES_MAX = 40
_IN_USE, _FREE, _BLOCKED = "in use", "free", "free, their parts in use"
USAGE = f"""
SELECT name, at_ns AS t, d FROM (
    UNPIVOT (
        SELECT at_ns, in_use - lag(in_use, 1, 0) OVER changes AS "{_IN_USE}",
            devices - in_use - blocked
                - lag(devices - in_use - blocked, 1, 0) OVER changes AS "{_FREE}",
            blocked - lag(blocked, 1, 0) OVER changes AS "{_BLOCKED}"
        FROM device_usage WHERE device_class = '{{device_class}}'
        WINDOW changes AS (ORDER BY at_ns)
    ) ON "{_IN_USE}", "{_FREE}", "{_BLOCKED}" INTO NAME name VALUE d
)
"""  # noqa: S608 - of this module's constants, and a name whose quotes are doubled
_CLASSES = f"""
WITH lasting AS (
    SELECT *, coalesce(lead(at_ns) OVER (PARTITION BY device_class ORDER BY at_ns), $end) - at_ns
        AS lasted
    FROM device_usage
)
SELECT device_class, max(devices), max(in_use),
    round(100 * sum(in_use * lasted) / nullif(sum(devices * lasted), 0), 2),
    round(100 * sum(blocked * lasted) / nullif(sum(devices * lasted), 0), 2),
    max(wanted)
FROM lasting GROUP BY device_class
ORDER BY max(in_use) DESC, max(wanted) DESC, device_class LIMIT {_CLASSES_MAX}
"""  # noqa: S608 - of this module's constants


def devices(source: ReportTables) -> ReportSection:
    """Return the section with the devices of each class, and how many claims wait for."""
    rows: list[list[Cell]] = [list(row) for row in source.rows(_CLASSES, {"end": source.end_ns})]
    charts: dict[str, Option] = {}
    names = [str(row[0]) for row in rows]
    usage = {name: USAGE.format(device_class=name.replace("'", "''")) for name in names}
    for name, steps in stepped(source, usage).items():
        series = [
            line(kind, points(source, [round(mean, 3) for mean in steps[kind].means]), stack="all")
            for kind in (_IN_USE, _BLOCKED, _FREE)
            if kind in steps
        ]
        charts[name] = over_time(series, end_s=source.end_s, y_format="@count", y_max=None)
    interval = durations.simulated(round(bucket_s(source) * 1e9))
    return ReportSection(
        key="devices",
        title="Devices by class",
        note="Devices that each class selects, whichever claims have them: the mean over each "
        f"{interval} of simulated time. A free device whose parts are in use consumes more of a "
        "shared counter than is left.",
        empty="No device class is in the cluster.",
        charts=charts,
        choice="Device class",
        columns=(
            *("Device class", "Most devices", "Most in use", "In use, mean %"),
            *("Free with parts in use, mean %", "Most requested by unallocated claims"),
        ),
        rows=rows,
    )
