"""Selects the importer that reads a path, by content and never by name alone."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from replay import bounds
from replay.errors import TraceError, UnreadableError
from replay.importers.datacenter import (
    alibaba2017,
    azure_packing,
    dlrm,
    google2011,
    google2019,
    openb,
    spot_gpu,
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
from replay.importers.records import Importer, ImportOptions, Issues, single_path
from replay.importers.rows import generated_nodes, with_nodes_and_issues
from replay.kube.changes import RecordedChange
from replay.kube.documents import read_documents
from replay.trace.files import head
from replay.trace.reader import is_binary, is_text, read
from replay.trace.validate import CONTROLLERS
from reprieve.kube.v1beta1.node_pb2 import Node
from reprieve.kube.v1beta1.object_pb2 import KubernetesObject
from reprieve.trace.v1beta1.trace_pb2 import Record

_MANIFESTS = (".yaml", ".yml", ".json")
_POD_COUNTS = ("replicas", "parallelism", "completions")
_NATIVE = Importer(
    name="native",
    description="a native trace: .ktr, or JSON lines that begin with a header",
    sniff=lambda path, start: is_binary(path, start) or is_text(start),
    load=lambda paths, options: read(
        single_path(paths, "one native trace"), reads_cut_off=options.reads_cut_off
    ),
)
IMPORTERS: Mapping[str, Importer] = {
    importer.name: importer
    for importer in (
        _NATIVE,
        watch.IMPORTER,
        audit.IMPORTER,
        recorder.IMPORTER,
        simkube.IMPORTER,
        kwok.IMPORTER,
        scheduler_perf.IMPORTER,
        openb.IMPORTER,
        dlrm.IMPORTER,
        spot_gpu.IMPORTER,
        google2011.IMPORTER,
        google2019.IMPORTER,
        azure_packing.IMPORTER,
        alibaba2017.IMPORTER,
        manifests.IMPORTER,
    )
}
"""All formats by name, in the order in which they are tried.

