"""Cuts connections and freezes services at random moments; the decision log must not show it.

    python -m tests.torture.cuts --count 50 --seed 1

A replay runs through three services at addresses, with a proxy before each of them: between replay
and scheduler, replay and eviction service, scheduler and queue. Proxies lose what one side sends,
hold it, delay it, reset connections, also in the middle of a message, and refuse new ones; or a
service is stopped by SIGSTOP. The run must go on by itself, and its log is compared byte for byte
with that of an undisturbed run. A failure prints the command that repeats it.
"""

from __future__ import annotations

import asyncio
import contextlib
import filecmp
import os
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

import click

from replay.backends.processes import prepare
from replay.errors import ReplayError
from replay.runner import run_replay
from replay.settings import ReplaySettings
from services.rpc.access import ClientTls
from services.rpc.timeouts import VARIABLE, Timeouts
from services.telemetry.span import Sampling
from tests.e2e.commands import reprieve
from tests.e2e.replays import ROOT, trace

DECISIONS = "decisions.jsonl"
LIMIT_S = 120.0
"""How long a disturbed run may take."""
SERVED_WITH = "queue=1s unreachable=2s keepalive=1s probe=1s"
BY_KEEPALIVE = Timeouts(response=30, call=8, checkpoint=8, keepalive=0.5, probe=1)
BY_DEADLINE = Timeouts(response=4, call=8, checkpoint=8)
"""What notices that a service has gone: pings, or a response that is overdue."""
WAYS = ("to", "from")
KINDS = ("one way", "half open", "held", "delayed", "reset", "in a message", "refused", "stopped")


@dataclass(eq=False)
class Connection:
    """A connection through a proxy, in two ways: `to` the service and `from` it.

    `lost` ways drop all bytes, for ever. `left` is after how many bytes a way resets both. A way
    goes on only while its event of `flows` is set.
    """

    writers: tuple[asyncio.StreamWriter, asyncio.StreamWriter]
    lost: set[str] = field(default_factory=set)
    left: dict[str, int] = field(default_factory=dict)
    delay_s: float = 0.0
    flows: dict[str, asyncio.Event] = field(
        default_factory=lambda: {way: asyncio.Event() for way in WAYS}
    )

    def __post_init__(self) -> None:
        """Let both ways flow."""
        self.go_on()

    def disturb(self, kind: str, way: str, chance: Random) -> None:
        """Do one of KINDS to the connection."""
        if kind == "one way":
            self.lost.add(way)
        elif kind == "half open":
            self.lost |= {*WAYS}
        elif kind == "held":
            for event in self.flows.values():
                event.clear()
        elif kind == "delayed":
            self.delay_s = chance.uniform(0.01, 0.2)
        elif kind == "in a message":
            self.left[way] = chance.randrange(1, 20_000)
        else:
            self.reset()

    def go_on(self) -> None:
        """Let both ways flow without a delay."""
        self.delay_s = 0.0
        for event in self.flows.values():
            event.set()

    def reset(self) -> None:
        """Break the connection at both ends."""
        for writer in self.writers:
            writer.transport.abort()


