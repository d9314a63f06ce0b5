"""KubeSchedulerConfiguration (kubescheduler.config.k8s.io/v1), read as it is.

Decoding is strict, defaults and validation are upstream's. What is known and not served is named
in a warning.

Source: kubernetes v1.34 staging/src/k8s.io/kube-scheduler/config/v1/types.go,
pkg/scheduler/apis/config/v1/defaults.go, pkg/scheduler/apis/config/validation/validation.go.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from services.config.scheduler_args import API_VERSION, plugin_args
from services.config.scheduler_extenders import ExtenderConfig, extenders
from services.config.scheduler_plugins import plugin_sets
from services.config.strict import ConfigError, Fields, document
from services.kube.pod import DEFAULT_SCHEDULER
from services.scheduler.core.plugin_args import PluginArgs
from services.scheduler.core.profile import (
    DEFAULT_PROFILE,
    NOTHING_SAID,
    Point,
    Profile,
    ProfileError,
)
from services.scheduler.core.profile_check import check_profile
from services.scheduler.core.registry import IN_TREE, Registry

KIND = "KubeSchedulerConfiguration"
SECOND_NS = 1_000_000_000
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
    """What the file says; None where it says nothing and upstream has no default of its own.

    percentage_of_nodes_to_score: 0 to 100, 0 for the adaptive formula. initial_backoff_ns and
    max_backoff_ns are the queue's, None where the file leaves them out. warnings: a sentence for
    each thing that has no effect here.
    """

    profiles: tuple[Profile, ...]
    percentage_of_nodes_to_score: int | None = None
    parallelism: int = 16
    initial_backoff_ns: int | None = None
    max_backoff_ns: int | None = None
    extenders: tuple[ExtenderConfig, ...] = ()
    warnings: tuple[str, ...] = ()


def api_version(text: str) -> str:
    """Return a file's apiVersion, "" where it has none. Raises ConfigError where it is no file."""
    value = document(text)
    version = value.get("apiVersion") if isinstance(value, dict) else None
    return version if isinstance(version, str) else ""


def read_scheduler_configuration(text: str, registry: Registry) -> SchedulerConfiguration:
    """Read the file's text, YAML or JSON; `registry` makes the plugins. Raises ConfigError."""
    fields = Fields("", document(text))
    for field, expected in (("apiVersion", API_VERSION), ("kind", KIND)):
        if fields.text(field) != expected:
            raise ConfigError(field, f'must be "{expected}"')
    warnings = [f"{name} has no effect here." for name in _NO_EFFECT if fields.has(name)]
    parallelism = fields.integer("parallelism")
    if parallelism is not None and parallelism <= 0:
        raise ConfigError("parallelism", "should be an integer value greater than zero")
    _read_process_settings(fields)
    profiles = tuple(_profiles(fields, registry, warnings))
    percentage = _percentage(fields)
    initial_ns, max_ns = _backoff_ns(fields)
    configured = extenders(fields)
    fields.end()
    return SchedulerConfiguration(
        profiles=profiles,
        percentage_of_nodes_to_score=percentage,
        parallelism=16 if parallelism is None else parallelism,
        initial_backoff_ns=initial_ns,
        max_backoff_ns=max_ns,
        extenders=configured,
        warnings=tuple(warnings),
    )


def _profiles(fields: Fields, registry: Registry, warnings: list[str]) -> Iterator[Profile]:
    given = list(fields.each("profiles")) or [Fields("profiles[0]", None)]
    names: dict[str, str] = {}
    first: Profile | None = None
    for each in given:
        name = each.text("schedulerName")
        if name is None and len(given) == 1:
            name = DEFAULT_SCHEDULER
        path = each.at("schedulerName")
        if not name:
            raise ConfigError(path, "required value")
        if name in names:
            raise ConfigError(path, f'duplicate value: "{name}" is that of {names[name]} too')
        names[name] = path
        profile = _profile(name, each, registry, warnings)
        first = first or profile
        if _sorting(profile) != _sorting(first):
            text = "must be the same for all profiles"
            raise ConfigError(each.at("plugins.queueSort"), text)
        yield profile


