"""Damaged checkpoints: one is read or refused, and nothing is imported, opened or called.

    python -m tests.torture.states --count 20000 --seed 1

A number makes a damage, of a saved world, of a recorder's position or of a whole resume.zst: as
data (what MessagePack holds) or as bytes. It is read into a new replay. It may be read or refused
by the error that says so. An error of any other kind, a module that is imported, a file that is
opened or a program that is started meanwhile (sys.addaudithook sees them), or 10 s of CPU time are
failures; each prints the command that repeats it. Memory is limited to 1 GiB more than before.
"""

from __future__ import annotations

import contextlib
import resource
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import click
import msgpack
import numpy as np  # noqa: F401 - usage profiles load it when they are made

from replay.errors import RunError
from replay.generate.workload import GenerateOptions
from replay.results.recorder import RecorderPosition
from replay.results.run.manifest import RunFile
from replay.results.run.resume_point import RESUME, ResumePoint, RunCommand
from replay.results.summary.tally import Tally
from replay.state_codec import UnreadableStateError, dump, dump_parts, load, restore_parts
from replay.world.api.cluster import Cluster
from replay.world.loop.replay import Limits, Replay
from replay.world.models import Models
from services.kube.time import SECOND_NS
from services.telemetry.span import SinkPosition
from tests.property.test_saved_states import Unwatched
from tests.property.test_world import RandomScheduler, meddled
from tests.torture.mutate import damaged_bytes, damaged_value

LIMIT_S = 10
MEMORY_BYTES = 1 << 30
_OPTIONS = GenerateOptions(
    seed=7,
    nodes=4,
    pods=24,
    deployments=3,
    budgets=4,
    window_ns=30 * SECOND_NS,
    service_ns=20 * SECOND_NS,
    leaky_percent=50,
)
_INSTANTS = 25
_ACTS = frozenset(
    {
        *("import", "open", "exec", "compile", "marshal", "pickle", "ctypes"),
        *("os", "subprocess", "socket", "shutil", "code", "function"),
    }
)
"""What no reading does, by the first word of the interpreter's name for it."""
_events: list[str] | None = None
"""What the interpreter reports while a damage is read; None at other times."""


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What became of the damages: how many were read and refused, and failures by number."""

    counts: Counter[str] = field(default_factory=Counter)
    failures: dict[int, str] = field(default_factory=dict)


class _SavedError(Exception):
    """The world is as it is to be saved."""


def _new(scheduler: RandomScheduler) -> Replay:
    scheduler.cluster = Cluster()
    return Replay(
        scheduler,
        None,
        models=Models(),
        sink=lambda _: None,
        observer=Unwatched(),
        cluster=scheduler.cluster,
    )


@cache
def sample() -> tuple[bytes, bytes]:
    """Return a saved world, in which something of everything is under way, and a position."""
    replay = _new(RandomScheduler(7))

    def stop(_now_ns: int, _cluster: Cluster) -> None:
        if replay.instants == _INSTANTS:
            raise _SavedError

    with contextlib.suppress(_SavedError):
        replay.run(iter(meddled(7, _OPTIONS)), Limits(progress=stop))
    tally = Tally()
    for pod in replay.cluster.pods.values():
        tally.pod_added(pod.message)
    position = RecorderPosition(
        spans=SinkPosition(1, 1), wall_ns=4, tally=tally, pod_spans=None, round_spans=None
    )
    return dump_parts(replay), dump(RecorderPosition, position)


def _damaged(data: bytes, chance: Random) -> bytes:
    if chance.random() < 0.5:
        return damaged_bytes(data, chance)
    value = msgpack.unpackb(data, strict_map_key=False)
    try:
        return bytes(msgpack.packb(damaged_value(value, chance)))
    except (ValueError, OverflowError):  # MessagePack has no form for it.
        return damaged_bytes(data, chance)


def _read_world(chance: Random, _folder: Path) -> Callable[[], object]:
    data, replay = _damaged(sample()[0], chance), _new(RandomScheduler(7))
    return lambda: restore_parts(replay, data)


def _read_position(chance: Random, _folder: Path) -> Callable[[], object]:
    data = _damaged(sample()[1], chance)
    return lambda: load(RecorderPosition, data)


def _read_file(chance: Random, folder: Path) -> Callable[[], object]:
    world, recorder = sample()
    command = RunCommand(argv=("replay", "trace"), run="run", folder="/")
    files = {"decisions.jsonl": RunFile(sha256="0" * 64, size=9)}
    point = ResumePoint(version="1", command=command, world=world, recorder=recorder, files=files)
    (folder / RESUME).write_bytes(damaged_bytes(point.encoded(), chance))
    return lambda: ResumePoint.read(folder)


_READERS = (_read_world, _read_world, _read_position, _read_file)


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if _events is not None and event.partition(".")[0] in _ACTS:
        # A number is the descriptor of what was opened before.
        path = arguments[0] if event == "open" else ""
        is_own = event == "open" and (isinstance(path, int) or str(path).endswith(RESUME))
        if not is_own:
            _events.append(f"{event} {arguments!r:.200}")


@cache
def _listen() -> None:
    sys.addaudithook(_audit)


def torture(numbers: Iterable[int]) -> Outcome:
    """Make the damage of each number, and read it."""
    global _events  # noqa: PLW0603 - an audit hook cannot be removed
    _listen()
    outcome = Outcome()
    with tempfile.TemporaryDirectory() as folder:
        for number in numbers:
            chance = Random(number)  # noqa: S311 - a test's choices
            read = chance.choice(_READERS)(chance, Path(folder))
            modules, began_s = set(sys.modules), time.process_time()
            events: list[str] = []
            _events = events
            try:
                read()
                result = "read"
            except (RunError, UnreadableStateError):
                result = "refused"
            except BaseException:
                _events = None
                result = "failed"
                outcome.failures[number] = traceback.format_exc()
            _events = None
            taken_s = time.process_time() - began_s
            acted = [*events, *(f"import {name}" for name in set(sys.modules) - modules)]
            if acted or taken_s > LIMIT_S:
                result = "failed"
                outcome.failures[number] = f"{taken_s:.1f} s; {acted}"
            outcome.counts[result] += 1
    return outcome


def _limit_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    limit = pages * resource.getpagesize() + MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


@click.command()
@click.option("--count", default=20_000, show_default=True, help="Number of damages.")
@click.option("--seed", default=1, show_default=True, help="The number of the first one.")
def main(count: int, seed: int) -> None:
    """Read damaged checkpoints; fail where one is neither read nor refused, or acts."""
    began_s = time.monotonic()
    sample()
    _limit_memory()
    outcome = torture(range(seed, seed + count))
    counts: Mapping[str, int] = outcome.counts
    for number, failure in sorted(outcome.failures.items()):
        command = f"python -m tests.torture.states --count 1 --seed {number}"
        click.echo(f"\n{failure}\nrepeat it: {command}")
    took_s = time.monotonic() - began_s
    shown = ", ".join(f"{counts[result]:,} {result}" for result in ("read", "refused", "failed"))
    click.echo(f"{count:,} damaged checkpoints: {shown}, {took_s:.0f} s")
    sys.exit(1 if outcome.failures else 0)


if __name__ == "__main__":
    main()
