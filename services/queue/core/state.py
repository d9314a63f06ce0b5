"""The whole state of a queue as values: what Dump shows and a checkpoint holds."""

from __future__ import annotations

from dataclasses import dataclass, field

from services.queue.core.backoff import NameBackoff
from services.queue.core.entry import Entry, Popped
from services.queue.core.nominator import NodeNominations
from services.queue.core.rules import InFlightRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class BackingOff:
    """An entry of the backoffQ and when its backoff ends."""

    entry: Entry
    expiry_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueState:
    """Everything that a queue knows, except its configuration.

    `active` is in pop order, `backoff` and `error_backoff` (v1.34) in the order of expiry,
    `unschedulable` by timestamp with gated pods last, `in_flight` by cycle, `name_backoffs`
    (v1.16) by last update; `record` is what queueing hints remember of pods in flight.
    `now_ns` is the last operation's time and `sequence` the last tie-break given. The flush
    times are those of the last flush of each kind, -1 for never.
    """

    mode: str
    active: tuple[Entry, ...]
    backoff: tuple[BackingOff, ...]
    unschedulable: tuple[Entry, ...]
    in_flight: tuple[Popped, ...]
    nominations: tuple[NodeNominations, ...]
    name_backoffs: tuple[NameBackoff, ...]
    now_ns: int
    scheduling_cycle: int
    move_request_cycle: int
    sequence: int
    flushed_backoff_ns: int
    flushed_leftover_ns: int
    closed: bool
    error_backoff: tuple[BackingOff, ...] = ()
    record: InFlightRecord = field(default_factory=InFlightRecord)
