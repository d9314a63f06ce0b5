"""What two runs of the same inputs must have in common: everything but wall times.

`recorded` collects what a run's files hold: decision log, history, summary, manifest, pods' spans
and `verify`. `shown` adds what the commands show of it, in process: every table, report, `get` and
`explain`. `differences` names what is not equal.
"""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import duckdb

from replay.errors import ReplayError
from replay.explain.explain import explain
from replay.explain.target import ExplainQuery
from replay.report.page import write_report
from replay.results.kubectl.get import RESOURCES, GetQuery, get
from replay.results.run.directory import RunDirectory
from replay.results.run.files import DECISIONS, MANIFEST, SPANS
from replay.results.run.manifest import described
from replay.results.run.verification import FAULTS, verify
from replay.results.schema import FILE_NAMES, TABLES, WALL_COLUMNS, WALL_FIGURES, Table
from replay.results.tables.query import RunTables

Shown = Mapping[str, object]
_EXPLAINED = """
    (SELECT uid FROM pods WHERE ending = 'Preempted' ORDER BY preempted_ns, uid LIMIT 1)
    UNION (SELECT uid FROM pods WHERE node_name IS NULL AND attempts > 0 ORDER BY uid LIMIT 1)
    UNION (SELECT uid FROM pods WHERE ending = 'Evicted' ORDER BY evicted_ns DESC, uid LIMIT 1)
    UNION (SELECT uid FROM pods WHERE attempts > 0 ORDER BY created_ns DESC, uid LIMIT 1)
    ORDER BY uid
"""
_WALL = "reprieve.wall_ns"
_LASTING = "checkpoint-"
"""Prefix of files that depend on wall time: the checkpoints that explain reads."""


def differences(run: Path, base: Path) -> list[str]:
    """Return the names of what a run does not have in common with the run `base`."""
    return _differences(shown(run), _shown_once(base))


def recorded_differences(run: Path, base: Path) -> list[str]:
    """Return the names of the files' content that a run does not have in common with `base`."""
    return _differences(recorded(run), recorded(base))


def _differences(mine: Shown, theirs: Shown) -> list[str]:
    return sorted(
        f"{name}: {_first_difference(mine.get(name), theirs.get(name))}"
        for name in {*mine, *theirs}
        if mine.get(name) != theirs.get(name)
    )


def recorded(path: Path) -> dict[str, object]:
    """Return what a run's files hold, by name; texts that are long as their digests."""
    run = RunDirectory.open(path)
    faults = [issue.path for issue in verify(run) if issue.verdict in FAULTS]
    summary, manifest = run.summary(), json.loads((path / MANIFEST).read_bytes())
    spans = summary["spans"]
    return {
        "decision log": _digest([(path / DECISIONS).read_bytes()]),
        "history": _digest(round_.SerializeToString(deterministic=True) for round_ in run.rounds()),
        "extenders": _digest(
            round_.SerializeToString(deterministic=True) for round_ in run.rounds_with_responses()
        ),
        "verify": faults,
        "lost spans": (spans["choice"], spans["ended"] - spans["delivered"], spans["problem"]),
        "summary": {
            name: value for name, value in summary.items() if name not in {"run", *WALL_FIGURES}
        },
        "manifest": {
            name: value
            for name, value in manifest.items()
            if name not in {"argv", "shared", "files", "signature", "sha256"}
        },
        "spans": _pod_spans(run, is_wall="wall" in manifest["argv"]),
    }


def shown(path: Path) -> Shown:
    """Return what the commands show of a run, beside what its files hold."""
    run, found = RunDirectory.open(path), recorded(path)
    with RunTables(run) as tables:
        for table in TABLES.values():
            found[f"table {table.name}"] = _rows(tables, table)
        pods = [uid for (uid,) in tables.select(_EXPLAINED).rows()]
    found["report"] = _report(run)
    for resource in RESOURCES:
        for output in ("wide", "json"):
            text = io.StringIO()
            query = GetQuery(
                resource=resource, output=output, watch=output == "wide", show_namespace=True
            )
            get(run, query, text.write)
            found[f"get {resource} {output}"] = text.getvalue().splitlines()
    for uid in pods:
        found[f"explain {uid}"] = _explained(run, uid)
    found["files"] = sorted(
        file.name for file in path.iterdir() if not file.name.startswith(_LASTING)
    )
    return found


