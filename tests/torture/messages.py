"""Random, mutated and misplaced messages against the services.

    python -m tests.torture.messages --count 1000000 --seed 1 --workers 2

Each episode opens a session, sends messages of every method to it, and meanwhile continues a valid
session, whose responses must be those of an undisturbed one. No response may be INTERNAL or
UNKNOWN, none may break its session or take 10 s, and no session may be left. A failure prints the
command that repeats its episode alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import multiprocessing
import resource
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import Any, cast

import click
import grpc

from replay.backends.processes import EmbeddedServices
from replay.conform.contract.autoscaler.contract import AUTOSCALER
from replay.conform.contract.checks import CheckError, ServiceContract, expect_same
from replay.conform.contract.eviction import EVICTION
from replay.conform.contract.queue import QUEUE
from replay.conform.contract.scheduler.contract import SCHEDULER
from reprieve.autoscaler.v1beta1 import autoscaler_service_pb2, autoscaler_service_pb2_grpc
from reprieve.eviction.v1beta1 import eviction_service_pb2, eviction_service_pb2_grpc
from reprieve.queue.v1beta1 import queue_service_pb2, queue_service_pb2_grpc
from reprieve.scheduler.v1beta1 import scheduler_service_pb2, scheduler_service_pb2_grpc
from reprieve.session.v1beta1 import session_pb2
from services.autoscaler.servicer import AutoscalerServicer
from services.eviction.servicer import EvictionServicer
from services.queue.servicer import QueueServicer
from services.rpc.client import channel as channel_to
from services.rpc.limits import UNLIMITED
from services.rpc.local import LocalServer
from services.rpc.server import interceptors
from services.scheduler.queue_client import QueueLink
from services.scheduler.servicer import SchedulerServicer
from services.telemetry.service_spans import ServiceSpans
from tests.torture.random_messages import mutate, mutated_bytes, random_message

DEADLINE_S = 10.0
OBJECTS_MAX = 2000
"""Objects of an autoscaler's session: a scan simulates as many nodes as a target promises."""
EPISODE = 40
"""Messages of an episode."""
CONTRACTS = {"queue": QUEUE, "scheduler": SCHEDULER, "eviction": EVICTION, "autoscaler": AUTOSCALER}
MODULES: dict[str, Any] = {
    "queue": queue_service_pb2,
    "scheduler": scheduler_service_pb2,
    "eviction": eviction_service_pb2,
    "autoscaler": autoscaler_service_pb2,
}
_WRONG = {"INTERNAL", "UNKNOWN", "UNAVAILABLE", "DEADLINE_EXCEEDED"}
_BROKEN = "broke half-way"


class FoundError(Exception):
    """Something that no message may cause."""


@dataclass(frozen=True, slots=True)
class Method:
    """A method of a service; `request` and `response` are its messages' types."""

    name: str
    path: str
    request: Any
    response: Any
    streams_in: bool
    streams_out: bool

    def call(self, channel: Any, requests: list[bytes], options: dict[str, float]) -> list[Any]:
        """Return the responses; of a watch the first one."""
        kind = "stream_" if self.streams_in else "unary_"
        kind += "stream" if self.streams_out else "unary"
        make: Callable[..., Any] = getattr(channel, kind)
        read = self.response.FromString
        call = make(self.path, request_serializer=bytes, response_deserializer=read)
        given = iter(requests) if self.streams_in else requests[0]
        both = self.streams_in and self.streams_out
        found = call(given, **({} if both and not options else options))
        if not self.streams_out:
            return [found]
        return [next(found)] if self.name == "WatchPending" else list(found)


def methods_of(name: str) -> list[Method]:
    """Return the methods of a service."""
    [service] = MODULES[name].DESCRIPTOR.services_by_name.values()
    return [
        Method(
            method.name,
            f"/{service.full_name}/{method.name}",
            method.input_type._concrete_class,
            method.output_type._concrete_class,
            method.client_streaming,
            method.server_streaming,
        )
        for method in service.methods
    ]


