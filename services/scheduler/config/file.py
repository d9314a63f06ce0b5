"""KubeSchedulerConfiguration (kubescheduler.config.k8s.io/v1), read from its file.

Decoding is strict; defaults and validation are upstream's. A warning names each setting that has no
effect here. Of the older file (v1alpha1) only disablePreemption is read.

Source: kubernetes v1.34 staging/src/k8s.io/kube-scheduler/config/v1/types.go,
pkg/scheduler/apis/config/v1/defaults.go and default_plugins.go (mergePluginSet),
pkg/scheduler/apis/config/validation/validation.go; v1.16 pkg/scheduler/apis/config/types.go.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Any

from services.config.strict import Int64, Percentage, checked, fields_of, reading
from services.framework.plugins.in_tree import DEFAULT_PROFILE, IN_TREE, Registry
from services.framework.profile import (
    ALL,
    EMPTY_PLUGIN_SET,
    ExtensionPoint,
    PluginSet,
    PluginSetting,
    Profile,
    ProfileError,
)
from services.framework.runtime.profile_plugins import check_profile
from services.kube.pod import DEFAULT_SCHEDULER
from services.kube.time import SECOND_NS
from services.scheduler.config import extenders as scheduler_extenders
from services.scheduler.config.extenders import ExtenderConfig, check_extenders
from services.typed import DataError, Read, Reading

API_VERSION = "kubescheduler.config.k8s.io/v1"
_LEGACY_API_VERSION = "kubescheduler.config.k8s.io/v1alpha1"
KIND = "KubeSchedulerConfiguration"
_DISABLED = "disablePreemption"
_GONE = frozenset({"AzureDiskLimits", "CinderLimits", "EBSLimits", "GCEPDLimits"})
_NO_EFFECT = (
    "parallelism",
    "leaderElection",
    "clientConnection",
    "enableProfiling",
    "enableContentionProfiling",
    "delayCacheUntilActive",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerConfiguration:
    """The fields of the file; None if a field is absent and upstream has no default for it.

    percentage_of_nodes_to_score: 0 to 100, 0 for the adaptive formula. initial_backoff_ns and
    max_backoff_ns are the queue's, None if the file leaves them out. disable_preemption is of
    v1alpha1 alone. warnings: a sentence for each thing that has no effect here.
    """

    profiles: tuple[Profile, ...] = ()
    percentage_of_nodes_to_score: int | None = None
    parallelism: int = 16
    initial_backoff_ns: int | None = None
    max_backoff_ns: int | None = None
    extenders: tuple[ExtenderConfig, ...] = ()
    disable_preemption: bool = False
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plugin:
    name: str = ""
    weight: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _PluginSet:
    enabled: tuple[_Plugin, ...] = ()
    disabled: tuple[_Plugin, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plugins:
    """Plugins by extension point; a field is called as its Point."""

    multi_point: PluginSet | None = None
    pre_enqueue: PluginSet | None = None
    queue_sort: PluginSet | None = None
    pre_filter: PluginSet | None = None
    filter: PluginSet | None = None
    post_filter: PluginSet | None = None
    pre_score: PluginSet | None = None
    score: PluginSet | None = None
    reserve: PluginSet | None = None
    permit: PluginSet | None = None
    pre_bind: PluginSet | None = None
    bind: PluginSet | None = None
    post_bind: PluginSet | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _PluginConfig:
    name: str = ""
    args: object = None


_Config = Annotated[_PluginConfig, "whose arguments are the plugin's"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Profile:
    scheduler_name: str | None = None
    percentage_of_nodes_to_score: Percentage | None = None
    plugins: _Plugins = _Plugins()
    plugin_config: tuple[_Config, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _LeaderElection:
    leader_elect: bool = True
    lease_duration: str = ""
    renew_deadline: str = ""
    retry_period: str = ""
    resource_lock: str = ""
    resource_name: str = ""
    resource_namespace: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _ClientConnection:
    kubeconfig: str = ""
    accept_content_types: str = ""
    content_type: str = ""
    qps: float = 0
    burst: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _LegacyFile:
    disable_preemption: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    api_version: str
    kind: str
    parallelism: int = 16
    leader_election: _LeaderElection | None = None
    client_connection: _ClientConnection | None = None
    enable_profiling: bool = False
    enable_contention_profiling: bool = False
    delay_cache_until_active: bool = False
    percentage_of_nodes_to_score: Percentage | None = None
    pod_initial_backoff_seconds: Int64 | None = None
    pod_max_backoff_seconds: Int64 | None = None
    profiles: tuple[_Profile, ...] = ()
    extenders: tuple[ExtenderConfig, ...] = ()


def read_scheduler_configuration(
    text: str, registry: Registry, defaults: Profile = DEFAULT_PROFILE
) -> SchedulerConfiguration:
    """Read the file's text, YAML or JSON; `registry` makes the plugins. Raises DataError.

    Each profile begins with the plugins of `defaults`.
    """
    fields = fields_of(text, KIND, API_VERSION, _LEGACY_API_VERSION)
    if fields["apiVersion"] == _LEGACY_API_VERSION:
        disabled = reading().read(_LegacyFile, {_DISABLED: fields.get(_DISABLED)})
        return SchedulerConfiguration(disable_preemption=disabled.disable_preemption)
    file = _reading(registry, defaults).read(_File, fields)
    warnings = [
        f"{name} has no effect here." for name in _NO_EFFECT if fields.get(name) is not None
    ]
    initial, longest = file.pod_initial_backoff_seconds, file.pod_max_backoff_seconds
    return SchedulerConfiguration(
        profiles=tuple(_profiles(file.profiles or (_Profile(),), registry, defaults, warnings)),
        percentage_of_nodes_to_score=file.percentage_of_nodes_to_score,
        parallelism=file.parallelism,
        initial_backoff_ns=None if initial is None else initial * SECOND_NS,
        max_backoff_ns=None if longest is None else longest * SECOND_NS,
        extenders=file.extenders,
        warnings=tuple(warnings),
    )


def _reading(registry: Registry, defaults: Profile) -> Reading:
    """Return a reader of files; out-of-tree plugins of `registry` may have any arguments."""
    names = frozenset(registry) | {plugin.name for plugin in defaults.plugins}

    def plugin_set(data: object) -> PluginSet:
        config = made.read(_PluginSet, data)
        for index, plugin in enumerate(config.enabled):
            _check_enabled(plugin, f"enabled[{index}]", names)
        return PluginSet(
            enabled=tuple(
                PluginSetting(name=plugin.name, weight=plugin.weight or 1)
                for plugin in config.enabled
            ),
            disabled=tuple(plugin.name for plugin in config.disabled),
        )

    def plugin_config(data: object) -> _PluginConfig:
        config = made.read(_PluginConfig, data)
        if config.name not in names:
            raise DataError("name", f'plugin "{config.name}" does not exist')
        try:
            return replace(config, args=_args(config, made))
        except DataError as error:
            raise error.below("args") from None

    arguments = [plugin.arguments for plugin in IN_TREE.values() if plugin.arguments is not None]
    names_of_fields = dict(scheduler_extenders.NAMES)
    hooks: dict[Any, Read] = {PluginSet: plugin_set, _Config: plugin_config}
    for accepted in arguments:
        names_of_fields.update(accepted.names)
        hooks.update(accepted.hooks)
    made = reading(names_of_fields, hooks)
    return made


@checked.register
def _(file: _File) -> _File:
    if file.parallelism <= 0:
        raise DataError("parallelism", "should be an integer value greater than zero")
    initial, longest = file.pod_initial_backoff_seconds, file.pod_max_backoff_seconds
    first = 1 if initial is None else initial
    if first <= 0:
        raise DataError("podInitialBackoffSeconds", "must be greater than 0")
    if (10 if longest is None else longest) < first:
        text = "must be greater than or equal to PodInitialBackoffSeconds"
        raise DataError("podMaxBackoffSeconds", text)
    check_extenders(file.extenders)
    return file


@checked.register
def _(election: _LeaderElection) -> _LeaderElection:
    if election.leader_elect and election.resource_lock not in {"", "leases"}:
        raise DataError("resourceLock", 'resourceLock value must be "leases"')
    return election


def _check_enabled(plugin: _Plugin, path: str, names: frozenset[str]) -> None:
    if plugin.name in _GONE:
        text = (
            f'"{plugin.name}" was invalid in version "{API_VERSION}" '
            f'({KIND} is version "{API_VERSION}")'
        )
        raise DataError(path, text)
    if plugin.name not in names:
        raise DataError(f"{path}.name", f'plugin "{plugin.name}" does not exist')


def _args(config: _PluginConfig, made: Reading) -> object:
    """Return a plugin's arguments, None if nothing of them is served."""
    name, args = config.name, {} if config.args is None else config.args
    if not isinstance(args, dict):
        raise DataError("", "must be a mapping of fields")
    if name not in IN_TREE:
        return args
    arguments = IN_TREE[name].arguments
    if arguments is None:
        raise DataError("", f'plugin "{name}" takes no arguments')
    for field, expected in (("apiVersion", API_VERSION), ("kind", f"{name}Args")):
        value = args.get(field)
        if value not in (None, "", expected):
            raise DataError(field, f'must be "{expected}", not "{value}"')
    rest = {field: value for field, value in args.items() if field not in {"apiVersion", "kind"}}
    return made.read(arguments.kind, rest)


