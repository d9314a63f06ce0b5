"""Asking a run's tables in SQL: read-only, and of nothing but the tables."""

from __future__ import annotations

import glob
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import duckdb

from replay.results.errors import RunError
from replay.results.run_directory import RunDirectory
from replay.results.tables.build import connect, ensure_tables, quoted
from replay.results.tables.schema import TABLES

_ROWS_PER_BATCH = 1000
Row = tuple[Any, ...]
Parameters = Sequence[object] | Mapping[str, object]


class Answer:
    """What a query came to: the columns' names, and the rows in batches, once."""

    def __init__(self, found: duckdb.DuckDBPyConnection) -> None:
        self.columns: tuple[str, ...] = tuple(each[0] for each in found.description or ())
        self._found = found

    def batches(self) -> Iterator[Sequence[Row]]:
        """Yield the rows as they are found. Raises RunError where that ends."""
        while True:
            try:
                rows = self._found.fetchmany(_ROWS_PER_BATCH)
            except duckdb.Error as error:
                raise RunError(_problem(error)) from error
            if not rows:
                return
            yield rows

    def rows(self) -> Iterator[Row]:
        """Yield the rows one by one."""
        for batch in self.batches():
            yield from batch


class RunTables:
    """A run's tables, each a view by its name; they are made first where they are missing.

    As a context manager it closes what it has opened.
    """

    def __init__(self, run: RunDirectory) -> None:
        """Open the tables. Raises RunError where they cannot be made or read."""
        ensure_tables(run)
        paths = {name: str(run.path / table.file_name) for name, table in TABLES.items()}
        self._spill = tempfile.TemporaryDirectory(prefix="reprieve-")
        self._connection = connect(Path(self._spill.name))
        try:
            for name, path in paths.items():
                source = f"read_parquet({quoted(glob.escape(path))})"
                self._connection.execute(f"CREATE VIEW {name} AS FROM {source}")
            # A pattern is looked up before the file that it finds: both must be allowed.
            patterns = dict.fromkeys((*paths.values(), *map(glob.escape, paths.values())))
            allowed = ", ".join(map(quoted, patterns))
            self._connection.execute(f"SET allowed_paths = [{allowed}]")
            self._connection.execute("SET enable_external_access = false")
            self._connection.execute("SET lock_configuration = true")
        except duckdb.Error as error:
            self.close()
            raise RunError(f"{run.path}: its tables cannot be read: {error}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the tables."""
        self._connection.close()
        self._spill.cleanup()

    def ask(self, sql: str, parameters: Parameters = ()) -> Answer:
        """Return what one SELECT finds; the one before it is then over.

        Raises RunError for anything but one SELECT, and for what DuckDB refuses.
        """
        try:
            statements = self._connection.extract_statements(sql)
            if [each.type for each in statements] != [duckdb.StatementType.SELECT]:
                raise RunError("one SELECT is asked for: a run's tables are read, never changed")
            return Answer(self._connection.execute(sql, parameters or None))
        except duckdb.Error as error:
            raise RunError(_problem(error)) from error


def _problem(error: duckdb.Error) -> str:
    """Return what DuckDB said, and for an unknown table which there are."""
    text = str(error)
    if isinstance(error, duckdb.CatalogException) and "Table with name" in text:
        return f"{text.splitlines()[0]} The tables are {', '.join(TABLES)}."
    return text
