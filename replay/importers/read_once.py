"""Manifests and recordings that were read are not read again while their files are the same.

A command opens its trace several times: for its first records, for what overrides name, and for the
replay; a search does so for each of its replays. Records are kept as bytes, because their readers
may change them.
"""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from replay import bounds
from replay.importers.records import ImportOptions, Load
from reprieve.trace.v1beta1.trace_pb2 import Record

KEPT_BYTES = 64 << 20
"""Bytes of records that are kept, of all traces together; the oldest trace goes first."""
SETTLED_NS = 20_000_000
"""How long ago a file's last change must be: two within one tick of its clock have one time."""

_Key = tuple[Any, ...]
_kept: list[tuple[_Key, list[bytes]]] = []


def read_once(load: Load) -> Load:
    """Return `load` for a format whose trace is made of the given files alone.

    A process reads a file again only after it changed, or for other options or bounds.
    """

    @functools.wraps(load)
    def kept_or_loaded(paths: Sequence[Path], options: ImportOptions) -> Iterator[Record]:
        files = _identities(paths)
        if files is None:
            return load(paths, options)
        key = (load, files, options, bounds.bounds())
        content = next((content for known, content in _kept if known == key), None)
        if content is not None:
            return map(Record.FromString, content)
        content, size, records = [], 0, load(paths, options)
        for record in records:
            content.append(record.SerializeToString())
            size += len(content[-1])
            if size > KEPT_BYTES:
                return itertools.chain(map(Record.FromString, content), records)
        _keep(key, content, size)
        return map(Record.FromString, content)

    return kept_or_loaded


def _identities(paths: Sequence[Path]) -> _Key | None:
    """Return what differs after any change of the files; None if they may change unseen."""
    try:
        states = [path.stat() for path in paths]
    except OSError:
        return None  # reading the file raises it again
    newest_ns = max(max(file.st_mtime_ns, file.st_ctime_ns) for file in states)
    if time.time_ns() - newest_ns <= SETTLED_NS:
        return None
    times = ((file.st_size, file.st_mtime_ns, file.st_ctime_ns) for file in states)
    places = ((file.st_dev, file.st_ino) for file in states)
    return tuple(zip(map(str, paths), places, times, strict=True))


def _keep(key: _Key, content: list[bytes], size: int) -> None:
    while _kept and size + sum(len(data) for _, kept in _kept for data in kept) > KEPT_BYTES:
        del _kept[-1]
    _kept.insert(0, (key, content))
