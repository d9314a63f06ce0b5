"""Kills services and replays at random moments; the decision log must not show it.

    python -m tests.torture.kills --count 200 --seed 1

Each attempt replays a generated trace, undisturbed and then with kills: SIGKILL to one service, to
all of them or to the replay, which is then resumed, or SIGSTOP and SIGCONT. The logs are compared
byte for byte. A failure prints the command that repeats it.
"""

from __future__ import annotations

import filecmp
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import click

ROOT = Path(__file__).resolve().parents[2]
DECISIONS = "decisions.jsonl"
RESUME = "resume.zst"
_REPRIEVE = (sys.executable, "-m", "replay.cli.main")
_TRACES = ROOT / "examples" / "traces"


@dataclass(slots=True, kw_only=True)
class Disturbed:
    """A run that was disturbed: what was done to it, and how it ended."""

    kills: list[str] = field(default_factory=list)
    code: int = 0
    is_same: bool = False
    errors: str = ""

    @property
    def is_good(self) -> bool:
        """Return whether it ended well, with the decisions of the undisturbed run."""
        return self.code == 0 and self.is_same


def trace_of(seed: int, folder: Path) -> list[str]:
    """Return the arguments of a replay of a trace of any kind."""
    chance = random.Random(seed)  # noqa: S311 - a test's choices
    kind = chance.randrange(6)
    if kind == 0:
        return [str(_TRACES / "four-tiers.ktr")]
    if kind == 1:
        return [str(_TRACES / "eviction-loop.jsonl")]
    arguments = generated(
        folder,
        seed=seed,
        nodes=chance.choice((5, 20, 80)),
        pods=chance.choice((200, 800, 2000)),
        deployments=chance.choice((0, 5, 30)),
        budgets=chance.choice((0, 4, 40)),
        leaky=chance.choice((0, 10, 60)),
    )
    more: tuple[list[str], ...] = (
        [],
        ["--rules", "v1.16"],
        ["--rules", "v1.36", "--batch-size", "7"],
        ["--model", "cycle-cost=10ms", "--model", "bind-cost=50ms"],
        ["--no-eviction", "--queue-rules", "v1.20"],
    )
    return [*arguments, *chance.choice(more)]


def generated(folder: Path, **options: int | str) -> list[str]:
    """Write a trace with these options of `reprieve generate`; return the replay's arguments."""
    path = folder / "trace.ktr"
    shown = [
        text
        for name, value in options.items()
        for text in (f"--{name.replace('_', '-')}", str(value))
    ]
    _run(["generate", "-o", str(path), *shown], folder)
    return [str(path)]


def undisturbed(arguments: Sequence[str], folder: Path) -> Path:
    """Replay without kills and return the run."""
    run = folder / "undisturbed"
    _run(["replay", *arguments, "--run", str(run), "--no-report", "-q"], folder)
    return run


def disturbed(
    arguments: Sequence[str], base: Path, folder: Path, seed: int, within_s: float, kills: int = 0
) -> Disturbed:
    """Replay with kills, at most `within_s` seconds apart, and compare with the run `base`.

    `kills` is their number; 0 for one to three.
    """
    chance = random.Random(seed)  # noqa: S311 - a test's choices
    run, found = folder / f"disturbed-{seed}", Disturbed()
    errors = folder / f"errors-{seed}.txt"
    options = ["--no-report", "-q", "--checkpoint-every", chance.choice(("100ms", "1s"))]
    with errors.open("w", encoding="utf-8") as log:
        process = _start(["replay", *arguments, "--run", str(run), *options], log)
        for _ in range(kills or chance.choice((1, 2, 3))):
            try:
                process.wait(chance.uniform(0.3, within_s))
                break
            except subprocess.TimeoutExpired:
                pass
            services = list(_services_of(process.pid))
            kind = chance.choice(("service", "services", "replay", "frozen"))
            if not (run / RESUME).exists() or not services:
                continue
            found.kills.append(kind)
            if kind == "replay":
                process.kill()
                process.wait()
                process = _start(["resume", str(run)], log)
            elif kind == "frozen":
                frozen = chance.choice(services)
                _signal(frozen, signal.SIGSTOP)
                time.sleep(0.5)
                _signal(frozen, signal.SIGCONT)
            else:
                for each in services if kind == "services" else [chance.choice(services)]:
                    _signal(each, signal.SIGKILL)
        found.code = process.wait()
    found.errors = errors.read_text(encoding="utf-8")
    log_file = run / DECISIONS
    found.is_same = log_file.exists() and filecmp.cmp(log_file, base / DECISIONS, shallow=False)
    return found


def _run(arguments: Sequence[str], folder: Path) -> None:
    subprocess.run([*_REPRIEVE, *arguments], check=True, cwd=folder, stdout=subprocess.DEVNULL)


def _start(arguments: Sequence[str], log: IO[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*_REPRIEVE, *arguments], stdout=subprocess.DEVNULL, stderr=log, cwd=ROOT
    )


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def _services_of(pid: int) -> Iterator[int]:
    """Yield the processes of a replay's services: the children of its starter."""
    for starter in _children(pid):
        yield from _children(starter)


def _children(pid: int) -> list[int]:
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
    except OSError:
        return []
    return [int(each) for each in text.split()]


@click.command()
@click.option("--count", default=200, show_default=True, help="Disturbed runs.")
@click.option("--seed", default=1, show_default=True, help="The seed of the first one.")
def main(count: int, seed: int) -> None:
    """Disturb runs of generated traces and compare their decision logs."""
    kills = failures = 0
    began = time.monotonic()
    for number in range(seed, seed + count):
        folder = Path(tempfile.mkdtemp(prefix="kills-"))
        arguments = trace_of(number, folder)
        begun = time.monotonic()
        base = undisturbed(arguments, folder)
        within_s = 0.7 * (time.monotonic() - begun)
        found = disturbed(arguments, base, folder, number, within_s)
        kills += len(found.kills)
        click.echo(f"{number}: {' '.join(found.kills) or 'ended before'}: {found.is_good}")
        if found.is_good:
            shutil.rmtree(folder)
            continue
        failures += 1
        click.echo(
            f"exit code {found.code}, same decisions: {found.is_same}\n{found.errors[-2000:]}"
        )
        click.echo(f"repeat it: python -m tests.torture.kills --count 1 --seed {number} ({folder})")
    took = time.monotonic() - began
    click.echo(f"{count} runs, {kills} kills, {failures} failures, {took:.0f} s")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
