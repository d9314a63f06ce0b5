"""Forks: a replay that equals a finished run up to some moment continues from that run's state.

A replay shares the states of a run up to the first record in which their traces differ, provided
that all settings that take effect from the beginning are equal.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol

from replay.cli.play import plan_of
from replay.cli.traces import TraceArguments
from replay.overrides.overrides import OverridePlan, Overrides
from replay.settings import ReplaySettings
from reprieve.trace.v1beta1 import trace_pb2

_FREE = ReplaySettings()
"""Default settings; they replace settings that do not influence the states of a run."""


class SharedStates(NamedTuple):
    """The states that two replays share: all states before `until_ns`; None: all states."""

    until_ns: int | None


class Replayed(Protocol):
    """A replay as its command line specifies it: a ReplayRequest."""

    @property
    def settings(self) -> ReplaySettings:
        """Return the settings, before overrides change the configurations."""

    @property
    def trace(self) -> TraceArguments:
        """Return the trace."""

    @property
    def overrides(self) -> Overrides:
        """Return the overrides."""

    def configured(self) -> ReplaySettings:
        """Return the settings with the overridden configurations."""


class Prepared:
    """A replay with its overridden configurations and its changed trace.

    Reading a trace can take longer than the part that is replayed, so `plan` is made and records
    are read only on demand. Raises OverrideError.
    """

    def __init__(self, asked: Replayed, plan: OverridePlan | None = None) -> None:
        self._asked = asked
        self.settings = asked.configured()
        self.binding = _binding(self.settings)
        if plan is not None:
            self.plan = plan

    @property
    def trace(self) -> TraceArguments:
        """Return the trace, before the overrides."""
        return self._asked.trace

    @property
    def overrides(self) -> Overrides:
        """Return the overrides."""
        return self._asked.overrides

    @functools.cached_property
    def start_ns(self) -> int:
        """The time of the trace's first record."""
        return self.plan.start_ns or next(self.records(), trace_pb2.Record()).time_ns

    @functools.cached_property
    def plan(self) -> OverridePlan:
        """The changes of the trace."""
        return plan_of(self.settings, self._asked.trace, self._asked.overrides)

    @functools.cached_property
    def times_ns(self) -> tuple[int, int]:
        """The times of the trace's first and last records."""
        times = [record.time_ns for record in self.records()]
        return (times[0], times[-1]) if times else (0, 0)

    def records(self) -> Iterator[trace_pb2.Record]:
        """Return the changed trace."""
        return self.plan.records(self.settings.seed)


def shared_states(former: Prepared, request: Prepared) -> SharedStates | None:
    """Return the states of `request` that `former` has, too; None if they share none.

    Raises ExitError and OverrideError.
    """
    if former.binding != request.binding:
        return None
    stops = (former.settings.until_ns is not None, request.settings.until_ns is not None)
    until_ns: int | None = None
    added_ns = request.overrides.added_at_ns(former.overrides)
    if added_ns is not None and former.trace == request.trace and stops != (True, False):
        # Overrides were only added to the same trace: the records before them need not be compared.
        is_same = request.overrides == former.overrides
        until_ns = None if is_same else request.start_ns + added_ns
    elif former.plan.usage != request.plan.usage:
        return None
    else:
        until_ns = first_difference_ns(former.records(), request.records(), stops)
    restart_ns = _first_restart_ns(former, request)
    if restart_ns is not None:
        until_ns = restart_ns if until_ns is None else min(until_ns, restart_ns)
    if request.settings.until_ns is not None:
        end_ns = request.start_ns + request.settings.until_ns + 1
        until_ns = end_ns if until_ns is None else min(until_ns, end_ns)
    return SharedStates(until_ns)


def _first_restart_ns(former: Prepared, request: Prepared) -> int | None:
    """Return the time from which states may differ by restarts of the scheduler; None: never.

    The next restart keeps a replay going that has no end time. So where that of `former` comes
    first, `request` may end, or skip retries, after its last record.
    """
    pairs = itertools.zip_longest(former.settings.restarts, request.settings.restarts)
    for theirs, mine in pairs:
        if theirs == mine:
            continue
        times = [restart.at_ns for restart in (theirs, mine) if restart]
        is_longer = theirs is not None and (mine is None or theirs.at_ns < mine.at_ns)
        if is_longer and request.settings.until_ns is None:
            times.append(request.times_ns[1])
        return min(times)
    return None


MUCH = 0.2
"""The shared part of a trace's time from which it pays to wait for the other run's end."""


def shares_much(former: Prepared, request: Prepared) -> bool:
    """Return whether two replays share more than MUCH of the time. Raises as `shared_states`."""
    shared = shared_states(former, request)
    if shared is None or shared.until_ns is None:
        return shared is not None
    first_ns, last_ns = former.times_ns
    return shared.until_ns - first_ns > MUCH * (last_ns - first_ns)


def first_difference_ns(
    records_a: Iterable[trace_pb2.Record],
    records_b: Iterable[trace_pb2.Record],
    stops: Sequence[bool] = (False, False),
) -> int | None:
    """Return the time from which the states of two replays may differ; None: never.

    This is the time of the first record that differs. If B has no more records, it is the time of
    B's last record: after its last record, a replay may end, or skip retries. stops: whether A and
    B have an end time (--until): such a replay neither ends nor skips retries before it. A recorded
    window is such an end time of both.
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
    """Return the settings that take effect from the beginning; other settings get their defaults.

    Configurations include the overrides. Changes of the trace are found by comparing records.
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
        restart_scheduler=(),
        restarts=(),
    )
