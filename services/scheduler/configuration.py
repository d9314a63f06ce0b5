"""The configuration of a session: its message, the file that it may carry, and user plugins.

An installed distribution names its plugins in the entry point group `reprieve.plugins`; others are
named when the service starts. What is found is a factory: it is called with the plugin's arguments
of a profile (an empty mapping where it has none) and returns the plugin.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from importlib.metadata import entry_points
from types import MappingProxyType
from typing import Any

from reprieve.queue.v1beta1 import queue_pb2
from reprieve.scheduler.v1beta1 import scheduler_pb2
from services.kube.pod import NodeAffinity, PodSpec
from services.rpc.errors import FieldError
from services.rpc.kube.messages import pod_spec_to_message
from services.scheduler.config.file import SchedulerConfiguration, read_scheduler_configuration
from services.scheduler.core.cycle.extenders import Extender
from services.scheduler.core.cycle.host_choice import HostChoice, KeyedChoice, NamedChoice
from services.scheduler.core.framework.guard import guarded
from services.scheduler.core.framework.profile import Profile, ProfileError
from services.scheduler.core.framework.registry import IN_TREE, SERVED, Registry
from services.scheduler.core.plugin_api.plugin import Plugin
from services.scheduler.core.plugins.args import NodeAffinityArgs, PodTopologySpreadArgs
from services.scheduler.core.queueing.mirror import QUEUE_RULES
from services.scheduler.core.session.options import RULES, SchedulerOptions, SchedulerRules
from services.scheduler.extenders.connect import (
    ConnectedExtender,
    connect_extenders,
    without_ignored,
)
from services.scheduler.extenders.grpc_extender import ExtenderObjects
from services.scheduler.session import BATCH_SIZE_MAX
from services.typed import DataError, join

TIES: Mapping[scheduler_pb2.TieBreak.ValueType, Callable[[int], HostChoice]] = {
    scheduler_pb2.TIE_BREAK_HASH: KeyedChoice,
    scheduler_pb2.TIE_BREAK_NAME: lambda _seed: NamedChoice(),
}
"""The tie-breaks that a session can set in place of its rules' own, made from the seed."""
DEFAULT_RULES = "v1.34"
_FILE = "config.kube_scheduler_configuration"


def read_configuration(
    config: scheduler_pb2.SchedulerConfig, registry: Registry = SERVED
) -> SchedulerConfiguration:
    """Read the file that a configuration carries; `registry` has the plugins that it may name.

    Without one, all is left to defaults. Raises FieldError with the path in the file.
    """
    text = config.kube_scheduler_configuration
    try:
        file = read_scheduler_configuration(text, registry) if text else SchedulerConfiguration()
    except DataError as error:
        raise FieldError(join(_FILE, error.field), str(error)) from None
    disabled = config.disable_preemption or file.disable_preemption
    return replace(file, disable_preemption=disabled)


def connected_extenders(
    file: SchedulerConfiguration, sources: ExtenderObjects
) -> tuple[ConnectedExtender, ...]:
    """Return the file's extenders, which are sent objects of `sources`. Raises FieldError."""
    return tuple(connect_extenders(file.extenders, sources, f"{_FILE}.extenders"))


def refuse_extenders(file: SchedulerConfiguration) -> None:
    """Raise FieldError where the file lists any."""
    if file.extenders:
        text = "this service calls no extenders (--no-extenders): remove them from the file"
        raise FieldError(f"{_FILE}.extenders", text)


def options_of(
    config: scheduler_pb2.SchedulerConfig,
    file: SchedulerConfiguration,
    queue_mode: str,
    extenders: tuple[Extender, ...] = (),
) -> SchedulerOptions:
    """Return what a configuration requests. Raises FieldError."""
    rules = _rules(config)
    if queue_mode not in QUEUE_RULES:
        raise FieldError(
            "config.queue.rules", f"{queue_mode!r} is not a queue mode of this scheduler"
        )
    if config.HasField("batch_size") and not 0 < config.batch_size <= BATCH_SIZE_MAX:
        raise FieldError(
            "config.batch_size", f"{config.batch_size} is not from 1 to {BATCH_SIZE_MAX}"
        )
    return SchedulerOptions(
        rules=rules,
        queue=QUEUE_RULES[queue_mode],
        seed=config.seed,
        profiles=without_ignored(file.profiles, file.extenders),
        sampling=(file.percentage_of_nodes_to_score or 0) if config.sample_nodes else None,
        disable_preemption=file.disable_preemption,
        extenders=extenders,
    )


