"""The native trace, as it is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from replay.importers.options import ImportOptions
from replay.importers.records import only
from replay.trace.reader import is_binary, is_text, read
from reprieve.trace.v1alpha1.trace_pb2 import Record

NAME = "native"
LOOKED_FOR = "a native trace: .ktr, or JSON lines that begin with a header"


def sniff(path: Path, start: bytes) -> bool:
    """Tell whether a file whose content begins with `start` is a native trace."""
    return is_binary(path, start) or is_text(start)


def load(paths: Sequence[Path], options: ImportOptions) -> Iterator[Record]:
    """Yield the records of the trace; `options` change nothing. Raises TraceError."""
    del options
    return read(only(paths, "one native trace"))
