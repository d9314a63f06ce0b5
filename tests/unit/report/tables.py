"""Handmade tables of runs, for tests of the report."""

from __future__ import annotations

from typing import Any

import duckdb

from replay.report.section import ReportTables
from replay.results.schema import TABLES
from replay.results.tables.query import RunTables
from services.kube.time import SECOND_NS


class HandMadeTables(RunTables):
    """Tables in memory, with the columns of the real ones; rows name the columns that they fill."""

    def __init__(self, **rows: list[dict[str, Any]]) -> None:
        """Make every table, empty but for `rows`."""
        self._connection = duckdb.connect(":memory:")
        for name, table in TABLES.items():
            columns = ", ".join(f'"{column.name}" {column.type}' for column in table.columns)
            self._connection.execute(f"CREATE TABLE {name} ({columns})")
            for row in rows.get(name, []):
                names = ", ".join(f'"{cell}"' for cell in row)
                marks = ", ".join("?" for _ in row)
                sql = f"INSERT INTO {name} ({names}) VALUES ({marks})"  # noqa: S608 - names of a test's own
                self._connection.execute(sql, list(row.values()))


def source(end_s: float = 240.0, **rows: list[dict[str, Any]]) -> ReportTables:
    """Return the tables of a run from 0 to `end_s`."""
    return ReportTables(tables=HandMadeTables(**rows), start_ns=0, end_ns=round(end_s * SECOND_NS))


def pod(name: str, **of: Any) -> dict[str, Any]:
    """Return the row of a pod that requests a core; times are in seconds, as `created_s`."""
    row: dict[str, Any] = {
        "namespace": "default",
        "name": name,
        "uid": f"uid-{name}",
        "priority": 0,
        "requests": {"cpu": 1000},
        "created_ns": 0,
        "ending": "Pending",
        "attempts": 0,
    }
    for key, value in of.items():
        if key.endswith("_s"):
            row[f"{key.removesuffix('_s')}_ns"] = round(value * SECOND_NS)
        else:
            row[key] = value
    return row
