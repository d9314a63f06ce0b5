"""Every state that replays of every kind come to can be saved, and read as it was."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from replay import runner
from replay.cli.main import command
from replay.recovery import Checkpointer
from replay.results.recorder import RecorderPosition, RunRecorder
from replay.state_codec import dump, dump_parts, load, restore_parts
from replay.world.ahead.look_ahead import LookAhead
from replay.world.api.cluster import Cluster
from replay.world.loop.replay import Replay
from tests.torture.kill_traces import KINDS, replay_of

pytestmark = pytest.mark.e2e

SLOW = {1, 8}
"""Kinds of thousands of instants."""
GROWTH = 2.5
"""How much later than the last one the next instant is saved."""


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=[pytest.mark.long] * (seed in SLOW)) for seed in range(KINDS)]
)
def test_every_state_of_a_replay_survives(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Saved, read and saved again it has the same bytes; of the recorder, too."""
    made: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
    saved: list[int] = [0]

    def make(*services: Any, **options: Any) -> Replay:
        made.append((services, options))
        return Replay(*services, **options)

    def save(_self: Checkpointer, _at_ns: int, replay: Replay, recorder: RunRecorder) -> None:
        if replay.instants < GROWTH * saved[-1]:
            return
        services, options = made[-1]
        data = dump_parts(replay)
        restored = Replay(*services, **{**options, "cluster": Cluster()})
        restored.send_through(LookAhead(restored, services[0]))
        restore_parts(restored, data)
        assert dump_parts(restored) == data
        position = dump(RecorderPosition, recorder.position())
        assert dump(RecorderPosition, load(RecorderPosition, position)) == position
        saved.append(replay.instants)

    monkeypatch.setattr(runner, "Replay", make)
    monkeypatch.setattr(Checkpointer, "is_due", True)
    monkeypatch.setattr(Checkpointer, "save", save)
    monkeypatch.chdir(tmp_path)
    with replay_of(seed, tmp_path) as arguments:
        options = ["--in-process", "--run", "run", "--no-report", "-q"]
        done = CliRunner().invoke(command, ["replay", *arguments, *options])
    assert done.exit_code == 0, f"{shlex.join(arguments)}\n{done.output}"
    assert len(saved) > 3
