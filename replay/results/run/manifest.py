"""A run's manifest: all that its decisions are a function of, and where they were made.

Nothing in it is measured, so that equal runs have equal manifests; wall times have a file of their
own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import file_digest
from pathlib import Path
from typing import Any, Self

from replay.errors import RunError

FORMAT_VERSION = 1
CONTRACT = "v1beta1"
"""Version of the contract whose messages a run holds.

decisions.jsonl has one reprieve.trace.Decision a line, as proto3 JSON, and the history the rounds
that were sent to the scheduler.
"""
EMBEDDED, IN_PROCESS = "embedded", "in process"
"""Stand for the address of a service that a run started: in a child process, or within its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFile:
    """A trace that was replayed: its path as given, and the SHA-256 of its bytes, hex."""

    path: str
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What a run was.

    rules: the scheduler's, such as "v1.34" or "v1.16".
    configuration: configuration files by their role, whole, and options that change decisions.
    models: what the world assumes (replay.world.models.Models, by field).
    services: service name to address, or to EMBEDDED or IN_PROCESS.
    decided_by: what the scheduler calls itself, name and version; "" where it does not say.
    batch_size: heads that the scheduler takes in one exchange with its queue (K); 0: its default.
    spans: the choice as given: "off", "all" or a share such as "1%".
    kubernetes_version: the recorded cluster's, such as "v1.16.2"; "" where the trace does not say.
    contract: version of the contract that decisions.jsonl and the other messages are of.
    end: why the run ended; "" while it has not.
    end_ns: until when it was played, since the Unix epoch; 0 while it has not ended.
    """

    version: str
    seed: int
    rules: str
    traces: tuple[TraceFile, ...]
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
        """Return the manifest of a run that has come to its end."""
        return replace(
            self, finished=True, end=end, end_ns=end_ns, kubernetes_version=kubernetes_version
        )

    @property
    def scheduler_address(self) -> str:
        """Return where the scheduler was, "" where the run had one of its own."""
        address = self.services.get("scheduler", EMBEDDED)
        return "" if address in {EMBEDDED, IN_PROCESS} else address

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> Self:
        """Return the manifest that JSON holds. Raises RunError for another version's."""
        contract = mapping.get("contract", "v1alpha1")
        if contract != CONTRACT:
            raise RunError(f"a run in the contract's {contract}; this version reads {CONTRACT}")
        version = mapping.get("format_version")
        if version != FORMAT_VERSION:
            raise RunError(f"a manifest of format {version}; this version reads {FORMAT_VERSION}")
        try:
            values = dict(mapping)
            values["traces"] = tuple(TraceFile(**each) for each in values["traces"])
            values["argv"] = tuple(values["argv"])
            return cls(**values)
        except (KeyError, TypeError) as error:
            raise RunError(f"a manifest that cannot be read: {error}") from error


def trace_files(paths: Sequence[Path]) -> tuple[TraceFile, ...]:
    """Return traces with their digests. Raises RunError where one cannot be read."""
    return tuple(TraceFile(path=str(path), sha256=_sha256(path)) for path in paths)


def _sha256(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror or error}") from error
