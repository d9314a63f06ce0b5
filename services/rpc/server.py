"""A service's life: listen, report the address, health checks and reflection, drain on SIGTERM.

Every service starts through `serve` with the options of `listen_options`, so that TLS, keep-alive
and shutdown are the same everywhere. Messages have gRPC's own limits, and the contract keeps them
smaller (services/rpc/parts.py). Started as a child (`watch_stdin`), a service ends when its parent
closes its end of standard input, so that no process is left behind by a killed replay.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2

from services.rpc.errors import RefusalInterceptor
from services.rpc.prometheus import serve_metrics
from services.rpc.tracing import SpanInterceptor
from services.rpc.version import package_version
from services.telemetry.service_spans import ServiceSpans

_REFLECTION = "grpc.reflection.v1.ServerReflection"


@dataclass(frozen=True, slots=True, kw_only=True)
class Listen:
    """Where and how a service listens; `address` is host:port, port 0 takes a free one.

    With `certificate` and `key` (PEM files) it uses TLS only, with `client_ca` it requires of
    clients a certificate of that authority. `grace_s` limits how long calls may take to end on
    SIGTERM. `metrics` is host:port for Prometheus, None for no metrics.
    """

    address: str
    certificate: Path | None = None
    key: Path | None = None
    client_ca: Path | None = None
    grace_s: float = 5.0
    watch_stdin: bool = False
    metrics: str | None = None


Register = Callable[[grpc.aio.Server], None]


async def serve(
    service: str,
    full_name: str,
    register: Register,
    listen: Listen,
    metrics_text: Callable[[], str] = str,
) -> None:
    """Run a service until SIGTERM or SIGINT (or the end of standard input, if watched).

    `service` is its short name for people, `full_name` the proto service's, for health checks.
    Once it listens it prints one line, `reprieve NAME listening on HOST:PORT`, on standard output.
    """
    stop = _stop_event(watch_stdin=listen.watch_stdin)
    spans = ServiceSpans.from_environment(service, package_version())
    server = grpc.aio.server(interceptors=interceptors(spans), options=[("grpc.so_reuseport", 0)])
    register(server)
    if listen.metrics:
        await serve_metrics(listen.metrics, metrics_text)
    checks = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(checks, server)
    _reflect((full_name, health.SERVICE_NAME), server)
    calm()
    port = _bind(server, listen)
    await server.start()
    for name in ("", full_name):
        await checks.set(name, health_pb2.HealthCheckResponse.SERVING)
    host = listen.address.rpartition(":")[0]
    print(f"reprieve {service} listening on {host}:{port}", flush=True)  # noqa: T201 - its protocol
    await stop.wait()
    await checks.enter_graceful_shutdown()
    await server.stop(listen.grace_s)
    spans.close()


def _reflect(names: tuple[str, ...], server: grpc.aio.Server) -> None:
    """Serve reflection under its current name and its former one; the messages are equal."""
    former = reflection.SERVICE_NAME
    reflection.enable_server_reflection((*names, former, _REFLECTION), server)
    servicer = reflection.aio.ReflectionServicer((*names, former, _REFLECTION))
    handler = grpc.stream_stream_rpc_method_handler(
        servicer.ServerReflectionInfo,
        request_deserializer=reflection_pb2.ServerReflectionRequest.FromString,
        response_serializer=reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    handlers = {"ServerReflectionInfo": handler}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_REFLECTION, handlers),))


def interceptors(spans: ServiceSpans) -> list[grpc.aio.ServerInterceptor]:
    """Return the interceptors of every method; the one that makes spans only with a collector."""
    timing = [SpanInterceptor(spans)] if spans.are_kept else []
    return [*timing, RefusalInterceptor()]


def _bind(server: grpc.aio.Server, listen: Listen) -> int:
    if listen.certificate is None or listen.key is None:
        return server.add_insecure_port(listen.address)
    pair = (listen.key.read_bytes(), listen.certificate.read_bytes())
    authority = listen.client_ca.read_bytes() if listen.client_ca else None
    credentials = grpc.ssl_server_credentials(
        [pair], root_certificates=authority, require_client_auth=authority is not None
    )
    return server.add_secure_port(listen.address, credentials)


def _stop_event(*, watch_stdin: bool) -> asyncio.Event:
    """Return the event that SIGTERM, SIGINT, or the end of standard input, sets."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if watch_stdin:
        loop.add_reader(sys.stdin.fileno(), lambda: _read_or_stop(stop))
    return stop


def _read_or_stop(stop: asyncio.Event) -> None:
    if not os.read(sys.stdin.fileno(), 4096):
        asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
        stop.set()


def calm(young: int = 100_000) -> None:
    """Exclude all present objects from garbage collection, and collect far less often.

    With the defaults the collector visits all pods again and again while they are added, and finds
    nothing. `young` is the threshold of its youngest generation. A service makes some reference
    cycles with each refusal and each call of its own; a replay makes none.
    """
    gc.freeze()
    gc.set_threshold(young, 50, 100)


_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]
_METRICS: _Decorator = click.option(
    "--metrics",
    "metrics_address",
    metavar="HOST:PORT",
    help="Where to serve metrics for Prometheus, as GET /metrics. Default: nowhere.",
)


def listen_options(port: int, *, metrics: bool = False) -> _Decorator:
    """Add --listen, the TLS options and, with `metrics`, --metrics to a command.

    The command receives one argument, `listen`.
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
        click.option(
            "--tls-client-ca",
            type=_FILE,
            help="PEM authority of clients' certificates, which it requires.",
        ),
        click.option(
            "--grace",
            default=5.0,
            show_default=True,
            help="Seconds that running calls may take to end on SIGTERM.",
        ),
        click.option("--child", is_flag=True, hidden=True, help="End with standard input."),
    ]
