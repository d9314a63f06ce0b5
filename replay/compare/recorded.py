"""What a recording holds for a comparison: every change as an event, and every decision in it.

A position is an index into the events, which stand in the recording's order (by resourceVersion
for watches, as logged for audit logs).
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from enum import Enum

from reprieve.kube.v1alpha1.object_pb2 import Object
from reprieve.kube.v1alpha1.object_ref_pb2 import ObjectRef


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedEvent:
    """One change of one object. `old` None: it came; `new` None: it went.

    `at_ns` is since 1970 (0 for the first list), never before the event before it. `matters` tells
    whether a scheduler could decide otherwise for it; heartbeats and messages do not matter.
    """

    at_ns: int
    version: str
    ref: ObjectRef
    old: Object | None
    new: Object | None
    matters: bool

    @property
    def key(self) -> tuple[str, ...]:
        """Return what tells its object from others."""
        if self.ref.kind == "Pod":
            return (self.ref.uid,)
        return self.ref.kind, self.ref.namespace, self.ref.name


class Kind(Enum):
    """What was decided."""

    BIND = "bind"
    PREEMPTION = "preemption"
    FAILURE = "failure"
    EVICTION = "eviction"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """What a scheduler's own log told of a binding; -1 and empty where it did not.

    `rank` is its place among the log's bindings, from 0.
    """

    rank: int
    feasible: int = -1
    top: int = -1
    tied_nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedDecision:
    """One decision: a binding, victims chosen on a node, or an attempt that found no node.

    `written` is the position of the event that tells it, `position` that of the first event that
    it can have caused: the decision was taken in a state before that one. `message` is what the
    attempt (or the kubelet) wrote, "" where it is not known. `victims` are names, sorted; None: not
    recorded.
    """

    kind: Kind
    pod: ObjectRef
    written: int
    position: int
    at_ns: int
    version: str
    node: str = ""
    message: str = ""
    victims: tuple[str, ...] | None = None
    scored: Scored | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """A recording, read.

    `notes` say what could not be read or is passed over, `kinds` are those of its objects.
    """

    events: Sequence[RecordedEvent]
    decisions: Sequence[RecordedDecision]
    kubernetes_version: str
    has_order: bool
    notes: Sequence[str]
    kinds: Set[str] = frozenset()