def _profiles(
    profiles: tuple[_Profile, ...], registry: Registry, defaults: Profile, warnings: list[str]
) -> Iterator[Profile]:
    paths: dict[str, str] = {}
    sorting: object = None
    for index, entry in enumerate(profiles):
        path = f"profiles[{index}]"
        name = entry.scheduler_name
        if name is None and len(profiles) == 1:
            name = DEFAULT_SCHEDULER
        if not name:
            raise DataError(f"{path}.schedulerName", "required value")
        if name in paths:
            text = f'duplicate value: "{name}" is that of {paths[name]} too'
            raise DataError(f"{path}.schedulerName", text)
        paths[name] = f"{path}.schedulerName"
        try:
            profile = _profile(name, entry, registry, defaults)
        except DataError as error:
            raise error.below(path) from None
        queue_sort = profile.at.get(ExtensionPoint.QUEUE_SORT, EMPTY_PLUGIN_SET)
        sorting = sorting or queue_sort
        if queue_sort != sorting:
            raise DataError(f"{path}.plugins.queueSort", "must be the same for all profiles")
        warnings.extend(
            f"{path}.pluginConfig[{number}]: the arguments of {config.name} have no effect here."
            for number, config in enumerate(entry.plugin_config)
            if _has_no_effect(config.name)
        )
        yield profile


