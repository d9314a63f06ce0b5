"""`kubectl get` on a run's cluster, at a moment or as a watch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from google.protobuf.message import Message

from replay.errors import RunError
from replay.results.kubectl import rows
from replay.results.kubectl.events import KubeEvents
from replay.results.kubectl.fields import FieldSelector, sorted_by
from replay.results.kubectl.jsonpath import Field
from replay.results.kubectl.objects import RunObjects, changes, objects_at
from replay.results.kubectl.printers import (
    Item,
    Style,
    Write,
    labels_of,
    mapping_of,
    name_of,
    namespace_of,
    printer,
)
from replay.results.kubectl.resources import EVENTS, RESOURCES, NotFoundError, Target, targets
from replay.results.run.cluster import ObjectChange
from replay.results.run.directory import RunDirectory
from reprieve.kube.v1beta1 import workloads_pb2
from services.kube.selector import LabelSelector
from services.rpc.kube import rfc3339

__all__ = ["RESOURCES", "GetQuery", "get"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GetQuery:
    """The query of `get`: the objects to print, and the output format.

    resource, names: the arguments of resources.targets. output: as in printers.Style.
    namespace: "" for every namespace. The namespace column is shown if `show_namespace` is set, or
        if all namespaces are printed and the run has pods in more than one.
    selector, fields: print only objects that these selectors match.
    sort_by: the field to sort by; None: sort by namespace and name.
    label_columns, shows_labels: as in printers.Style.
    offset_ns, at_ns: the moment, as a time since the run's first event or since the Unix epoch;
        without either, the end of the run, or its beginning if `watch` is set.
    watch: print a row for each later change, too. headers: whether tables have headers.
    kubernetes_version: the kubectl version whose STATUS is printed; "": the recorded cluster's.
    """

    resource: str
    names: Sequence[str] = ()
    output: str = "table"
    namespace: str = ""
    show_namespace: bool = False
    selector: LabelSelector = field(default_factory=LabelSelector)
    fields: FieldSelector = field(default_factory=FieldSelector)
    sort_by: Field | None = None
    label_columns: Sequence[str] = ()
    shows_labels: bool = False
    offset_ns: int | None = None
    at_ns: int | None = None
    watch: bool = False
    headers: bool = True
    kubernetes_version: str = ""

    @property
    def has_moment(self) -> bool:
        """Return whether the query names a moment."""
        return self.offset_ns is not None or self.at_ns is not None


def get(run: RunDirectory, query: GetQuery, write: Write) -> int:
    """Print objects with `write`, a piece at a time, and return their number.

    Raises RunError if the run's files cannot be read, for an unknown type, for a moment after the
    run's end, and if no object has the field to sort by. Raises NotFoundError, after the other
    objects are printed, for names that match no object.
    """
    targeted = targets(query.resource, query.names)
    if query.watch and len(targeted) > 1:
        raise RunError("a watch shows one type of objects; ask for each type by itself")
    if query.watch and query.sort_by is not None:
        raise RunError("a watch shows changes in their order; leave --watch or --sort-by out")
    style = Style(
        output=query.output,
        is_list=not all(target.names for target in targeted)
        or sum(len(t.names) for t in targeted) > 1,
        is_watch=query.watch,
        shows_kind=len(targeted) > 1,
        shows_phase=rows.shows_phase_of_ended(
            query.kubernetes_version or run.manifest().kubernetes_version
        ),
        headers=query.headers,
        label_columns=query.label_columns,
        shows_labels=query.shows_labels,
    )
    printing = printer(style, write)
    moment_ns = None
    if query.has_moment or not query.watch:
        moment_ns = run.moment_ns(offset_ns=query.offset_ns, at_ns=query.at_ns)
    batches = _batches(run, targeted, moment_ns, watch=query.watch)
    count, missing = 0, list[str]()
    for target in targeted:
        shown: set[str] = set()
        namespaced = target.resource.namespaced
        shows_namespace = namespaced and _shows_namespace(run, query)
        printing.begin(target.resource, show_namespace=shows_namespace)
        lister = _Lister(target, query)
        for now_ns, items in batches(lister):
            printing.add(now_ns, _in_order(items, query))
            count += len(items)
            shown.update(map(name_of, items))
        if moment_ns is not None:
            where = f"{run.path} at {rfc3339.text(moment_ns)}"
            hint = "" if query.has_moment else "--at shows other moments than the end"
            missing += target.missing(shown, lister.there, where, hint)
    printing.close()
    if missing and not query.watch:
        raise NotFoundError(missing)
    return count


def _in_order(items: Sequence[Item], query: GetQuery) -> Sequence[Item]:
    if query.sort_by is None or not items:
        return items
    ordered, is_there = sorted_by(query.sort_by, items, mapping_of)
    if not is_there:
        raise RunError(f"--sort-by: no object has the field {query.sort_by}; -o json shows fields")
    return ordered


def _shows_namespace(run: RunDirectory, query: GetQuery) -> bool:
    return query.show_namespace or (not query.namespace and _has_several_namespaces(run))


def _has_several_namespaces(run: RunDirectory) -> bool:
    """Return whether the summary lists several namespaces; True if the run has no summary."""
    try:
        return len(run.summary().get("namespaces", ())) > 1
    except RunError:
        return True


_Batch = tuple[int, Sequence[Item]]


class _Lister:
    """Selects objects of one type for a query.

    there: the names of all objects of the type, collected if the query names objects.
    """

    def __init__(self, target: Target, query: GetQuery) -> None:
        self.kind = target.resource.kind
        self.watch = query.watch
        self.has_status = target.resource.is_recorded
        self.there: set[str] = set()
        self._target, self._query = target, query
        self._namespace = query.namespace if target.resource.namespaced else ""

    def chosen(self, items: Iterable[Item]) -> list[Item]:
        """Return the items that the query selects."""
        return [item for item in items if self._is_named(item) and self._has_fields(item)]

    def shown(self, held: RunObjects, messages: Iterable[Message], now_ns: int) -> list[Item]:
        """Return the selected items with their statuses at `now_ns`."""
        named = filter(self._is_named, messages)
        items = (held.with_status(message, now_ns) for message in named)
        return list(filter(self._has_fields, items))

    def listed(self, held: RunObjects, now_ns: int) -> list[Item]:
        """Return the objects at a moment, sorted by namespace and name."""
        keys = sorted(key for key in held.objects if key[0] == self.kind)
        return self.shown(held, (held.objects[key] for key in keys), now_ns)

    def _is_named(self, item: Item) -> bool:
        if self._namespace not in ("", namespace_of(item)):
            return False
        if self._target.names:
            self.there.add(name_of(item))
            if name_of(item) not in self._target.names:
                return False
        return self._query.selector.matches(labels_of(item))

    def _has_fields(self, item: Item) -> bool:
        fields = self._query.fields
        return not fields.terms or fields.matches(mapping_of(item))


def _batches(
    run: RunDirectory, queried: Sequence[Target], moment_ns: int | None, *, watch: bool
) -> Callable[[_Lister], Iterator[_Batch]]:
    """Return a function that yields the objects of one type; a list of types reads the run once."""
    kinds = [target.resource.kind for target in queried if target.resource is not EVENTS]
    held = None
    if kinds and moment_ns is not None and not watch:
        held = objects_at(run, kinds, moment_ns)

    def batches(lister: _Lister) -> Iterator[_Batch]:
        if lister.kind == EVENTS.kind:
            yield from _events(run, lister, moment_ns)
        elif held is not None and moment_ns is not None:
            yield moment_ns, lister.listed(held, moment_ns)
        else:
            yield from _watched(run, lister, moment_ns)

    return batches


def _watched(run: RunDirectory, lister: _Lister, moment_ns: int | None) -> Iterator[_Batch]:
    """Yield the objects at `moment_ns`, then each later change; None: every change of the run."""
    held, statuses = RunObjects(), _Statuses(lister)
    for event in changes(run, (lister.kind,)):
        if moment_ns is not None and event.time_ns > moment_ns:
            yield moment_ns, statuses.seen(lister.listed(held, moment_ns))
            moment_ns = None
        change = held.take(event)
        if moment_ns is None and change is not None:
            items = statuses.changed(held, change)
            if items:
                yield change.at_ns, items
    if moment_ns is not None:
        yield moment_ns, lister.listed(held, moment_ns)


def _shown_state(item: Message) -> bytes:
    """Return the bytes that a watch compares to detect a change.

    A Deployment's conditions are left out, because no row shows them.
    """
    if isinstance(item, workloads_pb2.Deployment):
        made = workloads_pb2.Deployment()
        made.CopyFrom(item)
        del made.status.conditions[:]
        item = made
    return item.SerializeToString(deterministic=True)


class _Statuses:
    """Selects the objects that a watch prints after a change.

    They are the changed object, and its owners if their derived status changed.
    """

    def __init__(self, lister: _Lister) -> None:
        self._lister = lister
        self._last: dict[str, bytes] = {}

    def seen(self, items: list[Item]) -> list[Item]:
        """Remember what was shown, and return it."""
        for item in items if self._lister.watch and self._lister.has_status else ():
            assert isinstance(item, Message)  # noqa: S101 - Events are not listed here
            self._last[_uid(item)] = _shown_state(item)
        return items

    def changed(self, held: RunObjects, change: ObjectChange) -> list[Item]:
        """Return the objects to show after a change."""
        if change.key[0] == self._lister.kind:
            return self.seen(self._lister.shown(held, [change.message], change.at_ns))
        if not self._lister.has_status:
            return []
        affected = self._lister.shown(held, self._affected(held, change), change.at_ns)
        return self.seen([item for item in affected if self._is_new(item)])

    def _affected(self, held: RunObjects, change: ObjectChange) -> Iterator[Message]:
        """Yield the objects of the listed kind whose status the change may affect."""
        kind = self._lister.kind
        if change.key[0] == "Node":
            keys = [key for key in held.objects if key[0] == kind == "DaemonSet"]
        else:
            keys, key = [], held.owner_key(change.message)
            while key is not None and key not in keys:
                keys.append(key)
                key = held.owner_key(held.objects[key])
        for owner_key in keys:
            if owner_key[0] == kind:
                yield held.objects[owner_key]

    def _is_new(self, item: Item) -> bool:
        assert isinstance(item, Message)  # noqa: S101 - Events are not listed here
        return self._last.get(_uid(item)) != _shown_state(item)


def _uid(message: Message) -> str:
    uid: str = message.metadata.uid  # type: ignore[attr-defined] # of an object
    return uid


def _events(run: RunDirectory, lister: _Lister, moment_ns: int | None) -> Iterator[_Batch]:
    """Yield the Events at the moment, then later ones.

    A watch yields an Event again each time its count increases.
    """
    standing = KubeEvents()
    for decision in run.decisions():
        if moment_ns is not None and decision.time_ns > moment_ns:
            yield moment_ns, lister.chosen(standing.standing(moment_ns))
            if not lister.watch:
                return
            moment_ns = None
        event = standing.take(decision)
        if event is None or moment_ns is not None:
            continue
        if lister.chosen([event]):
            yield decision.time_ns, [event]
    if moment_ns is not None:
        yield moment_ns, lister.chosen(standing.standing(moment_ns))
