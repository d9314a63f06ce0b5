"""Which events each plugin has registered, with its queueing hint; and what a session configures.

A session names its plugins' events when it opens. A plugin that nobody named is taken to be
interested in every event, as upstream takes a plugin without a list of its own. Plans are
worked out once for each event and set of refusing plugins, so that a move costs what it looks
at, not what is registered.

Source: kubernetes v1.34 pkg/scheduler/scheduler.go, buildQueueingHintMap;
pkg/scheduler/backend/queue/scheduling_queue.go, isEventOfInterest, isPodWorthRequeuing.

What a session chooses for its queue.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from services.queue.core.backoff import BackoffLimits
from services.queue.core.cluster_event import ClusterEvent, Happening, HintFunction
from services.queue.core.queued_pod import Entry, Failure, QueuedPod


class Verdict(Enum):
    """What an event means to a pod that was refused."""

    SKIP = "skip"
    AFTER_BACKOFF = "after backoff"
    AT_ONCE = "at once"


# Members by name: Python 3.11 looks them up in their class by calling a function.
_SKIP, _AFTER_BACKOFF, _AT_ONCE = Verdict.SKIP, Verdict.AFTER_BACKOFF, Verdict.AT_ONCE


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """One plugin's interest in one kind of event; without a `hint` it always queues."""

    plugin: str
    event: ClusterEvent
    hint: HintFunction | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Whose hints decide on an event for pods that the same plugins refused.

    `pending` are those of plugins that asked the pod to wait, `refused` of the others.
    `settled` is the verdict where no hint has to be asked.
    """

    pending: tuple[HintFunction, ...] = ()
    refused: tuple[HintFunction, ...] = ()
    settled: Verdict | None = None

    def verdict(self, pod: QueuedPod, happening: Happening) -> Verdict:
        """Return what `happening` means to `pod`; a pending plugin's word skips the backoff."""
        if self.settled is not None:
            return self.settled
        for hint in self.pending:
            if hint(pod, happening):
                return _AT_ONCE
        for hint in self.refused:
            if hint(pod, happening):
                return _AFTER_BACKOFF
        return _SKIP


_SKIPPED = Plan(settled=_SKIP)
_REQUEUED = Plan(settled=_AFTER_BACKOFF)
_NO_FAILURE = Failure()


_KNOWN_MAX = 4096


def _make_room(known: dict[Any, Any]) -> None:
    """Forget what was worked out where callers name ever new events and plugins."""
    if len(known) >= _KNOWN_MAX:
        known.clear()


def _always(_pod: QueuedPod, _happening: Happening) -> bool:
    return True


class Registrations:
    """The registrations of a session, and the plugins that turned up without one."""

    __slots__ = (
        "_concerns",
        "_interesting",
        "_named",
        "_plans",
        "_reading",
        "_registered",
        "_strangers",
    )

    def __init__(self, registered: Iterable[Registration]) -> None:
        self._registered = tuple(registered)
        self._named = frozenset(each.plugin for each in self._registered)
        self._strangers: dict[str, None] = {}
        self._interesting: dict[ClusterEvent, bool] = {}
        self._reading: dict[ClusterEvent, bool] = {}
        self._concerns: dict[tuple[str, ClusterEvent], bool] = {}
        self._plans: dict[tuple[ClusterEvent, Failure], Plan] = {}

    @property
    def strangers(self) -> tuple[str, ...]:
        """The plugins that refused a pod without being registered, by name."""
        return tuple(sorted(self._strangers))

    def meet(self, plugins: Iterable[str]) -> None:
        """Take note of plugins that have refused a pod."""
        for plugin in plugins:
            if plugin not in self._named:
                self._strangers[plugin] = None

    def interesting(self, event: ClusterEvent) -> bool:
        """Tell whether any plugin may change its mind on `event`."""
        if event.is_wildcard or self._strangers:
            return True
        known = self._interesting.get(event)
        if known is None:
            _make_room(self._interesting)
            known = any(each.event.covers(event) for each in self._registered)
            self._interesting[event] = known
        return known

    def reads_objects(self, event: ClusterEvent) -> bool:
        """Tell whether any hint looks at the objects of `event`."""
        known = self._reading.get(event)
        if known is None:
            _make_room(self._reading)
            known = any(each.hint and each.event.covers(event) for each in self._registered)
            self._reading[event] = known
        return known

    def concerns(self, plugin: str, event: ClusterEvent) -> bool:
        """Tell whether `plugin` registered for `event`."""
        if plugin not in self._named:
            return not event.is_wildcard
        known = self._concerns.get((plugin, event))
        if known is None:
            _make_room(self._concerns)
            known = any(
                each.plugin == plugin and each.event.covers(event) for each in self._registered
            )
            self._concerns[plugin, event] = known
        return known

    def verdict(self, entry: Entry, happening: Happening) -> Verdict:
        """Return what `happening` means to the pod of `entry`.

        A pod that no plugin refused is worth another try; so is any at a wildcard, unless the
        wildcard names another pod.
        """
        failure = entry.failure
        if failure is None or not failure.is_refusal:
            return _AFTER_BACKOFF
        if happening.event.is_wildcard:
            return self._at_wildcard(entry, happening)
        return self.plan(happening.event, failure).verdict(entry.pod, happening)

    def _at_wildcard(self, entry: Entry, happening: Happening) -> Verdict:
        named = happening.new
        if named is None or getattr(named, "uid", "") == entry.pod.uid:
            return _AFTER_BACKOFF
        return _SKIP

    def plan(self, event: ClusterEvent, failure: Failure | None) -> Plan:
        """Return what decides on `event` for pods that failed by `failure`."""
        if failure is None or not failure.is_refusal or event.is_wildcard:
            return _REQUEUED
        known = self._plans.get((event, failure))
        if known is None:
            _make_room(self._plans)
            known = self._plans[event, failure] = self._planned(event, failure)
        return known

    def _planned(self, event: ClusterEvent, failure: Failure) -> Plan:
        pending = self._hints_of(event, failure.pending_plugins)
        waiting = frozenset(failure.pending_plugins)
        refused = self._hints_of(event, (each for each in failure.plugins if each not in waiting))
        if not pending and not refused:
            return _SKIPPED
        if _always in pending:
            return Plan(settled=_AT_ONCE)
        if not pending and _always in refused:
            return _REQUEUED
        return Plan(pending=pending, refused=refused)

    def _hints_of(self, event: ClusterEvent, plugins: Iterable[str]) -> tuple[HintFunction, ...]:
        hints: list[HintFunction] = []
        for plugin in plugins:
            if plugin not in self._named:
                hints.append(_always)
            hints += [
                each.hint or _always
                for each in self._registered
                if each.plugin == plugin and each.event.covers(event)
            ]
        return tuple(hints)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueConfig:
    """The rules of a session; a mode is named as in mode.MODES.

    A leftover flush moves pods that have been unschedulable for longer than
    `max_unschedulable_ns`; None is the mode's own. `pop_from_backoff_q` and `queueing_hints`
    are feature gates of v1.34, and `registrations` what its hints go by. A pop is held for
    `lease_ns` unless its owner renews it; 0 is for ever.
    """

    mode: str = "v1.20"
    backoff: BackoffLimits = field(default_factory=BackoffLimits)
    max_unschedulable_ns: int | None = None
    pop_from_backoff_q: bool = True
    queueing_hints: bool = True
    registrations: tuple[Registration, ...] = ()
    lease_ns: int = 0
