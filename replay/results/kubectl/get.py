"""`kubectl get` on a run's cluster, at a moment or as a watch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import orjson
import yaml
from google.protobuf.message import Message

from replay.errors import RunError
from replay.results.kubectl import events, rows
from replay.results.kubectl.events import KubeEvent, KubeEvents
from replay.results.kubectl.rows import TableWriter
from replay.results.run.cluster import ClusterObjects, ObjectChange
from replay.results.run.directory import RunDirectory
from reprieve.kube.v1beta1 import node_pb2, pod_pb2
from services.rpc.kube.codec import object_to_json

KINDS = {"pods": "Pod", "nodes": "Node"}
RESOURCES = (*KINDS, "events")
OUTPUTS = ("table", "wide", "json", "yaml")
Write = Callable[[str], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class GetQuery:
    """What to print and how.

    resource: one of RESOURCES. output: one of OUTPUTS.
    namespace: "" for every namespace. Its column is shown where `show_namespace` is set, and where
        the run's pods are in several namespaces and all are printed.
    offset_ns: the moment, from the run's first event on; None: the end, or the beginning where
        `watch` is set.
    watch: continue with a row for each change.
    kubernetes_version: of the kubectl whose STATUS is printed; "": the recorded cluster's.
    """

    resource: str
    output: str = "table"
    namespace: str = ""
    show_namespace: bool = False
    offset_ns: int | None = None
    watch: bool = False
    kubernetes_version: str = ""


def get(run: RunDirectory, query: GetQuery, write: Write) -> int:
    """Print objects with `write`, a piece at a time, and return how many.

    Raises RunError where the run's history cannot be read, and for a moment after its end.
    """
    if query.offset_ns is not None:
        run.check_moment(query.offset_ns)
    printer = _printer(run, query, write)
    count = 0
    batches = _event_batches(run, query) if query.resource == "events" else _batches(run, query)
    for now_ns, items in batches:
        printer.add(now_ns, items)
        count += len(items)
    printer.close()
    return count


_Item = Message | KubeEvent
_Batch = tuple[int, Sequence[_Item]]


def _batches(run: RunDirectory, query: GetQuery) -> Iterator[_Batch]:
    """Yield the objects at the moment of the query, then the changes after it."""
    history = ClusterObjects()
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


def _event_batches(run: RunDirectory, query: GetQuery) -> Iterator[_Batch]:
    """Yield the Events at the moment of the query, then those after it.

    In a watch, an Event comes again each time that it is counted.
    """
    start_ns = _start_ns(run)
    moment_ns = None if query.offset_ns is None else start_ns + query.offset_ns
    standing = KubeEvents()
    last_ns = start_ns
    listed = moment_ns is None and query.watch
    for decision in run.decisions():
        if not listed and moment_ns is not None and decision.at_ns > moment_ns:
            yield moment_ns, _of_namespace(standing.standing(moment_ns), query)
            listed = True
            if not query.watch:
                return
        last_ns = decision.at_ns
        event = standing.take(decision)
        if event is not None and listed and _of_namespace([event], query):
            yield decision.at_ns, [event]
    if not listed:
        moment_ns = last_ns if moment_ns is None else moment_ns
        yield moment_ns, _of_namespace(standing.standing(moment_ns), query)


def _start_ns(run: RunDirectory) -> int:
    return next((event.at_ns for round_ in run.rounds() for event in round_.events), 0)


def _of_namespace(found: Sequence[KubeEvent], query: GetQuery) -> list[KubeEvent]:
    return [each for each in found if query.namespace in ("", each.namespace)]


def _listed(history: ClusterObjects, query: GetQuery) -> Sequence[_Item]:
    kind = KINDS[query.resource]
    keys = sorted(
        key for key in history.objects if key[0] == kind and query.namespace in ("", key[1])
    )
    return [history.objects[key] for key in keys]


def _is_wanted(change: ObjectChange, query: GetQuery) -> bool:
    kind, namespace, _ = change.key
    return kind == KINDS[query.resource] and query.namespace in ("", namespace)


class _Printer(Protocol):
    def add(self, now_ns: int, items: Sequence[_Item]) -> None: ...
    def close(self) -> None: ...


def _printer(run: RunDirectory, query: GetQuery, write: Write) -> _Printer:
    match query.output:
        case "table" | "wide":
            version = query.kubernetes_version or run.manifest().kubernetes_version
            return _Table(query, version, write, show_namespace=_shows_namespace(run, query))
        case "json" | "yaml":
            return _Objects(query, write)
    raise ValueError(f"{query.output!r} is not an output; outputs are {', '.join(OUTPUTS)}")


def _shows_namespace(run: RunDirectory, query: GetQuery) -> bool:
    if query.resource == "nodes":
        return False
    return query.show_namespace or (not query.namespace and _has_several_namespaces(run))


def _has_several_namespaces(run: RunDirectory) -> bool:
    """Return whether the summary has several namespaces; True for a run without a summary."""
    try:
        return len(run.summary().get("namespaces", ())) > 1
    except RunError:
        return True


class _Table:
    def __init__(
        self, query: GetQuery, kubernetes_version: str, write: Write, *, show_namespace: bool
    ) -> None:
        wide = query.output == "wide"
        columns: tuple[str, ...]
        if query.resource == "events":
            columns = events.COLUMNS_WIDE if wide else events.COLUMNS
        elif query.resource == "nodes":
            columns = rows.NODE_COLUMNS_WIDE if wide else rows.NODE_COLUMNS
        else:
            columns = rows.POD_COLUMNS_WIDE if wide else rows.POD_COLUMNS
        self._wide = wide
        self._width = len(columns)
        self._shows_phase = rows.shows_phase_of_ended(kubernetes_version)
        self._show_namespace = show_namespace
        shown = ("NAMESPACE", *columns) if show_namespace else columns
        self._table = TableWriter(shown, write)

    def add(self, now_ns: int, items: Sequence[_Item]) -> None:
        self._table.rows([self._row(item, now_ns) for item in items])

    def close(self) -> None:
        pass

    def _row(self, item: _Item, now_ns: int) -> tuple[str, ...]:
        if isinstance(item, node_pb2.Node):
            return rows.node_row(item, now_ns)[: self._width]
        if isinstance(item, KubeEvent):
            namespace, row = item.namespace, item.row(now_ns, wide=self._wide)
        else:
            assert isinstance(item, pod_pb2.Pod)  # noqa: S101 - RESOURCES has no more kinds
            row = rows.pod_row(item, now_ns, shows_phase=self._shows_phase)[: self._width]
            namespace = item.metadata.namespace
        return (namespace, *row) if self._show_namespace else row


class _Objects:
    """Whole objects: one List at the end, or one object after the other in a watch."""

    def __init__(self, query: GetQuery, write: Write) -> None:
        self._query = query
        self._write = write
        self._items: list[dict[str, Any]] = []

    def add(self, now_ns: int, items: Sequence[_Item]) -> None:  # noqa: ARG002 - a protocol's
        if not self._query.watch:
            self._items += map(_mapping, items)
            return
        separator = "---\n" if self._query.output == "yaml" else ""
        for item in items:
            self._write(separator + _text(_mapping(item), self._query.output))

    def close(self) -> None:
        if not self._query.watch:
            whole = {"apiVersion": "v1", "kind": "List", "metadata": {}, "items": self._items}
            self._write(_text(whole, self._query.output))


def _mapping(item: _Item) -> dict[str, Any]:
    return item.to_mapping() if isinstance(item, KubeEvent) else object_to_json(item)


def _text(mapping: dict[str, Any], output: str) -> str:
    if output == "yaml":
        return yaml.safe_dump(mapping, sort_keys=False, allow_unicode=True)
    return orjson.dumps(mapping, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE).decode()
