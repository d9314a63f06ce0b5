"""Hostile services: what plays queue, scheduler or eviction service answers as no service should.

    python -m tests.torture.hostile --count 100 --seed 1

A server stands before a real one. At a random answer of a random method it begins to behave: it
sends nothing, the wrong number, an answer twice or without end, bytes that are no message, random
messages of the contract, messages that are too large, statuses with texts of any kind, or nothing
more on a connection that stays open. A replay (and the scheduler, behind a hostile queue) must end
within its timeouts with exit code 3, or 0 where the behaviour changed nothing, in bounded memory,
with one error that has neither a traceback nor control characters; its folder can be used again.
"""

from __future__ import annotations

import itertools
import os
import resource
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import click
import grpc

from replay.backends.processes import EmbeddedServices, ServiceProcess, Starter
from tests.e2e.commands import SERVICE, command, environment
from tests.torture.messages import Method, methods_of
from tests.torture.random_messages import mutate, mutated_bytes, random_message

ENDS_S = 60.0
"""How long a replay may take whose timeouts are two seconds; most of it is its start."""
MEMORY_MIB_MAX = 600
"""What a replay or a service may take at its peak."""
_TIMEOUTS = ("--timeout", "response=2s", "--timeout", "call=2s", "--reconnect", "0s")
_HUGE_BYTES = 40 * 1024 * 1024
_ENDLESS = 100_000
_NASTY = "\x1b[2J\x1b]0;title\x07\r\nTraceback\x00" + "x" * 2000
CLUSTER = """\
apiVersion: v1
kind: Node
metadata: {name: node-a}
status: {allocatable: {cpu: "4", memory: 8Gi, pods: "10"}}
"""
POD = """---
apiVersion: v1
kind: Pod
metadata: {{name: p{number}, namespace: default, creationTimestamp: "2026-01-01T00:0{number}:00Z"}}
spec: {{containers: [{{name: c, resources: {{requests: {{cpu: "{cpu}", memory: 1Gi}}}}}}]}}
"""


class FoundError(Exception):
    """A replay that did not end as it must."""


class Hostile:
    """Serves what the server at `address` does, until `behaves` takes over an answer.

    `at` is the number of that answer among all answers of all methods, from 0.
    """

    def __init__(self, address: str, service: str, random: Random, behaves: str, at: int) -> None:
        self._channel = grpc.insecure_channel(
            address, options=[("grpc.max_receive_message_length", -1)]
        )
        self._methods = {method.path: method for method in methods_of(service)}
        self._random = random
        self._behaves = BEHAVIOURS[behaves]
        self._left = at
        self._ended = threading.Event()
        self.has_acted = False
        self._server = grpc.server(ThreadPoolExecutor(16))
        self._server.add_generic_rpc_handlers((_Handler(self._serve),))
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def close(self) -> None:
        """Serve no longer."""
        self._ended.set()
        self._server.stop(0).wait()
        self._channel.close()

    def _serve(
        self, path: str, requests: Iterator[bytes], context: grpc.ServicerContext
    ) -> Iterator[bytes]:
        stream: Any = self._channel.stream_stream(path)
        try:
            for answer in stream(requests):
                method = self._methods.get(path)
                if method is None or self._left > 0:
                    self._left -= method is not None
                    yield answer
                    continue
                self.has_acted = True
                yield from self._behaves(Act(method, answer, self._random, context, self._ended))
        except grpc.RpcError as error:
            failed: Any = error
            context.abort(failed.code(), failed.details())


class _Handler(grpc.GenericRpcHandler):
    """Takes every method; on the wire a unary call is a stream of one message."""

    def __init__(self, serve: Callable[..., Iterator[bytes]]) -> None:
        self._serve = serve

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        """Return the handler of any method."""
        method = handler_call_details.method
        return grpc.stream_stream_rpc_method_handler(
            lambda requests, context: self._serve(method, requests, context)
        )


@dataclass(frozen=True, slots=True)
class Act:
    """An answer that a behaviour takes over: the real one, and the call."""

    method: Method
    answer: bytes
    random: Random
    context: grpc.ServicerContext
    ended: threading.Event

    def changed(self, change: Callable[[Any], None]) -> bytes:
        """Return the answer with a change."""
        message = self.method.response.FromString(self.answer)
        change(message)
        data: bytes = message.SerializeToString()
        return data


def _silent(act: Act) -> Iterator[bytes]:
    """Answer no more, on a connection that stays open."""
    act.ended.wait(ENDS_S)
    yield from ()


def _ends(act: Act) -> Iterator[bytes]:
    """End the call as if all were well."""
    act.context.abort(grpc.StatusCode.OK, "")
    yield from ()


def _twice(act: Act) -> Iterator[bytes]:
    yield act.answer
    yield act.answer


def _endless(act: Act) -> Iterator[bytes]:
    yield from itertools.repeat(act.answer, _ENDLESS)


def _empty(_act: Act) -> Iterator[bytes]:
    yield b""


def _garbage(act: Act) -> Iterator[bytes]:
    yield act.random.randbytes(act.random.choice((1, 100, 100_000)))


def _torn(act: Act) -> Iterator[bytes]:
    yield mutated_bytes(act.random, act.answer)


def _mutated(act: Act) -> Iterator[bytes]:
    yield act.changed(lambda message: mutate(act.random, message))


def _foreign(act: Act) -> Iterator[bytes]:
    message = random_message(act.random, act.method.response)
    data: bytes = message.SerializeToString()
    yield data


def _numbered(act: Act) -> Iterator[bytes]:
    """Answer with the wrong number, where answers have one."""

    def change(message: Any) -> None:
        if "sequence" in message.DESCRIPTOR.fields_by_name:
            message.sequence += act.random.choice((1, 7, 2**40))

    yield act.changed(change)


