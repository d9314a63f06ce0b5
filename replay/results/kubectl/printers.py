"""Prints objects for `get`: tables, whole objects, names, templates."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import orjson
from google.protobuf.message import Message

from replay.results.kubectl.events import KubeEvent
from replay.results.kubectl.fields import CustomColumns
from replay.results.kubectl.jsonpath import Template
from replay.results.kubectl.resources import Resource
from replay.results.kubectl.rows import NONE, TableWriter, pairs
from replay.results.kubectl.tables import TABLES, cells
from services.kube.yaml_scalars import written
from services.rpc.kube.codec import object_to_json
from services.terminal import escaped, json_text, one_line

OUTPUTS = ("table", "wide", "json", "yaml", "name")
TEMPLATE = "jsonpath="
"""Prefix of -o jsonpath=TEMPLATE."""
CUSTOM = "custom-columns="
"""Prefix of -o custom-columns=HEADER:PATH,..."""
Write = Callable[[str], object]
Item = Message | KubeEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """The options of all printers.

    output: one of OUTPUTS, or TEMPLATE followed by a template. is_list: whether -o json and yaml
    print a List even for one object. is_watch: whether each object is printed at once, without a
    List. shows_kind: whether names are printed as TYPE/NAME. shows_phase: as in rows.pod_status.
    headers: whether tables have headers. label_columns: labels with a column each. shows_labels:
    whether a column lists all labels.
    """

    output: str
    is_list: bool
    is_watch: bool
    shows_kind: bool
    shows_phase: bool
    headers: bool = True
    label_columns: Sequence[str] = ()
    shows_labels: bool = False

    def label_headers(self) -> list[str]:
        """Return the headers of the columns with labels."""
        headers = [label_column.rpartition("/")[2].upper() for label_column in self.label_columns]
        return [*headers, "LABELS"] if self.shows_labels else headers

    def label_cells(self, labels: Mapping[str, str]) -> list[str]:
        """Return an object's cells in these columns."""
        values = [labels.get(label_column, NONE) for label_column in self.label_columns]
        return [*values, pairs(labels)] if self.shows_labels else values


class Printer(Protocol):
    """Prints objects type by type: `begin` for each type, `add` for each batch of its objects."""

    def begin(self, resource: Resource, *, show_namespace: bool) -> None:
        """Continue with the next type; `show_namespace`: whether it has a namespace column."""

    def add(self, now_ns: int, items: Sequence[Item]) -> None:
        """Print objects as of `now_ns`."""

    def close(self) -> None:
        """Print the output that can only be written after all objects."""


def printer(style: Style, write: Write) -> Printer:
    """Return the printer for `style.output`. Raises ValueError for an unknown output."""
    if style.output in ("table", "wide"):
        return _Table(style, write)
    if style.output.startswith(CUSTOM):
        return _Custom(style, CustomColumns.parse(style.output.removeprefix(CUSTOM)), write)
    if style.output == "name":
        return _Names(write)
    if style.output.startswith(TEMPLATE):
        template = Template(style.output.removeprefix(TEMPLATE))
        return _Objects(style, write, lambda value: escaped(template.render(value)))
    if style.output == "json":
        return _Objects(style, write, _json)
    if style.output == "yaml":
        return _Objects(style, write, _yaml, "---\n" if style.is_watch else "")
    raise ValueError(f"{style.output!r} is not an output; outputs are {', '.join(OUTPUTS)}")


