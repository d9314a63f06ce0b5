"""Extenders by their configuration: the transport and the TLS credentials of each.

Source: kubernetes v1.34 pkg/scheduler/extender.go, makeTransport; client-go rest.TLSConfigFor.
"""

from __future__ import annotations

import base64
import binascii
import ssl
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import grpc

from services.framework.plugins.node_resources.arguments import NodeResourcesFitArgs
from services.framework.plugins.node_resources.plugin import NodeResourcesFit
from services.framework.profile import Profile
from services.rpc.client import channel_options
from services.rpc.errors import FieldError
from services.scheduler.config.extenders import ExtenderConfig, UrlError
from services.scheduler.core.cycle.extenders import Extender, ExtenderTerms
from services.scheduler.extenders.allowed import AllowedExtenders, NotAllowedError
from services.scheduler.extenders.grpc_extender import ExtenderObjects, GrpcExtender

GRPC = "grpc://"
"""What an address begins with where the extender speaks our ExtenderService."""


class ConnectedExtender(Extender, Protocol):
    """An extender with a connection."""

    def close(self) -> None:
        """Give the connection up."""


def connect_extenders(
    configs: Sequence[ExtenderConfig],
    allowed: AllowedExtenders,
    sources: ExtenderObjects,
    field: str,
) -> Iterator[ConnectedExtender]:
    """Yield the extenders; nothing is connected before the first call. Raises FieldError.

    allowed: those that the service calls. field: the path of the list in the request.
    """
    for index, config in enumerate(configs):
        path = f"{field}[{index}]"
        try:
            allowed.check_url(config.url_prefix)
            yield _connected(config, credentials_of(config, allowed), sources)
        except NotAllowedError as error:
            raise FieldError(f"{path}.urlPrefix", str(error)) from None
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
        resource.name
        for config in configs
        for resource in config.managed_resources
        if resource.ignored
    )
    if not ignored:
        return tuple(profiles)
    return tuple(_ignoring(profile, ignored) for profile in profiles)


def _ignoring(profile: Profile, ignored: frozenset[str]) -> Profile:
    args = profile.args.get(NodeResourcesFit.name)
    before = args if isinstance(args, NodeResourcesFitArgs) else NodeResourcesFitArgs()
    changed = replace(before, ignored_resources=ignored)
    return replace(profile, args={**profile.args, NodeResourcesFit.name: changed})


def _connected(
    config: ExtenderConfig, credentials: TlsCredentials, sources: ExtenderObjects
) -> ConnectedExtender:
    terms = terms_of(config)
    if config.url_prefix.startswith(GRPC):
        return GrpcExtender(config, terms, _channel(config, credentials), sources)
    from services.scheduler.extenders.http_call import HttpCaller  # noqa: PLC0415 - loaded when needed
    from services.scheduler.extenders.http_extender import HttpExtender  # noqa: PLC0415 - loaded when needed

    secure = config.url_prefix.startswith("https://")
    caller = HttpCaller(
        config.url_prefix,
        config.timeout_ns,
        context_of(credentials) if secure else None,
        credentials.server_name,
    )
    return HttpExtender(config, terms, caller, sources)


def _channel(config: ExtenderConfig, credentials: TlsCredentials) -> grpc.Channel:
    address = config.url_prefix.removeprefix(GRPC).rstrip("/")
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or "/" in address:
        raise UrlError("must be grpc://HOST:PORT")
    options: list[tuple[str, int | str]] = [*channel_options()]
    if not config.enable_https and not credentials.are_given:
        return grpc.insecure_channel(address, options=options)
    if credentials.server_name:
        options.append(("grpc.ssl_target_name_override", credentials.server_name))
    return grpc.secure_channel(address, channel_credentials(credentials), options=options)


def terms_of(config: ExtenderConfig) -> ExtenderTerms:
    """Return the configuration of an extender as the cycle uses it; this needs no connection."""
    return ExtenderTerms(
        name=config.url_prefix,
        filters=bool(config.filter_verb),
        prioritizes=bool(config.prioritize_verb),
        preempts=bool(config.preempt_verb),
        binds=bool(config.bind_verb),
        weight=config.weight,
        ignorable=config.ignorable,
        managed_resources=frozenset(resource.name for resource in config.managed_resources),
    )


class TlsError(ValueError):
    """A setting that cannot be used; `field` is its name, "" for all of them."""

    def __init__(self, field: str, text: str) -> None:
        super().__init__(text)
        self.field = field


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsCredentials:
    """PEM texts, empty where not set; inline data takes precedence over a file."""

    authority: bytes = b""
    certificate: bytes = b""
    key: bytes = b""
    server_name: str = ""
    insecure: bool = False

    @property
    def are_given(self) -> bool:
        """Return whether anything is set at all."""
        return bool(self.authority or self.certificate or self.server_name or self.insecure)


def credentials_of(config: ExtenderConfig, allowed: AllowedExtenders) -> TlsCredentials:
    """Read the settings, and the `allowed` files that they name. Raises TlsError.

    With enableHTTPS and no authority, the server's certificate is not verified, as upstream.
    """
    tls = config.tls
    authority = _pem("ca", tls.ca_data, tls.ca_file, allowed)
    certificate = _pem("cert", tls.cert_data, tls.cert_file, allowed)
    key = _pem("key", tls.key_data, tls.key_file, allowed)
    if bool(certificate) != bool(key):
        raise TlsError("", "a client certificate and its key go together")
    if tls.insecure and authority:
        text = "specifying a root certificates file with the insecure flag is not allowed"
        raise TlsError("insecure", text)
    return TlsCredentials(
        authority=authority,
        certificate=certificate,
        key=key,
        server_name=tls.server_name,
        insecure=tls.insecure or (config.enable_https and not authority),
    )


def context_of(credentials: TlsCredentials) -> ssl.SSLContext:
    """Return the TLS context of an https connection. Raises TlsError."""
    try:
        context = ssl.create_default_context(
            cadata=credentials.authority.decode("ascii") if credentials.authority else None
        )
        if credentials.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if credentials.certificate:
            _show(context, credentials)
    except (ssl.SSLError, UnicodeDecodeError, OSError) as error:
        raise TlsError("", f"holds no PEM that can be used: {error}") from None
    return context


def channel_credentials(credentials: TlsCredentials) -> grpc.ChannelCredentials:
    """Return the credentials of a gRPC channel. Raises TlsError for insecure ones."""
    if credentials.insecure:
        text = "gRPC always looks at the server's certificate: give its authority (caFile, caData)"
        raise TlsError("", text)
    return grpc.ssl_channel_credentials(
        credentials.authority or None, credentials.key or None, credentials.certificate or None
    )


def _show(context: ssl.SSLContext, credentials: TlsCredentials) -> None:
    """Load certificate and key, which the library reads from files only."""
    with tempfile.TemporaryDirectory() as folder:
        pair = Path(folder) / "pair.pem"
        pair.touch(mode=0o600)
        pair.write_bytes(credentials.key + b"\n" + credentials.certificate)
        context.load_cert_chain(pair)


def _pem(name: str, data: str, path: str, allowed: AllowedExtenders) -> bytes:
    if data:
        try:
            return base64.b64decode("".join(data.split()), validate=True)
        except (binascii.Error, ValueError):
            raise TlsError(f"{name}Data", "is not base64") from None
    if not path:
        return b""
    try:
        return allowed.read(path)
    except NotAllowedError as error:
        raise TlsError(f"{name}File", str(error)) from None
    except OSError as error:
        text = f"cannot be read: {error.strerror}"
        raise TlsError(f"{name}File", text) from None
