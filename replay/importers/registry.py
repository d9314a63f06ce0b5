"""Which importer reads a path: known by content, never by name alone."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from replay.errors import TraceError
from replay.importers.datacenter import (
    alibaba2017,
    azure_packing,
    dlrm,
    google2011,
    google2019,
    openb,
)
from replay.importers.kubernetes import (
    audit,
    kwok,
    manifests,
    recorder,
    scheduler_perf,
    simkube,
    watch,
)
from replay.importers.recording.interpreter import interpret
from replay.importers.records import ImportOptions, Issues, header_of, only
from replay.importers.rows import completed, machine_amounts, made_nodes
from replay.kube.changes import Change
from replay.trace.files import head
from replay.trace.reader import is_binary, is_text, read
from reprieve.kube.v1beta1.node_pb2 import Node
from reprieve.trace.v1beta1.trace_pb2 import Record

Load = Callable[[Sequence[Path], ImportOptions], Iterator[Record]]
RecordedChanges = Callable[
    [Sequence[Path]], tuple[Sequence[Path], Callable[[Issues], Iterator[Change]]]
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Importer:
    """A format: how its files are known, and how they become a trace.

    `node_amounts` is what a node made for its traces has, unless the options say otherwise.
    `changes` is None unless its files hold each object as it was after each change, outcomes too:
    it returns the files that are read, and what yields their changes in order, as often as asked.
    """

    name: str
    looked_for: str
    sniff: Callable[[Path, bytes], bool]
    load: Load
    node_amounts: Callable[[ImportOptions], Mapping[str, str]] = machine_amounts
    changes: RecordedChanges | None = None


def _importer(module: ModuleType) -> Importer:
    content = vars(module)
    changes = content.get("recorded_changes")
    return Importer(
        name=content["NAME"],
        looked_for=content["LOOKED_FOR"],
        sniff=content["sniff"],
        load=_interpreting(content["NAME"], changes) if changes else content["load"],
        node_amounts=content.get("node_amounts", machine_amounts),
        changes=changes,
    )


def _interpreting(name: str, recorded_changes: RecordedChanges) -> Load:
    """Return what reads a recording's changes as a trace."""

    def load(paths: Sequence[Path], options: ImportOptions) -> Iterator[Record]:
        chosen, changes = recorded_changes(paths)
        return interpret(changes, header_of(name, chosen, options), options)

    return load


def _native(paths: Sequence[Path], options: ImportOptions) -> Iterator[Record]:
    """Yield the records of a native trace as they are."""
    del options
    return read(only(paths, "one native trace"))


_NATIVE = Importer(
    name="native",
    looked_for="a native trace: .ktr, or JSON lines that begin with a header",
    sniff=lambda path, start: is_binary(path, start) or is_text(start),
    load=_native,
)
_MODULES = (
    watch,
    audit,
    recorder,
    simkube,
    kwok,
    scheduler_perf,
    openb,
    dlrm,
    google2011,
    google2019,
    azure_packing,
    alibaba2017,
    manifests,
)
IMPORTERS: Mapping[str, Importer] = {
    each.name: each for each in (_NATIVE, *map(_importer, _MODULES))
}
"""All formats by name. In a folder of several, the first that is there is read."""


def open_trace(
    paths: Sequence[str | os.PathLike[str]],
    *,
    format: str | None = None,  # noqa: A002 - the word of the command line
    options: ImportOptions | None = None,
) -> Iterator[Record]:
    """Yield a trace from files or folders of any format, the header first.

    Files of one format belong together. In a folder, files that no importer knows, and files of
    another format than its first (a watch stands before the audit log of the same run), are left
    out and named in an ImportIssue. `format` is a name in IMPORTERS, for files that are not
    recognised. Raises TraceError.
    """
    issues = Issues()
    importer, files = select(paths, format=format, issues=issues)
    chosen = options or ImportOptions()
    if chosen.follow_until is not None and importer.changes is None:
        problem = f"--follow-until: a trace of format {importer.name} keeps no recorded states"
        names = ", ".join(each.name for each in IMPORTERS.values() if each.changes)
        keepers = f"a recording of one of the formats {names}"
        raise TraceError(str(files[0]), f"{problem}; give {keepers}")
    if chosen.now_ns is not None and importer.name != manifests.NAME:
        problem = f"--now: a trace of format {importer.name} has times of its own"
        raise TraceError(str(files[0]), f"{problem}; --now is for manifests")
    records = importer.load(files, chosen)
    nodes = list(made_nodes(importer.node_amounts(chosen), chosen))
    if chosen.nodes_from is not None:
        nodes += _nodes_of(chosen.nodes_from)
    return completed(records, nodes, issues)