The first importer whose `sniff` accepts a file reads it. Manifests accept any file that names an
apiVersion and a kind, as audit logs and kwok's recordings do, and are therefore the last. Of a
folder with files of several formats the first one here is read: watches rather than the audit log
of the same run.
"""


def open_trace(
    paths: Sequence[str | os.PathLike[str]],
    *,
    format: str | None = None,  # noqa: A002 - the word of the command line
    options: ImportOptions | None = None,
) -> Iterator[Record]:
    """Yield a trace from files or folders of any format, the header first.

    All paths have the same format. Of a folder, the files of no format, and those of another format
    than its first (a watch comes before the audit log of the same run), and its folders, are left
    out and named in an ImportIssue. `format` is a name in IMPORTERS, for files that are not
    recognised. Raises TraceError.
    """
    issues = Issues()
    importer, files = select(paths, format=format, issues=issues)
    options = options or ImportOptions()
    if options.follow_until is not None and importer.open_recording is None:
        problem = f"--follow-until: a trace of format {importer.name} has no recorded states"
        names = ", ".join(
            importer.name for importer in IMPORTERS.values() if importer.open_recording
        )
        raise TraceError(str(files[0]), f"{problem}; give a recording of a format of {names}")
    if options.now_ns is not None and importer is not manifests.IMPORTER:
        problem = f"--now: a trace of format {importer.name} has its own times"
        raise TraceError(str(files[0]), f"{problem}; --now is for manifests")
    records = _within_bounds(_refusing(importer, files, options), str(files[0]))
    nodes = list(generated_nodes(importer.node_resources(options), options))
    if options.nodes_from is not None:
        nodes += _nodes_of(options.nodes_from)
    return with_nodes_and_issues(records, nodes, issues)


def _refusing(
    importer: Importer, files: Sequence[Path], options: ImportOptions
) -> Iterator[Record]:
    """Yield an importer's records. Raises UnreadableError for an undeclared exception of it."""
    count = 0
    try:
        for record in importer.load(files, options):
            yield record
            count += 1
    except (TraceError, OSError):
        raise
    except (ArithmeticError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise _unreadable(importer, files, count, error) from error
    except (RecursionError, MemoryError) as error:
        raise _unreadable(importer, files, count, error) from error


def _unreadable(
    importer: Importer, files: Sequence[Path], count: int, error: Exception
) -> UnreadableError:
    names = ", ".join(map(str, files))
    what = f"after record {count}: {type(error).__name__}: {error}"
    problem = f"cannot be read as {importer.name} ({what}); please report it with the file"
    return UnreadableError(names, problem)


def _within_bounds(records: Iterator[Record], name: str) -> Iterator[Record]:
    """Yield the records. Raises TraceError for an object that requests too many pods."""
    for record in records:
        if (kind := record.WhichOneof("record")) == "create" or kind == "update":
            _check_pods(getattr(record, kind), name)
        yield record


def _check_pods(changed: KubernetesObject, name: str) -> None:
    kind = changed.WhichOneof("object") or ""
    if kind not in CONTROLLERS:
        return
    carried: Any = getattr(changed, kind)
    spec = carried.spec.job_template.spec if kind == "cron_job" else carried.spec
    for field in _POD_COUNTS:
        where = f"{name}, {carried.metadata.namespace}/{carried.metadata.name}"
        bounds.check_count(getattr(spec, field, 0), where, field)


def open_changes(
    paths: Sequence[str | os.PathLike[str]],
    *,
    format: str | None = None,  # noqa: A002 - the word of the command line
    issues: Issues,
) -> Iterator[RecordedChange]:
    """Yield the recorded changes of a recording, in order.

    Raises TraceError if a file cannot be read or has no recorded states.
    """
    importer, files = select(paths, format=format, issues=issues)
    if importer.open_recording is None:
        problem = f"is of format {importer.name}, which has no recorded states"
        raise TraceError(str(files[0]), f"{problem}; give the recording (watches, an audit log)")
    return importer.open_recording(files).changes(issues)


def _nodes_of(path: Path) -> list[Node]:
    nodes = [record.create.node for record in open_trace([path]) if record.create.HasField("node")]
    if not nodes:
        raise TraceError(str(path), "creates no node; give --nodes-from a trace that has nodes")
    return nodes


def select(
    paths: Sequence[str | os.PathLike[str]],
    *,
    format: str | None = None,  # noqa: A002 - the word of the command line
    issues: Issues,
) -> tuple[Importer, list[Path]]:
    """Return the format of `paths` and the files that are read; `issues` counts the others.

    Raises TraceError as `open_trace` does.
    """
    if not paths:
        raise TraceError("trace", "no path is given")
    if format is not None and format not in IMPORTERS:
        raise TraceError("format", f"{format!r} is not one of {', '.join(IMPORTERS)}")
    return _selected(
        [
            (file, IMPORTERS[format] if format else _recognised(file), is_from_folder)
            for path in paths
            for file, is_from_folder in _files(Path(path), issues)
        ],
        issues,
    )


def recognise(path: str | os.PathLike[str]) -> str:
    """Return the name of the file's format, "" for an unknown format. Raises TraceError."""
    importer = _recognised(Path(path))
    return importer.name if importer else ""


def _files(path: Path, issues: Issues) -> Iterator[tuple[Path, bool]]:
    """Yield a path's files, and whether each comes from a folder; subfolders are left out."""
    if not path.is_dir():
        yield path, False
        return
    content = sorted(entry for entry in path.iterdir() if entry.name[0] != ".")
    files = [entry for entry in content if entry.is_file()]
    folders = [entry for entry in content if entry.is_dir()]
    if not files:
        hint = f", only folders: give one of them, such as {folders[0]}" if folders else ""
        raise TraceError(str(path), f"the folder has no files{hint}")
    for folder in folders:
        issues.add("ignored-folder", str(folder), "left out: give it as another path to read it")
    for file in files:
        yield file, True


def _recognised(path: Path) -> Importer | None:
    start = head(path)
    return next((importer for importer in IMPORTERS.values() if importer.sniff(path, start)), None)


def _selected(
    files: Sequence[tuple[Path, Importer | None, bool]], issues: Issues
) -> tuple[Importer, list[Path]]:
    for path, importer, is_from_folder in files:
        if importer is None and not is_from_folder:
            raise _no_manifest(path) or TraceError(str(path), _unknown_format())
    formats_there = {importer.name for _, importer, _ in files if importer}
    first = next(
        (importer for importer in IMPORTERS.values() if importer.name in formats_there), None
    )
    if first is None:
        raise TraceError(str(files[0][0].parent), f"no file in the folder: {_unknown_format()}")
    selected = []
    for path, importer, is_from_folder in files:
        if importer is first:
            selected.append(path)
        elif importer and not is_from_folder:
            problem = f"is of format {importer.name}, and another path is of {first.name}"
            raise TraceError(str(path), problem)
        else:
            what = f"of format {importer.name}" if importer else "of no known format"
            error = None if importer else _no_manifest(path)
            if error is not None:
                what = f"{error.where.removeprefix(str(path)).lstrip(', ')} {error.problem}"
            message = f"{what.strip()}: left out, the folder is read as {first.name}"
            issues.add("ignored-file", str(path), message)
    return first, selected


def _no_manifest(path: Path) -> TraceError | None:
    """Return why a file with a manifest's name holds no object; None for another name."""
    if not path.name.removesuffix(".gz").removesuffix(".zst").endswith(_MANIFESTS):
        return None
    try:
        documents = list(read_documents(path))
    except TraceError as error:
        return error
    for where, first in documents[:1]:
        if isinstance(first, list):
            hint = "separate the objects by ---, or make them the items of a List"
            return TraceError(where, f"is a list, not a Kubernetes object; {hint}")
        return TraceError(where, "is not a Kubernetes object: it has no apiVersion and no kind")
    return TraceError(str(path), "has no document")


def _unknown_format() -> str:
    formats = "; ".join(
        f"{importer.description} ({importer.name})" for importer in IMPORTERS.values()
    )
    return f"is of no known format; looked for {formats}"
