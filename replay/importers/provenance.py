"""Where a trace comes from, for its header."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from replay.importers.options import ImportOptions
from reprieve.trace.v1alpha1.trace_pb2 import Header


def header_of(importer: str, paths: Sequence[Path], options: ImportOptions) -> Header:
    """Return a header that names the files and their digests, in the order of their names."""
    files = sorted(paths, key=lambda path: path.name)
    return Header(
        source=options.source or ", ".join(path.name for path in files),
        source_sha256=[_sha256(path) for path in files],
        licence=options.licence,
        importer=f"{importer} 1",
        options=options.as_text(),
    )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
