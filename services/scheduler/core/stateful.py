"""Plugins that remember more than follows from the cluster's objects: what a checkpoint keeps.

A restored session puts nodes, pods and objects as they were told, and each plugin's columns; what
a plugin keeps beside those is its own to write down and to take up again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from services.scheduler.core.plugin import Plugin
from services.scheduler.core.snapshot import Snapshot

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
