"""An hour of load: memory, threads, open files and sessions of the services must not grow.

    python -m tests.torture.soak --for 1h

The three services run as processes with default limits; only sessions expire after some seconds.
Two loads go on without a pause: random messages, and a round of real replays with checkpoints,
sessions that are left, streams that are cancelled, and checkpoints that are read in part. Every
ten seconds each service is measured. A quarter of the time is for the start; what the last quarter
has more than the second one is growth. Afterwards, without load, every session must be gone.
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
import multiprocessing
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import click
import grpc

from replay.durations import duration_ns
from reprieve.session.v1beta1 import session_pb2
from services.rpc.client import channel as channel_to
from services.rpc.sessions import Sessions
from tests.torture.messages import CONTRACTS, FoundError, torture

SAMPLE_S = 10.0
ROOT = Path(__file__).resolve().parents[2]
IDLE_S = 20
DEADLINE_S = 60.0
"""How long a response may take; the machine may be busy with much else for an hour."""
SHARE, SLACK_MIB = 1.05, 8.0
"""By which the last quarter's memory may exceed the second one's."""
_LISTENING = re.compile(r"reprieve \w+ listening on (\S+)")
_EPISODES = 200
_MIB = 1024 * 1024
Addresses = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What one service takes at one moment; `resident` in MiB."""

    resident: float
    threads: int
    files: int
    sessions: int


class Service:
    """A service in a process of its own, which counts its sessions in a file."""

    def __init__(self, name: str, folder: Path, *arguments: str) -> None:
        self.name = name
        self._count = folder / f"{name}.sessions"
        self._log = (folder / f"{name}.log").open("wb")
        options = ["--listen", "127.0.0.1:0", "--session-idle", f"{IDLE_S}s", *arguments]
        self.process = subprocess.Popen(
            [sys.executable, "-m", __spec__.name, "--serve", name, str(self._count), *options],
            stdout=subprocess.PIPE,
            stderr=self._log,
            cwd=ROOT,
            text=True,
        )
        assert self.process.stdout is not None
        match = _LISTENING.match(self.process.stdout.readline())
        if match is None:
            raise FoundError(f"the {name} service did not start: see {self._log.name}")
        self.address = match[1]

    def sample(self) -> Sample:
        """Measure the process. Raises FoundError where it has ended."""
        if self.process.poll() is not None:
            raise FoundError(f"the {self.name} service ended: see {self._log.name}")
        proc = Path(f"/proc/{self.process.pid}")
        pages = int((proc / "statm").read_text(encoding="ascii").split()[1])
        return Sample(
            resident=pages * os.sysconf("SC_PAGE_SIZE") / _MIB,
            threads=len(list((proc / "task").iterdir())),
            files=len(list((proc / "fd").iterdir())),
            sessions=int(self._count.read_text(encoding="ascii") or 0),
        )

    def errors(self) -> str:
        """Return the last of what it wrote to its log about unexpected errors."""
        text = Path(self._log.name).read_text(encoding="utf-8", errors="replace")
        return text[-2000:] if "unexpected error" in text else ""

    def stop(self) -> None:
        """Stop it."""
        self.process.terminate()
        self.process.wait()
        self._log.close()


def serve(name: str, count: Path, arguments: tuple[str, ...]) -> None:
    """Run a service in this process; write the number of its sessions to `count` every second."""
    made: list[Sessions[Any]] = []
    begin = Sessions.__init__

    def noted(self: Sessions[Any], *rest: Any, **named: Any) -> None:
        made.append(self)
        begin(self, *rest, **named)

    def write() -> None:
        while True:
            new = count.with_suffix(".new")
            new.write_text(str(sum(len(samples) for samples in made)), encoding="ascii")
            new.replace(count)
            time.sleep(1)

    setattr(Sessions, "__init__", noted)  # noqa: B010 - a method, which mypy lets nobody assign
    threading.Thread(target=write, daemon=True).start()
    importlib.import_module(f"services.{name}.__main__").main(list(arguments))


# The loads


def messages(addresses: Addresses, seed: int, until_s: float) -> None:
    """Send random messages over sockets."""
    for number in itertools.count():
        if time.time() > until_s:
            return
        episodes = range(number * _EPISODES, (number + 1) * _EPISODES)
        torture(
            list(CONTRACTS),
            episodes,
            seed,
            addresses=addresses,
            deadline_s=DEADLINE_S,
            ends=lambda: time.time() > until_s,
        )


