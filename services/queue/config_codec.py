"""A session's rules: QueueConfig as a message and as the core's value."""

from __future__ import annotations

from reprieve.queue.v1alpha1 import queue_pb2
from services.queue.core.backoff import BackoffLimits
from services.queue.core.mode import V1_16, V1_20, QueueMode
from services.queue.core.scheduling_queue import QueueConfig
from services.rpc.errors import FieldError, UnservedError

TIME_NS_MAX = 2**62
"""No time may be later, so that the end of a backoff stays an int64."""

_DURATION_NS_MAX = 2**61
_MODES = {mode.name: mode for mode in (V1_20, V1_16)}
_NEWEST = V1_20
_LATER_MODES = frozenset({"v1.34"})
_SERVED = " and ".join(f'"{name}"' for name in _MODES)


def config_from_message(message: queue_pb2.QueueConfig) -> QueueConfig:
    """Return the rules, defaults filled in.

    Raises FieldError for an unknown mode and for what only later modes have, UnservedError for
    a mode or a lease that this version does not serve.
    """
    mode = _mode(message.mode)
    _check_later(message, mode)
    defaults = BackoffLimits()
    return QueueConfig(
        mode=mode,
        backoff=BackoffLimits(
            initial_ns=_duration_ns(message, "initial_backoff_ns") or defaults.initial_ns,
            max_ns=_duration_ns(message, "max_backoff_ns") or defaults.max_ns,
        ),
        max_unschedulable_ns=_duration_ns(message, "max_unschedulable_ns") or None,
    )


def _mode(name: str) -> QueueMode:
    if not name:
        return _NEWEST
    if name in _LATER_MODES:
        raise UnservedError(f'config.mode: "{name}" is not served yet: use {_SERVED}')
    if name not in _MODES:
        raise FieldError("config.mode", f'unknown mode "{name}": use {_SERVED}')
    return _MODES[name]


def _check_later(message: queue_pb2.QueueConfig, mode: QueueMode) -> None:
    for name in ("pop_from_backoff_q", "queueing_hints", "hints"):
        if getattr(message, name):
            raise FieldError(f"config.{name}", f"the mode {mode.name} has no such rule")
    if message.lease_ns:
        raise UnservedError("config.lease_ns: leases are not served yet: leave it 0")


def _duration_ns(message: queue_pb2.QueueConfig, name: str) -> int:
    duration_ns: int = getattr(message, name)
    if not 0 <= duration_ns <= _DURATION_NS_MAX:
        raise FieldError(f"config.{name}", f"{duration_ns} ns is not from 0 to 2^61 ns")
    return duration_ns


def config_message(config: QueueConfig) -> queue_pb2.QueueConfig:
    """Return the rules in force."""
    return queue_pb2.QueueConfig(
        mode=config.mode.name,
        initial_backoff_ns=config.backoff.initial_ns,
        max_backoff_ns=config.backoff.max_ns,
        max_unschedulable_ns=config.leftover_after_ns,
        pop_from_backoff_q=False,
        queueing_hints=False,
    )
