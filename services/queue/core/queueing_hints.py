"""Finds the queueing hints to call for an event and a set of refusing plugins.

A session registers its plugins' events when it opens. A plugin without registrations counts as
interested in every event, like a plugin without EventsToRegister upstream. The hints to call are
computed once for each event and each set of refusing plugins, so the cost of a move does not depend
on the number of registrations.

Source: kubernetes v1.34 pkg/scheduler/scheduler.go, buildQueueingHintMap;
pkg/scheduler/backend/queue/scheduling_queue.go, isEventOfInterest, isPodWorthRequeuing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

from services.framework.cluster_event import (
    ClaimUsers,
    ClusterEvent,
    ObjectEvent,
    PendingPod,
    QueueingHintFn,
    Registration,
    UsersOf,
)
from services.queue.core.queued_pod import Failure, QueuedPod, QueuedPodInfo

_CACHED_MAX = 4096


class QueueingStrategy(Enum):
    """The way in which an event requeues an unschedulable pod.

    Source: kubernetes v1.34 pkg/scheduler/backend/queue/scheduling_queue.go, queueingStrategy.
    """

    SKIP = "skip"
    AFTER_BACKOFF = "after backoff"
    IMMEDIATELY = "immediately"


# Constants for members: in Python 3.11 each access to a member of an Enum is a function call.
_SKIP, _AFTER_BACKOFF = QueueingStrategy.SKIP, QueueingStrategy.AFTER_BACKOFF
_IMMEDIATELY = QueueingStrategy.IMMEDIATELY


@dataclass(frozen=True, slots=True, kw_only=True)
class HintPlan:
    """The hints that decide on one event, for pods that the same plugins refused.

    `pending` has the hints of plugins that returned Pending, `refused` those of the other plugins.
    `decided` is the strategy if no hint has to be called, else None. `users_of` are those of the
    registrations, where every one has it.
    """

    pending: tuple[QueueingHintFn, ...] = ()
    refused: tuple[QueueingHintFn, ...] = ()
    decided: QueueingStrategy | None = None
    users_of: tuple[UsersOf, ...] = ()

    def users(self, object_event: ObjectEvent) -> list[ClaimUsers] | None:
        """Return the only pods for which a hint may return Queue, None where these may be any."""
        users = [users_of(object_event) for users_of in self.users_of]
        return (
            [claim_users for claim_users in users if claim_users is not None]
            if users and all(users)
            else None
        )

    def strategy(self, pod: QueuedPod, object_event: ObjectEvent) -> QueueingStrategy:
        """Return the strategy for `pod`; a hint of a pending plugin skips the backoff."""
        if self.decided is not None:
            return self.decided
        for hint in self.pending:
            if hint(pod, object_event):
                return _IMMEDIATELY
        for hint in self.refused:
            if hint(pod, object_event):
                return _AFTER_BACKOFF
        return _SKIP


class QueueingHintMap:
    """The registrations of a session, and the plugins that refused a pod without a registration.

    Two results are cached: the registrations that cover an event, and the plan for an event and a
    failure. Clients may send any number of event and plugin names, so at most _CACHED_MAX entries
    of each are kept.
    """

    __slots__ = ("_covering", "_named", "_plans", "_unregistered")

    def __init__(self, registrations: Iterable[Registration]) -> None:
        rows = tuple(registrations)
        self._named = frozenset(registration.plugin for registration in rows)
        self._unregistered: dict[str, None] = {}

        @lru_cache(_CACHED_MAX)
        def covering(event: ClusterEvent) -> tuple[Registration, ...]:
            return tuple(row for row in rows if row.event.covers(event))

        self._covering = covering
        self._plans = lru_cache(_CACHED_MAX)(self._new_plan)

    @property
    def unregistered_plugins(self) -> tuple[str, ...]:
        """The plugins that refused a pod but have no registration, sorted."""
        return tuple(sorted(self._unregistered))

    def add_refusing(self, plugins: Iterable[str]) -> None:
        """Record plugins that have refused a pod."""
        for plugin in plugins:
            if plugin not in self._named:
                self._unregistered[plugin] = None

    def is_of_interest(self, event: ClusterEvent) -> bool:
        """Return whether some plugin may stop refusing a pod because of `event`."""
        return event.is_wildcard or bool(self._unregistered or self._covering(event))

    def reads_objects(self, event: ClusterEvent) -> bool:
        """Return whether any hint reads the objects of `event`."""
        return any(registration.hint for registration in self._covering(event))

    def is_registered(self, plugin: str, event: ClusterEvent) -> bool:
        """Return whether `plugin` registered for `event`; without registrations, for all events."""
        if plugin not in self._named:
            return not event.is_wildcard
        return any(registration.plugin == plugin for registration in self._covering(event))

    def strategy(self, pod_info: QueuedPodInfo, object_event: ObjectEvent) -> QueueingStrategy:
        """Return how `object_event` requeues the pod.

        A pod that no plugin refused is tried again after its backoff; so is any pod on a wildcard
        event, unless the event names another pod.
        """
        failure = pod_info.failure
        if failure is None or not failure.is_unschedulable:
            return _AFTER_BACKOFF
        if object_event.event.is_wildcard:
            named = object_event.new
            is_meant = named is None or getattr(named, "uid", "") == pod_info.pod.uid
            return _AFTER_BACKOFF if is_meant else _SKIP
        return self.plan(object_event.event, failure).strategy(pod_info.pod, object_event)

    def plan(self, event: ClusterEvent, failure: Failure | None) -> HintPlan:
        """Return the hints to call on `event` for pods with `failure`."""
        if failure is None or not failure.is_unschedulable or event.is_wildcard:
            return _REQUEUES
        return self._plans(event, failure)

    def _new_plan(self, event: ClusterEvent, failure: Failure) -> HintPlan:
        pending = self._hints_of(event, failure.pending_plugins)
        waiting = frozenset(failure.pending_plugins)
        refused = self._hints_of(
            event, (plugin for plugin in failure.plugins if plugin not in waiting)
        )
        if not pending and not refused:
            return HintPlan(decided=_SKIP)
        if _always in pending:
            return HintPlan(decided=_IMMEDIATELY)
        if not pending and _always in refused:
            return _REQUEUES
        plugins = {*failure.plugins, *failure.pending_plugins}
        rows = [row for row in self._covering(event) if row.plugin in plugins]
        users_of = tuple(row.users_of for row in rows if row.users_of is not None)
        narrows = len(users_of) == len(rows) and plugins <= self._named
        return HintPlan(pending=pending, refused=refused, users_of=users_of if narrows else ())

    def _hints_of(self, event: ClusterEvent, plugins: Iterable[str]) -> tuple[QueueingHintFn, ...]:
        hints: list[QueueingHintFn] = []
        for plugin in plugins:
            if plugin not in self._named:
                hints.append(_always)
            hints += [
                registration.hint or _always
                for registration in self._covering(event)
                if registration.plugin == plugin
            ]
        return tuple(hints)


def _always(_pod: PendingPod, _object_event: ObjectEvent) -> bool:
    return True


_REQUEUES = HintPlan(decided=_AFTER_BACKOFF)