@dataclass
class Proxy:
    """A TCP proxy to a port; while it `swallows`, the service's responses are lost."""

    port: int
    swallows: bool = False
    refuses: bool = False
    made: int = 0
    address: str = ""
    connections: set[Connection] = field(default_factory=set)

    async def start(self) -> asyncio.Server:
        """Listen."""
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        return server

    def cut(self) -> None:
        """Reset all connections."""
        for connection in tuple(self.connections):
            connection.reset()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refuses:
            writer.close()
            return
        self.made += 1
        try:
            answers, there = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            writer.close()
            return
        made = Connection((writer, there))
        self.connections.add(made)
        with contextlib.suppress(OSError):
            await asyncio.gather(
                self._pump(made, "to", reader, there), self._pump(made, "from", answers, writer)
            )
        made.reset()
        self.connections.discard(made)

    async def _pump(
        self, made: Connection, way: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while data := await reader.read(65536):
            await made.flows[way].wait()
            if made.delay_s:
                await asyncio.sleep(made.delay_s)
            if way in made.lost or (self.swallows and way == "from"):
                continue
            left = made.left.get(way, len(data) + 1)
            writer.write(data[:left])
            if left <= len(data):
                made.reset()
                return
            if way in made.left:
                made.left[way] = left - len(data)
            await writer.drain()
        if way not in made.lost:
            writer.close()


def replayed(
    source: Path,
    run: Path,
    timeouts: Timeouts,
    notice: Callable[[str], None],
    scheduler: str = "",
    eviction: str = "",
) -> None:
    """Replay through services at addresses, or as child processes. Raises ReplayError."""
    settings = ReplaySettings(
        version="test",
        scheduler_address=scheduler,
        eviction_address=eviction,
        tls=ClientTls(timeouts=timeouts),
        run_path=run,
        sampling=Sampling(0.0),
        checkpoint_every_ns=100_000_000,
        reconnect_ns=60_000_000_000,
    )
    records = trace([source])
    run_replay(settings, lambda: iter(records), lambda *_: None, notice)


@dataclass(kw_only=True)
class Rig:
    """Three services, each behind a proxy; `pids` are theirs."""

    proxies: dict[str, Proxy]
    pids: dict[str, int]

    async def replay(
        self,
        source: Path,
        run: Path,
        timeouts: Timeouts,
        notice: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Replay through the proxies. Raises ReplayError."""
        addresses = [self.proxies[name].address for name in ("scheduler", "eviction")]
        await asyncio.to_thread(replayed, source, run, timeouts, notice, *addresses)

    async def disturb(self, kind: str, chance: Random) -> str:
        """Do one thing to one service or its connections, and undo it; return what was done."""
        name = chance.choice(tuple(self.proxies))
        proxy, way = self.proxies[name], chance.choice(WAYS)
        for_s = chance.choice((0.3, 1.5, 4.0))
        made = tuple(proxy.connections)
        if kind == "stopped":
            os.kill(self.pids[name], signal.SIGSTOP)
            await asyncio.sleep(for_s)
            os.kill(self.pids[name], signal.SIGCONT)
            return f"{name} stopped for {for_s:g} s"
        if kind == "refused":
            proxy.refuses = True
            proxy.cut()
            await asyncio.sleep(for_s)
            proxy.refuses = False
            return f"{name} refuses connections for {for_s:g} s"
        for connection in made:
            connection.disturb(kind, way, chance)
        if kind in {"held", "delayed"}:
            await asyncio.sleep(for_s)
            for connection in made:
                connection.go_on()
        return f"{name} {way}: {kind}, {len(made)} connections"

    def mend(self) -> None:
        """Undo what is left of disturbances."""
        for proxy in self.proxies.values():
            proxy.refuses = proxy.swallows = False
            proxy.cut()


@contextlib.asynccontextmanager
async def rig() -> AsyncIterator[Rig]:
    """Start the services, and a proxy before each of them."""
    proxied = Rig(proxies={}, pids={})
    async with contextlib.AsyncExitStack() as stack:
        for name in ("queue", "scheduler", "eviction"):
            more: tuple[str, ...] = ()
            if name == "scheduler":
                more = ("--queue", proxied.proxies["queue"].address, "--no-warm-up")
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", f"services.{name}", "--listen", "127.0.0.1:0", *more),
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                cwd=ROOT,
                env={**os.environ, VARIABLE: SERVED_WITH},
            )
            stack.push_async_callback(process.wait)
            stack.callback(process.kill)
            assert process.stdout is not None
            line = (await process.stdout.readline()).decode()
            proxied.pids[name] = process.pid
            proxied.proxies[name] = proxy = Proxy(int(line.rpartition(":")[2]))
            stack.callback((await proxy.start()).close)
            stack.callback(proxy.cut)
        yield proxied


@dataclass(slots=True, kw_only=True)
class Disturbed:
    """A run that was disturbed: what was done to it, and how it ended."""

    done: list[str] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    took_s: float = 0.0
    problem: str = ""


async def disturbed(
    found: Rig, source: Path, base: Path, seed: int, within_s: float, kind: str = ""
) -> Disturbed:
    """Replay with one to three disturbances, of a `kind` or of any, and compare with `base`."""
    chance = Random(seed)  # noqa: S311 - a test's choices
    result, began_s = Disturbed(), time.monotonic()
    timeouts = chance.choice((BY_KEEPALIVE, BY_DEADLINE))
    run = base.parent / f"disturbed-{seed}"

    def noted(text: str) -> None:
        if text:
            result.notices.append(f"{time.monotonic() - began_s:.1f} s: {text}")

    replaying = asyncio.ensure_future(found.replay(source, run, timeouts, noted))

    async def disturbing() -> None:
        # A replay that cannot open its first sessions ends at once, as it should.
        while not (run / DECISIONS).exists() and not replaying.done():
            await asyncio.sleep(0.01)
        for _ in range(chance.choice((1, 2, 3))):
            await asyncio.sleep(chance.uniform(0.05, within_s))
            if replaying.done():
                return
            result.done.append(await found.disturb(kind or chance.choice(KINDS), chance))

    cutting = asyncio.ensure_future(disturbing())
    try:
        await asyncio.wait_for(asyncio.shield(replaying), LIMIT_S)
    except TimeoutError:
        result.problem = f"it has not ended in {LIMIT_S:g} s"
    except ReplayError as error:
        result.problem = f"{type(error).__name__}: {error} {getattr(error, '__notes__', '')}"
    else:
        if not filecmp.cmp(run / DECISIONS, base / DECISIONS, shallow=False):
            result.problem = "other decisions"
    await cutting
    found.mend()
    result.took_s = time.monotonic() - began_s
    return result


def generated(folder: Path, seed: int) -> Path:
    """Write a trace and return its path."""
    chance = Random(seed)  # noqa: S311 - a test's choices
    path = folder / f"trace-{seed}.ktr"
    sizes = {
        "--nodes": chance.choice((10, 40)),
        "--pods": chance.choice((300, 600)),
        "--leaky": chance.choice((0, 10)),
        "--service-time": chance.choice(("20s", "30s")),
    }
    options = [text for name, value in sizes.items() for text in (name, str(value))]
    reprieve(folder, "generate", "-o", str(path), "--seed", str(seed), *options)
    return path


async def torture(seeds: range, show: Callable[[str], None]) -> int:
    """Disturb a run for each seed; return how many failed."""
    failures = disturbances = noticed = 0
    began_s = time.monotonic()
    async with rig() as found:
        for seed in seeds:
            with tempfile.TemporaryDirectory(prefix="cuts-") as folder:
                source, base = generated(Path(folder), seed), Path(folder) / "undisturbed"
                begun_s = time.monotonic()
                await found.replay(source, base, replace(BY_DEADLINE, response=60))
                within_s = 0.5 * (time.monotonic() - begun_s)
                result = await disturbed(found, source, base, seed, within_s)
            disturbances += len(result.done)
            noticed += bool(result.notices)
            shown = "; ".join(result.done) or "ended before"
            took = f"{result.took_s:.1f} s, undisturbed {2 * within_s:.1f} s"
            show(f"{seed}: {shown}: {took}: {result.problem or 'good'}")
            if result.problem:
                failures += 1
                show("\n".join(result.notices[-10:]))
                show(f"repeat it: python -m tests.torture.cuts --count 1 --seed {seed}")
    show(
        f"{len(seeds)} runs, {disturbances} disturbances, {noticed} runs lost a service, "
        f"{failures} failures, {time.monotonic() - began_s:.0f} s"
    )
    return failures


@click.command()
@click.option("--count", default=50, show_default=True, help="Disturbed runs.")
@click.option("--seed", default=1, show_default=True, help="The seed of the first one.")
def main(count: int, seed: int) -> None:
    """Disturb runs of generated traces and compare their decision logs."""
    prepare()
    failures = asyncio.run(torture(range(seed, seed + count), click.echo))
    sys.stdout.flush()
    os._exit(1 if failures else 0)  # a replay that hangs holds its thread


if __name__ == "__main__":
    main()
