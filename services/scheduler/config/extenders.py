"""Extenders as a configuration lists them.

Source: kubernetes v1.34 staging/src/k8s.io/kube-scheduler/config/v1/types.go, Extender;
pkg/scheduler/apis/config/validation/validation.go, validateExtenders; pkg/apis/core/v1/helper/
helpers.go, IsExtendedResourceName.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from services.config.strict import DurationNs, Int64, check_name, checked, qualified_name_problem
from services.typed import DataError

DEFAULT_TIMEOUT_NS = 5_000_000_000
"""What an extender may take where nothing is said. Source: v1.34 pkg/scheduler/extender.go."""


class UrlError(ValueError):
    """An address that no call can be made to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagedResource:
    """A resource that an extender manages; if `ignored`, NodeResourcesFit does not check it."""

    name: str
    ignored: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsConfig:
    """The client certificate, and the CA that verifies the server: files, or data in base64."""

    insecure: bool = False
    server_name: str = ""
    cert_file: str = ""
    key_file: str = ""
    ca_file: str = ""
    cert_data: str = ""
    key_data: str = ""
    ca_data: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtenderConfig:
    """A webhook that is called after the plugins; an empty verb: it does not implement that call.

    `timeout_ns` bounds a call.
    """

    url_prefix: str = ""
    filter_verb: str = ""
    preempt_verb: str = ""
    prioritize_verb: str = ""
    bind_verb: str = ""
    weight: Int64 = 0
    enable_https: bool = False
    tls: TlsConfig = TlsConfig()
    timeout_ns: DurationNs = DEFAULT_TIMEOUT_NS
    node_cache_capable: bool = False
    managed_resources: tuple[ManagedResource, ...] = ()
    ignorable: bool = False


def check_extenders(extenders: Sequence[ExtenderConfig]) -> None:
    """Refuse extenders that cannot work together. Raises DataError."""
    managed: set[str] = set()
    for index, extender in enumerate(extenders):
        for number, resource in enumerate(extender.managed_resources):
            if resource.name in managed:
                path = f"extenders[{index}].managedResources[{number}].name"
                raise DataError(path, "duplicate extender managed resource name")
            managed.add(resource.name)
    binders = sum(bool(extender.bind_verb) for extender in extenders)
    if binders > 1:
        text = f"found {binders} extenders implementing bind, only one extender can implement bind"
        raise DataError("extenders", text)


@checked.register
def _(extender: ExtenderConfig) -> ExtenderConfig:
    if extender.prioritize_verb and extender.weight <= 0:
        raise DataError("weight", "must have a positive weight applied to it")
    return replace(extender, timeout_ns=extender.timeout_ns or DEFAULT_TIMEOUT_NS)


@checked.register
def _(resource: ManagedResource) -> ManagedResource:
    name = resource.name
    check_name(name, "name")
    native = "/" not in name or "kubernetes.io/" in name or name.startswith("requests.")
    if native or qualified_name_problem(f"requests.{name}"):
        raise DataError("name", f'"{name}" is an invalid extended resource name')
    return resource


NAMES: Mapping[tuple[type, str], str] = MappingProxyType(
    {
        (ExtenderConfig, "enable_https"): "enableHTTPS",
        (ExtenderConfig, "tls"): "tlsConfig",
        (ExtenderConfig, "timeout_ns"): "httpTimeout",
        (ManagedResource, "ignored"): "ignoredByScheduler",
    }
)
