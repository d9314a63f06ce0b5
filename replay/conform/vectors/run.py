"""Playing a file of vectors and keeping what differs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import grpc

from replay.backends.processes import EmbeddedServices
from replay.backends.stream import describe
from replay.conform.vectors.eviction import eviction_difference
from replay.conform.vectors.queue import queue_difference
from replay.conform.vectors.scheduling import scheduling_difference
from replay.conform.vectors.vectors import Json, Kind, Unreadable, kind_of, read_lines, version_in
from replay.errors import BackendError
from services.rpc.client import PLAIN, ClientTls, channel

Compare = Callable[[Json], str]
"""Plays a vector and returns how the service differs, "" where it does not."""
_DEFAULT_VERSION = {Kind.SCHEDULING: "v1.34", Kind.QUEUE: "v1.34", Kind.EVICTION: "v1.32"}
_SERVICE = {Kind.SCHEDULING: "scheduler", Kind.QUEUE: "queue", Kind.EVICTION: "eviction"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A vector that a service answers otherwise, and how."""

    id: str
    tags: tuple[str, ...]
    text: str


@dataclass(slots=True)
class Topic:
    """How many of a topic's vectors agree, and how many do not."""

    passed: int = 0
    failed: int = 0


@dataclass(slots=True, kw_only=True)
class Conformance:
    """What became of a file: how many vectors of each topic agree, and the others."""

    path: Path
    kind: Kind
    version: str
    topics: dict[str, Topic] = field(default_factory=dict)
    differences: list[Difference] = field(default_factory=list)

    @property
    def vectors(self) -> int:
        """Return how many were played."""
        return self.passed + self.failed

    @property
    def passed(self) -> int:
        """Return how many agree."""
        return sum(each.passed for each in self.topics.values())

    @property
    def failed(self) -> int:
        """Return how many do not."""
        return len(self.differences)

    def note(self, id_: str, tags: tuple[str, ...], text: str) -> None:
        """Take what became of a vector; its first tag is its topic, `text` "" if it agrees."""
        topic = self.topics.setdefault(tags[0] if tags else "", Topic())
        if text:
            topic.failed += 1
            self.differences.append(Difference(id=id_, tags=tags, text=text))
        else:
            topic.passed += 1

    def to_mapping(self) -> dict[str, Any]:
        """Return it for programs."""
        return {
            "file": str(self.path),
            "kind": self.kind.value,
            "version": self.version,
            "vectors": self.vectors,
            "passed": self.passed,
            "failed": self.failed,
            "topics": {name: asdict(each) for name, each in sorted(self.topics.items())},
            "differences": [
                {"id": each.id, "tags": list(each.tags), "difference": each.text}
                for each in self.differences
            ],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoints:
    """Where the services are, by name; those that are missing are started as child processes."""

    addresses: dict[str, str] = field(default_factory=dict)
    tls: ClientTls = PLAIN


def files_of(paths: list[Path], version: str = "") -> list[Conformance]:
    """Return what is to be played, nothing of it yet. Raises VectorError.

    `version` is whose rules the vectors are of; "" goes by each file's name.
    """
    found = []
    for path in paths:
        kind = kind_of(path)
        told = version or version_in(path) or _DEFAULT_VERSION[kind]
        found.append(Conformance(path=path, kind=kind, version=told))
    return found


def play(
    files: list[Conformance],
    endpoints: Endpoints,
    *,
    stream: bool = False,
    wanted: Callable[[str], bool] = lambda _id: True,
    progress: Callable[[Conformance], None] = lambda _file: None,
) -> None:
    """Play all vectors whose id is `wanted` and note in `files` what became of each.

    A vector that cannot be read counts as one that differs. `stream` plays the queue's scripts by
    its stream instead of by unary RPCs. Raises BackendError where a service is broken.
    """
    with _channels({each.kind for each in files}, endpoints) as channels:
        for file in files:
            compare = _comparer(file, channels[file.kind], stream=stream)
            for number, line in enumerate(read_lines(file.path), 1):
                id_, tags = _name(line, number)
                if not wanted(id_):
                    continue
                file.note(id_, tags, _compared(compare, line, file.kind))
                progress(file)


def _comparer(file: Conformance, opened: grpc.Channel, *, stream: bool) -> Compare:
    match file.kind:
        case Kind.EVICTION:
            return lambda vector: eviction_difference(opened, file.version, vector)
        case Kind.QUEUE:
            return lambda vector: queue_difference(opened, file.version, vector, stream=stream)
        case Kind.SCHEDULING:
            return lambda vector: scheduling_difference(opened, vector)


def _compared(compare: Compare, line: Json | Unreadable, kind: Kind) -> str:
    if isinstance(line, Unreadable):
        return f"the vector cannot be read: it {line.reason}"
    try:
        return compare(line)
    except grpc.RpcError as error:
        if isinstance(error, grpc.Call) and error.code() is grpc.StatusCode.UNAVAILABLE:
            raise BackendError(f"{_SERVICE[kind]}: {describe(error)}") from error
        return f"the service answers {describe(error)}"
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        return f"the vector cannot be read: {error!r}"


def _name(line: Json | Unreadable, number: int) -> tuple[str, tuple[str, ...]]:
    """Return a vector's id and tags; where it has no id, its line stands for that."""
    plain = {} if isinstance(line, Unreadable) else line.get("scenario", line)
    named = plain if isinstance(plain, dict) else {}
    tags = named.get("tags")
    listed = tuple(map(str, tags)) if isinstance(tags, list) else ()
    return str(named.get("id") or f"line {number}"), listed


@contextmanager
def _channels(kinds: set[Kind], endpoints: Endpoints) -> Iterator[dict[Kind, grpc.Channel]]:
    missing = {kind for kind in kinds if _SERVICE[kind] not in endpoints.addresses}
    started: AbstractContextManager[EmbeddedServices] = EmbeddedServices(
        scheduler=bool(missing & {Kind.SCHEDULING, Kind.QUEUE}), eviction=Kind.EVICTION in missing
    )
    with started as embedded:
        opened = {
            kind: channel(embedded.addresses[_SERVICE[kind]])
            if kind in missing
            else channel(endpoints.addresses[_SERVICE[kind]], endpoints.tls)
            for kind in sorted(kinds, key=lambda each: each.value)
        }
        try:
            yield opened
        finally:
            for each in opened.values():
                each.close()
