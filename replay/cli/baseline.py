"""Which values of a sweep's axes are the baseline's own: the options without the axis say the same.

`--scale-nodes 1.0`, a `--set` of the value that the trace has, an option's default.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import yaml

from replay.bounds import yaml_value
from replay.cli.progress import profile_names
from replay.cli.traces import TraceArguments
from replay.cli.what_if import OVERRIDES
from replay.importers.records import ImportOptions
from replay.overrides.assignment import NoEffectError, OverrideError
from replay.overrides.overrides import Overrides
from replay.whatif.sweep import SEED, SweepAxis, SweepCell
from reprieve.trace.v1beta1 import trace_pb2
from services.config.kubelet import API_VERSION, KIND, read_kubelet_configuration
from services.typed import DataError

_IMPORT_OPTIONS = frozenset(each.name for each in dataclasses.fields(ImportOptions))
_FILES = frozenset({"scheduler_config", "kubelet_config"})


def own_values(axes: Iterable[SweepAxis], common: Sequence[str]) -> frozenset[tuple[str, str]]:
    """Return (axis, value) for each value with which a replay is that of `common` alone.

    `common` are the arguments of every replay. The trace is read for overrides of its objects, up
    to the first record that they change.
    """
    plain = _options(common)
    return frozenset(
        (axis.name, value)
        for axis in axes
        if axis.name != SEED
        for value in axis.values
        if _is_same(plain, _options([*common, *axis.arguments(value)]))
    )


def is_baseline(cell: SweepCell, own: frozenset[tuple[str, str]]) -> bool:
    """Return whether a cell is the baseline, with any seed; never where seeds are the only axis."""
    return bool(cell.group) and all(each in own for each in cell.group)


def _options(arguments: Sequence[str]) -> Mapping[str, Any]:
    from replay.cli.commands.replay import command  # noqa: PLC0415 - loaded when needed

    return command.make_context("replay", list(arguments)).params


def _is_same(plain: Mapping[str, Any], changed: Mapping[str, Any]) -> bool:
    different = {name for name in changed if plain[name] != changed[name]}
    if different <= _FILES:
        return all(_text(plain, name) == _text(changed, name) for name in different)
    if not different <= set(OVERRIDES):
        return False
    try:
        one, other = _overrides(plain), _overrides(changed)
        if _configured(plain, one) != _configured(changed, other):
            return False
        return _same_records(plain, one, other)
    except NoEffectError:
        return different == {"scale_nodes"}  # There are as many nodes already.
    except (OverrideError, DataError, yaml.YAMLError):
        return False  # The replay itself reports what is wrong.


def _overrides(options: Mapping[str, Any]) -> Overrides:
    chosen = {name: options[name] for name in OVERRIDES if name != "allows_no_effect"}
    return Overrides.parse(**chosen)


def _configured(options: Mapping[str, Any], overrides: Overrides) -> tuple[object, object]:
    """Return both configurations with overrides: the kubelet's read, the scheduler's as YAML."""
    evicts = not options["no_eviction"]
    kubelet = overrides.kubelet(_text(options, "kubelet_config"), evicts=evicts)
    text = _text(options, "scheduler_config")
    scheduler = overrides.scheduler(text, samples=options["sample_nodes"])
    default = f"apiVersion: {API_VERSION}\nkind: {KIND}\n"
    return read_kubelet_configuration(kubelet or default), _without_head(scheduler)


def _without_head(text: str) -> object:
    document = yaml_value(text, "the configuration") if text else {}
    if not isinstance(document, dict):
        return document
    return {name: document[name] for name in document if name not in {"apiVersion", "kind"}}


def _same_records(options: Mapping[str, Any], one: Overrides, other: Overrides) -> bool:
    if one.usage != other.usage:
        return False
    if not (one.changes_records or other.changes_records):
        return True
    names, seed = profile_names(_text(options, "scheduler_config")), options["seed"]
    given = {name: options[name] for name in _IMPORT_OPTIONS & options.keys()}
    trace = TraceArguments(
        paths=tuple(map(Path, options["paths"])),
        format=options["trace_format"],
        options=ImportOptions(**given),
    )

    def read() -> Iterator[trace_pb2.Record]:
        return trace.records(names)

    pairs = itertools.zip_longest(one.records(read, seed), other.records(read, seed))
    return all(a is b or a == b for a, b in pairs)


def _text(options: Mapping[str, Any], name: str) -> str:
    path: Path | None = options[name]
    try:
        return path.read_text(encoding="utf-8") if path is not None else ""
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"{path}: {error}") from error