def _huge(_act: Act) -> Iterator[bytes]:
    """Send more than any message may have: a field that no one knows."""
    size = bytearray()
    bytes_left = _HUGE_BYTES
    while bytes_left > 127:
        size.append(bytes_left % 128 + 128)
        bytes_left //= 128
    yield b"\xfa\x7f" + bytes([*size, bytes_left]) + bytes(_HUGE_BYTES)


def _fails(act: Act) -> Iterator[bytes]:
    codes = [code for code in grpc.StatusCode if code is not grpc.StatusCode.OK]
    act.context.abort(act.random.choice(codes), act.random.choice(("", _NASTY)))
    yield from ()


def _slow(act: Act) -> Iterator[bytes]:
    """Answer, but later than the timeout allows."""
    act.ended.wait(4.0)
    yield act.answer


BEHAVIOURS: dict[str, Callable[[Act], Iterator[bytes]]] = {
    attack.__name__.removeprefix("_"): attack
    for attack in (
        *(_silent, _ends, _twice, _endless, _empty, _garbage, _torn, _mutated, _foreign),
        *(_numbered, _huge, _fails, _slow),
    )
}


def write_cluster(path: Path) -> None:
    """Write a cluster in which pods are bound, and one waits."""
    pods = [POD.format(number=number, cpu=2 if number < 3 else 40) for number in range(4)]
    path.write_text(CLUSTER + "".join(pods), encoding="utf-8")


def attack(services: EmbeddedServices, folder: Path, number: int, seed: int) -> str:
    """Run a replay against a hostile service; return how it ended. Raises FoundError."""
    random = Random(f"{seed}:{number}")  # noqa: S311 - it is to be repeated
    names = list(BEHAVIOURS)
    behaviour = names[number % len(names)]
    service = ("scheduler", "queue", "eviction")[number // len(names) % 3]
    addresses = dict(services.addresses)
    hostile = Hostile(
        addresses[service], service, random, behaviour, random.choice((0, 1, 1, 2, 3))
    )
    addresses[service] = hostile.address
    what = f"{service}, {behaviour}, attack {number} of seed {seed}"
    own: ServiceProcess | None = None
    try:
        if service == "queue":
            starter = Starter()
            options = ("--queue", hostile.address, "--no-warm-up", *_TIMEOUTS[:4])
            own = ServiceProcess(starter, "scheduler", *options)
            addresses["scheduler"] = own.wait_listening()
            starter.close()
        ended = _replayed(addresses, folder, what)
    finally:
        hostile.close()
        if own is not None:
            own.stop()
            starter.wait()
    return f"{ended}{'' if hostile.has_acted else ', without the behaviour'}"


def _replayed(addresses: dict[str, str], folder: Path, what: str) -> str:
    run = folder / "run"
    options = ["--scheduler", addresses["scheduler"], "--eviction", addresses["eviction"]]
    options += ["--usage", "* memory 1Gi", *_TIMEOUTS, "--spans", "off", "--no-report", "-q"]
    arguments = ["replay", str(folder / "cluster.yaml"), "--run", str(run), "--force", *options]
    began_s = time.monotonic()
    process = subprocess.Popen(
        command(*arguments),
        cwd=folder,
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    try:
        _, err = process.communicate(timeout=ENDS_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise FoundError(f"{what}: the replay did not end in {ENDS_S:g} s") from None
    text = err.decode("utf-8", "replace")
    took_s = time.monotonic() - began_s
    said = f"{what}: exit code {process.returncode} after {took_s:.0f} s: {text[-600:]}"
    errors = sum(line.startswith("Error") for line in text.splitlines())
    if process.returncode not in (0, SERVICE) or "Traceback (most" in text:
        raise FoundError(said)
    if process.returncode and errors != 1:
        raise FoundError(f"{said}\n{errors} lines of error")
    if any(ord(char) < 32 and char != "\n" for char in text):
        raise FoundError(f"control characters: {said!r}")
    return "refused" if process.returncode else "went on"


def attacks(
    numbers: Iterable[int], seed: int, show: Callable[[str], None] = lambda _: None
) -> Counter[str]:
    """Run attacks; return how the replays ended. Raises FoundError for the first that is wrong."""
    ended: Counter[str] = Counter()
    before_mib = _peak_mib()
    with tempfile.TemporaryDirectory() as name, EmbeddedServices() as services:
        folder = Path(name)
        write_cluster(folder / "cluster.yaml")
        for number in numbers:
            how = attack(services, folder, number, seed)
            ended[how] += 1
            show(f"{number}: {how}")
    peak_mib = _peak_mib()
    if peak_mib > max(before_mib, MEMORY_MIB_MAX):
        raise FoundError(f"a replay or a service took {peak_mib} MiB")
    return ended


def _peak_mib() -> int:
    """Return the most that a process of this one has taken, of those that have ended."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024


@click.command()
@click.option("--count", default=39, show_default=True, help="Number of replays.")
@click.option("--seed", default=1, show_default=True)
@click.option("--attack", "number", type=int, help="Run this attack alone.")
def main(count: int, seed: int, number: int | None) -> None:
    """Attack replays until one does not end as it must."""
    failures: list[str] = []
    ended: Counter[str] = Counter()
    for round_number in range(count) if number is None else (number,):
        try:
            ended += attacks(range(round_number, round_number + 1), seed)
        except FoundError as error:
            failures.append(str(error))
            click.echo(error, err=True)
    click.echo(f"{ended.total()} replays ended, peak {_peak_mib()} MiB: {dict(ended)}")
    click.echo(f"{len(failures)} did not end as they must")
    if failures:
        raise SystemExit(1)


if __name__ == "__main__":
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    main()
