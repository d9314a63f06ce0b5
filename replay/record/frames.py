"""The folder that a recording is written to while it goes on: one file a resource.

Lines {"arrival": TIME, "event": {"type", "object"}}, as the importer of watches reads them, in zstd
frames that are each whole: whatever ends the recorder, what was flushed can be read.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import Any

import orjson
import zstandard

from replay.errors import RecordError
from replay.kube.kinds import Resource

USAGE = "usage.jsonl.zst"
ABOUT = "recording.json"
_WATCH = ".watch.jsonl.zst"
_FRAME_BYTES = 1 << 20
_MAGIC = b"\x28\xb5\x2f\xfd"


class LineFile:
    """Appends lines; threads may write at once. What is flushed is with the system."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines = 0
        self._lock = Lock()
        self._file = path.open("xb", buffering=0)
        self._pending = bytearray()

    def write(self, value: Mapping[str, Any]) -> None:
        """Append one value as a line; nothing once the file has ended.

        Raises OSError where the disk is full.
        """
        line = orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE)
        with self._lock:
            if self._file.closed:
                return
            self._pending += line
            self.lines += 1
            if len(self._pending) >= _FRAME_BYTES:
                self._flush()

    def flush(self) -> None:
        """End the zstd frame and hand it to the system."""
        with self._lock:
            self._flush()

    def close(self) -> None:
        """Flush and end the file."""
        with self._lock:
            self._flush()
            self._file.close()

    def _flush(self) -> None:
        if self._pending and not self._file.closed:
            packed = memoryview(zstandard.ZstdCompressor(level=3).compress(bytes(self._pending)))
            while packed:
                packed = packed[self._file.write(packed) :]
            self._pending.clear()


class Folder:
    """A recording's folder. `made` says whether it was made for this recording."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, path: Path) -> Folder:
        """Make a folder, or take an empty one. Raises RecordError."""
        try:
            path.mkdir(parents=True, exist_ok=True)
            is_empty = not any(path.iterdir())
        except OSError as error:
            problem = f"the folder cannot be made: {error.strerror or error}"
            raise RecordError(f"{path}: {problem}") from error
        if not is_empty:
            raise RecordError(
                f"{path}: the folder is not empty; name another one, or make the trace of what a "
                f"recording left there with --from {path}"
            )
        return cls(path)

    def resource(self, resource: Resource) -> LineFile:
        """Begin the file of a resource."""
        return LineFile(self.path / f"{resource.name}{_WATCH}")

    def usage(self) -> LineFile:
        """Begin the file of usage."""
        return LineFile(self.path / USAGE)

    def tell(self, about: Mapping[str, Any]) -> None:
        """Write what the recording is about, whole or not at all."""
        partial = self.path / f".partial.{ABOUT}"
        partial.write_bytes(orjson.dumps(about, option=orjson.OPT_INDENT_2))
        partial.replace(self.path / ABOUT)

    def told(self) -> dict[str, Any]:
        """Return what the recording is about; nothing where it does not say."""
        try:
            about = orjson.loads((self.path / ABOUT).read_bytes())
        except (OSError, orjson.JSONDecodeError):
            return {}
        return about if isinstance(about, dict) else {}

    def watches(self) -> list[Path]:
        """Return the files of resources that something was received of."""
        found = sorted(self.path.glob(f"*{_WATCH}"))
        return [each for each in found if each.stat().st_size]

    def usage_file(self) -> Path | None:
        """Return the file of usage where something was received."""
        file = self.path / USAGE
        return file if file.exists() and file.stat().st_size else None

    def repair(self) -> list[Path]:
        """Cut off what a recorder that was killed had not written whole; return those files."""
        return [each for each in sorted(self.path.glob("*.jsonl.zst")) if _cut(each)]


def arrival(at_ns: int) -> str:
    """Return a time (ns since 1970) as RFC 3339, in microseconds."""
    moment = datetime.fromtimestamp(at_ns // 10**9, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{at_ns % 10**9 // 1000:06d}Z"


def _cut(path: Path) -> bool:
    """Truncate a file behind its last whole zstd frame; tell whether that changed it."""
    whole = 0
    with path.open("r+b") as file:
        rest = file.read(_FRAME_BYTES)
        while rest:
            size = _frame_size(rest, file)
            if size is None:
                file.truncate(whole)
                return True
            whole += size
            file.seek(whole)
            rest = file.read(_FRAME_BYTES)
    return False


def _frame_size(start: bytes, file: Any) -> int | None:
    """Return how many bytes the frame has that begins with `start`; None where it is not whole."""
    if not start.startswith(_MAGIC):
        return None
    decompressor = zstandard.ZstdDecompressor().decompressobj()
    read, chunk = 0, start
    while chunk:
        try:
            decompressor.decompress(chunk)
        except zstandard.ZstdError:
            return None
        read += len(chunk)
        if decompressor.eof:
            return read - len(decompressor.unused_data)
        chunk = file.read(_FRAME_BYTES)
    return None
