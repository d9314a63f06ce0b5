"""What a part of a replayed cluster changes, it declares; else a checkpoint would lack it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from replay.recovery import Checkpointer
from replay.state_codec import annotated, parts
from tests.busy_cluster import everything_under_way
from tests.e2e.commands import reprieve

_STATE = (int, str, tuple, list, dict, set, frozenset, deque)
"""The types of state that a part may keep in itself; other objects are parts or connections."""
_FOLLOWS = {
    "cluster.changed_by_node": "for the sums of kubelets, which are made again",
    "lifecycle.kubelet_admission._claims": "a cache of what follows from a spec",
    "lifecycle.kubelet_admission._nodes": "sums over the pods whose statuses show their admission",
    "source._coming": "the trace is read again from its beginning",
    "stream.last_events": "an instant's own, for the text of an endless one",
}
"""What changes and is made again, with the reason."""


def _undeclared(whole: object) -> Iterator[tuple[str, object]]:
    """Yield the attributes that no checkpoint has, by the part's path."""
    for path, part in parts(whole):
        for name, value in vars(part).items():
            if name not in annotated(type(part)) and isinstance(value, _STATE):
                yield f"{path}.{name}", value


@pytest.mark.e2e
def test_state_that_changes_during_a_replay_is_declared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With rollouts, drains, silent nodes, restarts, refused pods and delays under way."""
    seen: dict[str, str] = {}
    changed: dict[str, None] = {}

    def look(_checkpointer: Checkpointer, _now_ns: int, replay: object, *_more: Any) -> None:
        for name, value in _undeclared(replay):
            # The text of what is known to change is dear, and says nothing more.
            if name not in changed and seen.setdefault(name, text := repr(value)) != text:
                changed[name] = None

    monkeypatch.setattr("replay.recovery.SHARE", 0)
    monkeypatch.setattr(Checkpointer, "save", look)
    chance = Random(1)  # noqa: S311 - a test's choices
    arguments = [*everything_under_way(chance, tmp_path), "--until", "5m"]
    options = ("--checkpoint-every", "0s", "--in-process", "--no-report", "-q", "--run", "run")
    reprieve(tmp_path, "replay", *arguments, *options)
    assert changed.keys() == _FOLLOWS.keys()
