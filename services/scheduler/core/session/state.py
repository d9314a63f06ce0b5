"""What a scheduler keeps between two rounds beside its snapshot: a checkpoint's part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from services.scheduler.core.decisions import Decision
from services.scheduler.core.plugin_api.plugin import Plain


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
