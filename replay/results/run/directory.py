"""The folder of a run, and its manifest.

The manifest holds nothing measured, so that equal runs have equal ones. The files of a run:

- manifest.json: the run's inputs; "finished" is false until its end.
- decisions.jsonl: the decision log.
- history.rounds.zst: every round that was sent to the scheduler.
- extenders.rounds.zst: the extender responses in each round, where there are extenders.
- checkpoint-ROUNDS-NS.zst: the scheduler's state after so many rounds; only of long runs.
- spans.jsonl: spans, where they are written to a file.
- latencies.json: wall times.
- summary.json: the summary.
- *.parquet: the tables of replay.results.tables, built from the files above.
- report.html: the report of replay.report, built from the tables.
"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import file_digest
from pathlib import Path
from typing import Any, BinaryIO, Self

import orjson

from replay.errors import RunError
from replay.results.durations import simulated
from replay.results.run.decision_log import DecisionLog, read_decisions, read_entries
from replay.results.run.history import RoundLog, is_checkpoint, read_rounds, with_responses
from replay.results.schema import FILE_NAMES
from reprieve.scheduler.v1beta1 import scheduler_pb2
from reprieve.trace.v1beta1 import trace_pb2

FORMAT_VERSION = 1
CONTRACT = "v1beta1"
"""Version of the contract whose messages a run holds.

decisions.jsonl has one reprieve.trace.Decision a line, as proto3 JSON, and the history the rounds
that were sent to the scheduler.
"""
EMBEDDED, IN_PROCESS = "embedded", "in process"
"""In place of the address of a service that the run started: as a child process, or in its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedTrace:
    """A replayed trace: its path as on the command line, and the SHA-256 of its bytes, hex."""

    path: str
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The inputs and the end of a run.

    rules: the scheduler's, such as "v1.34" or "v1.16".
    configuration: configuration files by their role, whole, and options that change decisions.
    models: replay.world.models.Models, by field.
    services: service name to address, or to EMBEDDED or IN_PROCESS.
    decided_by: the scheduler's name and version, as it reports them; "" where it does not.
    batch_size: heads that the scheduler takes in one exchange with its queue (K); 0: its default.
    spans: "off", "all" or a share such as "1%".
    kubernetes_version: the recorded cluster's, such as "v1.16.2"; "" where the trace has none.
    contract: version of the contract that decisions.jsonl and the other messages are of.
    end: why the run ended; "" while it has not.
    end_ns: the simulated time of its end, since the Unix epoch; 0 while it has not ended.
    """

    version: str
    seed: int
    rules: str
    traces: tuple[ReplayedTrace, ...]
    configuration: Mapping[str, Any] = field(default_factory=dict)
    models: Mapping[str, Any] = field(default_factory=dict)
    services: Mapping[str, str] = field(default_factory=dict)
    decided_by: str = ""
    batch_size: int = 0
    spans: str = "all"
    argv: tuple[str, ...] = ()
    kubernetes_version: str = ""
    finished: bool = False
    end: str = ""
    end_ns: int = 0
    contract: str = CONTRACT
    format_version: int = FORMAT_VERSION

    def ended(self, end: str, kubernetes_version: str = "", *, end_ns: int = 0) -> Self:
        """Return the manifest of the run after its end."""
        return replace(
            self, finished=True, end=end, end_ns=end_ns, kubernetes_version=kubernetes_version
        )

    @property
    def scheduler_address(self) -> str:
        """Return the scheduler's address, "" where the run started its own."""
        address = self.services.get("scheduler", EMBEDDED)
        return "" if address in {EMBEDDED, IN_PROCESS} else address

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> Self:
        """Read a manifest from JSON. Raises RunError for another format version or contract."""
        contract = mapping.get("contract", "v1alpha1")
        if contract != CONTRACT:
            raise RunError(f"the run is of contract {contract}; this version reads {CONTRACT}")
        version = mapping.get("format_version")
        if version != FORMAT_VERSION:
            raise RunError(
                f"the manifest is of format {version}; this version reads {FORMAT_VERSION}"
            )
        try:
            values = dict(mapping)
            values["traces"] = tuple(ReplayedTrace(**each) for each in values["traces"])
            values["argv"] = tuple(values["argv"])
            return cls(**values)
        except (KeyError, TypeError) as error:
            raise RunError(f"the manifest cannot be read: {error}") from error


