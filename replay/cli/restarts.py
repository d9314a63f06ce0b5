"""`--restart-scheduler`: a time, and the options of the scheduler that is started then."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import click
from click.core import ParameterSource

from replay.durations import duration_ns
from replay.options import takes
from replay.overrides.assignment import Assignment, OverrideTarget, parse_assignment
from replay.overrides.errors import OverrideError
from replay.overrides.files.configuration import scheduler_text
from replay.overrides.overrides import Overrides
from replay.settings import RESTARTABLE, ReplaySettings, SchedulerRestart

_FLAG = "--restart-scheduler"
_SETS = "sets"


@click.command(name=_FLAG, add_help_option=False)
@takes("settings", ReplaySettings)
@takes("overrides", Overrides)
def _options(settings: ReplaySettings, overrides: Overrides) -> None:
    """Take the options of a replay; only their values are used."""


def restarts_of(
    settings: ReplaySettings, overrides: Overrides, start_ns: int
) -> tuple[SchedulerRestart, ...]:
    """Return the restarts of a replay in order of time; each adds to the changes of those before.

    start_ns: the time of the trace's first record. Raises OverrideError.
    """
    timed = sorted((_timed(text) for text in settings.restart_scheduler), key=lambda one: one[0])
    configuration = settings.kube_scheduler_configuration or ""
    sets = {_key(given): given for given in overrides.of(OverrideTarget.SCHEDULER)}
    samples = settings.sample_nodes
    restarts = list[SchedulerRestart]()
    for at_ns, text, values in timed:
        _check_time(at_ns, text, settings, {restart.at_ns - start_ns for restart in restarts})
        added = {_key(given): given for given in map(parse_assignment, values.pop(_SETS, ()))}
        sets |= added
        samples = bool(values.get("sample_nodes", samples))
        if added or "kube_scheduler_configuration" in values:
            configuration = values.get("kube_scheduler_configuration", configuration)
            changed = scheduler_text(configuration, [*sets.values()], samples=samples)
            values["kube_scheduler_configuration"] = changed
        options = text.strip().partition(" ")[2].strip()
        restarts.append(SchedulerRestart(at_ns=start_ns + at_ns, options=options, changes=values))
    return tuple(restarts)


def options_of_restart(values: Mapping[str, Any], sets: Sequence[str]) -> list[str]:
    """Return the options among the raw `values` of a command line that a restart may change.

    sets: the arguments of --set that change the scheduler's configuration.
    """
    options = list[str]()
    for parameter in _options.params:
        name = str(parameter.name)
        if name in RESTARTABLE and name in values:
            is_flag = getattr(parameter, "is_flag", False)
            options += [parameter.opts[0], *(() if is_flag else (str(values[name]),))]
    return [*options, *(part for text in sets for part in ("--set", text))]


def changes_scheduler(text: str) -> bool:
    """Return whether an argument of --set changes the scheduler's configuration.

    Raises OverrideError.
    """
    return parse_assignment(text).target is OverrideTarget.SCHEDULER


def _timed(text: str) -> tuple[int, str, dict[str, Any]]:
    """Return the time of a restart, its text, and the values of its options by name."""
    try:
        at, *options = shlex.split(text) or [""]
        at_ns = duration_ns(at)
    except ValueError:
        problem = "write a time and options, such as '2h --rules v1.16'"
        raise OverrideError(f"{_FLAG} {text!r}: {problem}") from None
    try:
        context = _options.make_context(_FLAG, options)
    except click.UsageError as error:
        raise OverrideError(f"{_FLAG} {text!r}: {error.format_message()}") from error
    values = dict[str, Any]()
    for parameter in context.command.params:
        name = str(parameter.name)
        if context.get_parameter_source(name) is not ParameterSource.COMMANDLINE:
            continue
        if name not in (*RESTARTABLE, _SETS):
            problem = "is not an option of the scheduler"
            raise OverrideError(f"{_FLAG} {text!r}: {parameter.opts[0]} {problem}")
        values[name] = context.params[name]
    for given in values.get(_SETS, ()):
        if not changes_scheduler(given):
            problem = f"--set {given} does not change the scheduler's configuration"
            raise OverrideError(f"{_FLAG} {text!r}: {problem}; write it as an option of its own")
    return at_ns, text, values


def _check_time(at_ns: int, text: str, settings: ReplaySettings, others: Collection[int]) -> None:
    problem = ""
    if at_ns <= 0:
        problem = "the scheduler starts at the beginning: write a later time"
    elif settings.until_ns is not None and at_ns > settings.until_ns:
        problem = "the replay ends before that, by --until"
    elif at_ns in others:
        problem = "there is another restart at this time"
    if problem:
        raise OverrideError(f"{_FLAG} {text!r}: {problem}")


def _key(given: Assignment) -> tuple[str, str]:
    return given.field, given.name
