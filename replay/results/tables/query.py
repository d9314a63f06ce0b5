"""A run's tables: built from its history and its decision log, then queried in SQL.

Memory is bounded: the pass over the history holds the cluster at one moment, and DuckDB spills to
disk if a join or a sort exceeds its limit. A build that fails leaves no table. Queries are
read-only and can access only the tables.
"""

from __future__ import annotations

import contextlib
import glob
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import cache
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Self, TypeVar

import duckdb
import orjson

from replay.autoscaling.file import of_configuration
from replay.errors import DISK, OutputError, RunError, unwritable
from replay.results.run.directory import RunDirectory
from replay.results.run.files import DECISIONS, TABLES_DRAFT
from replay.results.run.log_file import whole_lines
from replay.results.run.manifest import described
from replay.results.schema import FILE_NAMES, TABLES, Table
from replay.results.tables.history_rows import HistoryRows, workload_row
from replay.results.tables.sql import DRAFT_PODS, LOG, LOG_COLUMNS, REFUSED_BY_OWNER, SELECTS
from replay.results.workloads.tally import WorkloadTally
from services.folder import Folder

_SAMPLES = 240
"""The number of moments at which free capacity is sampled."""
_LINE_BYTES_MAX = 1 << 24
_ROWS_PER_GROUP = 122_880
_DRAFTS = (
    "pods",
    "workloads",
    "nodes",
    "node_usage",
    "device_usage",
    "free_capacity",
    "latencies",
    "latency_buckets",
    "run",
)
_MEMORY = "1GB"
_THREADS = 2
_RETRY_S = 0.05
_T = TypeVar("_T")
_BYTES_BUFFERED = 1 << 20
_LOG_BYTES_KEPT = 64 << 20
"""A log up to this size is read once into memory; a larger one is read again for each table."""


def build_tables(run: RunDirectory, folder: Path) -> None:
    """Build all tables of a run in `folder`; in the run's folder, record their digests first.

    DuckDB opens files by path, so it writes into a private folder that nobody else can write to,
    and the files are moved from there. Raises RunError if the run's files cannot be read, and
    OutputError or RunError if the tables cannot be written.
    """
    try:
        draft = Path(tempfile.mkdtemp(prefix=TABLES_DRAFT, dir=folder))
    except OSError as error:
        raise unwritable(folder, error) from error
    try:
        with contextlib.closing(connect(draft)) as connection:
            _build(run, connection, draft)
        if folder == run.path:
            run.note_made({name: described(draft / name) for name in FILE_NAMES})
        with Folder(draft) as made, Folder(folder) as place:
            for name in FILE_NAMES:
                place.take(made, name)
            place.sync()
    except duckdb.Error as error:
        text = f"{run.path}: the tables cannot be built: {_one_line(error)}"
        raise (OutputError if _is_disk(error) else RunError)(text) from error
    except OSError as error:
        raise unwritable(folder, error) from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _build(run: RunDirectory, connection: duckdb.DuckDBPyConnection, draft: Path) -> None:
    log = _whole_log(run, draft)
    kept = "TABLE" if log.stat().st_size <= _LOG_BYTES_KEPT else "VIEW"
    log_file = _reader(log, LOG_COLUMNS)
    connection.execute(f"CREATE {kept} log AS {LOG.format(log_file=log_file)}")
    _write_drafts(run, connection, draft)
    for name in _DRAFTS:
        columns = {column.name: column.type for column in TABLES[name].columns}
        reader = _reader(_draft_path(draft, name), DRAFT_PODS if name == "pods" else columns)
        connection.execute(f"CREATE VIEW draft_{name} AS FROM {reader}")
    for table in TABLES.values():
        _write(connection, table, draft / table.file_name)


def _whole_log(run: RunDirectory, draft: Path) -> Path:
    """Return the path of the decision log; without a digest, a copy of its complete lines."""
    path = run.intact(DECISIONS)
    if run.has_digests:
        return path
    copy = draft / DECISIONS
    with copy.open("wb", buffering=_BYTES_BUFFERED) as file:
        file.writelines(text for _, text in whole_lines(path, is_whole=run.is_whole))
    return copy