def _sorting(profile: Profile) -> object:
    return profile.at.get(Point.QUEUE_SORT, NOTHING_SAID)


def _profile(name: str, fields: Fields, registry: Registry, warnings: list[str]) -> Profile:
    percentage = _percentage(fields)
    known = IN_TREE | registry.keys()
    plugins, at = plugin_sets(fields.fields("plugins"), DEFAULT_PROFILE.plugins, known)
    if len(at.get(Point.QUEUE_SORT, NOTHING_SAID).enabled) > 1:
        text = "only one queue sort plugin can be enabled"
        raise ConfigError(fields.at("plugins.queueSort.enabled"), text)
    args = dict(_args(fields, registry, warnings))
    fields.end()
    profile = Profile(
        plugins=plugins,
        at=at,
        args=args,
        scheduler_name=name,
        percentage_of_nodes_to_score=percentage,
    )
    try:
        check_profile(profile, registry)
    except ProfileError as error:
        point = f".{error.point.value}" if error.point is not None else ""
        raise ConfigError(f"{fields.at('plugins')}{point}", str(error)) from None
    return profile


def _args(
    fields: Fields, registry: Registry, warnings: list[str]
) -> Iterator[tuple[str, PluginArgs | Mapping[str, object]]]:
    """Yield the arguments of plugins; those of users' own as they are."""
    seen: set[str] = set()
    for each in fields.each("pluginConfig"):
        name = each.text("name") or ""
        if name in seen:
            raise ConfigError(each.path, f'duplicate value: "{name}"')
        seen.add(name)
        if name not in IN_TREE | registry.keys():
            raise ConfigError(each.at("name"), f'plugin "{name}" does not exist')
        if name not in IN_TREE:
            own = each.mapping("args")
            each.end()
            yield name, own
            continue
        args = plugin_args(name, each.fields("args") or Fields(each.at("args"), None))
        each.end()
        if args is not None:
            yield name, args
        if name in {"DynamicResources", "VolumeBinding", "DefaultPreemption"}:
            warnings.append(f"{each.path}: the arguments of {name} have no effect here.")


def _percentage(fields: Fields) -> int | None:
    percentage = fields.integer("percentageOfNodesToScore")
    if percentage is not None and not 0 <= percentage <= 100:
        raise ConfigError(fields.at("percentageOfNodesToScore"), "not in valid range [0-100]")
    return percentage


def _backoff_ns(fields: Fields) -> tuple[int | None, int | None]:
    initial = fields.integer("podInitialBackoffSeconds", wide=True)
    longest = fields.integer("podMaxBackoffSeconds", wide=True)
    first = 1 if initial is None else initial
    if first <= 0:
        raise ConfigError("podInitialBackoffSeconds", "must be greater than 0")
    if (10 if longest is None else longest) < first:
        text = "must be greater than or equal to PodInitialBackoffSeconds"
        raise ConfigError("podMaxBackoffSeconds", text)
    return (
        None if initial is None else initial * SECOND_NS,
        None if longest is None else longest * SECOND_NS,
    )


def _read_process_settings(fields: Fields) -> None:
    """Check what concerns the process alone, of which nothing is used."""
    for name in ("enableProfiling", "enableContentionProfiling", "delayCacheUntilActive"):
        fields.flag(name)
    election = fields.fields("leaderElection")
    if election is not None:
        elects = election.flag("leaderElect")
        lock = election.text("resourceLock")
        for name in (
            "leaseDuration",
            "renewDeadline",
            "retryPeriod",
            "resourceName",
            "resourceNamespace",
        ):
            election.text(name)
        election.end()
        if elects is not False and lock not in {None, "", "leases"}:
            text = 'resourceLock value must be "leases"'
            raise ConfigError(election.at("resourceLock"), text)
    connection = fields.fields("clientConnection")
    if connection is not None:
        for name in ("kubeconfig", "acceptContentTypes", "contentType"):
            connection.text(name)
        connection.number("qps")
        connection.integer("burst")
        connection.end()
