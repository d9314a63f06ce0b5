"""Forks: what a replay shares with a run of the same command, changed from some moment on.

A replay shares a run's states up to the first record that its trace has otherwise, where all
settings that have an effect from the beginning are equal.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol

from replay.cli.play import plan_of
from replay.cli.traces import TraceArguments
from replay.overrides.overrides import Overrides
from replay.settings import ReplaySettings
from reprieve.trace.v1beta1 import trace_pb2

_FREE = ReplaySettings()
"""Defaults, in place of the settings that change no state of a run."""


class SharedStates(NamedTuple):
    """What a replay shares with another one: the states before `until_ns`; None: all of them."""

    until_ns: int | None


class Replayed(Protocol):
    """A replay as its command line specifies it: a ReplayRequest."""

    @property
    def settings(self) -> ReplaySettings:
        """Return the settings, without what overrides change in its configurations."""

    @property
    def trace(self) -> TraceArguments:
        """Return the trace."""

    @property
    def overrides(self) -> Overrides:
        """Return the overrides."""

    def configured(self) -> ReplaySettings:
        """Return the settings with the configurations that result."""


def shared_states(former: Replayed, request: Replayed) -> SharedStates | None:
    """Return which states of a replay another one has, too; None: none.

    Raises ExitError and OverrideError.
    """
    settings_a, settings_b = former.configured(), request.configured()
    if _binding(settings_a) != _binding(settings_b):
        return None
    plan_a, plan_b = (
        plan_of(settings, asked.trace, asked.overrides)
        for settings, asked in ((settings_a, former), (settings_b, request))
    )
    if plan_a.usage != plan_b.usage:
        return None
    until_ns = first_difference_ns(
        plan_a.records(settings_a.seed),
        plan_b.records(settings_b.seed),
        stops=(settings_a.until_ns is not None, settings_b.until_ns is not None),
    )
    if settings_b.until_ns is not None:
        start_ns = next(plan_b.records(settings_b.seed), trace_pb2.Record()).time_ns
        end_ns = start_ns + settings_b.until_ns + 1
        until_ns = end_ns if until_ns is None else min(until_ns, end_ns)
    return SharedStates(until_ns)


MUCH = 0.2
"""The share of a trace's time that makes it worthwhile to wait for the run that has it."""


def shares_much(former: Replayed, request: Replayed) -> bool:
    """Return whether a replay has much in common with another one. Raises as `shared_states`."""
    shared = shared_states(former, request)
    if shared is None or shared.until_ns is None:
        return shared is not None
    times = [record.time_ns for record in former.trace.records(former.settings.scheduler_names)]
    return bool(times) and shared.until_ns - times[0] > MUCH * (times[-1] - times[0])


def first_difference_ns(
    records_a: Iterable[trace_pb2.Record],
    records_b: Iterable[trace_pb2.Record],
    stops: Sequence[bool] = (False, False),
) -> int | None:
    """Return the time from which the states of two replays may differ; None: never.

    It is that of the first record that differs. Where B has none any more it is the time of B's
    last one: from then on B may end, or skip retries, for want of further records. stops: whether
    A and B are stopped at some time, and do neither before; a recorded window is in both.
    """
    last_b_ns, has_window = 0, False
    pairs = itertools.zip_longest(records_a, records_b)
    for record_a, record_b in pairs:
        if record_b is None:
            return last_b_ns if not (stops[1] or has_window) else int(record_a.time_ns)
        if record_a is None or record_a != record_b:
            times = [record.time_ns for record in (record_a, record_b) if record is not None]
            if stops == (True, False) and not has_window:
                rest = (record for _, record in pairs if record is not None)
                last_b_ns = max((record.time_ns for record in rest), default=record_b.time_ns)
                times.append(last_b_ns)
            return min(times)
        last_b_ns = record_b.time_ns
        has_window |= bool(record_b.header.window_end_time_ns)
    return last_b_ns if stops == (True, False) and not has_window else None


def _binding(settings: ReplaySettings) -> ReplaySettings:
    """Return the settings that have an effect from the beginning, the others with their defaults.

    Configurations are those that result; what is changed in the trace is seen in its records.
    """
    return replace(
        settings,
        argv=(),
        trace_paths=(),
        usage=(),
        resumes=False,
        tls=_FREE.tls,
        run_path=None,
        force=False,
        until_ns=None,
        batch_size=0,
        in_process=None,
        reconnect_ns=None,
        checkpoint_every_ns=0,
        keep_checkpoints=0,
        overrides={},
    )