def queue_config_of(
    config: scheduler_pb2.SchedulerConfig, file: SchedulerConfiguration
) -> queue_pb2.QueueConfig:
    """Return the queue's configuration, where it says nothing itself with what the file says.

    The file adds the backoff, and what queueing hints need of the profiles. The mode is that of the
    rules where the queue's configuration has none. Raises FieldError for unknown rules.
    """
    queue = queue_pb2.QueueConfig()
    queue.CopyFrom(config.queue)
    queue.rules = queue.rules or _rules(config).queue_mode
    if file.initial_backoff_ns and not queue.HasField("initial_backoff_ns"):
        queue.initial_backoff_ns = file.initial_backoff_ns
    if file.max_backoff_ns and not queue.HasField("max_backoff_ns"):
        queue.max_backoff_ns = file.max_backoff_ns
    rules = QUEUE_RULES.get(queue.rules)
    if rules is not None and rules.has_hints and not queue.profiles:
        queue.profiles.extend(hint_profiles(file.profiles))
    return queue


def _rules(config: scheduler_pb2.SchedulerConfig) -> SchedulerRules:
    name = config.rules or DEFAULT_RULES
    if name not in RULES:
        raise FieldError("config.rules", f"{name!r} is not one of {', '.join(sorted(RULES))}")
    if not config.HasField("ties"):
        return RULES[name]
    if config.ties not in TIES:
        names = " or ".join(scheduler_pb2.TieBreak.Name(each) for each in TIES)
        raise FieldError("config.ties", f"{config.ties} is not a tie-break: use {names}")
    return replace(RULES[name], host_choice=TIES[config.ties])


def hint_profiles(profiles: Iterable[Profile]) -> list[queue_pb2.HintProfile]:
    """Return the added node affinity and default spread constraints of profiles that have some."""
    found: list[queue_pb2.HintProfile] = []
    for profile in profiles:
        added = pod_spec_to_message(_added_spec(profile))
        if added.HasField("affinity") or added.topology_spread_constraints:
            message = queue_pb2.HintProfile(scheduler_name=profile.scheduler_name)
            if added.HasField("affinity"):
                message.added_affinity.CopyFrom(added.affinity.node_affinity)
            message.default_constraints.extend(added.topology_spread_constraints)
            found.append(message)
    return found


def _added_spec(profile: Profile) -> PodSpec:
    """Return a pod spec with what the profile adds to every pod."""
    affinity, spread = profile.args.get("NodeAffinity"), profile.args.get("PodTopologySpread")
    required = affinity.added_required if isinstance(affinity, NodeAffinityArgs) else None
    return PodSpec(
        node_affinity=None if required is None else NodeAffinity(required=required),
        topology_spread_constraints=(
            spread.default_constraints if isinstance(spread, PodTopologySpreadArgs) else ()
        ),
    )


GROUP = "reprieve.plugins"
Factory = Callable[[Mapping[str, object]], Plugin]

_NO_ARGS: Mapping[str, object] = MappingProxyType({})


VARIABLE = "REPRIEVE_PLUGINS"
"""The environment variable that names plugins as MODULE:NAME, parted by spaces."""


class PluginLoadError(Exception):
    """A plugin that cannot be loaded; the text names it."""


def registry_with(named: Iterable[str]) -> Registry:
    """Return the plugins that are served, the installed ones, and those `named` MODULE:NAME.

    Raises PluginLoadError, also where a name is taken.
    """
    found: dict[str, Callable[..., Plugin]] = dict(SERVED)
    for name, factory in (*_installed(), *map(_named, named)):
        if name in found or name in IN_TREE:
            raise PluginLoadError(f'plugin "{name}": another plugin has that name')
        found[name] = _maker(name, factory)
    return MappingProxyType(found)


def _installed() -> Iterable[tuple[str, Factory]]:
    for point in sorted(entry_points(group=GROUP), key=lambda each: each.name):
        try:
            yield point.name, point.load()
        except Exception as error:
            text = f'plugin "{point.name}" ({point.value}): {type(error).__name__}: {error}'
            raise PluginLoadError(text) from error


def _named(text: str) -> tuple[str, Factory]:
    """Load MODULE:NAME; a class's attribute `name` is the plugin's, else NAME is."""
    module, _, attribute = text.partition(":")
    if not module or not attribute:
        raise PluginLoadError(f'plugin "{text}": must be MODULE:NAME')
    try:
        factory = getattr(importlib.import_module(module), attribute)
    except Exception as error:
        raise PluginLoadError(f'plugin "{text}": {type(error).__name__}: {error}') from error
    name = getattr(factory, "name", attribute)
    return (name if isinstance(name, str) else attribute), factory


def _maker(name: str, factory: Factory) -> Callable[..., Plugin]:
    def make(args: Mapping[str, object] = _NO_ARGS) -> Plugin:
        """Make the plugin. Raises ProfileError where that fails."""
        try:
            plugin: Any = factory(args)
        except Exception as error:
            raise ProfileError(None, f'plugin "{name}": {error}') from error
        if not isinstance(plugin, Plugin) or getattr(plugin, "name", None) != name:
            text = f'plugin "{name}": its factory must return a plugin of that name'
            raise ProfileError(None, text)
        return guarded(plugin)

    return make
