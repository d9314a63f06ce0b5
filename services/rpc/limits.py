"""The named limits of a service: for all callers together, for one caller, and for a session.

A request that exceeds a limit is refused with RESOURCE_EXHAUSTED, and the refusal names the limit.
A caller is an identity (services/rpc/identity.py); all anonymous callers count as one. The size of
a session in bytes is an estimate: the size of the requests that added objects, plus the size of the
state from which it was restored.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from time import monotonic
from typing import Any

import click

from services.kube.quantity import QuantityError, parse
from services.kube.time import DurationError, parse_duration_ns
from services.rpc.errors import LimitError
from services.rpc.parts import ACCEPTED_BYTES_MAX

MIB, GIB = 1024 * 1024, 1024 * 1024 * 1024
IDLE_S = 900.0
_CGROUP_FILES = ("memory.max", "memory/memory.limit_in_bytes")
_CGROUP_SHARE = 0.9
_UNLIMITED_CGROUP_BYTES = 2**60
_LOOK_EVERY_S = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of one service; 0 stands for no limit.

    sessions, streams: of all callers. caller_sessions, caller_streams: of one caller. caller_bytes:
    the size of all sessions of one caller. session_objects: objects of a session, such as pods and
    nodes. session_resources: resource names in its nodes and pods; each takes a column of a
    scheduler's snapshot. message_bytes: the size of a request. unacknowledged_requests,
    unacknowledged_bytes: responses that a session stores in case their requests are sent again.
    checkpoint_bytes: the state in a checkpoint. process_bytes: resident memory of the service,
    above which it accepts no new sessions and objects; None: nine tenths of its control group's
    memory, if that is limited. idle_s: seconds without a request after which a session expires.
    """

    sessions: int = 1024
    caller_sessions: int = 512
    streams: int = 4096
    caller_streams: int = 2048
    caller_bytes: int = 4 * GIB
    session_objects: int = 500_000
    session_resources: int = 256
    message_bytes: int = ACCEPTED_BYTES_MAX
    unacknowledged_requests: int = 1024
    unacknowledged_bytes: int = 64 * MIB
    checkpoint_bytes: int = 4 * GIB
    process_bytes: int | None = None
    idle_s: float = IDLE_S

    def with_values(self, texts: Iterable[str]) -> Limits:
        """Return these limits, changed by texts NAME=VALUE. Raises ValueError."""
        values: dict[str, int] = {}
        for text in texts:
            name, equals, value = text.partition("=")
            if name not in NAMES or not equals:
                raise ValueError(f"{text!r} is not NAME=VALUE with one of {', '.join(NAMES)}")
            try:
                values[name] = parse(value).value()
            except QuantityError:
                raise ValueError(
                    f"{text!r}: {value!r} is not a number such as 2000 or 2Gi"
                ) from None
            if values[name] < 0:
                raise ValueError(f"{text!r}: a limit is not negative; 0 stands for no limit")
        return replace(self, **values)

    def check(self, limit: str, count: int, what: str) -> None:
        """Raise LimitError if `count` exceeds the limit of that name; `what` names the counted."""
        most = getattr(self, limit)
        if most and count > most:
            raise LimitError(
                limit,
                f"{what}: {count} are more than the limit {limit}={most} of the service, which "
                f"--limit {limit}=NUMBER changes",
            )


DEFAULT_LIMITS = Limits()
NAMES = tuple(limit.name for limit in fields(Limits) if limit.name != "idle_s")
UNLIMITED = Limits(**dict.fromkeys(NAMES, 0) | {"message_bytes": ACCEPTED_BYTES_MAX}, idle_s=0)
"""The limits of services inside a process, and of services that a replay starts for itself."""


class Ceiling:
    """Compares this process's resident memory with a limit; reads it a few times a second."""

    def __init__(self, limits: Limits, resident_bytes: Callable[[], int] | None = None) -> None:
        most = limits.process_bytes
        self._most = _cgroup_bytes() if most is None else most
        self._resident_bytes = resident_bytes or _resident_bytes
        self._looked_s = -_LOOK_EVERY_S
        self._bytes = 0

    def check(self) -> None:
        """Raise LimitError if the process is above its limit."""
        if not self._most:
            return
        now_s = monotonic()
        if now_s - self._looked_s >= _LOOK_EVERY_S:
            self._bytes, self._looked_s = self._resident_bytes(), now_s
        if self._bytes > self._most:
            raise LimitError(
                "process_bytes",
                f"the service uses {self._bytes} bytes of memory, more than the limit "
                f"process_bytes={self._most}: end sessions with DeleteSession, or change it with "
                "--limit process_bytes=NUMBER",
            )


def _resident_bytes() -> int:
    """Return this process's resident memory; 0 on a system without /proc."""
    try:
        pages = Path("/proc/self/statm").read_text("ascii").split()[1]
    except OSError:
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def _cgroup_bytes() -> int:
    """Return nine tenths of the control group's memory limit; 0 if it has no limit."""
    for name in _CGROUP_FILES:
        try:
            text = (Path("/sys/fs/cgroup") / name).read_text("ascii").strip()
        except OSError:
            continue
        if text.isdecimal() and int(text) < _UNLIMITED_CGROUP_BYTES:
            return int(int(text) * _CGROUP_SHARE)
    return 0


def limit_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --limit and --session-idle to a command, which receives one argument, `limits`."""

    def with_limits(limit: tuple[str, ...], session_idle: str, **rest: Any) -> Any:
        try:
            limits = DEFAULT_LIMITS.with_values(limit)
        except ValueError as error:
            raise click.UsageError(f"--limit: {error}") from None
        try:
            idle_ns = 0 if session_idle == "0" else parse_duration_ns(session_idle)
        except DurationError as error:
            raise click.UsageError(f"--session-idle: {error}") from None
        if idle_ns < 0:
            raise click.UsageError("--session-idle: is negative; 0 stands for no end")
        return command(limits=replace(limits, idle_s=idle_ns / 1e9), **rest)

    functools.update_wrapper(with_limits, command)
    with_limits = click.option(
        "--session-idle",
        metavar="DURATION",
        default="15m",
        show_default=True,
        envvar="REPRIEVE_SESSION_IDLE",
        help="How long a session without a request is kept, such as 90s; 0 keeps it for ever.",
    )(with_limits)
    return click.option(
        "--limit",
        multiple=True,
        metavar="NAME=VALUE",
        envvar="REPRIEVE_LIMITS",
        help=f"Set a limit; 0 stands for no limit. Names: {', '.join(NAMES)}.",
    )(with_limits)
