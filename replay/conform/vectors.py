"""Files of golden vectors: which kind they are of, and whose version."""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

import orjson

Json = dict[str, Any]
_VERSION = re.compile(r"-(v\d+\.\d+)(?=[-.])")


class VectorError(ValueError):
    """A file that cannot be read as vectors; the text is for people."""


class Kind(Enum):
    """Which service a file of vectors is for."""

    SCHEDULING = "scheduling"
    QUEUE = "queue"
    EVICTION = "eviction"


def read_vectors(path: Path) -> Iterator[Json]:
    """Yield the JSON objects of a file, one a line, gzipped or not. Raises VectorError."""
    opened = gzip.open if path.suffix == ".gz" else open
    number = 0
    try:
        with opened(path, "rb") as lines:
            for number, line in enumerate(lines, 1):
                vector = orjson.loads(line)
                if not isinstance(vector, dict):
                    raise VectorError(f"{path}, line {number}: is no JSON object")
                yield vector
    except orjson.JSONDecodeError as error:
        raise VectorError(f"{path}, line {number}: is no JSON: {error}") from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise VectorError(f"{path}: is no whole gzip file: {error}") from error
    except OSError as error:
        raise VectorError(f"{path}: {error.strerror or error}") from error


def kind_of(path: Path) -> Kind:
    """Return the kind of a file by its first vector. Raises VectorError where that is none."""
    first = next(read_vectors(path), None)
    if first is None:
        raise VectorError(f"{path}: holds no vectors")
    if "scenario" in first:
        return Kind.SCHEDULING
    config = first.get("config")
    if isinstance(config, dict) and "script" in first:
        return Kind.QUEUE if "initial_backoff_ms" in config else Kind.EVICTION
    raise VectorError(f"{path}: its first line is neither a scenario nor a script")


def version_in(path: Path) -> str:
    """Return the version that a file's name tells, such as "v1.34", "" where it tells none."""
    found = _VERSION.search(path.name)
    return found[1] if found else ""
