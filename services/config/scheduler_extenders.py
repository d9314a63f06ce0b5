"""Extenders as a configuration lists them.

Source: kubernetes v1.34 staging/src/k8s.io/kube-scheduler/config/v1/types.go, Extender;
pkg/scheduler/apis/config/validation/validation.go, validateExtenders.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from services.config.names import is_extended_resource, qualified_name_problem
from services.config.strict import ConfigError, Fields
from services.eviction.core.duration import DurationError, parse_duration_ns

DEFAULT_TIMEOUT_NS = 5_000_000_000
"""What an extender may take where nothing is said. Source: v1.34 pkg/scheduler/extender.go."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagedResource:
    """A resource that an extender looks after; `ignored` by the scheduler's own filter."""

    name: str
    ignored: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtenderConfig:
    """A service that has its say after the plugins; an empty verb is one it does not serve.

    `tls` are the file's own settings, by name. `timeout_ns` bounds a call.
    """

    url_prefix: str = ""
    filter_verb: str = ""
    preempt_verb: str = ""
    prioritize_verb: str = ""
    bind_verb: str = ""
    weight: int = 0
    enable_https: bool = False
    tls: tuple[tuple[str, str | bool], ...] = ()
    timeout_ns: int = DEFAULT_TIMEOUT_NS
    node_cache_capable: bool = False
    managed_resources: tuple[ManagedResource, ...] = ()
    ignorable: bool = False


def extenders(configuration: Fields) -> tuple[ExtenderConfig, ...]:
    """Return the extenders of a configuration. Raises ConfigError."""
    found: list[ExtenderConfig] = []
    managed: set[str] = set()
    for fields in configuration.each("extenders"):
        found.append(_extender(fields, managed))
    binders = sum(bool(each.bind_verb) for each in found)
    if binders > 1:
        text = f"found {binders} extenders implementing bind, only one extender can implement bind"
        raise ConfigError(configuration.at("extenders"), text)
    return tuple(found)


def _extender(fields: Fields, managed: set[str]) -> ExtenderConfig:
    weight = fields.integer("weight", wide=True) or 0
    prioritize_verb = fields.text("prioritizeVerb") or ""
    if prioritize_verb and weight <= 0:
        raise ConfigError(fields.at("weight"), "must have a positive weight applied to it")
    extender = ExtenderConfig(
        url_prefix=fields.text("urlPrefix") or "",
        filter_verb=fields.text("filterVerb") or "",
        preempt_verb=fields.text("preemptVerb") or "",
        prioritize_verb=prioritize_verb,
        bind_verb=fields.text("bindVerb") or "",
        weight=weight,
        enable_https=fields.flag("enableHTTPS") or False,
        tls=_tls(fields.fields("tlsConfig")),
        timeout_ns=_timeout_ns(fields),
        node_cache_capable=fields.flag("nodeCacheCapable") or False,
        managed_resources=tuple(_managed(fields, managed)),
        ignorable=fields.flag("ignorable") or False,
    )
    fields.end()
    return extender


def _managed(extender: Fields, seen: set[str]) -> Iterator[ManagedResource]:
    for fields in extender.each("managedResources"):
        name = fields.text("name") or ""
        ignored = fields.flag("ignoredByScheduler") or False
        fields.end()
        problem = qualified_name_problem(name)
        if problem:
            raise ConfigError(fields.at("name"), f'"{name}": {problem}')
        if not is_extended_resource(name):
            raise ConfigError(fields.at("name"), f'"{name}" is an invalid extended resource name')
        if name in seen:
            raise ConfigError(fields.at("name"), "duplicate extender managed resource name")
        seen.add(name)
        yield ManagedResource(name=name, ignored=ignored)


def _tls(fields: Fields | None) -> tuple[tuple[str, str | bool], ...]:
    if fields is None:
        return ()
    found: list[tuple[str, str | bool]] = []
    insecure = fields.flag("insecure")
    if insecure is not None:
        found.append(("insecure", insecure))
    for name in (
        "serverName",
        "certFile",
        "keyFile",
        "caFile",
        "certData",
        "keyData",
        "caData",
    ):
        text = fields.text(name)
        if text is not None:
            found.append((name, text))
    fields.end()
    return tuple(found)


def _timeout_ns(fields: Fields) -> int:
    text = fields.text("httpTimeout")
    if text is None:
        return DEFAULT_TIMEOUT_NS
    try:
        return parse_duration_ns(text) or DEFAULT_TIMEOUT_NS
    except DurationError as error:
        raise ConfigError(fields.at("httpTimeout"), str(error)) from None