def _write_drafts(run: RunDirectory, connection: duckdb.DuckDBPyConnection, draft: Path) -> None:
    first, last = _span(connection)
    with contextlib.ExitStack() as stack:
        files = {
            name: stack.enter_context(
                _draft_path(draft, name).open("wb", buffering=_BYTES_BUFFERED)
            )
            for name in _DRAFTS
        }

        def write(name: str, row: Mapping[str, Any]) -> None:
            files[name].write(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE))

        workloads = WorkloadTally()
        for recorded in run.object_rounds():
            for event in recorded.events:
                workloads.object_changed(event)
        manifest = run.manifest()
        rows = HistoryRows(
            write,
            workloads,
            sample_ns=max(1, (last - first) // _SAMPLES),
            autoscaling=of_configuration(manifest.configuration, manifest.seed),
        )
        rows.take(run.rounds())
        for owner_uid, pods in connection.execute(REFUSED_BY_OWNER).fetchall():
            workloads.refused(owner_uid, pods)
        end_ns = max(rows.end_ns, last, manifest.end_ns)
        for place, verdict in enumerate(workloads.verdicts(end_ns), 1):
            write("workloads", workload_row(place, verdict))
        run_row = {
            "start_ns": rows.start_ns if rows.start_ns is not None else first,
            "end_ns": max(rows.end_ns, last),
            "version": manifest.version,
            "rules": manifest.rules,
            "seed": manifest.seed,
            "end": manifest.end,
        }
        write("run", run_row)
        for name, latency in _latencies(run).items():
            buckets: list[tuple[int, int]] = latency.pop("buckets", [])
            write("latencies", {"step": name, **latency})
            for upto_ns, count in buckets:
                write("latency_buckets", {"step": name, "upto_ns": upto_ns, "count": count})


def _latencies(run: RunDirectory) -> dict[str, dict[str, Any]]:
    """Return the wall times by step; empty for a run that broke off."""
    if not run.manifest().finished:
        return {}
    steps: dict[str, dict[str, Any]] = run.latencies().get("steps", {})
    return steps


def _span(connection: duckdb.DuckDBPyConnection) -> tuple[int, int]:
    """Return the times of the first and the last decision; 0 without decisions."""
    span = connection.execute("SELECT min(at_ns), max(at_ns) FROM log").fetchone()
    first, last = span or (None, None)
    return first or 0, last or 0


def _write(connection: duckdb.DuckDBPyConnection, table: Table, path: Path) -> None:
    columns = ", ".join(
        f'CAST("{column.name}" AS {column.type}) AS "{column.name}"' for column in table.columns
    )
    order = f"ORDER BY {table.order}" if table.order else ""
    connection.execute(
        f"COPY (SELECT {columns} FROM ({SELECTS[table.name]}) {order}) TO {quoted(str(path))} "  # noqa: S608 - names of this package's own
        f"(FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE {_ROWS_PER_GROUP})"
    )


def _reader(path: Path, columns: Mapping[str, str]) -> str:
    """Return the SQL that reads a file of JSON lines and fails on any other line."""
    types = ", ".join(f"{quoted(name)}: {quoted(type_)}" for name, type_ in columns.items())
    return (
        f"read_json({quoted(glob.escape(str(path)))}, format = 'newline_delimited', "
        f"columns = {{{types}}}, maximum_object_size = {_LINE_BYTES_MAX})"
    )


def _draft_path(draft: Path, name: str) -> Path:
    return draft / f"{name}.jsonl"


def _are_there(run: RunDirectory, connection: duckdb.DuckDBPyConnection) -> bool:
    """Return whether each table exists unchanged, with the columns of this version."""
    if not all(map(run.has_made, FILE_NAMES)):
        return False
    try:
        return all(_has_columns(connection, table, run.path) for table in TABLES.values())
    except (OSError, duckdb.Error):
        return False


def _has_columns(connection: duckdb.DuckDBPyConnection, table: Table, folder: Path) -> bool:
    path = quoted(glob.escape(str(folder / table.file_name)))
    described_columns = connection.execute(f"DESCRIBE FROM read_parquet({path})").fetchall()
    return [(name, type_) for name, type_, *_ in described_columns] == [
        (column.name, column.type) for column in table.columns
    ]


def connect(spill: Path | None = None) -> duckdb.DuckDBPyConnection:
    """Return a connection to an in-memory database that spills to a folder in `spill`.

    The database can load only built-in extensions.
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


_ROWS_PER_BATCH = 1000
Row = tuple[Any, ...]
Parameters = Sequence[object] | Mapping[str, object]


class QueryResult:
    """The result of a query: the columns' names, and the rows, which can be iterated once."""

    def __init__(self, cursor: duckdb.DuckDBPyConnection) -> None:
        self.columns: tuple[str, ...] = tuple(column[0] for column in cursor.description or ())
        self._found = cursor

    def batches(self) -> Iterator[Sequence[Row]]:
        """Yield the rows in batches. Raises RunError if the query fails."""
        while True:
            try:
                rows = _interruptible(self._found, lambda: self._found.fetchmany(_ROWS_PER_BATCH))
            except duckdb.Error as error:
                raise RunError(_problem(error)) from error
            if rows:
                yield rows
            if len(rows) < _ROWS_PER_BATCH:
                return

    def rows(self) -> Iterator[Row]:
        """Yield the rows one by one."""
        for batch in self.batches():
            yield from batch


class RunTables:
    """A run's tables, each a view by its name; missing tables are built first."""

    def __init__(self, run: RunDirectory) -> None:
        """Open the tables. Raises RunError if they cannot be built or read."""
        self._spill = tempfile.TemporaryDirectory(prefix="reprieve-")
        self._connection = connect(Path(self._spill.name))
        try:
            # An incomplete run's files may grow, and make tables in its folder outdated.
            folder = run.path if run.has_digests else Path(self._spill.name)
            if folder != run.path or not _are_there(run, self._connection):
                build_tables(run, folder)
        except BaseException:
            self.close()
            raise
        paths = {name: str(folder / table.file_name) for name, table in TABLES.items()}
        try:
            for name, path in paths.items():
                source = f"read_parquet({quoted(glob.escape(path))})"
                self._connection.execute(f"CREATE VIEW {name} AS FROM {source}")
            # DuckDB checks the glob pattern and the file that it matches: both must be allowed.
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
        """Close the connection and remove the files that it spilled."""
        self._connection.close()
        self._spill.cleanup()

    def select(self, sql: str, parameters: Parameters = ()) -> QueryResult:
        """Run one SELECT; this invalidates the result of the previous one.

        Raises RunError for anything but one SELECT, and for a query that DuckDB rejects.
        """
        try:
            statements = self._connection.extract_statements(sql)
            if [statement.type for statement in statements] != [duckdb.StatementType.SELECT]:
                raise RunError("a query must be one SELECT: a run's tables are read-only")
            cursor = self._connection
            _interruptible(cursor, lambda: cursor.execute(statements[0], parameters or None))
            return QueryResult(cursor)
        except duckdb.Error as error:
            raise RunError(_problem(error)) from error


def _interruptible(connection: duckdb.DuckDBPyConnection, work: Callable[[], _T]) -> _T:
    """Return the result of `work`, a call of DuckDB; a signal interrupts the call at once.

    DuckDB checks for signals only at some of its steps. So the call runs in another thread, while
    this thread waits in a call that a signal interrupts.
    """
    try:
        future = _worker().submit(work)
        done: SimpleQueue[Future[_T]] = SimpleQueue()
        future.add_done_callback(done.put)
        # Not future.result(): signals are deferred during calls of concurrent.futures, because they
        # hold a lock (replay/interrupts.py).
        return done.get().result()
    except KeyboardInterrupt:
        _end_calls(connection)
        raise


def _end_calls(connection: duckdb.DuckDBPyConnection) -> None:
    """Interrupt the call that the worker makes, or is about to make, and wait for its end.

    A call that DuckDB has not begun yet is not interrupted: it is tried until the worker is idle.
    """
    idle = _worker().submit(_nothing)
    while not wait((idle,), timeout=_RETRY_S).done:
        connection.interrupt()


def _nothing() -> None:
    """End at once."""


@cache
def _worker() -> ThreadPoolExecutor:
    """Return the shared thread for DuckDB calls: a report makes a hundred calls."""
    return ThreadPoolExecutor(max_workers=1)


def _is_disk(error: duckdb.Error) -> bool:
    """Return whether the disk caused the error; DuckDB reports errno only as text."""
    text = str(error)
    return any(os.strerror(number) in text for number in DISK)


def _one_line(error: duckdb.Error) -> str:
    return " ".join(str(error).split())


def _problem(error: duckdb.Error) -> str:
    """Return DuckDB's message in one line, without the repeated statement.

    For an unknown table, the message lists the tables.
    """
    text, _, _ = str(error).partition("\n\nLINE ")
    if isinstance(error, duckdb.CatalogException) and "Table with name" in text:
        return f"{text.splitlines()[0]} The tables are {', '.join(TABLES)}."
    return " ".join(text.split())