def open_changes(
    paths: Sequence[str | os.PathLike[str]],
    *,
    format: str | None = None,  # noqa: A002 - the word of the command line
    issues: Issues,
) -> Iterator[Change]:
    """Yield the changes of recordings as they were recorded, in order.

    Raises TraceError where a file cannot be read or is no recording.
    """
    importer, files = select(paths, format=format, issues=issues)
    if importer.changes is None:
        problem = f"is of format {importer.name}, which keeps no recorded states: give the"
        raise TraceError(str(files[0]), f"{problem} recording itself (watches, an audit log)")
    _, changes = importer.changes(files)
    return changes(issues)


def _nodes_of(path: Path) -> list[Node]:
    """Return the nodes that a trace creates. Raises TraceError where it creates none."""
    nodes = [record.create.node for record in open_trace([path]) if record.create.HasField("node")]
    if not nodes:
        raise TraceError(str(path), "nodes were to be taken from here, and it creates none")
    return nodes


def select(
    paths: Sequence[str | os.PathLike[str]],
    *,
    format: str | None = None,  # noqa: A002 - the word of the command line
    issues: Issues,
) -> tuple[Importer, list[Path]]:
    """Return the format of `paths` and the files that are read; others go into `issues`.

    Raises TraceError as `open_trace` does.
    """
    if not paths:
        raise TraceError("trace", "no path is given")
    if format is not None and format not in IMPORTERS:
        raise TraceError("format", f"{format!r} is none of {', '.join(IMPORTERS)}")
    given = [(file, from_folder) for path in paths for file, from_folder in _files(Path(path))]
    known = [
        (file, IMPORTERS[format] if format else _recognised(file), from_folder)
        for file, from_folder in given
    ]
    return _chosen(known, issues)


def recognise(path: str | os.PathLike[str]) -> str:
    """Return the name of the file's format, "" where no importer knows it. Raises TraceError."""
    importer = _recognised(Path(path))
    return importer.name if importer else ""


def _files(path: Path) -> Iterator[tuple[Path, bool]]:
    if not path.is_dir():
        yield path, False
        return
    files = sorted(each for each in path.iterdir() if each.is_file() and each.name[0] != ".")
    if not files:
        raise TraceError(str(path), "the folder holds no file")
    for file in files:
        yield file, True


def _recognised(path: Path) -> Importer | None:
    start = head(path)
    return next((each for each in IMPORTERS.values() if each.sniff(path, start)), None)


def _chosen(
    known: Sequence[tuple[Path, Importer | None, bool]], issues: Issues
) -> tuple[Importer, list[Path]]:
    for path, importer, from_folder in known:
        if importer is None and not from_folder:
            raise TraceError(str(path), _nothing_known())
    found = {importer.name for _, importer, _ in known if importer}
    first = next((each for each in IMPORTERS.values() if each.name in found), None)
    if first is None:
        raise TraceError(str(known[0][0].parent), f"no file in the folder: {_nothing_known()}")
    chosen = []
    for path, importer, from_folder in known:
        if importer is first:
            chosen.append(path)
        elif importer and not from_folder:
            problem = f"is of format {importer.name}, and another path is of {first.name}"
            raise TraceError(str(path), problem)
        else:
            what = f"of format {importer.name}" if importer else "of no known format"
            message = f"{what}: left out, the folder is read as {first.name}"
            issues.add("ignored-file", str(path), message)
    return first, chosen


def _nothing_known() -> str:
    wanted = "; ".join(f"{each.looked_for} ({each.name})" for each in IMPORTERS.values())
    return f"is of no known format; looked for {wanted}"
