"""Kills services and replays at random moments; nothing of a run but its wall times may show it.

    python -m tests.torture.kills --count 200 --seed 1

Each attempt makes a replay of another kind (tests/torture/kill_traces.py), undisturbed and with
kills: SIGKILL to a service, to all of them, to the process that starts them, to the replay (which
is then resumed) or to all at once, SIGTERM to the replay, or SIGSTOP and SIGCONT. The moments are
random, or those of an event: the start, a checkpoint that is being written or was just replaced,
the last files. Every fifth replay uses services at addresses, which something else starts again.
Then tests/torture/same_run.py compares the two runs, and no process may be left. A failure prints
the command that repeats it.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from typing import IO, Self

import click
import yaml

from replay.cli.errors import SERVICE
from replay.errors import ReplayError
from replay.results.run.files import HISTORY, LATENCIES, MANIFEST, REPORT, SUMMARY
from replay.results.run.resume_point import RESUME
from tests.ports import free_port
from tests.torture.kill_traces import ROOT, kind_of, kinds, replay_of
from tests.torture.same_run import differences

_REPRIEVE = (sys.executable, "-P", "-m", "replay.cli")
_POLL_S = 0.002
_LEFT_S = 20.0
"""How long processes may take to end by themselves after a kill."""
_PATIENCE_S = 600.0
_INTERRUPTED = (143, -signal.SIGTERM, 0)
"""Codes of a replay after SIGTERM: as always, before the command began, after it had ended."""
_UNWANTED = ("Traceback", "no checkpoint can be taken")


@dataclass(slots=True, kw_only=True)
class Disturbed:
    """A run that was disturbed: what was done to it, and how it ended."""

    kills: list[str] = field(default_factory=list)
    at_addresses: bool = False
    code: int = 0
    problems: list[str] = field(default_factory=list)
    errors: str = ""

    @property
    def is_good(self) -> bool:
        """Return whether it ended well, with everything as in the undisturbed run."""
        return self.code == 0 and not self.problems


class Elsewhere:
    """The three services at addresses: a process each, started again as soon as it has ended."""

    def __init__(self, extenders: Sequence[str] = ()) -> None:
        """Choose free ports; each `with` starts the services there.

        `extenders` are the URLs that the scheduler may call.
        """
        names = ("queue", "scheduler", "eviction")
        self.addresses = {name: f"127.0.0.1:{free_port()}" for name in names}
        self._of = {
            "scheduler": [
                *("--queue", self.addresses["queue"]),
                *(option for url in extenders for option in ("--extender", url)),
            ]
        }
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._ended = Event()
        self._keeper = Thread()

    def __enter__(self) -> Self:
        """Start the services, and keep them running."""
        self._processes = {name: self._started(name) for name in self.addresses}
        self._ended.clear()
        self._keeper = Thread(target=self._keep)
        self._keeper.start()
        self.wait()
        return self

    def wait(self) -> None:
        """Wait until all listen."""
        for address in self.addresses.values():
            host, _, port = address.partition(":")
            while True:
                with contextlib.suppress(OSError), socket.create_connection((host, int(port))):
                    break
                time.sleep(0.1)

    def __exit__(self, *_: object) -> None:
        """Stop the services."""
        self._ended.set()
        self._keeper.join()
        for process in self._processes.values():
            process.kill()
            process.wait()

    @property
    def options(self) -> list[str]:
        """Return the options of a replay that uses them."""
        return [
            option
            for name in ("scheduler", "eviction")
            for option in (f"--{name}", self.addresses[name])
        ]

    def pids(self) -> list[int]:
        """Return the processes of the services that run."""
        return [process.pid for process in self._processes.values() if process.poll() is None]

    def _started(self, name: str) -> subprocess.Popen[bytes]:
        address, own = self.addresses[name], self._of.get(name, [])
        return subprocess.Popen(
            [*_REPRIEVE, "serve", name, "--listen", address, *own, "--log-level", "error"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def _keep(self) -> None:
        while not self._ended.wait(0.1):
            for name, process in self._processes.items():
                if process.poll() is not None:
                    self._processes[name] = self._started(name)


@dataclass(slots=True)
class _Running:
    """A replay that runs, or the one that resumed it; `seen` are all processes of all of them."""

    run: Path
    log: IO[str]
    process: subprocess.Popen[bytes]
    elsewhere: Elsewhere | None = None
    seen: dict[int, str] = field(default_factory=dict)

    @property
    def ended(self) -> bool:
        return self.process.poll() is not None

    def processes(self) -> tuple[list[int], list[int]]:
        """Return the starters and the services of the replay, and remember them."""
        starters = children(self.process.pid)
        services = [pid for starter in starters for pid in children(starter)]
        for process_id in (*starters, *services):
            self.seen.setdefault(process_id, _began(process_id))
        return starters, services + (self.elsewhere.pids() if self.elsewhere else [])

    def left(self) -> list[int]:
        """Return the processes that still run after the end of all replays."""
        return [pid for pid, began in self.seen.items() if began and _began(pid) == began]


def undisturbed(arguments: Sequence[str], folder: Path, report: str = "--no-report") -> Path:
    """Replay without kills and return the run."""
    run = folder / "undisturbed"
    command = [*_REPRIEVE, "replay", *arguments, "--run", str(run), report, "-q"]
    subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
    return run


def disturbed(
    arguments: Sequence[str],
    base: Path,
    folder: Path,
    *,
    seed: int,
    within_s: float,
    kills: int = 0,
    report: str = "--no-report",
    elsewhere: Elsewhere | None = None,
) -> Disturbed:
    """Replay with kills and compare with the run `base`, which took `within_s` seconds.

    `kills` is their number; 0 for one to three.
    """
    chance = random.Random(seed)  # noqa: S311 - a test's choices
    run = folder / f"disturbed-{seed}"
    outcome = Disturbed(at_addresses=elsewhere is not None)
    errors = folder / f"errors-{seed}.txt"
    every = chance.choice(("50ms", "100ms", "1s"))
    options = ["--run", str(run), report, "-q", "--checkpoint-every", every]
    begin = ["replay", *arguments, *options]
    with errors.open("w", encoding="utf-8") as log:
        running = _Running(run, log, _start(begin, log), elsewhere)
        kills_left = kills or chance.choice((1, 1, 2, 3))
        within_s = max(within_s, 1.0)
        while kills_left and not running.ended:
            moment = _await_moment(running, chance, within_s)
            if running.ended:
                break
            how = _kill(running, chance)
            if how:
                kills_left -= 1
                outcome.kills.append(f"{how} {moment}")
                if how in {"replay", "everything", "interrupted"}:
                    within_s = max(0.5, within_s / 2)
                    code = _ended(running)
                    if how == "interrupted" and code not in _INTERRUPTED:
                        outcome.problems.append(f"SIGTERM ended it with code {code}")
                    running.process = _resumed(running, begin, log)
        outcome.code = _ended(running)
        if elsewhere is not None and outcome.code == SERVICE and not _has_begun(run):
            # It has not begun, since its services were killed before: a new replay does not wait.
            running.process = _resumed(running, begin, log)
            outcome.code = _ended(running)
    outcome.errors = errors.read_text(encoding="utf-8")
    outcome.problems += [f"it wrote {text!r}" for text in _UNWANTED if text in outcome.errors]
    if not outcome.code:
        try:
            outcome.problems += differences(run, base)
        except ReplayError as error:
            outcome.problems.append(f"the run cannot be read: {error}")
    deadline = time.monotonic() + _LEFT_S
    while running.left() and time.monotonic() < deadline:
        time.sleep(0.1)
    outcome.problems += [f"process {pid} is left" for pid in running.left()]
    return outcome


def _await_moment(running: _Running, chance: random.Random, within_s: float) -> str:
    """Wait for a random moment, or for an event, and return its name; or until the run ends."""
    moment = chance.choice(("at a time", "at a time", *_EVENTS))
    happens = _EVENTS.get(moment)
    before = _stamp(running.run / RESUME)
    deadline = time.monotonic() + chance.uniform(0, within_s if happens is None else 2 * within_s)
    while not running.ended:
        if time.monotonic() >= deadline:
            return moment if happens is None else "at a time"
        if happens is not None and happens(running.run, before):
            return moment
        time.sleep(_POLL_S)
    return moment


def _is_new(run: Path, before: tuple[int, int]) -> bool:
    return _stamp(run / RESUME) not in {before, (0, 0)}


_EVENTS: dict[str, Callable[[Path, tuple[int, int]], bool]] = {
    "when a checkpoint was replaced": _is_new,
    "while a checkpoint is written": lambda run, _: any(run.glob(f"{RESUME}.*")),
    "at the start": lambda run, _: (run / MANIFEST).exists(),
    "before the first round": lambda run, _: (run / HISTORY).exists(),
    "at the last files": lambda run, _: (run / LATENCIES).exists() or (run / SUMMARY).exists(),
    "at the report": lambda run, _: any(run.glob(".tables-*")) or (run / REPORT).exists(),
}
"""What is seen in a run's folder at these moments; `before` is the last checkpoint's stamp."""


def _stamp(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except OSError:
        return 0, 0
    return status.st_ino, status.st_mtime_ns


def _kill(running: _Running, chance: random.Random) -> str:
    """Disturb the run and return how; "" where there is nothing to be disturbed in that way."""
    starters, services = running.processes()
    replay = [running.process.pid]
    one = [chance.choice(services)] if services else []
    disturbed_by = {
        "service": one,
        "services": services,
        "starter": starters,
        "replay": replay,
        "everything": [*services, *replay, *starters],
        "interrupted": replay,
        "frozen": one,
    }
    how = chance.choice(tuple(disturbed_by))
    pids = disturbed_by[how]
    if how == "frozen":
        _signal(pids, signal.SIGSTOP)
        time.sleep(0.5)
        _signal(pids, signal.SIGCONT)
    elif how == "interrupted":
        _signal(pids, signal.SIGTERM)
    else:
        _signal(pids, signal.SIGKILL)
        while any(map(_began, pids)):
            time.sleep(_POLL_S)
    return how if pids else ""


def _resumed(running: _Running, begin: list[str], log: IO[str]) -> subprocess.Popen[bytes]:
    """Go on with a run whose replay was killed; begin it again where it was not begun yet."""
    if _has_begun(running.run):
        return _start(["resume", str(running.run)], log)
    if running.elsewhere is not None:
        running.elsewhere.wait()
    return _start([*begin, "--force"], log)


def _has_begun(run: Path) -> bool:
    """Return whether there is something of a run: its manifest follows the first checkpoint."""
    return (run / MANIFEST).exists()


def _ended(running: _Running) -> int:
    """Wait for the run's end and return its code; a run that does not end is killed."""
    deadline = time.monotonic() + _PATIENCE_S
    while not running.ended and time.monotonic() < deadline:
        running.processes()
        time.sleep(0.1)
    running.process.kill()
    return running.process.wait()


