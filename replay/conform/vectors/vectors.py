"""Files of golden vectors: which kind they are of, and whose version."""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import orjson

from replay.bundled import bundled

Json = dict[str, Any]
RECORDED = bundled("conformance")
"""The vectors that come with Reprieve, one file for each kind and version."""
_NO_VECTOR = "is neither a scenario nor a script"
_VERSION = re.compile(r"-(v\d+\.\d+)(?=[-.])")


class VectorError(ValueError):
    """A file that cannot be read as vectors; the text is for people."""


class Kind(Enum):
    """Which service a file of vectors is for."""

    SCHEDULING = "scheduling"
    QUEUE = "queue"
    EVICTION = "eviction"


def recorded_files() -> list[Path]:
    """Return the files of RECORDED, by name. Raises VectorError if there are no files."""
    found = sorted(RECORDED.glob("*.jsonl.gz"))
    if not found:
        raise VectorError(f"{RECORDED}: holds no vectors: name files of them")
    return found


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A line, counted from 1, that is not a JSON object, and why."""

    line: int
    reason: str


def read_lines(path: Path) -> Iterator[Json | Unreadable]:
    """Yield what stands in the lines of a file, gzipped or not, up to where it breaks off.

    Raises VectorError where the file cannot be opened.
    """
    opened = gzip.open if path.suffix == ".gz" else open
    number = 0
    try:
        with opened(path, "rb") as lines:
            for number, line in enumerate(lines, 1):
                yield _read(line, number)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        yield Unreadable(number + 1, f"is not a whole gzip file: {error}")
    except OSError as error:
        raise VectorError(f"{path}: {error.strerror or error}") from error


def _read(line: bytes, number: int) -> Json | Unreadable:
    try:
        vector = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        return Unreadable(number, f"is not JSON: {error}")
    return vector if isinstance(vector, dict) else Unreadable(number, "is not a JSON object")


def kind_of(path: Path) -> Kind:
    """Return the kind of a file by its first vector. Raises VectorError where it holds none."""
    problem = ""
    for number, line in enumerate(read_lines(path), 1):
        kind = None if isinstance(line, Unreadable) else _kind(line)
        if kind is not None:
            return kind
        reason = line.reason if isinstance(line, Unreadable) else _NO_VECTOR
        problem = problem or f"{path}, line {number}: {reason}"
    raise VectorError(problem or f"{path}: holds no vectors")


def _kind(vector: Json) -> Kind | None:
    if "scenario" in vector:
        return Kind.SCHEDULING
    config = vector.get("config")
    if isinstance(config, dict) and "script" in vector:
        return Kind.QUEUE if "initial_backoff_ms" in config else Kind.EVICTION
    return None


def version_in(path: Path) -> str:
    """Return the version that a file's name tells, such as "v1.34", "" where it tells none."""
    found = _VERSION.search(path.name)
    return found[1] if found else ""
