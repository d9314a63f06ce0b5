"""The timeouts of clients, by name, and the keep-alive of their connections.

They are options of every command that calls a service, and of the services. gRPC sends keep-alive
pings on a silent connection. While a call is open, a client sends at most two pings; after that,
the timeout of the response ends the wait.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from typing import Any

import click

from services.kube.time import DurationError, parse_duration_ns

VARIABLE = "REPRIEVE_TIMEOUTS"


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Wall times in seconds.

    response: from a request in a stream to its response; later, the service counts as lost.
    call: for a call that opens, shows or ends a session. checkpoint: for saving or restoring a
    session. queue: from a scheduler's request in a stream to its queue's response. unreachable: how
    long a scheduler without a connection to its queue waits before it refuses its caller.
    keepalive: the time without data after which a connection is probed. probe: how long the
    response to the probe may take.
    """

    response: float = 45.0
    call: float = 30.0
    checkpoint: float = 120.0
    queue: float = 30.0
    unreachable: float = 5.0
    keepalive: float = 60.0
    probe: float = 20.0

    def with_values(self, texts: Iterable[str]) -> Timeouts:
        """Return these timeouts, changed by texts NAME=DURATION. Raises ValueError."""
        values: dict[str, float] = {}
        for text in texts:
            name, equals, value = text.partition("=")
            if name not in NAMES or not equals:
                raise ValueError(f"{text!r} is not NAME=DURATION with one of {', '.join(NAMES)}")
            try:
                values[name] = parse_duration_ns(value) / 1e9
            except DurationError as error:
                raise ValueError(f"{text!r}: {error}") from None
            if not 0.001 <= values[name] <= _MOST_S:
                raise ValueError(
                    f"{text!r}: a timeout is 1ms at least, and {_MOST_S // 3600}h at most"
                )
        return replace(self, **values)

    @property
    def keepalive_options(self) -> list[tuple[str, int]]:
        """Return gRPC's keep-alive options for the connections of a channel or a server."""
        return [
            ("grpc.keepalive_time_ms", round(self.keepalive * 1000)),
            ("grpc.keepalive_timeout_ms", round(self.probe * 1000)),
            ("grpc.http2.ping_timeout_ms", round(self.probe * 1000)),  # the default is 60 s
        ]


_MOST_S = 24 * 3600
NAMES = tuple(timeout.name for timeout in fields(Timeouts))
DEFAULT_TIMEOUTS = Timeouts()


_Command = Callable[..., Any]


def timeout_option(defaults: Timeouts = DEFAULT_TIMEOUTS) -> Callable[[_Command], _Command]:
    """Return a decorator that adds --timeout to a command, which receives `timeouts`."""

    def decorate(command: _Command) -> _Command:
        def with_timeouts(timeout: tuple[str, ...], **rest: Any) -> Any:
            try:
                timeouts = defaults.with_values(timeout)
            except ValueError as error:
                raise click.UsageError(f"--timeout: {error}") from None
            return command(timeouts=timeouts, **rest)

        functools.update_wrapper(with_timeouts, command)
        shown = ", ".join(f"{name} {getattr(defaults, name):g}s" for name in NAMES)
        return click.option(
            "--timeout",
            multiple=True,
            metavar="NAME=DURATION",
            envvar=VARIABLE,
            help=f"How long to wait for a service, and when a connection is probed. Repeatable. "
            f"Names and defaults: {shown}.",
        )(with_timeouts)

    return decorate