def _has_no_effect(name: str) -> bool:
    arguments = IN_TREE[name].arguments if name in IN_TREE else None
    return arguments is not None and not arguments.has_effect


def _profile(name: str, config_profile: _Profile, registry: Registry, defaults: Profile) -> Profile:
    args: dict[str, object] = {}
    for index, config in enumerate(config_profile.plugin_config):
        if config.name in [other.name for other in config_profile.plugin_config[:index]]:
            raise DataError(f"pluginConfig[{index}]", f'duplicate value: "{config.name}"')
        if config.args is not None:
            args[config.name] = config.args
    at = dict(_plugin_sets(config_profile.plugins))
    if len(at.get(ExtensionPoint.QUEUE_SORT, EMPTY_PLUGIN_SET).enabled) > 1:
        raise DataError("plugins.queueSort.enabled", "only one queue sort plugin can be enabled")
    everywhere = config_profile.plugins.multi_point
    profile = Profile(
        plugins=_merged(defaults.plugins, everywhere or EMPTY_PLUGIN_SET),
        at=at,
        args=args,
        scheduler_name=name,
        percentage_of_nodes_to_score=config_profile.percentage_of_nodes_to_score,
    )
    try:
        check_profile(profile, registry)
    except ProfileError as error:
        point = f".{error.point.value}" if error.point is not None else ""
        raise DataError(f"plugins{point}", str(error)) from None
    return profile


def _plugin_sets(plugins: _Plugins) -> Iterator[tuple[ExtensionPoint, PluginSet]]:
    for point in ExtensionPoint:
        plugin_set: PluginSet | None = getattr(plugins, point.name.lower())
        if plugin_set is not None:
            yield point, plugin_set


def _merged(defaults: tuple[PluginSetting, ...], custom: PluginSet) -> tuple[PluginSetting, ...]:
    """Put custom settings in the place of defaults of the same name, and the others behind."""
    latest = {setting.name: index for index, setting in enumerate(custom.enabled)}
    kept = [
        setting
        for setting in defaults
        if ALL not in custom.disabled and setting.name not in custom.disabled
    ]
    replaced = {latest[setting.name] for setting in kept if setting.name in latest}
    return (
        *(
            custom.enabled[latest[setting.name]] if setting.name in latest else setting
            for setting in kept
        ),
        *(plugin for index, plugin in enumerate(custom.enabled) if index not in replaced),
    )
