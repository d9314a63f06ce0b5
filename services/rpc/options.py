"""Command-line options that every service shares."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from services.rpc.server import Listen

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


def listen_options(port: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add --listen and the TLS options to a command; it receives one argument, `listen`."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        def with_listen(
            address: str,
            tls_cert: Path | None,
            tls_key: Path | None,
            tls_client_ca: Path | None,
            grace: float,
            child: bool,
            **rest: Any,
        ) -> Any:
            if (tls_cert is None) != (tls_key is None):
                raise click.UsageError("--tls-cert and --tls-key go together")
            if tls_client_ca is not None and tls_cert is None:
                raise click.UsageError("--tls-client-ca needs --tls-cert and --tls-key")
            listen = Listen(
                address=address,
                certificate=tls_cert,
                key=tls_key,
                client_ca=tls_client_ca,
                grace_s=grace,
                watch_stdin=child,
            )
            return command(listen=listen, **rest)

        functools.update_wrapper(with_listen, command)
        for option in reversed(_options(port)):
            with_listen = option(with_listen)
        return with_listen

    return decorate


def _options(port: int) -> list[Callable[[Callable[..., Any]], Callable[..., Any]]]:
    return [
        click.option(
            "--listen",
            "address",
            default=f"127.0.0.1:{port}",
            show_default=True,
            envvar="REPRIEVE_LISTEN",
            metavar="HOST:PORT",
            help="Where to listen; port 0 takes a free one. 0.0.0.0 listens on every address.",
        ),
        click.option("--tls-cert", type=_FILE, help="PEM certificate; needs --tls-key."),
        click.option("--tls-key", type=_FILE, help="PEM private key."),
        click.option("--tls-client-ca", type=_FILE, help="PEM authority that clients must show."),
        click.option(
            "--grace",
            default=5.0,
            show_default=True,
            help="Seconds that running calls may take to end on SIGTERM.",
        ),
        click.option("--child", is_flag=True, hidden=True, help="End with standard input."),
    ]
