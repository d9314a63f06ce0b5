"""The manifest of a run: its inputs, its end, and the digests of its files.

Equal runs have equal manifests except `files`, `shared`, and thus signature and digest: spans and
wall times are measured, and where the frames of the history end depends on wall time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Any, Self

import orjson

from replay.errors import RunError, unreadable
from replay.results.run.signature import signature, unsigned
from services.folder import open_file

FORMAT_VERSION = 1
_DIGEST = "sha256"
"""The manifest's key for the digest of its other entries."""
_SIGNATURE = "signature"
"""The manifest's key for the signature, in hex, of all entries except signature and digest."""
_PURPOSE = "manifest"
CONTRACT = "v1beta1"
"""Version of the contract that a run's messages follow.

decisions.jsonl holds one reprieve.trace.Decision a line, as proto3 JSON; the history holds the
rounds that were sent to the scheduler.
"""
EMBEDDED, IN_PROCESS = "embedded", "in process"
"""In place of a service's address: the run started it as a child process, or inside its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedTrace:
    """A replayed trace: its path as on the command line, and the SHA-256 of its bytes, hex."""

    path: str
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFile:
    """A file of the run: the SHA-256 of its bytes, hex, and its size in bytes."""

    sha256: str
    size: int

    @classmethod
    def of(cls, content: bytes) -> Self:
        """Return the digest and the size of `content`."""
        return cls(sha256=sha256(content).hexdigest(), size=len(content))


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedBeginning:
    """The part that a run shares with another run: the first `rounds` rounds, up to `at_ns`.

    run: the other run's folder, as given on the command line. length_ns: the simulated time from
    the first record of the trace to `at_ns`.
    """

    run: str
    at_ns: int
    length_ns: int
    rounds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The inputs and the end of a run.

    rules: the version of the scheduler's rules, such as "v1.34" or "v1.16".
    configuration: the content of configuration files by role, and options that change decisions.
    models: the fields of replay.world.models.Models.
    services: service name to address, or to EMBEDDED or IN_PROCESS.
    decided_by: the scheduler's name and version, as it reports them; "" if it does not.
    batch_size: heads that the scheduler pops in one exchange with its queue (K); 0: its default.
    spans: "off", "all" or a share such as "1%".
    kubernetes_version: the recorded cluster's, such as "v1.16.2"; "" if the trace has none.
    contract: version of the contract that decisions.jsonl and the other messages follow.
    end: why the run ended; "" before its end.
    end_ns: the simulated time of the run's end, since the Unix epoch; 0 before its end.
    shared: the part taken from another run; None for a run that was replayed from its beginning.
    files: the run's files at its end by name, without the manifest and derived files.
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
    shared: SharedBeginning | None = None
    files: Mapping[str, RunFile] = field(default_factory=dict)
    contract: str = CONTRACT
    format_version: int = FORMAT_VERSION

    def encoded(self) -> bytes:
        """Return the manifest as JSON, with its signature and the digest of all other entries."""
        plain = asdict(self)
        plain[_SIGNATURE] = signature(_PURPOSE, orjson.dumps(plain)).hex()
        return orjson.dumps(
            {**plain, _DIGEST: _digest(plain)},
            option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE,
        )

    def ended(self, end: str, kubernetes_version: str = "", *, end_ns: int = 0) -> Self:
        """Return the manifest of the run after its end."""
        return replace(
            self, finished=True, end=end, end_ns=end_ns, kubernetes_version=kubernetes_version
        )

    @property
    def scheduler_address(self) -> str:
        """Return the scheduler's address; "" if the run started its own scheduler."""
        address = self.services.get("scheduler", EMBEDDED)
        return "" if address in {EMBEDDED, IN_PROCESS} else address

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> Self:
        """Read a manifest from JSON.

        Raises RunError for another format version or contract, and if the digest does not match;
        manifests of older versions have no digest.
        """
        mapping = dict(mapping)
        digest = mapping.pop(_DIGEST, None)
        contract = mapping.get("contract", "v1alpha1")
        if contract != CONTRACT:
            raise RunError(f"the run is of contract {contract}; this version reads {CONTRACT}")
        version = mapping.get("format_version")
        if version != FORMAT_VERSION:
            raise RunError(
                f"the manifest is of format {version}; this version reads {FORMAT_VERSION}"
            )
        if digest is not None and digest != _digest(mapping):
            raise RunError(
                "the manifest is damaged: it has another digest than when it was written"
            )
        mapping.pop(_SIGNATURE, None)
        try:
            values = dict(mapping)
            values["traces"] = tuple(ReplayedTrace(**trace) for trace in values["traces"])
            values["argv"] = tuple(values["argv"])
            if values.get("shared") is not None:
                values["shared"] = SharedBeginning(**values["shared"])
            files = values.get("files", {})
            values["files"] = {name: RunFile(**file) for name, file in files.items()}
            return cls(**values)
        except (KeyError, TypeError, AttributeError) as error:
            raise RunError(f"the manifest cannot be read: {error}") from error


def unsigned_manifest(mapping: Mapping[str, Any]) -> str:
    """Return why a manifest (as JSON) has no valid signature of this user; "" if it has one."""
    plain = {name: value for name, value in mapping.items() if name not in {_DIGEST, _SIGNATURE}}
    try:
        signed = bytes.fromhex(mapping.get(_SIGNATURE, ""))
    except (TypeError, ValueError):
        return "its signature is not hexadecimal"
    return unsigned(_PURPOSE, orjson.dumps(plain), signed)


def _digest(plain: Mapping[str, Any]) -> str:
    return sha256(orjson.dumps(plain)).hexdigest()


def trace_files(paths: Sequence[Path]) -> tuple[ReplayedTrace, ...]:
    """Return traces with their digests. Raises RunError if one cannot be read."""
    return tuple(ReplayedTrace(path=str(path), sha256=_trace_sha256(path)) for path in paths)


def _trace_sha256(path: Path) -> str:
    """Return the SHA-256 of a trace, hex; its path may be a link. Raises RunError."""
    return described(path.resolve()).sha256


def described(path: Path) -> RunFile:
    """Return the digest and the size of a file. Raises RunError if it cannot be read."""
    try:
        with open_file(path) as file:
            digest = file_digest(file, "sha256").hexdigest()
            return RunFile(sha256=digest, size=file.tell())
    except OSError as error:
        raise unreadable(path, error) from error
