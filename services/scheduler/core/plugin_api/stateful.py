"""Plugins that remember more than follows from the cluster's objects: what a checkpoint keeps.

A restored session puts nodes, pods and objects as they were told, and each plugin's columns; what
a plugin keeps beside those is its own to write down and to take up again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

from services.scheduler.core.decisions import Decision
from services.scheduler.core.plugin_api.plugin import Plugin
from services.scheduler.core.snapshot.snapshot import Snapshot

Plain = dict[str, "Plain"] | list["Plain"] | str | int | bool | None
"""What JSON holds; integers of 64 bits."""


class StatefulPlugin(Plugin, ABC):
    """Keeps a state of its own, or changes objects of the catalog."""

    @abstractmethod
    def saved_state(self, snapshot: Snapshot) -> Plain:
        """Return the state; called between rounds."""

    @abstractmethod
    def restore_state(self, saved: Plain, snapshot: Snapshot) -> None:
        """Take up a saved state; `snapshot` holds everything else already.

        Raises KeyError, IndexError, TypeError or ValueError for what `saved_state` never returns.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Of a scheduler between two rounds, beside its snapshot and its pods.

    `held_back` are pods that a gate keeps out of a queue without gates. `unanswered` decisions
    stand in the order in which they were made. `waiting` are the uids of the pods that wait, and
    whether pods elsewhere may let each in: that was judged when it came, or last changed, by the
    cluster as it was then. `listening` are those whom an event may move, and whether pods elsewhere
    are why. `plugins` are the states of stateful plugins, by
    scheduler name and plugin.
    """

    latest_cycle: int
    choice_mark: int
    held_back: tuple[str, ...]
    unanswered: tuple[Decision, ...]
    waiting: tuple[tuple[str, bool], ...]
    listening: tuple[tuple[str, bool], ...]
    plugins: Mapping[str, Mapping[str, Plain]]
