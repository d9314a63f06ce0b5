"""A session's rules: QueueConfig as a message and as the core's value."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from reprieve.queue.v1beta1 import queue_pb2
from services.kube.selector import LabelSelector
from services.queue.codec import known_event
from services.queue.core.backoff import BackoffLimits
from services.queue.core.cluster_event import Happening, HintFunction
from services.queue.core.hints.in_tree import IN_TREE, WITHOUT_HINTS, hint_of, in_tree
from services.queue.core.hints.objects import HintProfile
from services.queue.core.queued_pod import QueuedPod
from services.queue.core.registrations import QueueConfig, Registration
from services.queue.core.rules.mode import MODES, QueueMode
from services.rpc.errors import FieldError
from services.rpc.kube import fields, spec

TIME_NS_MAX = 2**62
"""No time may be later, so that the end of a backoff stays an int64."""

DEFAULT_MODE = "v1.34"
"""The mode of a session that names none."""

_DURATION_NS_MAX = 2**61
_SERVED = " and ".join(f'"{name}"' for name in MODES)
_NO_BACKOFF = BackoffLimits(initial_ns=0, max_ns=0)


def config_from_message(message: queue_pb2.QueueConfig, *, live: bool = False) -> QueueConfig:
    """Return the rules, defaults filled in.

    Raises FieldError for unknown rules, for what only later ones have, for a lease outside a
    live session, and for a registration without a plugin or an event.
    """
    mode = _mode(message.rules)
    _check_later(message, mode)
    lease_ns = _duration_ns(message, "lease_ns", 0, least=1)
    if lease_ns and not live:
        raise FieldError("config.lease_ns", "leases act in live sessions only: leave it out")
    hints = _flag(message, "queueing_hints")
    return QueueConfig(
        mode=mode.name,
        backoff=_backoff(message, mode),
        max_unschedulable_ns=_duration_ns(
            message, "max_unschedulable_ns", mode.max_unschedulable_ns, least=1
        ),
        pop_from_backoff_q=_flag(message, "pop_from_backoff_q"),
        queueing_hints=hints,
        registrations=_registrations(message, hints=hints) if mode.has_gates else (),
        lease_ns=lease_ns,
    )


def _mode(name: str) -> QueueMode:
    mode = MODES.get(name or DEFAULT_MODE)
    if mode is None:
        raise FieldError("config.rules", f'unknown rules "{name}": use {_SERVED}')
    return mode


def _check_later(message: queue_pb2.QueueConfig, mode: QueueMode) -> None:
    if mode.has_gates:
        return
    for name in ("pop_from_backoff_q", "queueing_hints", "hints", "profiles"):
        if getattr(message, name):
            raise FieldError(f"config.{name}", f"the rules {mode.name} have no such setting")


def _flag(message: queue_pb2.QueueConfig, name: str) -> bool:
    return not message.HasField(name) or bool(getattr(message, name))  # type: ignore[arg-type] # its names are literals


def _backoff(message: queue_pb2.QueueConfig, mode: QueueMode) -> BackoffLimits:
    usual = BackoffLimits()
    initial_ns = _duration_ns(message, "initial_backoff_ns", usual.initial_ns, least=1)
    least = 0 if mode.has_gates else 1
    max_ns = _duration_ns(message, "max_backoff_ns", usual.max_ns, least=least)
    return BackoffLimits(initial_ns=initial_ns, max_ns=max_ns) if max_ns else _NO_BACKOFF


def _duration_ns(
    message: queue_pb2.QueueConfig, name: str, absent_ns: int, *, least: int = 0
) -> int:
    if not message.HasField(name):  # type: ignore[arg-type] # its names are literals
        return absent_ns
    duration_ns: int = getattr(message, name)
    if not least <= duration_ns <= _DURATION_NS_MAX:
        raise FieldError(f"config.{name}", f"{duration_ns} ns is not from {least} to 2^61 ns")
    return duration_ns


def _registrations(message: queue_pb2.QueueConfig, *, hints: bool) -> tuple[Registration, ...]:
    ours = in_tree(_profiles(message.profiles))
    named = tuple(
        _registration(each, f"config.hints[{index}]", ours if hints else ())
        for index, each in enumerate(message.hints)
    )
    return named or (ours if hints else WITHOUT_HINTS)


def _profiles(messages: Iterable[queue_pb2.HintProfile]) -> dict[str, HintProfile]:
    found: dict[str, HintProfile] = {}
    for index, message in enumerate(messages):
        field, name = f"config.profiles[{index}]", message.scheduler_name
        if not name:
            raise FieldError(f"{field}.scheduler_name", "is required")
        if name in found:
            raise FieldError(f"{field}.scheduler_name", f'"{name}" is there twice: name it once')
        found[name] = _profile(message, field)
    return found


def _profile(message: queue_pb2.HintProfile, field: str) -> HintProfile:
    affinity, added = message.added_affinity, None
    if affinity.HasField("required_during_scheduling_ignored_during_execution"):
        required = affinity.required_during_scheduling_ignored_during_execution
        path = f"{field}.added_affinity.required_during_scheduling_ignored_during_execution"
        added = fields.node_selector(required, path)
    path = f"{field}.default_constraints"
    defaults = spec.spread_constraints(message.default_constraints, path)
    for index, each in enumerate(defaults):
        if each.selector is not None or each.match_label_keys:
            problem = "must not be set: it follows from a pod's services and its controller"
            raise FieldError(f"{path}[{index}].label_selector", problem)
    return HintProfile(added_required=added, default_constraints=defaults)


def _registration(
    message: queue_pb2.HintRegistration, field: str, known: tuple[Registration, ...]
) -> Registration:
    plugin, label = message.plugin, message.event
    if not plugin:
        raise FieldError(f"{field}.plugin", "is required")
    event = known_event(label, f"{field}.event")
    if message.hint and all(each.plugin != plugin for each in IN_TREE):
        problem = f"the queue has no hint of {plugin}: leave it out, or say it by only_if"
        raise FieldError(f"{field}.hint", problem)
    ours = hint_of(plugin, label, known) if message.hint else None
    condition = _condition(message, field) if message.HasField("only_if") else None
    return Registration(plugin=plugin, event=event, hint=_both(condition, ours))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Condition:
    """A hint in data: HintCondition."""

    never: bool
    own_pod: bool
    new_labels: LabelSelector | None

    def __call__(self, pod: QueuedPod, happening: Happening) -> bool:
        """Tell whether every part that is set holds."""
        new = happening.new
        if self.never or (self.own_pod and getattr(new, "uid", "") != pod.uid):
            return False
        return self.new_labels is None or self.new_labels.matches(getattr(new, "labels", {}))


def _condition(message: queue_pb2.HintRegistration, field: str) -> _Condition:
    said = message.only_if
    selector = None
    if said.HasField("new_labels"):
        path = f"{field}.only_if.new_labels"
        selector = fields.label_selector(said.new_labels, path)
    return _Condition(never=said.never, own_pod=said.own_pod, new_labels=selector)


def _both(condition: _Condition | None, hint: HintFunction | None) -> HintFunction | None:
    if condition is None or hint is None:
        return condition or hint
    return lambda pod, happening: condition(pod, happening) and hint(pod, happening)


def config_message(config: QueueConfig, asked: queue_pb2.QueueConfig) -> queue_pb2.QueueConfig:
    """Return the rules in force; registrations are those that were asked for."""
    gates = MODES[config.mode].has_gates
    return queue_pb2.QueueConfig(
        rules=config.mode,
        initial_backoff_ns=config.backoff.initial_ns or BackoffLimits().initial_ns,
        max_backoff_ns=config.backoff.max_ns,
        max_unschedulable_ns=config.max_unschedulable_ns,
        pop_from_backoff_q=config.pop_from_backoff_q if gates else None,
        queueing_hints=config.queueing_hints if gates else None,
        hints=asked.hints,
        lease_ns=config.lease_ns or None,
        profiles=asked.profiles,
    )
