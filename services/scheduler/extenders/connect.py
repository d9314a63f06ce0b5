"""Extenders by their configuration: which transport, with which credentials."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Protocol

import grpc

from services.config.scheduler_extenders import ExtenderConfig
from services.rpc.client import CHANNEL_OPTIONS
from services.rpc.errors import FieldError
from services.scheduler.core.extenders import Extender, ExtenderTerms
from services.scheduler.core.plugin_args import NodeResourcesFitArgs
from services.scheduler.core.plugins.node_resources_fit import NodeResourcesFit
from services.scheduler.core.profile import Profile
from services.scheduler.extenders.grpc_extender import GrpcExtender
from services.scheduler.extenders.http_call import HttpCaller, UrlError
from services.scheduler.extenders.http_extender import HttpExtender
from services.scheduler.extenders.sources import Sources
from services.scheduler.extenders.tls import (
    Credentials,
    TlsError,
    channel_credentials,
    context_of,
    credentials_of,
)

GRPC = "grpc://"
"""What an address begins with where the extender speaks our ExtenderService."""


class Connected(Extender, Protocol):
    """An extender with a connection."""

    def close(self) -> None:
        """Give the connection up."""


def connected(
    configs: Sequence[ExtenderConfig], sources: Sources, field: str
) -> Iterator[Connected]:
    """Yield the extenders; nothing is connected before the first call. Raises FieldError.

    field: the path of the list in the request.
    """
    for index, config in enumerate(configs):
        path = f"{field}[{index}]"
        try:
            yield _connected(config, credentials_of(config), sources)
        except TlsError as error:
            at = f"{path}.tlsConfig"
            raise FieldError(f"{at}.{error.field}" if error.field else at, str(error)) from None
        except UrlError as error:
            raise FieldError(f"{path}.urlPrefix", str(error)) from None


def without_ignored(
    profiles: Sequence[Profile], configs: Sequence[ExtenderConfig]
) -> tuple[Profile, ...]:
    """Return the profiles whose NodeResourcesFit leaves out what extenders look after alone.

    Those resources (ignoredByScheduler) take the place of the plugin's own ignoredResources.
    Source: kubernetes v1.34 pkg/scheduler/scheduler.go, buildExtenders.
    """
    ignored = frozenset(
        each.name for config in configs for each in config.managed_resources if each.ignored
    )
    if not ignored:
        return tuple(profiles)
    return tuple(_ignoring(profile, ignored) for profile in profiles)


def _ignoring(profile: Profile, ignored: frozenset[str]) -> Profile:
    args = profile.args.get(NodeResourcesFit.name)
    before = args if isinstance(args, NodeResourcesFitArgs) else NodeResourcesFitArgs()
    changed = replace(before, ignored_resources=ignored)
    return replace(profile, args={**profile.args, NodeResourcesFit.name: changed})


def _connected(config: ExtenderConfig, credentials: Credentials, sources: Sources) -> Connected:
    terms = _terms(config)
    if config.url_prefix.startswith(GRPC):
        return GrpcExtender(config, terms, _channel(config, credentials), sources)
    secure = config.url_prefix.startswith("https://")
    caller = HttpCaller(
        config.url_prefix,
        config.timeout_ns,
        context_of(credentials) if secure else None,
        credentials.server_name,
    )
    return HttpExtender(config, terms, caller, sources)


def _channel(config: ExtenderConfig, credentials: Credentials) -> grpc.Channel:
    address = config.url_prefix.removeprefix(GRPC).rstrip("/")
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or "/" in address:
        raise UrlError("must be grpc://HOST:PORT")
    options: list[tuple[str, int | str]] = [*CHANNEL_OPTIONS]
    if not config.enable_https and not credentials.are_given:
        return grpc.insecure_channel(address, options=options)
    if credentials.server_name:
        options.append(("grpc.ssl_target_name_override", credentials.server_name))
    return grpc.secure_channel(address, channel_credentials(credentials), options=options)


def _terms(config: ExtenderConfig) -> ExtenderTerms:
    return ExtenderTerms(
        name=config.url_prefix,
        filters=bool(config.filter_verb),
        prioritizes=bool(config.prioritize_verb),
        preempts=bool(config.preempt_verb),
        binds=bool(config.bind_verb),
        weight=config.weight,
        ignorable=config.ignorable,
        managed_resources=frozenset(each.name for each in config.managed_resources),
    )
