"""Writes the native trace, in the form of the file name's suffix."""

from __future__ import annotations

import contextlib
import gzip
import os
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO, Protocol, Self, cast

import zstandard

from replay.errors import TraceError
from replay.trace.files import FRAME_BYTES, delimited, end, end_of, frame
from replay.trace.reader import OrderCheck, line, read
from reprieve.trace.v1beta1.trace_pb2 import Record
from services.folder import Folder, create_file, replacing

SUFFIXES = (".ktr", ".jsonl", ".jsonl.gz", ".jsonl.zst")


class _Sink(Protocol):
    def write(self, record: Record) -> None: ...
    def flush(self) -> None: ...
    def close(self, records: int | None) -> None: ...


class Writer:
    """Writes records to a file: ".ktr", ".jsonl", ".jsonl.gz" or ".jsonl.zst".

    A context manager; after an exception the file has no end, as one that was cut off. `append`
    continues the complete trace in an existing file, which is read first. Raises TraceError for
    any other suffix, and for a record that breaks the order of a trace. file: where to write
    instead, in the form of the path's suffix; it is left open.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, append: bool = False, file: BinaryIO | None = None
    ) -> None:
        self.path = Path(path)
        self.records = 0
        self._before = 0
        self._order = OrderCheck()
        if not self.path.name.endswith(SUFFIXES):
            raise TraceError(
                str(self.path), f"has no suffix of a trace; write {' or '.join(SUFFIXES)}"
            )
        if append and self.path.exists():
            for record in read(self.path, converts=False):
                self._order.problem(record)
                self._before += 1
        self._own: BinaryIO | None = None
        try:
            if file is None:
                self._own = _appended(self.path) if self._before else create_file(self.path)
        except OSError as error:
            problem = f"cannot be written: {error.strerror or error}"
            raise TraceError(str(self.path), problem) from error
        self._sink = _sink(file or cast("BinaryIO", self._own), self.path.name)

    def write(self, record: Record) -> None:
        """Write one record. Raises TraceError if it breaks the order."""
        if problem := self._order.problem(record):
            raise TraceError(f"{self.path}, record {record.sequence}", problem)
        self._sink.write(record)
        self.records += 1

    def flush(self) -> None:
        """Flush the file; this ends the frame of a ".ktr"."""
        self._sink.flush()

    def close(self) -> None:
        """Flush and close the file, which is complete."""
        self._close(self._before + self.records)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, exception: type[BaseException] | None, *_: object) -> None:
        if exception is None:
            self.close()
        else:
            self._close(None)

    def _close(self, records: int | None) -> None:
        with self._own or contextlib.nullcontext():
            self._sink.close(records)


def write(path: str | os.PathLike[str], records: Iterable[Record]) -> int:
    """Write a whole trace, in place of a former one, and return the number of its records.

    A former file is left where that fails. Raises TraceError and OSError.
    """
    with replacing(Path(path)) as file, Writer(path, file=file) as writer:
        for record in records:
            writer.write(record)
    return writer.records


class _FrameSink:
    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._pending = bytearray()

    def write(self, record: Record) -> None:
        self._pending += delimited(record)
        if len(self._pending) >= FRAME_BYTES:
            self.flush()

    def flush(self) -> None:
        if self._pending:
            self._file.write(frame(bytes(self._pending)))
            self._pending.clear()
        self._file.flush()

    def close(self, records: int | None) -> None:
        self.flush()
        if records is not None:
            self._file.write(end(records))


class _LineSink:
    def __init__(self, stream: BinaryIO, file: BinaryIO) -> None:
        self._stream = stream
        self._file = file

    def write(self, record: Record) -> None:
        self._stream.write(line(record))

    def flush(self) -> None:
        self._stream.flush()
        self._file.flush()

    def close(self, records: int | None) -> None:
        del records
        if self._stream is not self._file:
            self._stream.close()


def _appended(path: Path) -> BinaryIO:
    """Open a trace to write on; the end of a ".ktr" is removed."""
    with Folder(path.parent) as folder:
        file = os.fdopen(folder.open(path.name, os.O_RDWR), "r+b")
    size = file.seek(0, os.SEEK_END)
    if path.name.endswith(".ktr") and (records := end_of(file).records) is not None:
        size -= len(end(records))
        file.truncate(size)
    file.seek(size)
    return file


def _sink(file: BinaryIO, name: str) -> _Sink:
    if name.endswith(".ktr"):
        return _FrameSink(file)
    if name.endswith(".gz"):
        # mtime 0 and no name: equal traces are equal files.
        stream = gzip.GzipFile(filename="", fileobj=file, mode="wb", mtime=0)
        return _LineSink(cast("BinaryIO", stream), file)
    if name.endswith(".zst"):
        compressor = zstandard.ZstdCompressor(write_checksum=True)
        compressed = compressor.stream_writer(file, closefd=False)
        return _LineSink(cast("BinaryIO", compressed), file)
    return _LineSink(file, file)
