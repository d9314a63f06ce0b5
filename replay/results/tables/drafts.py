"""Drafts of tables: a JSON object a line, which DuckDB reads to make the tables of."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import orjson

_BYTES_BUFFERED = 1 << 20


class Draft:
    """One draft; rows are written a mebibyte at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("wb")
        self._buffer = bytearray()

    def write(self, row: Mapping[str, Any]) -> None:
        """Append a row, its columns by name."""
        self._buffer += orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE)
        if len(self._buffer) >= _BYTES_BUFFERED:
            self._flush()

    def _flush(self) -> None:
        self._file.write(self._buffer)
        self._buffer.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._flush()
        self._file.close()