def _start(arguments: Sequence[str], log: IO[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*_REPRIEVE, *arguments], stdout=subprocess.DEVNULL, stderr=log, cwd=ROOT
    )


def _signal(pids: Sequence[int], number: int) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


def children(pid: int) -> list[int]:
    """Return the child processes of a process, of all its threads; none of one that has ended."""
    texts = []
    for path in Path("/proc").glob(f"{pid}/task/*/children"):
        with contextlib.suppress(OSError):
            texts.append(path.read_text(encoding="ascii"))
    return [int(pid) for pid in " ".join(texts).split()]


def _began(pid: int) -> str:
    """Return when a process began; "" for one that has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] == "Z" else fields[19]


def _extenders(arguments: Sequence[str]) -> list[str]:
    """Return the URLs of the extenders in a replay's scheduler configuration."""
    if "--scheduler-config" not in arguments:
        return []
    path = Path(arguments[arguments.index("--scheduler-config") + 1])
    configuration = yaml.safe_load(path.read_text(encoding="utf-8"))
    return [extender["urlPrefix"] for extender in configuration.get("extenders", [])]


def _attempts(count: int, seed: int, kind: str) -> Iterator[tuple[int, Disturbed, Path]]:
    numbers = (number for number in itertools.count(seed) if kind in ("", kind_of(number)))
    for number in itertools.islice(numbers, count):
        folder = Path(tempfile.mkdtemp(prefix="kills-"))
        report = "--report" if number % 3 == 0 else "--no-report"
        with contextlib.ExitStack() as held:
            arguments = held.enter_context(replay_of(number, folder))
            elsewhere = None
            if number % 5 == 0 and not {"--in-process", "--no-eviction"} & {*arguments}:
                elsewhere = held.enter_context(Elsewhere(_extenders(arguments)))
                arguments += elsewhere.options
            began = time.monotonic()
            try:
                base = undisturbed(arguments, folder, report)
            except subprocess.CalledProcessError as error:
                problem = f"without kills, too: {shlex.join(arguments)}"
                yield number, Disturbed(code=error.returncode, problems=[problem]), folder
                continue
            within_s = time.monotonic() - began
            outcome = disturbed(
                arguments,
                base,
                folder,
                seed=number,
                within_s=within_s,
                report=report,
                elsewhere=elsewhere,
            )
        yield number, outcome, folder


