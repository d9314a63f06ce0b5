"""Writing the records of a recording."""

from __future__ import annotations

from typing import Any

from replay.importers.kinds import to_object
from replay.importers.recording.change import Raw, kind, ref, version
from replay.importers.recording.history import Step
from replay.importers.records import Issues, Numbering, Templates
from reprieve.kube.v1alpha1.object_pb2 import Object
from reprieve.trace.v1alpha1.trace_pb2 import Delete, Observed, Record
from services.rpc.errors import FieldError


class Output:
    """Makes records of steps; what cannot be carried becomes an issue."""

    def __init__(self, issues: Issues) -> None:
        self.issues = issues
        self.numbering = Numbering()
        self.templates = Templates(self.numbering)

    def observed(self, step: Step, **what: Any) -> Record:
        """Return an observation; `what` is one field of its oneof by name."""
        observed = Observed(object=ref(step.new), resource_version=version(step.new), **what)
        return self.numbering.record(step.at_ns, observed=observed)

    def object(self, step: Step, raw: Raw) -> Object | None:
        """Return the object that `raw` describes, None (and an issue) where it cannot be read."""
        try:
            return to_object(raw)
        except FieldError as error:
            self.issues.add("unreadable-object", step.where, f"{kind(raw)}: {error}")
            return None

    def create(self, step: Step, raw: Raw) -> list[Record]:
        """Return the creation of an object that is no pod."""
        carried = self.object(step, raw)
        return [] if carried is None else [self.numbering.record(step.at_ns, create=carried)]

    def update(self, step: Step, raw: Raw) -> list[Record]:
        """Return an update of an object."""
        carried = self.object(step, raw)
        return [] if carried is None else [self.numbering.record(step.at_ns, update=carried)]

    def delete(self, step: Step, cause: str = "user", grace_s: int | None = None) -> Record:
        """Return a deletion; `grace_s` None is the object's own grace period."""
        delete = Delete(object=ref(step.new), cause=cause, grace_period_s=grace_s)
        return self.numbering.record(step.at_ns, delete=delete)

    def dropped(self, step: Step, name: str, what: str) -> None:
        """Count a change that gives no record."""
        self.issues.add(name, step.where, f"{kind(step.new)}: {what}")