class _Table:
    def __init__(self, style: Style, write: Write) -> None:
        self._style, self._write = style, write
        self._wide = style.output == "wide"
        self._written = False

    def begin(self, resource: Resource, *, show_namespace: bool) -> None:
        self._resource, self._show_namespace = resource, show_namespace
        self._of = TABLES[resource.kind]
        columns = [*self._of.shown(wide=self._wide), *self._style.label_headers()]
        shown = ("NAMESPACE", *columns) if show_namespace else columns
        self._table = TableWriter(shown, self._write, headers=self._style.headers)
        self._follows = self._written

    def add(self, now_ns: int, items: Sequence[Item]) -> None:
        if items and self._follows:
            self._write("\n")
            self._follows = False
        self._written = self._written or bool(items)
        self._table.rows([self._row(item, now_ns) for item in items])

    def close(self) -> None:
        pass

    def _row(self, item: Item, now_ns: int) -> Sequence[str]:
        shows_phase = self._style.shows_phase
        row = [*cells(self._resource.kind, item, now_ns, shows_phase=shows_phase)]
        if self._style.shows_kind:
            number = self._of.name_column
            row[number] = f"{self._resource.prefix}/{row[number]}"
        shown = [*self._of.chosen(row, wide=self._wide)]
        if self._style.label_columns or self._style.shows_labels:
            shown += self._style.label_cells(labels_of(item))
        return (namespace_of(item), *shown) if self._show_namespace else shown


class _Custom:
    """One table for objects of all types."""

    def __init__(self, style: Style, columns: CustomColumns, write: Write) -> None:
        self._columns = columns
        self._table = TableWriter(columns.headers, write, headers=style.headers)

    def begin(self, resource: Resource, *, show_namespace: bool) -> None:
        pass

    def add(self, now_ns: int, items: Sequence[Item]) -> None:
        del now_ns
        self._table.rows([self._columns.row(mapping_of(item)) for item in items])

    def close(self) -> None:
        pass


class _Names:
    def __init__(self, write: Write) -> None:
        self._write = write

    def begin(self, resource: Resource, *, show_namespace: bool) -> None:
        del show_namespace
        self._prefix = resource.prefix

    def add(self, now_ns: int, items: Sequence[Item]) -> None:
        del now_ns
        for item in items:
            self._write(f"{self._prefix}/{one_line(name_of(item))}\n")

    def close(self) -> None:
        pass


class _Objects:
    """Prints JSON or YAML: a List or one object at the end, or in a watch each object at once."""

    def __init__(
        self, style: Style, write: Write, text: Callable[[Any], str], separator: str = ""
    ) -> None:
        self._style, self._write = style, write
        self._text, self._separator = text, separator
        self._items: list[dict[str, Any]] = []

    def begin(self, resource: Resource, *, show_namespace: bool) -> None:
        pass

    def add(self, now_ns: int, items: Sequence[Item]) -> None:
        del now_ns
        if not self._style.is_watch:
            self._items += map(mapping_of, items)
            return
        for item in items:
            self._write(self._separator + self._text(mapping_of(item)))

    def close(self) -> None:
        if self._style.is_watch:
            return
        if not self._style.is_list and len(self._items) < 2:
            for item in self._items:
                self._write(self._text(item))
        else:
            whole = {"apiVersion": "v1", "kind": "List", "metadata": {}, "items": self._items}
            self._write(self._text(whole))


def name_of(item: Item) -> str:
    """Return an object's name."""
    if isinstance(item, KubeEvent):
        return item.name
    name: str = item.metadata.name  # type: ignore[attr-defined] # of an object
    return name


def namespace_of(item: Item) -> str:
    """Return an object's namespace, "" for a cluster-scoped one."""
    if isinstance(item, KubeEvent):
        return item.namespace
    namespace: str = item.metadata.namespace  # type: ignore[attr-defined] # of an object
    return namespace


def labels_of(item: Item) -> Mapping[str, str]:
    """Return an object's labels; Events have none."""
    if isinstance(item, KubeEvent):
        return {}
    labels: Mapping[str, str] = item.metadata.labels  # type: ignore[attr-defined] # of an object
    return labels


def mapping_of(item: Item) -> dict[str, Any]:
    """Return an object as JSON values."""
    return item.to_mapping() if isinstance(item, KubeEvent) else object_to_json(item)


def _json(value: Any) -> str:
    option = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE
    return json_text(orjson.dumps(value, option=option).decode())


def _yaml(value: Any) -> str:
    return written(value)
