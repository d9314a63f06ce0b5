"""Plays files of vectors against running services, and reports the differences."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import grpc

from replay.backends.processes import EmbeddedServices
from replay.backends.stream import describe
from replay.conform.autoscaler.estimates import estimate_difference, expander_difference
from replay.conform.autoscaler.session import autoscaler_difference
from replay.conform.vectors.eviction import eviction_difference
from replay.conform.vectors.queue import queue_difference, streamed_queue_difference
from replay.conform.vectors.scheduling import scheduling_difference
from replay.conform.vectors.vectors import Json, UnreadableVector, VectorKind, kind_of, read_lines
from replay.conform.vectors.versions import version_of
from replay.errors import BackendError
from services.rpc.access import PLAIN, ClientTls
from services.rpc.client import channel

Compare = Callable[[grpc.Channel, str, Json], str]
"""Plays a vector of a version and returns the service's difference, "" if none."""


@dataclass(frozen=True, slots=True)
class _Player:
    """How vectors of a kind are played through a service."""

    service: str
    compare: Compare


_PLAYERS = {
    VectorKind.SCHEDULING: _Player("scheduler", scheduling_difference),
    VectorKind.QUEUE: _Player("queue", queue_difference),
    VectorKind.EVICTION: _Player("eviction", eviction_difference),
    VectorKind.AUTOSCALER: _Player("autoscaler", autoscaler_difference),
}
"""Vectors of the other kinds are played through this installation's own core."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A vector for which a service's response differs, and how."""

    id: str
    tags: tuple[str, ...]
    text: str


@dataclass(slots=True)
class TopicCounts:
    """The numbers of a topic's vectors that agree and that differ."""

    passed: int = 0
    failed: int = 0


@dataclass(slots=True, kw_only=True)
class FileConformance:
    """The result of a file: the counts of its topics, and the differences."""

    path: Path
    kind: VectorKind
    version: str
    topics: dict[str, TopicCounts] = field(default_factory=dict)
    differences: list[Difference] = field(default_factory=list)

    @property
    def service(self) -> str:
        """Return the service that played the vectors; "": none, but our own core."""
        player = _PLAYERS.get(self.kind)
        return "" if player is None else player.service

    @property
    def vectors(self) -> int:
        """Return the number of vectors played."""
        return self.passed + self.failed

    @property
    def passed(self) -> int:
        """Return the number of vectors that agree."""
        return sum(topic.passed for topic in self.topics.values())

    @property
    def failed(self) -> int:
        """Return the number of vectors that differ."""
        return len(self.differences)

    def note(self, id_: str, tags: tuple[str, ...], text: str) -> None:
        """Count a vector; its first tag is its topic, `text` its difference, "" if none."""
        topic = self.topics.setdefault(tags[0] if tags else "", TopicCounts())
        if text:
            topic.failed += 1
            self.differences.append(Difference(id=id_, tags=tags, text=text))
        else:
            topic.passed += 1

    def to_mapping(self) -> dict[str, Any]:
        """Return the result as JSON data."""
        return {
            "file": str(self.path),
            "kind": self.kind.value,
            "version": self.version,
            "service": self.service or None,
            "vectors": self.vectors,
            "passed": self.passed,
            "failed": self.failed,
            "topics": {name: asdict(topic) for name, topic in sorted(self.topics.items())},
            "differences": [
                {"id": difference.id, "tags": list(difference.tags), "difference": difference.text}
                for difference in self.differences
            ],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoints:
    """The services' addresses by name; services without one are started as child processes."""

    addresses: dict[str, str] = field(default_factory=dict)
    tls: ClientTls = PLAIN


def files_of(paths: list[Path], version: str = "") -> list[FileConformance]:
    """Return the results of files that are not played yet. Raises VectorError.

    `version` is upstream's version of the vectors; "": that which each file's vectors show.
    """
    kinds = [(path, kind_of(path)) for path in paths]
    return [
        FileConformance(path=path, kind=kind, version=version or version_of(path, kind))
        for path, kind in kinds
    ]


def play(
    files: list[FileConformance],
    endpoints: Endpoints,
    *,
    stream: bool = False,
    wanted: Callable[[str], bool] = lambda _id: True,
    progress: Callable[[FileConformance], None] = lambda _file: None,
) -> None:
    """Play all vectors whose id is `wanted`, and count each one in `files`.

    A vector that cannot be read counts as a difference. `stream` plays the queue's scripts by its
    stream instead of by unary RPCs. Raises BackendError if a service is unavailable.
    """
    players = dict(_PLAYERS)
    if stream:
        players[VectorKind.QUEUE] = replace(
            _PLAYERS[VectorKind.QUEUE], compare=streamed_queue_difference
        )
    with _channels({file.kind for file in files}, endpoints) as channels:
        for file in files:
            compare = _compare(file, players, channels)
            for number, line in enumerate(read_lines(file.path), 1):
                id_, tags = _name(line, number)
                if not wanted(id_):
                    continue
                text = _difference(compare, file.service, line)
                file.note(id_, tags, text)
                progress(file)


def _compare(
    file: FileConformance,
    players: Mapping[VectorKind, _Player],
    channels: Mapping[VectorKind, grpc.Channel],
) -> Callable[[Json], str]:
    """Return what plays a vector of a file and returns the difference, "" if none."""
    player = players.get(file.kind)
    if player is not None:
        return partial(player.compare, channels[file.kind], file.version)
    return estimate_difference if file.kind is VectorKind.ESTIMATE else expander_difference


def _difference(compare: Callable[[Json], str], service: str, line: Json | UnreadableVector) -> str:
    if isinstance(line, UnreadableVector):
        return f"the vector cannot be read: it {line.reason}"
    try:
        return compare(line)
    except grpc.RpcError as error:
        if isinstance(error, grpc.Call) and error.code() is grpc.StatusCode.UNAVAILABLE:
            raise BackendError(f"{service}: {describe(error)}") from error
        return f"the service returned {describe(error)}"
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        return f"the vector cannot be read: {error!r}"


def _name(line: Json | UnreadableVector, number: int) -> tuple[str, tuple[str, ...]]:
    """Return a vector's id, "line N" where it has none, and its tags."""
    plain = {} if isinstance(line, UnreadableVector) else line.get("scenario", line)
    named = plain if isinstance(plain, dict) else {}
    tags = named.get("tags")
    listed = tuple(map(str, tags)) if isinstance(tags, list) else ()
    return str(named.get("id") or f"line {number}"), listed


@contextmanager
def _channels(
    kinds: set[VectorKind], endpoints: Endpoints
) -> Iterator[dict[VectorKind, grpc.Channel]]:
    served = kinds & _PLAYERS.keys()
    missing = {kind for kind in served if _PLAYERS[kind].service not in endpoints.addresses}
    started: AbstractContextManager[EmbeddedServices] = EmbeddedServices(
        scheduler=bool(missing & {VectorKind.SCHEDULING, VectorKind.QUEUE}),
        eviction=VectorKind.EVICTION in missing,
        autoscaler=VectorKind.AUTOSCALER in missing,
    )
    with started as embedded:
        opened = {
            kind: channel(embedded.addresses[_PLAYERS[kind].service])
            if kind in missing
            else channel(endpoints.addresses[_PLAYERS[kind].service], endpoints.tls)
            for kind in sorted(served, key=lambda kind: kind.value)
        }
        try:
            yield opened
        finally:
            for connection in opened.values():
                connection.close()
