"""Channels to services, with TLS or without.

They send no keep-alive: gRPC servers close a connection with more than one ping in five minutes.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import click
import grpc

from services.rpc.local import AsyncLocalChannel, LocalChannel, LocalStream, local_server

CHANNEL_OPTIONS: list[tuple[str, int]] = [("grpc.enable_http_proxy", 0)]
"""Options of every channel. Proxies in the environment are not used for services."""
_PEM = click.Path(exists=True, dir_okay=False, path_type=Path)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientTls:
    """PEM files: the authority of the server's certificate, and the client's own pair, if any.

    Without an authority the channel does not use TLS.
    """

    authority: Path | None = None
    certificate: Path | None = None
    key: Path | None = None


PLAIN = ClientTls()


def channel(address: str, tls: ClientTls = PLAIN) -> grpc.Channel:
    """Return a channel to HOST:PORT, or to a server of this process (services/rpc/local.py).

    Raises OSError where a PEM file cannot be read.
    """
    local = local_server(address)
    if local is not None:
        return cast("grpc.Channel", LocalChannel(local))
    if tls.authority is None:
        return grpc.insecure_channel(address, options=CHANNEL_OPTIONS)
    return grpc.secure_channel(address, _credentials(tls), options=CHANNEL_OPTIONS)


def aio_channel(address: str, tls: ClientTls = PLAIN) -> grpc.aio.Channel:
    """Return what `channel` does, for asyncio."""
    local = local_server(address)
    if local is not None:
        return cast("grpc.aio.Channel", AsyncLocalChannel(local))
    if tls.authority is None:
        return grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS)
    return grpc.aio.secure_channel(address, _credentials(tls), options=CHANNEL_OPTIONS)


def with_deadline(stream: Any, seconds: float) -> Any:
    """Return the stream; `read` raises TimeoutError after so many seconds.

    A stream within this process does not wait.
    """
    return stream if isinstance(stream, LocalStream) else _Timed(stream, seconds)


class _Timed:
    """A stream whose responses have a deadline."""

    def __init__(self, call: Any, seconds: float) -> None:
        self._call = call
        self._seconds = seconds

    async def read(self) -> Any:
        async with asyncio.timeout(self._seconds):
            return await self._call.read()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._call, name)


def tls_options(prefix: str, server: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add --PREFIXtls-ca, -cert and -key to a command, which receives one argument, `tls`.

    `server` names the server in the help.
    """

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        def with_tls(
            shown_ca: Path | None, shown_cert: Path | None, shown_key: Path | None, **rest: Any
        ) -> Any:
            if (shown_cert is None) != (shown_key is None):
                raise click.UsageError(f"--{prefix}tls-cert and --{prefix}tls-key go together")
            if shown_cert is not None and shown_ca is None:
                raise click.UsageError(f"--{prefix}tls-cert needs --{prefix}tls-ca")
            tls = ClientTls(authority=shown_ca, certificate=shown_cert, key=shown_key)
            return command(tls=tls, **rest)

        functools.update_wrapper(with_tls, command)
        for name, parameter, text in reversed(
            (
                ("tls-ca", "shown_ca", f"PEM authority of {server}; without it, no TLS."),
                ("tls-cert", "shown_cert", f"PEM certificate to show; needs --{prefix}tls-key."),
                ("tls-key", "shown_key", "PEM private key."),
            )
        ):
            with_tls = click.option(f"--{prefix}{name}", parameter, type=_PEM, help=text)(with_tls)
        return with_tls

    return decorate


def _credentials(tls: ClientTls) -> grpc.ChannelCredentials:
    assert tls.authority is not None  # noqa: S101 - the callers have looked
    return grpc.ssl_channel_credentials(
        tls.authority.read_bytes(),
        tls.key.read_bytes() if tls.key else None,
        tls.certificate.read_bytes() if tls.certificate else None,
    )
