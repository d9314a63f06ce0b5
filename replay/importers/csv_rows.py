"""Rows of CSV files, with their places, and their fields as numbers."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import NoReturn

from replay.importers.options import SECOND_NS
from replay.trace.compression import open_plain
from replay.trace.errors import TraceError

SECONDS_MAX = 4_000_000_000
"""A time of more is none: ns since 1970 end in 2262."""
SHARE_MAX = 1000
"""Machines that a share may be at most: what is larger is no share."""


class Row:
    """A row by the names of its columns."""

    __slots__ = ("_line", "_path", "_values")

    def __init__(self, path: Path, line: int, values: Mapping[str, str]) -> None:
        self._path = path
        self._line = line
        self._values = values

    @property
    def where(self) -> str:
        """Return "FILE, line N"."""
        return f"{self._path}, line {self._line}"

    def has(self, name: str) -> bool:
        """Tell whether the column is there."""
        return self._values.get(name) is not None

    def text(self, name: str) -> str:
        """Return a field, "" where it is empty or the column is not there."""
        return self._values.get(name) or ""

    def integer(self, name: str) -> int | None:
        """Return a whole number, None for an empty field. Raises TraceError for anything else."""
        text = self.text(name)
        if not text:
            return None
        try:
            return int(text)
        except ValueError:
            number = decimal(text)
            if number is None or number != int(number):
                self._refuse(name, text)
            return int(number)

    def number(self, name: str) -> Decimal | None:
        """Return a number, None for an empty field. Raises TraceError for anything else."""
        text = self.text(name)
        if not text:
            return None
        number = decimal(text)
        if number is None:
            self._refuse(name, text)
        return number

    def share(self, name: str) -> Decimal | None:
        """Return a share of a machine, None for an empty field. Raises TraceError out of bounds."""
        share = self.number(name)
        if share is not None and not 0 <= share <= SHARE_MAX:
            raise TraceError(self.where, f"{name}: {share} is no share from 0 to {SHARE_MAX}")
        return share

    def seconds_ns(self, name: str) -> int | None:
        """Return a time in s as ns, None for an empty field. Raises TraceError out of bounds."""
        seconds = self.number(name)
        if seconds is None:
            return None
        if abs(seconds) > SECONDS_MAX:
            raise TraceError(self.where, f"{name}: {self.text(name)!r} where a time in s is wanted")
        return int((seconds * SECOND_NS).to_integral_value())

    def _refuse(self, name: str, text: str) -> NoReturn:
        raise TraceError(self.where, f"{name}: {text!r} where a number is wanted")


def rows(path: Path, columns: Sequence[str] = ()) -> Iterator[Row]:
    """Yield the rows of a file; `columns` names those of a file without a first line of names.

    Empty lines, and lines that begin with "#", are passed over. Raises TraceError where the file
    is no CSV, or where a row has another number of fields than there are columns.
    """
    with open_plain(path) as file:
        text = io.TextIOWrapper(file, encoding="utf-8-sig", newline="")
        reader = csv.reader(text)
        names: Sequence[str] = columns
        try:
            for fields in reader:
                if not fields or fields[0][:1] == "#":
                    continue
                if not names:
                    names = [name.strip() for name in fields]
                    continue
                if len(fields) != len(names):
                    where = f"{path}, line {reader.line_num}"
                    problem = f"{len(fields)} fields where {len(names)} are wanted"
                    raise TraceError(where, problem)
                yield Row(path, reader.line_num, dict(zip(names, fields, strict=False)))
        except (csv.Error, UnicodeDecodeError) as error:
            raise TraceError(f"{path}, line {reader.line_num}", f"is no CSV: {error}") from error


def decimal(text: str) -> Decimal | None:
    """Return a number that is finite; None where the text is none."""
    try:
        number = Decimal(text)
    except InvalidOperation:
        return None
    return number if number.is_finite() else None


def first_fields(start: bytes) -> list[str]:
    """Return the fields of the first row of content that begins with `start`, [] for none."""
    for line in start.decode("utf-8-sig", "replace").splitlines():
        if line.strip() and line[0] != "#":
            return [field.strip() for field in next(csv.reader([line]), [])]
    return []
