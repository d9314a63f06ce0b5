"""Kubernetes' own performance tests: a scheduler_perf performance-config file as a workload.

A file holds test cases; each has operations (create nodes, create pods, churn, ...) and workloads
that give their numbers. One workload is chosen and carried out in simulated time that begins at 0.
Object templates are files beside the config file. The source is a generator, not a recording: there
is nothing to compare with.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from replay.importers.options import ImportOptions
from replay.importers.perf.made import ObjectFiles
from replay.importers.perf.run import Run
from replay.importers.perf.workload import Workload, chosen_workload
from replay.importers.records import Issues, Numbering, header_of, only
from replay.trace.compression import open_plain
from replay.trace.errors import TraceError
from reprieve.trace.v1alpha1.trace_pb2 import Record

NAME = "scheduler-perf"
LOOKED_FOR = 'a scheduler_perf performance-config file: a YAML list with "workloadTemplate"'
_CASE = re.compile(rb"^[ -] *(name|workloadTemplate):", re.MULTILINE)
_TEMPLATE = re.compile(rb"^ +workloadTemplate:", re.MULTILINE)


def sniff(path: Path, start: bytes) -> bool:
    """Tell whether a file whose content begins with `start` is a performance-config file."""
    del path
    return _CASE.search(start) is not None and _TEMPLATE.search(start) is not None


def load(paths: Sequence[Path], options: ImportOptions) -> Iterator[Record]:
    """Yield the trace of the chosen workload. Raises TraceError, with file and operation."""
    path = only(paths, "one performance-config file")
    numbering, issues = Numbering(), Issues()
    workload = chosen_workload(path, _text(path), options.workload, options.params)
    yield numbering.header(header_of(NAME, paths, options))
    _note_settings(workload, issues)
    yield from Run(workload, ObjectFiles(path.parent), numbering, issues, options).records()
    yield from numbering.issues(issues)


def _text(path: Path) -> str:
    with open_plain(path) as file:
        try:
            return file.read().decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise TraceError(str(path), f"is no UTF-8: {error.reason}") from error


def _note_settings(workload: Workload, issues: Issues) -> None:
    """Name what upstream sets for the scheduler itself: a trace carries no configuration."""
    gates = {
        str(name): value
        for source in (workload.case, workload.raw)
        if isinstance(given := source.get("featureGates"), dict)
        for name, value in given.items()
    }
    for name, value in gates.items():
        message = f"the feature gate {name}={str(value).lower()} is not applied"
        issues.add("not-simulated", workload.where, message)
    if config := workload.case.get("schedulerConfigPath"):
        message = "the scheduler's configuration is not in the trace; use --scheduler-config with "
        issues.add("scheduler-config", workload.where, f"{message}{config}")