def round_of_all(addresses: Addresses, seed: int, until_s: float) -> None:
    """Replay, leave sessions, cancel streams and read checkpoints in part, in turn."""
    chance = Random(seed)  # noqa: S311 - it is to be repeated
    with tempfile.TemporaryDirectory(prefix="soak-") as temporary:
        folder = Path(temporary)
        trace = folder / "trace.ktr"
        sizes = ["--nodes", "20", "--pods", "400", "--service-time", "30s", "--leaky", "10"]
        _reprieve("generate", "-o", str(trace), "--seed", str(seed), *sizes)
        while time.time() < until_s:
            _replay(trace, folder, addresses)
            for _ in range(20):
                name = chance.choice(tuple(CONTRACTS))
                with contextlib.closing(channel_to(addresses[name])) as opened:
                    chance.choice((_left, _cancelled, _saved))(opened, name, chance)


def _replay(trace: Path, folder: Path, addresses: Addresses) -> None:
    services = [f"--{name}={addresses[name]}" for name in ("scheduler", "eviction")]
    options = ["--run", str(folder / "run"), "--force", "--no-report", "-q", *services]
    _reprieve("replay", str(trace), *options, "--checkpoint-every", "100ms")


def _reprieve(*arguments: str) -> None:
    command = [sys.executable, "-m", "replay.cli", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise FoundError(f"{arguments[0]} ended with {done.returncode}: {done.stderr[-2000:]}")


def _left(opened: grpc.Channel, name: str, chance: Random) -> None:
    """Use a session and leave it."""
    del chance
    _told(opened, name)


def _told(opened: grpc.Channel, name: str) -> tuple[Any, str]:
    """Send a session's story; return the stub and the session."""
    contract = CONTRACTS[name]
    stub = contract.stub(opened)
    session: str = stub.CreateSession(contract.create(), timeout=DEADLINE_S).session_id
    for number, request in enumerate(contract.story(), 1):
        request.stamp.session_id, request.stamp.sequence = session, number
        getattr(stub, contract.method)(request, timeout=DEADLINE_S)
    return stub, session


def _cancelled(opened: grpc.Channel, name: str, chance: Random) -> None:
    """Cancel a stream in the middle of its requests."""
    contract = CONTRACTS[name]
    stub = contract.stub(opened)
    session: str = stub.CreateSession(contract.create(), timeout=DEADLINE_S).session_id
    requests = contract.story()
    for number, request in enumerate(requests, 1):
        request.stamp.session_id, request.stamp.sequence = session, number
    call = getattr(stub, f"Streaming{contract.method}")(iter(requests))
    for _ in range(chance.randrange(len(requests))):
        next(call)
    call.cancel()


def _saved(opened: grpc.Channel, name: str, chance: Random) -> None:
    """Read a checkpoint, at times a part of it only; restore it, at times a part only."""
    stub, session = _told(opened, name)
    request = session_pb2.CheckpointSessionRequest(stamp=session_pb2.Stamp(session_id=session))
    call = stub.CheckpointSession(request, timeout=DEADLINE_S)
    if chance.random() < 0.3:
        call.cancel()
        return
    chunks = list(call)
    if chance.random() < 0.3:
        chunks[0].data = chunks[0].data[: len(chunks[0].data) // 2]
        with contextlib.suppress(grpc.RpcError):
            stub.RestoreSession(iter(chunks), timeout=DEADLINE_S)
    else:
        stub.RestoreSession(iter(chunks), timeout=DEADLINE_S)
    delete = session_pb2.DeleteSessionRequest(session_id=session)
    stub.DeleteSession(delete, timeout=DEADLINE_S)


def _loaded(
    load: Callable[[Addresses, int, float], None], addresses: Addresses, seed: int, until_s: float
) -> None:
    """Run a load in a process of its own, which ends with 1 and a text where it fails."""
    try:
        load(addresses, seed, until_s)
    except FoundError as error:
        sys.exit(f"{load.__name__}: {error}")


LOADS = (messages, round_of_all)


# The measurement


@contextlib.contextmanager
def running(folder: Path) -> Iterator[list[Service]]:
    """Run the three services."""
    with contextlib.ExitStack() as stack:
        made: list[Service] = []
        for name in ("queue", "scheduler", "eviction"):
            more = ("--queue", made[0].address) if name == "scheduler" else ()
            made.append(Service(name, folder, *more))
            stack.callback(made[-1].stop)
        yield made


def soak(for_s: float, seed: int, sample_s: float, show: Callable[[str], None]) -> list[str]:
    """Load the services for so long; return what is wrong. Raises FoundError."""
    folder = Path(tempfile.mkdtemp(prefix="soak-"))
    with running(folder) as services:
        addresses = {service.name: service.address for service in services}
        until_s = time.time() + for_s
        spawn = multiprocessing.get_context("spawn")
        loads = [
            spawn.Process(target=_loaded, args=(load, addresses, seed, until_s)) for load in LOADS
        ]
        for load in loads:
            load.start()
        samples: dict[str, list[Sample]] = {service.name: [] for service in services}
        try:
            while time.time() < until_s:
                time.sleep(sample_s)
                for process in services:
                    samples[process.name].append(process.sample())
                if len(samples["queue"]) % 6 == 0:
                    show(_line(for_s - (until_s - time.time()), samples))
                if any(load.exitcode for load in loads):
                    raise FoundError("a load has failed, see above")
            for load in loads:
                load.join()
                if load.exitcode:
                    raise FoundError("a load has failed, see above")
        finally:
            for load in loads:
                load.terminate()
        time.sleep(IDLE_S * 1.5 + 2)
        last = {service.name: service.sample() for service in services}
        wrong = [
            f"{service.name}: an internal error:\n{text}"
            for service in services
            if (text := service.errors())
        ]
    for line in table(samples):
        show(line)
    return wrong + left(last) + growth(samples)


def growth(samples: Mapping[str, list[Sample]]) -> list[str]:
    """Return what has grown from the second quarter of the samples to the last."""
    problems = []
    for name, item in samples.items():
        quarters = quartered(item)
        before, after = (_mean("resident", quarters[index]) for index in (1, 3))
        if after > before * SHARE + SLACK_MIB:
            problems.append(f"{name}: memory grew from {before:.1f} to {after:.1f} MiB")
        for field in ("threads", "files", "sessions"):
            most = max(getattr(sample, field) for sample in quarters[1])
            now = statistics.median(getattr(sample, field) for sample in quarters[3])
            if now > most:
                problems.append(f"{name}: {field} grew from at most {most} to {now:g}")
    return problems


def left(last: Mapping[str, Sample]) -> list[str]:
    """Return which services have sessions although all had the time to expire."""
    return [
        f"{name}: {item.sessions} sessions are left" for name, item in last.items() if item.sessions
    ]


def quartered(samples: list[Sample]) -> list[list[Sample]]:
    """Return the samples in four parts, each of at least one."""
    size = max(1, len(samples) // 4)
    return [samples[index * size : (index + 1) * size] or samples[-1:] for index in range(3)] + [
        samples[3 * size :] or samples[-1:]
    ]


def table(samples: Mapping[str, list[Sample]]) -> Iterator[str]:
    """Yield a line for each service and quarter: mean memory, and the most of all else."""
    yield "service    quarter  MiB mean  MiB max  threads  files  sessions"
    for name, item in samples.items():
        for number, part in enumerate(quartered(item), 1):
            yield (
                f"{name:10} {number:7}  {_mean('resident', part):8.1f}"
                f"  {_most('resident', part):7.1f}  {_most('threads', part):7.0f}"
                f"  {_most('files', part):5.0f}  {_most('sessions', part):8.0f}"
            )


def _mean(field: str, samples: list[Sample]) -> float:
    return statistics.fmean(getattr(sample, field) for sample in samples)


def _most(field: str, samples: list[Sample]) -> float:
    return float(max(getattr(sample, field) for sample in samples))


def _line(passed_s: float, samples: Mapping[str, list[Sample]]) -> str:
    shown = [
        f"{name} {item[-1].resident:.1f} MiB {item[-1].threads} threads {item[-1].files} files "
        f"{item[-1].sessions} sessions"
        for name, item in samples.items()
    ]
    return f"{passed_s:5.0f} s  {'; '.join(shown)}"


@click.command(context_settings={"ignore_unknown_options": True})
@click.option("--for", "for_text", default="1h", show_default=True, metavar="DURATION")
@click.option("--seed", default=1, show_default=True)
@click.option("--sample", "sample_s", default=SAMPLE_S, show_default=True, metavar="SECONDS")
@click.option("--serve", "served", nargs=2, hidden=True, help="Run a service.")
@click.argument("rest", nargs=-1, type=click.UNPROCESSED)
def main(
    for_text: str, seed: int, sample_s: float, served: tuple[str, str] | None, rest: tuple[str, ...]
) -> None:
    """Load the three services and measure them."""
    if served:
        serve(served[0], Path(served[1]), rest)
        return
    try:
        wrong = soak(duration_ns(for_text) / 1e9, seed, sample_s, click.echo)
    except FoundError as error:
        raise click.ClickException(str(error)) from error
    if wrong:
        raise click.ClickException("\n".join(wrong))
    click.echo(f"nothing has grown in {for_text}")


if __name__ == "__main__":
    main()
