"""The transitions of recorded objects: duplicates, gaps and late events are removed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from replay.importers.records import Issues, PodTemplates, RecordNumbering
from replay.kube.changes import (
    ChangeType,
    Raw,
    RecordedChange,
    key,
    kind,
    ref,
    uid,
    version,
    version_number,
)
from replay.kube.kinds import to_object
from reprieve.kube.v1beta1.object_pb2 import KubernetesObject
from reprieve.trace.v1beta1.trace_pb2 import Delete, Observed, Record
from services.rpc.errors import FieldError


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """An object's change. `old` None: it is new; `deleted`: `new` is its last state.

    `unknown` is that of RecordedChange.
    """

    at_ns: int
    old: Raw | None
    new: Raw
    deleted: bool
    initial: bool
    where: str
    actor: str = ""
    unknown: str = ""


class ObjectHistory:
    """The last states of objects; memory is bounded by the number of objects."""

    def __init__(self, issues: Issues) -> None:
        self._issues = issues
        self._last: dict[str, Raw] = {}
        self._uids: dict[tuple[str, str, str], str] = {}
        self._gone: set[str] = set()

    def live(self, object_uid: str) -> Raw | None:
        """Return an existing object, None for one that does not exist."""
        return self._last.get(object_uid)

    def follow(self, change: RecordedChange) -> Iterator[Transition]:
        """Yield a change's transitions: zero for a duplicate, two after a missed deletion."""
        object_uid, raw = uid(change.raw), change.raw
        old = self._last.get(object_uid)
        if object_uid in self._gone or (old is None and change.type is ChangeType.DELETED):
            self._drop("late-event", change, "of an object that has gone")
            return
        deleted = change.type is ChangeType.DELETED
        if old is not None and not deleted and self._is_duplicate(old, raw):
            self._drop("duplicate-event", change, "known already")
            return
        yield from self._replaced(change, object_uid)
        # The object of a change without a creation existed before the recording.
        initial = change.initial or (old is None and change.type is ChangeType.MODIFIED)
        self._last[object_uid] = raw
        self._uids[key(raw)] = object_uid
        if deleted:
            self._forget(object_uid)
        yield Transition(
            at_ns=change.at_ns,
            old=old,
            new=raw,
            deleted=deleted,
            initial=initial,
            where=change.where,
            actor=change.actor,
            unknown=change.unknown,
        )

    def _is_duplicate(self, old: Raw, new: Raw) -> bool:
        before, after = version_number(old), version_number(new)
        if before is not None and after is not None:
            return after <= before
        return bool(version(new)) and version(old) == version(new)

    def _replaced(self, change: RecordedChange, object_uid: str) -> Iterator[Transition]:
        """Delete an object whose name another one has: its deletion was not recorded."""
        before = self._uids.get(key(change.raw))
        if before is None or before == object_uid or before not in self._last:
            return
        self._drop("missed-deletion", change, "taken as deleted: another one has its name")
        last = self._last[before]
        self._forget(before)
        yield Transition(
            at_ns=change.at_ns, old=last, new=last, deleted=True, initial=False, where=change.where
        )

    def _forget(self, object_uid: str) -> None:
        del self._last[object_uid]
        self._gone.add(object_uid)

    def _drop(self, name: str, change: RecordedChange, why: str) -> None:
        self._issues.add(name, change.where, f"{kind(change.raw)}: {why}")


class RecordMaker:
    """Makes records of transitions; objects that cannot be read become issues."""

    def __init__(self, issues: Issues) -> None:
        self.issues = issues
        self.numbering = RecordNumbering()
        self.templates = PodTemplates(self.numbering)

    def observed(self, transition: Transition, **what: Any) -> Record:
        """Return an observation; `what` is one field of its oneof, by name."""
        observed = Observed(
            object=ref(transition.new), resource_version=version(transition.new), **what
        )
        return self.numbering.record(transition.at_ns, observed=observed)

    def object(self, transition: Transition, raw: Raw) -> KubernetesObject | None:
        """Return the object of Kubernetes JSON, None (and an issue) where it cannot be read."""
        try:
            return to_object(raw)
        except FieldError as error:
            self.issues.add("unreadable-object", transition.where, f"{kind(raw)}: {error}")
            return None

    def create(self, transition: Transition, raw: Raw) -> list[Record]:
        """Return the creation of an object other than a pod, [] if it cannot be read."""
        carried = self.object(transition, raw)
        return [] if carried is None else [self.numbering.record(transition.at_ns, create=carried)]

    def update(self, transition: Transition, raw: Raw) -> list[Record]:
        """Return an update of an object, [] if it cannot be read."""
        carried = self.object(transition, raw)
        return [] if carried is None else [self.numbering.record(transition.at_ns, update=carried)]

    def delete(
        self, transition: Transition, cause: str = "user", grace_s: int | None = None
    ) -> Record:
        """Return a deletion; `grace_s` None is the grace period of the object."""
        delete = Delete(object=ref(transition.new), cause=cause, grace_period_seconds=grace_s)
        return self.numbering.record(transition.at_ns, delete=delete)

    def dropped(self, transition: Transition, name: str, what: str) -> None:
        """Count a change without a record as an issue."""
        self.issues.add(name, transition.where, f"{kind(transition.new)}: {what}")
