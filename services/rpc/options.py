"""The options of a service's command: address, access control, log and metrics."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from services.rpc.access import Access, AccessError, read_access
from services.rpc.listening import StartError, host_and_port
from services.rpc.timeouts import DEFAULT_TIMEOUTS, Timeouts, timeout_option
from services.telemetry.collector import Signal, TelemetryError, collector_of
from services.telemetry.logs import LEVELS, LogFormat


@dataclass(frozen=True, slots=True, kw_only=True)
class Listen:
    """The options of a listening service.

    address: host:port; port 0 takes a free port. access: TLS files and callers' rights. insecure:
    whether callers without an identity may reach the service from other machines. reflects: whether
    to serve reflection; None: only without TLS. grace_s: how long calls may take to end on SIGTERM.
    metrics: host:port for Prometheus, None for no metrics. log_level: the lowest level of our own
    records in the log. timeouts: of connections, and of calls to another service.
    """

    address: str
    access: Access = field(default_factory=Access)
    insecure: bool = False
    reflects: bool | None = None
    grace_s: float = 5.0
    watch_stdin: bool = False
    metrics: str | None = None
    log_level: str = "warning"
    log_format: LogFormat = LogFormat.TEXT
    timeouts: Timeouts = DEFAULT_TIMEOUTS

    @property
    def counts(self) -> bool:
        """Whether metrics are scraped or pushed. Raises StartError."""
        try:
            return bool(self.metrics) or collector_of(Signal.METRICS, os.environ) is not None
        except TelemetryError as error:
            raise StartError(str(error)) from None


_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def listen_options(port: int) -> _Decorator:
    """Add --listen, --metrics and the options of access to a command.

    The command receives one argument, `listen`.
    """

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        def with_listen(
            *,
            address: str,
            access_file: Path | None,
            tls_cert: Path | None,
            tls_key: Path | None,
            tls_client_ca: Path | None,
            insecure: bool,
            reflection: bool | None,
            grace: float,
            child: bool,
            metrics_address: str | None,
            log_level: str,
            log_format: str,
            timeouts: Timeouts,
            **rest: Any,
        ) -> Any:
            if (tls_cert is None) != (tls_key is None):
                raise click.UsageError("--tls-cert and --tls-key go together")
            if tls_client_ca is not None and tls_cert is None:
                raise click.UsageError("--tls-client-ca needs --tls-cert and --tls-key")
            if access_file is not None and tls_cert is not None:
                raise click.UsageError("--access cannot be combined with --tls-cert")
            host_and_port("--listen", address)
            if metrics_address:
                host_and_port("--metrics", metrics_address)
            access = Access(certificate=tls_cert, key=tls_key, authority=tls_client_ca)
            if access_file is not None:
                access = read_access(access_file)
                if access.certificate is None:
                    raise AccessError(f"{access_file}: certificate: is required for a service")
            listen = Listen(
                address=address,
                access=access,
                insecure=insecure,
                reflects=reflection,
                grace_s=grace,
                watch_stdin=child,
                metrics=metrics_address,
                log_level=log_level,
                log_format=LogFormat(log_format),
                timeouts=timeouts,
            )
            return command(listen=listen, **rest)

        functools.update_wrapper(with_listen, command)
        for option in reversed(_options(port)):
            with_listen = option(with_listen)
        return timeout_option()(with_listen)

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
        click.option(
            "--access",
            "access_file",
            type=_FILE,
            envvar="REPRIEVE_ACCESS",
            help="Access file: TLS, who may drive and who may look (docs/security.md).",
        ),
        click.option("--tls-cert", type=_FILE, help="PEM certificate; needs --tls-key."),
        click.option("--tls-key", type=_FILE, help="PEM private key."),
        click.option(
            "--tls-client-ca",
            type=_FILE,
            help="PEM authority of clients' certificates, which it requires.",
        ),
        click.option(
            "--insecure",
            is_flag=True,
            help="Serve other machines although callers show no identity.",
        ),
        click.option(
            "--reflection/--no-reflection",
            default=None,
            help="Whether gRPC reflection is served. Default: without TLS only.",
        ),
        click.option(
            "--grace",
            default=5.0,
            show_default=True,
            type=click.FloatRange(min=0),
            help="Seconds that running calls may take to end on SIGTERM.",
        ),
        click.option(
            "--metrics",
            "metrics_address",
            envvar="REPRIEVE_METRICS",
            metavar="HOST:PORT",
            help="Where to serve metrics for Prometheus, as GET /metrics. Default: nowhere.",
        ),
        click.option(
            "--log-level",
            type=click.Choice(LEVELS),
            default="warning",
            show_default=True,
            envvar="REPRIEVE_LOG_LEVEL",
            help="The least level of what is logged to standard error: info has sessions, debug "
            "has refused requests.",
        ),
        click.option(
            "--log-format",
            type=click.Choice([form.value for form in LogFormat]),
            default=LogFormat.TEXT.value,
            show_default=True,
            envvar="REPRIEVE_LOG_FORMAT",
            help="json: an object a line, with the ids of the request's trace.",
        ),
        click.option("--child", is_flag=True, hidden=True, help="End with standard input."),
    ]
