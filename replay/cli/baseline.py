"""Finds the values of a sweep's axes that change nothing: they are the baseline.

Examples are `--scale-nodes 1.0`, a `--set` of the value in the trace, and an option's default.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import yaml

from replay.bounds import yaml_value
from replay.cli.errors import ExitError
from replay.errors import TraceError
from replay.overrides.errors import NoEffectError, OverrideError
from replay.rule_versions import NEWEST_RULES, rules_of
from replay.whatif.sweep import SEED, SweepAxis, SweepCell
from reprieve.trace.v1beta1 import trace_pb2
from services.config.kubelet import API_VERSION, KIND, read_kubelet_configuration
from services.typed import DataError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from replay.cli.commands.replay import ReplayRequest


def own_values(axes: Iterable[SweepAxis], common: Sequence[str]) -> frozenset[tuple[str, str]]:
    """Return (axis, value) for each value with which a replay equals the replay of `common` alone.

    `common` has the arguments of every replay. For overrides of the trace's objects, the trace is
    read up to the first record that they change.
    """
    from replay.cli.commands.replay import command  # noqa: PLC0415 - loaded when needed

    def is_own(arguments: Sequence[str]) -> bool:
        try:
            changed = command.request([*common, *arguments])
            return _is_same(plain, _with_rules(changed, default_rules))
        except ExitError:
            return False  # The replay itself reports what is wrong.

    try:
        plain = command.request(common)
    except ExitError:
        return frozenset()
    axes = list(axes)
    default_rules = _default_rules(plain) if any(axis.name == "rules" for axis in axes) else ""
    plain = _with_rules(plain, default_rules)
    return frozenset(
        (axis.name, value)
        for axis in axes
        if axis.name != SEED
        for value in axis.values
        if is_own(axis.arguments(value))
    )


def is_baseline(cell: SweepCell, pairs: frozenset[tuple[str, str]]) -> bool:
    """Return whether a cell is the baseline, with any seed; False if seeds are the only axis."""
    return bool(cell.group) and all(pair in pairs for pair in cell.group)


def _default_rules(request: ReplayRequest) -> str:
    """Return the rules of a replay without --rules; the trace's header determines them."""
    try:
        header = next(iter(request.trace.records(request.settings.scheduler_names)), None)
    except TraceError:
        return ""  # The replay itself reports what is wrong.
    recorded = "" if header is None else header.header.kubernetes_version
    return rules_of(recorded) or NEWEST_RULES


def _with_rules(request: ReplayRequest, default_rules: str) -> ReplayRequest:
    rules = request.settings.rules or default_rules
    return replace(request, settings=replace(request.settings, rules=rules or None))


def _is_same(plain: ReplayRequest, changed: ReplayRequest) -> bool:
    if plain.overrides == changed.overrides:
        return plain == changed
    if plain != replace(changed, overrides=plain.overrides, checks=plain.checks):
        return False
    try:
        return _configured(plain) == _configured(changed) and _same_records(plain, changed)
    except NoEffectError:
        # The trace has this number of nodes.
        scaled = plain.overrides.scale_nodes
        return replace(changed.overrides, scale_nodes=scaled) == plain.overrides
    except (OverrideError, DataError, yaml.YAMLError):
        return False  # The replay itself reports what is wrong.


def _configured(request: ReplayRequest) -> tuple[object, ...]:
    """Return the configurations after overrides: the scheduler's as YAML, the others parsed."""
    settings = request.configured()
    default = f"apiVersion: {API_VERSION}\nkind: {KIND}\n"
    return (
        read_kubelet_configuration(settings.kubelet_configuration or default),
        _without_head(settings.kube_scheduler_configuration),
        settings.autoscaling,
    )


def _without_head(text: str | None) -> object:
    document = yaml_value(text, "the configuration") if text else {}
    if not isinstance(document, dict):
        return document
    return {name: document[name] for name in document if name not in {"apiVersion", "kind"}}


def _same_records(plain: ReplayRequest, changed: ReplayRequest) -> bool:
    if plain.overrides.usage != changed.overrides.usage:
        return False
    if not (plain.overrides.changes_records or changed.overrides.changes_records):
        return True
    names = plain.settings.scheduler_names

    def read() -> Iterator[trace_pb2.Record]:
        return plain.trace.records(names)

    pairs = itertools.zip_longest(
        *(request.overrides.records(read, request.settings.seed) for request in (plain, changed))
    )
    return all(a is b or a == b for a, b in pairs)