def trace_files(paths: Sequence[Path]) -> tuple[ReplayedTrace, ...]:
    """Return traces with their digests. Raises RunError where one cannot be read."""
    return tuple(ReplayedTrace(path=str(path), sha256=_sha256(path)) for path in paths)


def _sha256(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror or error}") from error


MANIFEST = "manifest.json"
DECISIONS = "decisions.jsonl"
HISTORY = "history.rounds.zst"
EXTENDERS = "extenders.rounds.zst"
SPANS = "spans.jsonl"
LATENCIES = "latencies.json"
SUMMARY = "summary.json"
REPORT = "report.html"
FILES = (MANIFEST, DECISIONS, HISTORY, EXTENDERS, SPANS, LATENCIES, SUMMARY, REPORT, *FILE_NAMES)
TABLES_DRAFT = ".tables-"
"""Prefix of a folder in which tables are being built."""
_DRAFT = ".draft"


class RunDirectory:
    """A run directory: made by `create` or `create_next`, read after `open`.

    A method that reads or writes a file raises RunError where it cannot.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, path: Path, *, force: bool = False) -> Self:
        """Make the folder, which may exist if it is empty.

        `force` removes a former run in it. Raises RunError where the folder holds anything else.
        """
        cls.check(path, force=force)
        try:
            path.mkdir(parents=True, exist_ok=True)
            for each in path.iterdir():
                if each.is_dir():
                    shutil.rmtree(each)
                else:
                    each.unlink()
        except OSError as error:
            raise RunError(f"{path} cannot be made: {error.strerror or error}") from error
        return cls(path)

    @staticmethod
    def check(path: Path, *, force: bool = False) -> None:
        """Raise RunError where `create` would because of what the folder holds; change nothing."""
        try:
            present = sorted(each.name for each in path.iterdir())
        except FileNotFoundError:
            return
        except OSError as error:
            raise RunError(f"{path} cannot be made: {error.strerror or error}") from error
        if present and not force:
            hint = "a former run; --force replaces it" if MANIFEST in present else "not empty"
            raise RunError(f"{path} is {hint}")
        foreign = [name for name in present if not _is_ours(path / name)]
        if foreign:
            shown = ", ".join(foreign[:3])
            raise RunError(
                f"{path} holds files that are not of a run ({shown}); nothing was removed"
            )

    @classmethod
    def create_next(cls, trace_name: str, parent: Path = Path("runs")) -> Self:
        """Make the next free folder PARENT/TRACE_NAME-N, N from 1."""
        try:
            parent.mkdir(parents=True, exist_ok=True)
            number = 1 + max(_numbers(parent, trace_name), default=0)
            while True:
                try:
                    (parent / f"{trace_name}-{number}").mkdir()
                except FileExistsError:
                    number += 1
                else:
                    return cls(parent / f"{trace_name}-{number}")
        except OSError as error:
            raise RunError(f"{parent} cannot be written: {error.strerror or error}") from error

    @classmethod
    def open(cls, path: Path) -> Self:
        """Return an existing run. Raises RunError where `path` has no manifest."""
        if not (path / MANIFEST).is_file():
            raise RunError(f"{path} is not a run directory: it has no {MANIFEST}")
        return cls(path)

    # What a run writes

    def write_manifest(self, manifest: Manifest) -> None:
        """Write the manifest: at the beginning, and again at the end."""
        self._write_json(MANIFEST, dataclasses.asdict(manifest))

    def decision_log(self) -> DecisionLog:
        """Create the decision log."""
        return DecisionLog(self.create_file(DECISIONS))

    def round_log(self) -> RoundLog:
        """Create the history."""
        return RoundLog(self.create_file(HISTORY))

    def responses_log(self) -> RoundLog:
        """Create the log of extender responses."""
        return RoundLog(self.create_file(EXTENDERS))

    def create_file(self, name: str) -> BinaryIO:
        """Create one of the run's files."""
        try:
            return (self.path / name).open("wb")
        except OSError as error:
            problem = f"{self.path / name} cannot be written: {error.strerror or error}"
            raise RunError(problem) from error

    def write_latencies(self, latencies: dict[str, Any]) -> None:
        """Write the wall times."""
        self._write_json(LATENCIES, latencies)

    def write_summary(self, summary: dict[str, Any]) -> None:
        """Write the summary, as Summary.to_mapping returns it."""
        self._write_json(SUMMARY, summary)

    # What a run holds

    def manifest(self) -> Manifest:
        """Read the manifest."""
        return Manifest.from_mapping(self._read_json(MANIFEST))

    def decisions(self) -> Iterator[trace_pb2.Decision]:
        """Yield the decision log, in order."""
        return read_decisions(self.path / DECISIONS)

    def entries(self, uid: str) -> Iterator[tuple[trace_pb2.Decision, int]]:
        """Yield a pod's decisions, each with how many attempts precede it at its moment."""
        return read_entries(self.path / DECISIONS, uid)

    def rounds(self) -> Iterator[scheduler_pb2.Round]:
        """Yield the rounds that were sent to the scheduler, in order."""
        return read_rounds(self.path / HISTORY)

    def check_moment(self, offset_ns: int) -> None:
        """Raise RunError for a moment after the run's end, counted from its first event."""
        start_ns: int | None = None
        end_ns = self.manifest().end_ns
        for round_ in self.rounds():
            if start_ns is None and round_.events:
                start_ns = round_.events[0].at_ns
            if start_ns is not None and start_ns + offset_ns <= max(end_ns, round_.at_ns):
                return
            end_ns = max(end_ns, round_.at_ns)
        if start_ns is not None:
            ends, moment = simulated(end_ns - start_ns), simulated(offset_ns)
            raise RunError(f"the run ends at {ends}; {moment} is after its end")

    @property
    def has_extenders(self) -> bool:
        """Return whether extenders took part in decisions."""
        return (self.path / EXTENDERS).is_file()

    def rounds_with_responses(self) -> Iterator[scheduler_pb2.Round]:
        """Yield the rounds with the responses of the scheduler's extenders."""
        answered = read_rounds(self.path / EXTENDERS) if self.has_extenders else iter(())
        return with_responses(self.rounds(), answered)

    def spans(self) -> Iterator[dict[str, Any]]:
        """Yield the TracesData of each line of the spans' file."""
        path = self.path / SPANS
        for number, text in enumerate(self._read(SPANS).splitlines(), 1):
            yield _mapping(text, f"{path}, line {number}")

    def latencies(self) -> dict[str, Any]:
        """Read the wall times."""
        return self._read_json(LATENCIES)

    def summary(self) -> dict[str, Any]:
        """Read the summary."""
        return self._read_json(SUMMARY)

    def eviction_not_judged(self) -> str:
        """Return why the run could decide no eviction; "" where it could, or has no summary."""
        try:
            return str(self.summary()["decided"].get("eviction_not_judged", ""))
        except (RunError, KeyError, AttributeError):
            return ""

    def _read_json(self, name: str) -> dict[str, Any]:
        return _mapping(self._read(name), str(self.path / name))

    def _read(self, name: str) -> bytes:
        path = self.path / name
        try:
            return path.read_bytes()
        except OSError as error:
            raise RunError(f"{path} cannot be read: {error.strerror or error}") from error

    def _write_json(self, name: str, mapping: dict[str, Any]) -> None:
        """Write a file as a whole; a write that fails leaves the former one."""
        text = orjson.dumps(mapping, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
        draft = self.path / f"{name}{_DRAFT}"
        try:
            draft.write_bytes(text)
            draft.replace(self.path / name)
        except OSError as error:
            problem = f"{self.path / name} cannot be written: {error.strerror or error}"
            raise RunError(problem) from error


def _is_ours(path: Path) -> bool:
    if path.is_dir():
        return path.name.startswith(TABLES_DRAFT)
    return path.name.removesuffix(_DRAFT) in FILES or is_checkpoint(path.name)


def _numbers(parent: Path, trace_name: str) -> Iterator[int]:
    for each in parent.iterdir():
        name, _, number = each.name.rpartition("-")
        if name == trace_name and number.isdecimal():
            yield int(number)


def _mapping(text: bytes, where: str) -> dict[str, Any]:
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise RunError(f"{where}: not JSON: {error}") from error
    if not isinstance(value, dict):
        raise RunError(f"{where}: not a JSON object")
    return value