@click.command()
@click.option("--count", default=200, show_default=True, help="Disturbed runs.")
@click.option("--seed", default=1, show_default=True, help="The seed of the first one.")
@click.option("--kind", default="", type=click.Choice(["", *kinds()]), help="Only of this kind.")
def main(count: int, seed: int, kind: str) -> None:
    """Disturb replays of every kind and compare all that they leave."""
    kills, missed, failures = Counter[str](), 0, 0
    began = time.monotonic()
    for number, outcome, folder in _attempts(count, seed, kind):
        kills.update(kill.split()[0] for kill in outcome.kills)
        missed += not outcome.kills
        shown = ", ".join(outcome.kills) or "ended before"
        where = " at addresses" if outcome.at_addresses else ""
        click.echo(f"{number}{where}: {shown}: {'same' if outcome.is_good else 'FAILED'}")
        if outcome.is_good:
            shutil.rmtree(folder)
            continue
        failures += 1
        click.echo(f"exit code {outcome.code}\n{outcome.errors[-2000:]}")
        click.echo("\n".join(outcome.problems))
        click.echo(f"repeat it: python -m tests.torture.kills --count 1 --seed {number} ({folder})")
    took = time.monotonic() - began
    by_kind = ", ".join(f"{name} {times}" for name, times in sorted(kills.items()))
    click.echo(
        f"{count} runs, {kills.total()} kills ({by_kind}), {missed} ended before, "
        f"{failures} failures, {took:.0f} s"
    )
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
