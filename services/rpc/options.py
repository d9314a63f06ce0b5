"""Command-line options that every service shares."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from services.rpc.server import Listen

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]
_METRICS: _Decorator = click.option(
    "--metrics",
    "metrics_address",
    metavar="HOST:PORT",
    help="Where to show metrics to Prometheus, as GET /metrics. Nowhere unless given.",
)


def listen_options(port: int, *, metrics: bool = False) -> _Decorator:
    """Add --listen, the TLS options and, where asked for, --metrics to a command.

    It receives one argument, `listen`.
    """

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        def with_listen(
            address: str,
            tls_cert: Path | None,
            tls_key: Path | None,
            tls_client_ca: Path | None,
            grace: float,
            child: bool,
            metrics_address: str | None = None,
            **rest: Any,
        ) -> Any:
            if (tls_cert is None) != (tls_key is None):
                raise click.UsageError("--tls-cert and --tls-key go together")
            if tls_client_ca is not None and tls_cert is None:
                raise click.UsageError("--tls-client-ca needs --tls-cert and --tls-key")
            if metrics_address and not metrics_address.rpartition(":")[2].isdecimal():
                raise click.UsageError(f"--metrics: {metrics_address!r} is not HOST:PORT")
            listen = Listen(
                address=address,
                certificate=tls_cert,
                key=tls_key,
                client_ca=tls_client_ca,
                grace_s=grace,
                watch_stdin=child,
                metrics=metrics_address,
            )
            return command(listen=listen, **rest)

        functools.update_wrapper(with_listen, command)
        for option in reversed([*_options(port), _METRICS] if metrics else _options(port)):
            with_listen = option(with_listen)
        return with_listen

    return decorate


def _options(port: int) -> list[_Decorator]:
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
