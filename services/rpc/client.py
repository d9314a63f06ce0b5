"""Channels to services, with TLS or without.

They send keep-alive pings during calls, to detect a connection whose other end has disappeared.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import click
import grpc

from services.rpc.access import PLAIN, AccessError, ClientTls, read_access
from services.rpc.credentials import client_files
from services.rpc.listening import check_can_connect, is_loopback
from services.rpc.local import AsyncLocalChannel, LocalChannel, local_server
from services.rpc.parts import MESSAGE_BYTES_MAX
from services.rpc.timeouts import DEFAULT_TIMEOUTS, Timeouts, timeout_option


def channel_options(timeouts: Timeouts = DEFAULT_TIMEOUTS) -> list[tuple[str, int]]:
    """Return the options of every channel.

    Proxies in the environment are not used for services. Channels do not share connections, so a
    channel that is opened after a loss does not reuse the dead connection.
    """
    options = [("grpc.enable_http_proxy", 0), ("grpc.use_local_subchannel_pool", 1)]
    return [*options, *timeouts.keepalive_options]


_RECEIVE = ("grpc.max_receive_message_length", 16 * MESSAGE_BYTES_MAX)
"""Above our limit, so that services/rpc/responses.py can report a response that is too large; gRPC
would only end the call with RESOURCE_EXHAUSTED."""
_PEM = click.Path(exists=True, dir_okay=False, path_type=Path)


def channel(address: str, tls: ClientTls = PLAIN) -> grpc.Channel:
    """Return a channel to HOST:PORT, or to a server of this process (services/rpc/local.py).

    Files are read now, tokens at each call. Raises StartError for an address of another form;
    AccessError for an unusable file, and for plaintext to another machine without `insecure`.
    """
    local = local_server(address)
    if local is not None:
        return cast("grpc.Channel", LocalChannel(local))
    check_can_connect(address)
    options = [*channel_options(tls.timeouts), _RECEIVE]
    if tls.authority is None:
        check_plaintext(address, tls)
        return grpc.insecure_channel(address, options=options)
    return grpc.secure_channel(address, client_files(tls).current(), options=options)


class LastingChannel:
    """The asyncio channel to one server, for the whole life of a process.

    When TLS files change, the channel is replaced. Former channels stay open for their calls, at
    most KEPT of them.
    """

    KEPT = 8

    def __init__(self, address: str, tls: ClientTls = PLAIN) -> None:
        self._address = address
        self._local = local_server(address)
        self._options = [*channel_options(tls.timeouts), _RECEIVE]
        self._files = None if tls.authority is None or self._local else client_files(tls)
        if self._files is None and self._local is None:
            check_plaintext(address, tls)
        self._credentials = self._files.current() if self._files else None
        self._channels = [self._open()]

    def current(self) -> grpc.aio.Channel:
        """Return the channel for a new call."""
        if self._files is not None:
            credentials = self._files.current()
            if credentials is not self._credentials:
                self._credentials = credentials
                self._channels.append(self._open())
                del self._channels[: -self.KEPT]
        return self._channels[-1]

    def _open(self) -> grpc.aio.Channel:
        if self._local is not None:
            return cast("grpc.aio.Channel", AsyncLocalChannel(self._local))
        if self._credentials is None:
            return grpc.aio.insecure_channel(self._address, options=self._options)
        return grpc.aio.secure_channel(self._address, self._credentials, options=self._options)

    async def close(self) -> None:
        """Close all channels."""
        for channel in self._channels:
            await channel.close()


def check_plaintext(address: str, tls: ClientTls) -> None:
    """Warn of plaintext to another machine; raise AccessError without `insecure`."""
    if is_loopback(address):
        return
    if not tls.insecure:
        raise AccessError(
            f"{address}: is on another machine, and the connection would not be encrypted: use "
            f"TLS (--access or --tls-ca, for a scheduler's queue --queue-tls-ca), or --insecure"
        )
    _warn_of_plaintext(address)


@functools.cache
def _warn_of_plaintext(address: str) -> None:
    text = "everything that is sent can be read and changed on the way (--insecure)"
    click.echo(f"Warning: {address}: no TLS: {text}", err=True)


def tls_options(
    prefix: str, server: str, *, timeouts: Timeouts | None = DEFAULT_TIMEOUTS
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add --PREFIXtls-ca, -cert and -key to a command, which receives one argument, `tls`.

    `server` names the server in the help. Without a prefix, --access and --insecure are added, too,
    and --timeout, with the defaults in `timeouts`.
    """

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        def with_tls(
            shown_ca: Path | None,
            shown_cert: Path | None,
            shown_key: Path | None,
            client_access: Path | None = None,
            client_insecure: bool = False,
            timeouts: Timeouts = timeouts or DEFAULT_TIMEOUTS,
            **rest: Any,
        ) -> Any:
            if (shown_cert is None) != (shown_key is None):
                raise click.UsageError(f"--{prefix}tls-cert and --{prefix}tls-key go together")
            if shown_cert is not None and shown_ca is None:
                raise click.UsageError(f"--{prefix}tls-cert needs --{prefix}tls-ca")
            if client_access is not None and shown_ca is not None:
                raise click.UsageError("--access cannot be combined with --tls-ca")
            if client_access is not None:
                tls = read_access(client_access).client(insecure=client_insecure)
            else:
                tls = ClientTls(
                    authority=shown_ca,
                    certificate=shown_cert,
                    key=shown_key,
                    insecure=client_insecure,
                )
            return command(tls=replace(tls, timeouts=timeouts), **rest)

        functools.update_wrapper(with_tls, command)
        for option in reversed(_options(prefix, server)):
            with_tls = option(with_tls)
        return timeout_option(timeouts)(with_tls) if timeouts and not prefix else with_tls

    return decorate


def _options(prefix: str, server: str) -> list[Callable[[Callable[..., Any]], Callable[..., Any]]]:
    shown = f"PEM certificate to show; needs --{prefix}tls-key."
    wrappers: list[Callable[[Callable[..., Any]], Callable[..., Any]]] = [
        click.option(
            f"--{prefix}tls-ca",
            "shown_ca",
            type=_PEM,
            help=f"PEM authority of {server}; without it, no TLS.",
        ),
        click.option(f"--{prefix}tls-cert", "shown_cert", type=_PEM, help=shown),
        click.option(f"--{prefix}tls-key", "shown_key", type=_PEM, help="PEM private key."),
    ]
    if prefix:
        return wrappers
    return [
        click.option(
            "--access",
            "client_access",
            type=_PEM,
            envvar="REPRIEVE_ACCESS",
            help=f"Access file: TLS for {server}, and who calls (docs/security.md).",
        ),
        *wrappers,
        click.option(
            "--insecure",
            "client_insecure",
            is_flag=True,
            help=f"Connect to {server} without TLS on other machines, too.",
        ),
    ]