@lru_cache(maxsize=1)
def _shown_once(path: Path) -> Shown:
    return shown(path)


def _explained(run: RunDirectory, uid: str) -> object:
    """Explain the pod with the scheduler that decided it, wherever that is."""
    address = run.manifest().scheduler_address
    try:
        explanation = explain(run, ExplainQuery(pod=uid), address=address).to_mapping()
    except ReplayError as error:
        return str(error)
    return {name: value for name, value in explanation.items() if name != "run"}


def _rows(tables: RunTables, table: Table) -> list[tuple[object, ...]]:
    """Return a table's rows in their order, without wall times; with such, only distinct ones."""
    wall = WALL_COLUMNS.get(table.name, ())
    names = ", ".join(f'"{column.name}"' for column in table.columns if column.name not in wall)
    if wall:
        return list(tables.select(f"SELECT DISTINCT {names} FROM {table.name} ORDER BY ALL").rows())  # noqa: S608 - names of the schema
    return list(tables.select(f"SELECT {names} FROM {table.name}").rows())  # noqa: S608 - the same


def _report(run: RunDirectory) -> list[str]:
    """Return the lines of the report that is made of the tables without their wall times."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "run"
        shutil.copytree(run.path, copy)
        for name, columns in WALL_COLUMNS.items():
            path = copy / TABLES[name].file_name
            zeros = ", ".join(f"0::BIGINT AS {column}" for column in columns)
            with duckdb.connect() as connection:
                connection.execute(
                    f"CREATE TABLE found AS SELECT DISTINCT * REPLACE ({zeros}) "  # noqa: S608 - names of the schema
                    f"FROM read_parquet('{path}') ORDER BY ALL"
                )
                connection.execute(f"COPY found TO '{path}' (FORMAT parquet)")
        run = RunDirectory.open(copy)
        run.note_made({name: described(copy / name) for name in FILE_NAMES})
        return write_report(RunDirectory.open(copy)).read_text("utf-8").splitlines()


def _pod_spans(run: RunDirectory, *, is_wall: bool) -> list[tuple[str, ...]]:
    """Return the spans of pods by name, attributes and, unless these are wall times, their times.

    The run's own trace has a span for each message, which wall time cuts.
    """
    if not (run.path / SPANS).exists():
        return []
    spans = [span for line in run.spans() for span in _spans_in(line)]
    own = {span["traceId"] for span in spans if span["name"] == "replay"}
    times = () if is_wall else ("startTimeUnixNano", "endTimeUnixNano")
    return sorted(
        (span["name"], *(span[name] for name in times), json.dumps(_attributes(span)))
        for span in spans
        if span["traceId"] not in own
    )


def _attributes(span: Mapping[str, Any]) -> list[object]:
    return [
        attribute
        for attribute in span.get("attributes", ())
        if not attribute["key"].startswith(_WALL)
    ]


def _spans_in(line: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for resource in line["resourceSpans"]:
        for scope in resource["scopeSpans"]:
            yield from scope["spans"]


def _digest(parts: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()


def _first_difference(mine: object, theirs: object) -> str:
    """Return the first items of two values that differ, in at most 300 characters each."""
    if isinstance(mine, list) and isinstance(theirs, list):
        for index, (a, b) in enumerate(zip(mine, theirs, strict=False)):
            if a != b:
                return f"item {index}: {str(a)[:300]} != {str(b)[:300]}"
        return f"{len(mine)} items != {len(theirs)}"
    if isinstance(mine, dict) and isinstance(theirs, dict):
        names = [key for key in {*mine, *theirs} if mine.get(key) != theirs.get(key)]
        return "; ".join(f"{name}: {mine.get(name)} != {theirs.get(name)}"[:300] for name in names)
    return f"{str(mine)[:300]} != {str(theirs)[:300]}"
