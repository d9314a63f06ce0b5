"""Converts QueueConfig between the message and the core's value."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from reprieve.queue.v1beta1 import queue_pb2
from services.framework.cluster_event import ObjectEvent, PendingPod, QueueingHintFn, Registration
from services.framework.hints import HintProfile
from services.framework.plugins.events import hint_of, registrations, without_hints
from services.kube.selector import LabelSelector
from services.queue.codec import cluster_event
from services.queue.core.backoff import BackoffLimits
from services.queue.core.rules.versions import VERSIONS, QueueConfig, QueueVersion
from services.rpc.errors import FieldError
from services.rpc.kube import fields, spec

DEFAULT_VERSION = "v1.34"
"""The version of a session whose configuration names no rules."""

_DURATION_NS_MAX = 2**61  # so that the end of a backoff stays an int64
_SERVED = " and ".join(f'"{name}"' for name in VERSIONS)
_NO_BACKOFF = BackoffLimits(initial_ns=0, max_ns=0)


def config_from_message(message: queue_pb2.QueueConfig, *, live: bool = False) -> QueueConfig:
    """Return the configuration with defaults filled in.

    Raises FieldError for unknown rules, for settings that these rules do not have, for a lease
    outside a live session, and for a registration without a plugin or an event.
    """
    version = _version(message.rules)
    _check_settings(message, version)
    lease_ns = _duration_ns(message, "lease_duration_ns", 0, at_least=1)
    if lease_ns and not live:
        raise FieldError("config.lease_duration_ns", "only live sessions have leases: leave it out")
    hints = _flag(message, "queueing_hints")
    return QueueConfig(
        version=version.name,
        backoff=_backoff(message, version),
        max_unschedulable_ns=_duration_ns(
            message, "max_unschedulable_duration_ns", version.max_unschedulable_ns, at_least=1
        ),
        pop_from_backoff_q=_flag(message, "pop_from_backoff_q"),
        queueing_hints=hints,
        registrations=_registrations(message, version.name, hints=hints)
        if version.registers_events
        else (),
        lease_ns=lease_ns,
    )


def _version(name: str) -> QueueVersion:
    version = VERSIONS.get(name or DEFAULT_VERSION)
    if version is None:
        raise FieldError("config.rules", f'unknown rules "{name}": use {_SERVED}')
    return version


def _check_settings(message: queue_pb2.QueueConfig, version: QueueVersion) -> None:
    for name in ("pop_from_backoff_q", "queueing_hints", "hints", "profiles"):
        if name not in version.settings and getattr(message, name):
            raise FieldError(f"config.{name}", f"the rules {version.name} have no such setting")


def _flag(message: queue_pb2.QueueConfig, name: str) -> bool:
    return not message.HasField(name) or bool(getattr(message, name))  # type: ignore[arg-type] # its names are literals


def _backoff(message: queue_pb2.QueueConfig, version: QueueVersion) -> BackoffLimits:
    defaults = BackoffLimits()
    initial_ns = _duration_ns(
        message, "initial_backoff_duration_ns", defaults.initial_ns, at_least=1
    )
    max_ns = _duration_ns(
        message, "max_backoff_duration_ns", defaults.max_ns, at_least=version.backoff_ns_min
    )
    return BackoffLimits(initial_ns=initial_ns, max_ns=max_ns) if max_ns else _NO_BACKOFF


def _duration_ns(
    message: queue_pb2.QueueConfig, name: str, absent_ns: int, *, at_least: int
) -> int:
    if not message.HasField(name):  # type: ignore[arg-type] # its names are literals
        return absent_ns
    duration_ns: int = getattr(message, name)
    if not at_least <= duration_ns <= _DURATION_NS_MAX:
        raise FieldError(f"config.{name}", f"{duration_ns} ns is not from {at_least} to 2^61 ns")
    return duration_ns


def _registrations(
    message: queue_pb2.QueueConfig, version: str, *, hints: bool
) -> tuple[Registration, ...]:
    built_in = registrations(_profiles(message.profiles), version)
    named = tuple(
        _registration(hint, f"config.hints[{index}]", built_in, hints=hints)
        for index, hint in enumerate(message.hints)
    )
    return named or (built_in if hints else without_hints(version))


def _profiles(messages: Iterable[queue_pb2.HintProfile]) -> dict[str, HintProfile]:
    profiles: dict[str, HintProfile] = {}
    for index, message in enumerate(messages):
        field, name = f"config.profiles[{index}]", message.scheduler_name
        if name in profiles:
            raise FieldError(f"{field}.scheduler_name", f'"{name}" occurs twice: name it once')
        profiles[name] = _profile(message, field)
    return profiles


def _profile(message: queue_pb2.HintProfile, field: str) -> HintProfile:
    affinity, added = message.added_affinity, None
    if affinity.HasField("required_during_scheduling_ignored_during_execution"):
        required = affinity.required_during_scheduling_ignored_during_execution
        path = f"{field}.added_affinity.required_during_scheduling_ignored_during_execution"
        added = fields.node_selector(required, path)
    path = f"{field}.default_constraints"
    defaults = spec.spread_constraints(message.default_constraints, path)
    for index, default in enumerate(defaults):
        if default.selector is not None or default.match_label_keys:
            problem = "must not be set: a pod's services and its controller determine it"
            raise FieldError(f"{path}[{index}].label_selector", problem)
    return HintProfile(added_required=added, default_constraints=defaults)


def _registration(
    message: queue_pb2.HintRegistration,
    field: str,
    built_in: tuple[Registration, ...],
    *,
    hints: bool,
) -> Registration:
    plugin, label = message.plugin, message.event
    event = cluster_event(label, f"{field}.event")
    if message.hint and all(registered.plugin != plugin for registered in built_in):
        problem = f"the queue has no hint for {plugin}: leave it out, or use only_if"
        raise FieldError(f"{field}.hint", problem)
    own_hint = hint_of(plugin, label, built_in) if message.hint and hints else None
    condition = _condition(message, field) if message.HasField("only_if") else None
    return Registration(plugin=plugin, event=event, hint=_both(condition, own_hint))


@dataclass(frozen=True, slots=True, kw_only=True)
class _HintCondition:
    """A queueing hint made of a HintCondition message."""

    never: bool
    own_pod: bool
    new_labels: LabelSelector | None

    def __call__(self, pod: PendingPod, object_event: ObjectEvent) -> bool:
        """Return whether all set conditions hold."""
        new = object_event.new
        if self.never or (self.own_pod and getattr(new, "uid", "") != pod.uid):
            return False
        return self.new_labels is None or self.new_labels.matches(getattr(new, "labels", {}))


def _condition(message: queue_pb2.HintRegistration, field: str) -> _HintCondition:
    only_if = message.only_if
    selector = None
    if only_if.HasField("new_labels"):
        path = f"{field}.only_if.new_labels"
        selector = fields.label_selector(only_if.new_labels, path)
    return _HintCondition(never=only_if.never, own_pod=only_if.own_pod, new_labels=selector)


def _both(condition: _HintCondition | None, hint: QueueingHintFn | None) -> QueueingHintFn | None:
    if condition is None or hint is None:
        return condition or hint
    return lambda pod, object_event: condition(pod, object_event) and hint(pod, object_event)


def config_message(config: QueueConfig, requested: queue_pb2.QueueConfig) -> queue_pb2.QueueConfig:
    """Return the configuration in force, with the requested registrations and profiles."""
    settings = VERSIONS[config.version].settings
    return queue_pb2.QueueConfig(
        rules=config.version,
        initial_backoff_duration_ns=config.backoff.initial_ns or BackoffLimits().initial_ns,
        max_backoff_duration_ns=config.backoff.max_ns,
        max_unschedulable_duration_ns=config.max_unschedulable_ns,
        pop_from_backoff_q=config.pop_from_backoff_q if "pop_from_backoff_q" in settings else None,
        queueing_hints=config.queueing_hints if "queueing_hints" in settings else None,
        hints=requested.hints,
        lease_duration_ns=config.lease_ns or None,
        profiles=requested.profiles,
    )
