"""The folder of a recording: one file a resource.

A file holds lines {"arrival": TIME, "event": {"type", "object"}}, the format of the importer of
watches, in complete zstd frames with checksums. So flushed lines can be read however the recorder
ends, and damage on the disk is detected.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from threading import Lock
from typing import Any

import orjson
import zstandard

from replay.errors import DISK, RecordError, unwritable
from replay.kube.kinds import Resource
from services.folder import Folder, read_file, write_file
from services.growing_file import GrowingFile

USAGE = "usage.jsonl.zst"
ABOUT = "recording.json"
_WATCH = ".watch.jsonl.zst"
_FRAME_BYTES = 1 << 20
_MAGIC = b"\x28\xb5\x2f\xfd"


class LineFile:
    """Appends lines to a file; thread-safe. Lines are lost until they are flushed.

    `failure` is the error that stopped writing (such as a full disk), or None. After a failure, the
    file ends with its last complete frame, and later lines are dropped.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines = 0
        self.failure: OSError | None = None
        self._lock = Lock()
        with Folder(path.parent) as folder:
            self._file = GrowingFile(folder, path.name)
        self._pending = bytearray()

    def write(self, value: Mapping[str, Any]) -> None:
        """Append one value as a line; no effect after `close`."""
        line = orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE)
        with self._lock:
            if self._file.is_closed or self.failure:
                return
            self._pending += line
            self.lines += 1
            if len(self._pending) >= _FRAME_BYTES:
                self._write_frame()

    def flush(self) -> None:
        """End the zstd frame and write it to the disk."""
        with self._lock:
            self._write_frame()

    def close(self) -> None:
        """Flush and close the file."""
        with self._lock:
            self._write_frame()
            self._file.close()

    def _write_frame(self) -> None:
        if not self._pending or self._file.is_closed or self.failure:
            return
        compressor = zstandard.ZstdCompressor(level=3, write_checksum=True)
        frame = compressor.compress(bytes(self._pending))
        self._pending.clear()
        try:
            self._file.append(frame)
            self._file.sync()
        except OSError as error:
            self.failure = error


class RecordingFolder:
    """The folder of a recording."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, path: Path) -> RecordingFolder:
        """Make the folder, or use an empty one.

        Raises RecordError for a folder with files, OutputError for a disk that is full.
        """
        try:
            path.mkdir(parents=True, exist_ok=True)
            is_empty = not any(path.iterdir())
        except OSError as error:
            if error.errno in DISK:
                raise unwritable(path, error, "made") from error
            problem = f"the folder cannot be made: {error.strerror or error}"
            raise RecordError(f"{path}: {problem}") from error
        if not is_empty:
            raise RecordError(
                f"{path}: the folder is not empty; give another folder, or make the trace of the "
                f"recording in it with --from {path}"
            )
        return cls(path)

    def resource(self, resource: Resource, namespace: str = "") -> LineFile:
        """Create the file of a resource; `namespace`: its name, or hash, if it covers only one."""
        place = f".{namespace}" if namespace else ""
        return LineFile(self.path / f"{resource.name}{place}{_WATCH}")

    def usage(self) -> LineFile:
        """Create the file of usage."""
        return LineFile(self.path / USAGE)

    def write_about(self, about: Mapping[str, Any]) -> None:
        """Write recording.json, atomically. Raises OSError."""
        write_file(self.path / ABOUT, orjson.dumps(about, option=orjson.OPT_INDENT_2))

    def read_about(self) -> dict[str, Any]:
        """Return recording.json; {} if it is missing or damaged."""
        try:
            about = orjson.loads(read_file(self.path / ABOUT))
        except (OSError, orjson.JSONDecodeError):
            return {}
        return about if isinstance(about, dict) else {}

    def watches(self) -> list[Path]:
        """Return the files of resources that are not empty."""
        paths = sorted(self.path.glob(f"*{_WATCH}"))
        return [path for path in paths if path.stat().st_size]

    def usage_file(self) -> Path | None:
        """Return the file of usage, None if it is missing or empty."""
        file = self.path / USAGE
        return file if file.exists() and file.stat().st_size else None

    def repair(self) -> list[Path]:
        """Truncate files that end with an incomplete frame, after a kill; return these files.

        Raises OSError.
        """
        with Folder(self.path) as folder:
            names = [name for name in folder.names() if name.endswith(".jsonl.zst")]
            return [self.path / name for name in names if _truncate(folder, name)]


def _truncate(folder: Folder, name: str) -> bool:
    """Truncate a file after its last complete zstd frame; return whether that changed it."""
    complete = 0
    with os.fdopen(folder.open(name, os.O_RDWR), "r+b") as file:
        rest = file.read(_FRAME_BYTES)
        while rest:
            size = _frame_size(rest, file)
            if size is None:
                file.truncate(complete)
                return True
            complete += size
            file.seek(complete)
            rest = file.read(_FRAME_BYTES)
    return False


def _frame_size(start: bytes, file: Any) -> int | None:
    """Return the size of the frame that begins with `start`; None if it is not complete."""
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
