"""Files of golden vectors: their lines and their kinds."""

from __future__ import annotations

import gzip
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


class VectorError(ValueError):
    """A file that cannot be read as vectors; the text is for users."""


class VectorKind(Enum):
    """Which service a file of vectors is for, and which part of it where no RPC has that part."""

    SCHEDULING = "scheduling"
    QUEUE = "queue"
    EVICTION = "eviction"
    AUTOSCALER = "autoscaler"
    ESTIMATE = "autoscaler-estimate"
    EXPANDER = "autoscaler-expander"


def recorded_files() -> list[Path]:
    """Return the files of RECORDED, by name. Raises VectorError if there are no files."""
    files = sorted(RECORDED.glob("*.jsonl.gz"))
    if not files:
        raise VectorError(f"{RECORDED}: has no vectors; name files of vectors")
    return files


@dataclass(frozen=True, slots=True)
class UnreadableVector:
    """A line, counted from 1, that is not a JSON object, and why."""

    line: int
    reason: str


def read_lines(path: Path) -> Iterator[Json | UnreadableVector]:
    """Yield the lines of a file, gzipped or not, up to the end of its readable part.

    Raises VectorError if the file cannot be opened.
    """
    opened = gzip.open if path.suffix == ".gz" else open
    number = 0
    try:
        with opened(path, "rb") as lines:
            for number, line in enumerate(lines, 1):
                yield _read(line, number)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        yield UnreadableVector(number + 1, f"is not a whole gzip file: {error}")
    except OSError as error:
        raise VectorError(f"{path}: {error.strerror or error}") from error


def _read(line: bytes, number: int) -> Json | UnreadableVector:
    try:
        vector = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        return UnreadableVector(number, f"is not JSON: {error}")
    return vector if isinstance(vector, dict) else UnreadableVector(number, "is not a JSON object")


def kind_of(path: Path) -> VectorKind:
    """Return the kind of a file by its first vector. Raises VectorError for a file without one."""
    problem = ""
    for number, line in enumerate(read_lines(path), 1):
        kind = None if isinstance(line, UnreadableVector) else _kind(line)
        if kind is not None:
            return kind
        reason = line.reason if isinstance(line, UnreadableVector) else _NO_VECTOR
        problem = problem or f"{path}, line {number}: {reason}"
    raise VectorError(problem or f"{path}: has no vectors")


def _kind(vector: Json) -> VectorKind | None:
    if "scenario" in vector:
        return VectorKind.SCHEDULING
    config = vector.get("config")
    if not isinstance(config, dict):
        return None
    if "script" in vector:
        if "groups" in config:
            return VectorKind.AUTOSCALER
        return VectorKind.QUEUE if "initial_backoff_ms" in config else VectorKind.EVICTION
    if "pending" in vector and "template" in config:
        return VectorKind.ESTIMATE
    return VectorKind.EXPANDER if "options" in vector and "expander" in config else None
