"""Connections to DuckDB that reach no network and stay within their memory."""

from __future__ import annotations

from pathlib import Path

import duckdb

_MEMORY = "1GB"
_THREADS = 2


def connect(spill: Path | None = None) -> duckdb.DuckDBPyConnection:
    """Return a connection to a database in memory; what outgrows it goes to a folder in `spill`.

    It loads no extension beside those that are built in.
    """
    settings: dict[str, str | bool | int | float | list[str]] = {
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "memory_limit": _MEMORY,
        "threads": _THREADS,
    }
    if spill is not None:
        settings["temp_directory"] = str(spill / "spill")
    connection = duckdb.connect(":memory:", config=settings)
    connection.execute("SET enable_progress_bar = false")
    return connection


def quoted(text: str) -> str:
    """Return a text as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"