class Episode:
    """One series of messages, made from a seed and the episode's number."""

    def __init__(
        self,
        channel: Any,
        contract: ServiceContract,
        random: Random,
        *,
        over_socket: bool,
        deadline_s: float,
    ) -> None:
        self._channel = channel
        self._contract = contract
        self._random = random
        self._options = {"timeout": deadline_s} if over_socket else {}
        self._deadline_s = deadline_s
        self._methods = methods_of(contract.service)
        self._by_name = {method.name: method for method in self._methods}
        self._names: list[str] = []
        self._sequences: Counter[str] = Counter()
        self._seeds = contract.story() + list(contract.malformed().values())
        self.codes: Counter[str] = Counter()

    def run(self, expected: list[Any]) -> None:
        """Send the messages. Raises FoundError."""
        valid = self._created()
        story, answers = self._contract.story(), list[Any]()
        self._created()
        for number in range(EPISODE):
            self._send()
            if number % (EPISODE // len(story)) == 0 and len(answers) < len(story):
                request = story[len(answers)]
                request.stamp.session_id, request.stamp.sequence = valid, len(answers) + 1
                answers.append(self._called(self._contract.method, request))
        for answer, wanted in zip(answers, expected, strict=True):
            try:
                expect_same("a response of the valid session", answer, wanted)
            except CheckError as error:
                raise FoundError(str(error)) from error
        for name in self._names:
            self._called("DeleteSession", session_pb2.DeleteSessionRequest(session_id=name))

    def undisturbed(self) -> list[Any]:
        """Return the responses to the valid requests alone."""
        name = self._created()
        answers = []
        for number, request in enumerate(self._contract.story(), 1):
            request.stamp.session_id, request.stamp.sequence = name, number
            answers.append(self._called(self._contract.method, request))
        self._called("DeleteSession", session_pb2.DeleteSessionRequest(session_id=name))
        return answers

    def _created(self) -> str:
        name: str = self._called("CreateSession", self._contract.create()).session_id
        self._names.append(name)
        return name

    def _called(self, name: str, request: Any) -> Any:
        try:
            with in_time(name, self._deadline_s):
                data = [request.SerializeToString()]
                return self._by_name[name].call(self._channel, data, self._options)[0]
        except grpc.RpcError as error:
            raise FoundError(f"{name} of a valid session: {described(error)}") from error

    def _send(self) -> None:
        """Send the next message, or a few of them in a stream."""
        random = self._random
        method = random.choice(self._methods)
        if random.random() < 0.6:
            method = self._by_name[random.choice(("", "Streaming")) + self._contract.method]
        count = random.choice((1, 1, 3)) if method.streams_in else 1
        requests = [self._request(method) for _ in range(count)]
        try:
            with in_time(method.name, self._deadline_s):
                answers = method.call(self._channel, requests, self._options)
        except grpc.RpcError as error:
            code = described(error).partition(":")[0]
            self.codes[code] += 1
            if code in _WRONG or _BROKEN in described(error):
                raise FoundError(f"{method.name}: {described(error)}") from error
            return
        self.codes["OK"] += 1
        for answer in answers:
            if method.name in {"CreateSession", "RestoreSession"}:
                self._names.append(answer.session_id)

    def _request(self, method: Method) -> bytes:
        random = self._random
        kind = random.random()
        is_numbered = method.request.DESCRIPTOR == self._seeds[0].DESCRIPTOR
        if kind < 0.2:
            message = random_message(random, method.request)
        else:
            message = method.request()
            if is_numbered:
                message.CopyFrom(random.choice(self._seeds))
            elif method.name == "CreateSession":
                message.CopyFrom(self._contract.create())
            if kind < 0.9:
                mutate(random, message)
        self._stamp(message, is_numbered=is_numbered)
        data: bytes = message.SerializeToString()
        return mutated_bytes(random, data) if random.random() < 0.1 else data

    def _stamp(self, message: Any, *, is_numbered: bool) -> None:
        """Name a session, mostly with the number that comes next."""
        random = self._random
        others = self._names[1:]
        if "session_id" in message.DESCRIPTOR.fields_by_name and random.random() < 0.5:
            # Deleting the session that the others are sent to would leave little to find.
            message.session_id = random.choice(("nobody", *others[1:], ""))
        if "stamp" not in message.DESCRIPTOR.fields_by_name or random.random() < 0.05:
            return
        message.stamp.session_id = random.choice(others[-2:])
        if is_numbered and random.random() < 0.95:
            message.stamp.sequence = self._next(message)
        if random.random() < 0.1:
            message.stamp.acknowledged = random.choice((0, 1, 2**64 - 1))

    def _next(self, message: Any) -> int:
        """Return the number that a session expects, which a probe finds."""
        probe = type(message)()
        probe.stamp.session_id, probe.stamp.sequence = message.stamp.session_id, 2**63
        method = self._by_name[self._contract.method]
        try:
            method.call(self._channel, [probe.SerializeToString()], self._options)
        except grpc.RpcError as error:
            _, _, number = described(error).rpartition(": ")
            word = number.partition(" ")[0]
            return int(word) if word.isdecimal() else 1
        return 1


@contextlib.contextmanager
def in_time(what: str, deadline_s: float) -> Iterator[None]:
    """Raise FoundError where the block takes `deadline_s` of CPU time, or ten times that to wait.

    On a busy machine a second of work takes many.
    """

    def late(_signal: int, _frame: object) -> None:
        raise FoundError(f"{what}: no response in {deadline_s:g} s of work")

    timers = ((signal.SIGPROF, signal.ITIMER_PROF, 1), (signal.SIGALRM, signal.ITIMER_REAL, 10))
    before = [signal.signal(number, late) for number, _, _ in timers]
    for _, timer, times in timers:
        signal.setitimer(timer, times * (deadline_s + 1))
    try:
        yield
    finally:
        for (number, timer, _), handler in zip(timers, before, strict=True):
            signal.setitimer(timer, 0)
            signal.signal(number, handler)


def described(error: grpc.RpcError) -> str:
    """Return an error's code and text."""
    assert isinstance(error, grpc.Call)
    return f"{error.code().name}: {error.details()}"


@contextlib.contextmanager
def served_here() -> Iterator[tuple[dict[str, str], Callable[[], int]]]:
    """Serve all in this process; yield their addresses, and what counts their sessions."""
    with contextlib.ExitStack() as stack:
        loop = stack.enter_context(asyncio.Runner()).get_loop()
        spans = ServiceSpans.from_environment("torture", "0")
        addresses: dict[str, str] = {}

        def serve(name: str, add: Callable[[Any, Any], None], servicer: Any) -> Any:
            server = LocalServer(loop, interceptors(spans, UNLIMITED))
            stack.callback(server.close)
            add(servicer, cast("grpc.aio.Server", server))
            addresses[name] = server.address
            return servicer

        queue = serve(
            "queue",
            queue_service_pb2_grpc.add_QueueServiceServicer_to_server,
            QueueServicer(UNLIMITED, wall_clock_ns=lambda: 10**18),
        )
        scheduler = serve(
            "scheduler",
            scheduler_service_pb2_grpc.add_SchedulerServiceServicer_to_server,
            SchedulerServicer(QueueLink(addresses["queue"]), limits=UNLIMITED),
        )
        eviction = serve(
            "eviction",
            eviction_service_pb2_grpc.add_EvictionServiceServicer_to_server,
            EvictionServicer(UNLIMITED),
        )
        autoscaler = serve(
            "autoscaler",
            autoscaler_service_pb2_grpc.add_AutoscalerServiceServicer_to_server,
            AutoscalerServicer(replace(UNLIMITED, session_objects=OBJECTS_MAX)),
        )
        servicers = (queue, scheduler, eviction, autoscaler)
        yield addresses, lambda: sum(len(servicer._sessions) for servicer in servicers)


@contextlib.contextmanager
def served_elsewhere() -> Iterator[tuple[dict[str, str], Callable[[], int]]]:
    """Serve all in processes of their own."""
    with EmbeddedServices(autoscaler=True) as services:
        yield services.addresses, lambda: 0


@contextlib.contextmanager
def _served(
    addresses: Mapping[str, str] | None, *, over_socket: bool
) -> Iterator[tuple[Mapping[str, str], Callable[[], int]]]:
    if addresses is not None:
        yield addresses, lambda: 0
        return
    with (served_elsewhere if over_socket else served_here)() as served:
        yield served


def torture(
    services: list[str],
    episodes: range,
    seed: int,
    *,
    over_socket: bool = False,
    addresses: Mapping[str, str] | None = None,
    deadline_s: float = DEADLINE_S,
    ends: Callable[[], bool] = lambda: False,
    show: Callable[[str], None] = lambda _: None,
) -> Counter[str]:
    """Run episodes, in turn over the services; return the counts of status codes.

    `addresses` are those of running services, which are otherwise started, in this process or
    (`over_socket`) in others. No episode begins once `ends` returns True. Raises FoundError with
    the command that repeats the episode.
    """
    codes: Counter[str] = Counter()
    over_socket = over_socket or addresses is not None
    with _served(addresses, over_socket=over_socket) as (at, sessions):
        channels = {service: channel_to(at[service]) for service in services}
        expected: dict[str, list[Any]] = {}
        began_s = time.monotonic()
        for count, number in enumerate(episodes):
            if ends():
                break
            name = services[number % len(services)]
            random = Random(f"{seed}:{name}:{number}")  # noqa: S311 - it is to be repeated
            begin = partial(
                Episode,
                *(channels[name], CONTRACTS[name], random),
                over_socket=over_socket,
                deadline_s=deadline_s,
            )
            made = begin()
            try:
                if name not in expected:
                    expected[name] = made.undisturbed()
                    made = begin()
                made.run(expected[name])
                if sessions():
                    raise FoundError(f"{sessions()} sessions are left")
            except FoundError as error:
                socket = " --socket" if over_socket else ""
                raise FoundError(
                    f"{name}, episode {number} of seed {seed}: {error}\nrepeat it with: python -m "
                    f"tests.torture.messages --seed {seed} --episode {number}{socket}"
                    + "".join(f" --service {service}" for service in services)
                ) from error
            codes += made.codes
            if count % 500 == 499:
                rate = (count + 1) * EPISODE / (time.monotonic() - began_s)
                peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
                show(f"{(count + 1) * EPISODE:,} messages, {rate:.0f}/s, peak {peak} MiB")
                gc.collect()
        for channel in channels.values():
            channel.close()
    return codes


def _work(arguments: tuple[list[str], range, int, bool]) -> Counter[str] | str:
    services, episodes, seed, over_socket = arguments
    try:
        return torture(services, episodes, seed, over_socket=over_socket, show=print)
    except FoundError as error:
        return str(error)


@click.command()
@click.option("--count", default=10_000, show_default=True, help="Number of messages.")
@click.option("--seed", default=1, show_default=True)
@click.option("--service", "services", multiple=True, type=click.Choice(list(CONTRACTS)))
@click.option("--episode", type=int, help="Run this episode alone.")
@click.option("--workers", default=1, show_default=True)
@click.option("--socket", "over_socket", is_flag=True, help="Processes of their own, over sockets.")
def main(
    count: int,
    seed: int,
    services: tuple[str, ...],
    episode: int | None,
    workers: int,
    over_socket: bool,
) -> None:
    """Send messages until one causes what none may cause."""
    names = list(services or CONTRACTS)
    episodes = range(-(-count // EPISODE)) if episode is None else range(episode, episode + 1)
    share = [episodes[start::workers] for start in range(workers)]
    work = [(names, seeds, seed, over_socket) for seeds in share if seeds]
    began_s = time.monotonic()
    if len(work) == 1:
        found = [_work(work[0])]
    else:
        with multiprocessing.get_context("spawn").Pool(len(work)) as pool:
            found = pool.map(_work, work)
    errors = [result for result in found if isinstance(result, str)]
    codes = sum((result for result in found if isinstance(result, Counter)), Counter[str]())
    click.echo(
        f"{sum(codes.values()):,} calls in {time.monotonic() - began_s:.0f} s: {dict(codes)}"
    )
    if errors:
        raise click.ClickException("\n".join(errors))


if __name__ == "__main__":
    main()
