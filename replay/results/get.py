"""What kubectl would have printed of a run's cluster, at a moment or as it changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import orjson
import yaml
from google.protobuf.message import Message

from replay.results import kubectl
from replay.results.errors import RunError
from replay.results.history import Change, ClusterHistory
from replay.results.run_directory import RunDirectory
from replay.results.table_writer import TableWriter
from reprieve.kube.v1alpha1 import node_pb2, pod_pb2
from services.rpc.kube_kinds import object_to_json

KINDS = {"pods": "Pod", "nodes": "Node"}
OUTPUTS = ("table", "wide", "json", "yaml")
Write = Callable[[str], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """What to print.

    resource: a key of KINDS. output: one of OUTPUTS.
    namespace: "" for every namespace. Its column is shown where `show_namespace` is set, and where
        the run's pods are of several namespaces and all are asked for.
    offset_ns: the moment, from the run's first round on; None: the end, or the beginning where
        `watch` is set, which goes on with a row for each change.
    kubernetes_version: whose kubectl prints STATUS; "" follows the recorded cluster's.
    """

    resource: str
    output: str = "table"
    namespace: str = ""
    show_namespace: bool = False
    offset_ns: int | None = None
    watch: bool = False
    kubernetes_version: str = ""


def get(run: RunDirectory, query: Query, write: Write) -> int:
    """Print what `query` asks for with `write`, a piece at a time, and return how many objects.

    Raises RunError where the run's history cannot be read.
    """
    printer = _printer(run, query, write)
    count = 0
    for now_ns, messages in _batches(run, query):
        printer.add(now_ns, messages)
        count += len(messages)
    printer.close()
    return count


_Batch = tuple[int, Sequence[Message]]


def _batches(run: RunDirectory, query: Query) -> Iterator[_Batch]:
    """Yield the objects at the moment that is asked for, then the changes after it."""
    history = ClusterHistory()
    start_ns = moment_ns = last_ns = 0
    listed = False
    for number, event in enumerate(event for round_ in run.rounds() for event in round_.events):
        if number == 0:
            start_ns = event.at_ns
        if query.offset_ns is not None:
            moment_ns = start_ns + query.offset_ns
            if event.at_ns > moment_ns and not listed:
                yield moment_ns, _listed(history, query)
                listed = True
                if not query.watch:
                    return
        last_ns = event.at_ns
        watching = query.watch and (listed or query.offset_ns is None)
        change = history.take(event)
        if watching and change is not None and _is_wanted(change, query):
            yield change.at_ns, [change.message]
    if not listed and not (query.watch and query.offset_ns is None):
        yield max(moment_ns, last_ns), _listed(history, query)


def _listed(history: ClusterHistory, query: Query) -> list[Message]:
    kind = KINDS[query.resource]
    keys = sorted(
        key for key in history.objects if key[0] == kind and query.namespace in ("", key[1])
    )
    return [history.objects[key] for key in keys]


def _is_wanted(change: Change, query: Query) -> bool:
    kind, namespace, _ = change.key
    return kind == KINDS[query.resource] and query.namespace in ("", namespace)


class _Printer(Protocol):
    def add(self, now_ns: int, messages: Sequence[Message]) -> None: ...
    def close(self) -> None: ...


def _printer(run: RunDirectory, query: Query, write: Write) -> _Printer:
    match query.output:
        case "table" | "wide":
            version = query.kubernetes_version or run.manifest().kubernetes_version
            return _Table(query, version, write, show_namespace=_shows_namespace(run, query))
        case "json" | "yaml" if query.watch:
            return _Stream(query.output, write)
        case "json" | "yaml":
            return _List(query.output, write)
    raise ValueError(f"{query.output!r} is none of {', '.join(OUTPUTS)}")


def _shows_namespace(run: RunDirectory, query: Query) -> bool:
    if query.resource == "nodes":
        return False
    return query.show_namespace or (not query.namespace and _has_several_namespaces(run))


def _has_several_namespaces(run: RunDirectory) -> bool:
    """Tell what the summary tells; a run without one may have any number."""
    try:
        return len(run.summary().get("namespaces", ())) > 1
    except RunError:
        return True


class _Table:
    def __init__(
        self, query: Query, kubernetes_version: str, write: Write, *, show_namespace: bool
    ) -> None:
        wide = query.output == "wide"
        columns: tuple[str, ...]
        if query.resource == "nodes":
            columns = kubectl.NODE_COLUMNS_WIDE if wide else kubectl.NODE_COLUMNS
        else:
            columns = kubectl.POD_COLUMNS_WIDE if wide else kubectl.POD_COLUMNS
        self._width = len(columns)
        self._shows_phase = kubectl.shows_phase_of_ended(kubernetes_version)
        self._show_namespace = show_namespace
        shown = ("NAMESPACE", *columns) if show_namespace else columns
        self._table = TableWriter(shown, write)

    def add(self, now_ns: int, messages: Sequence[Message]) -> None:
        self._table.rows([self._row(message, now_ns) for message in messages])

    def close(self) -> None:
        pass

    def _row(self, message: Message, now_ns: int) -> tuple[str, ...]:
        if isinstance(message, node_pb2.Node):
            return kubectl.node_row(message, now_ns)[: self._width]
        assert isinstance(message, pod_pb2.Pod)  # noqa: S101 - KINDS has pods and nodes only
        row = kubectl.pod_row(message, now_ns, shows_phase=self._shows_phase)[: self._width]
        return (message.metadata.namespace, *row) if self._show_namespace else row


class _Stream:
    """Whole objects one after the other, as a watch prints them."""

    def __init__(self, output: str, write: Write) -> None:
        self._output = output
        self._write = write

    def add(self, now_ns: int, messages: Sequence[Message]) -> None:  # noqa: ARG002 - a protocol's
        for message in messages:
            separator = "---\n" if self._output == "yaml" else ""
            self._write(separator + _text(object_to_json(message), self._output))

    def close(self) -> None:
        pass


class _List:
    """Whole objects as one List."""

    def __init__(self, output: str, write: Write) -> None:
        self._output = output
        self._write = write
        self._items: list[dict[str, Any]] = []

    def add(self, now_ns: int, messages: Sequence[Message]) -> None:  # noqa: ARG002 - a protocol's
        self._items += map(object_to_json, messages)

    def close(self) -> None:
        whole = {"apiVersion": "v1", "kind": "List", "metadata": {}, "items": self._items}
        self._write(_text(whole, self._output))


def _text(mapping: dict[str, Any], output: str) -> str:
    if output == "yaml":
        return yaml.safe_dump(mapping, sort_keys=False, allow_unicode=True)
    return orjson.dumps(mapping, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE).decode()
