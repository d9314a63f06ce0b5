"""Runs a service: listen, report the address, health checks and reflection, drain on SIGTERM.

Every service starts through `serve` with the options of `listen_options`, so TLS, identities and
shutdown are the same everywhere. A problem that prevents the start is reported in one line. gRPC's
limits apply to messages; the contract keeps messages smaller (services/rpc/parts.py). A service
that was started as a child (`watch_stdin`) ends when its parent's end of standard input is closed,
so a killed replay leaves no process behind.
"""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import sys
from collections.abc import Awaitable, Callable, Iterable
from itertools import chain
from typing import TYPE_CHECKING

import click
import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2

from services.garbage import calm
from services.rpc.access import AccessError
from services.rpc.credentials import server_credentials
from services.rpc.identity import AccessInterceptor, policy_of
from services.rpc.interceptors.call_metrics import CallMetrics
from services.rpc.interceptors.statuses import RefusalInterceptor
from services.rpc.interceptors.tracing import SpanInterceptor
from services.rpc.limits import DEFAULT_LIMITS, Limits
from services.rpc.listening import ListenError, StartError, check_can_listen, is_loopback
from services.rpc.options import Listen
from services.rpc.parts import ACCEPTED_BYTES_MAX
from services.rpc.prometheus import Collect, process, serve_metrics
from services.rpc.timeouts import Timeouts
from services.rpc.version import package_version
from services.telemetry.collector import Signal, TelemetryError, collector_of
from services.telemetry.logs import LogFormat, set_up_logs
from services.telemetry.service_spans import ServiceSpans

_REFLECTION = "grpc.reflection.v1.ServerReflection"


if TYPE_CHECKING:
    from prometheus_client import Metric

    from services.telemetry.metrics_push import MetricsPush

Register = Callable[[grpc.aio.Server], None]
Watch = Callable[[Callable[[bool], Awaitable[None]]], Awaitable[None]]
"""Calls its argument with True or False whenever a dependency starts or stops responding."""


async def serve(
    service: str,
    full_name: str,
    register: Register,
    listen: Listen,
    collect: Collect,
    *,
    limits: Limits = DEFAULT_LIMITS,
    watch: Watch | None = None,
) -> None:
    """Run a service until SIGTERM or SIGINT (or the end of standard input, if watched).

    `service` is the short name for users, `full_name` the name of the proto service, for health
    checks. `watch` reports whether a service that this one depends on responds; while it does not,
    the health of `full_name` is NOT_SERVING. `collect` describes the metrics of the service. When
    the service listens, one line is printed, `reprieve NAME listening on HOST:PORT`, on standard
    output. Raises AccessError and StartError before anything is started.
    """
    credentials, gate = _entrance(service, listen)
    _allow_connections()
    stop = _stop_event(watch_stdin=listen.watch_stdin)
    version = package_version()
    try:
        set_up_logs(listen.log_level, listen.log_format)
        close_logs = _push_logs(version, service)
        marks_logs = listen.log_format is LogFormat.JSON
        spans = ServiceSpans.from_environment(service, version, marks_logs=marks_logs)
    except TelemetryError as error:
        raise StartError(str(error)) from None
    calls = [CallMetrics()] if listen.counts else []
    server = grpc.aio.server(
        interceptors=[*calls, *gate, *interceptors(spans, limits)],
        options=server_options(limits, listen.timeouts),
    )
    register(server)
    sources = (collect, *(counts.collect for counts in calls), process)

    def collect_all() -> Iterable[Metric]:
        return chain(*(source() for source in sources))

    if listen.metrics:
        await serve_metrics(listen.metrics, collect_all)
    push = _push(collect_all, version, service)
    checks = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(checks, server)
    if listen.reflects if listen.reflects is not None else credentials is None:
        _reflect((full_name, health.SERVICE_NAME), server)
    calm()
    port = _bind(server, listen.address, credentials)
    await server.start()
    for name in ("", full_name):
        await checks.set(name, health_pb2.HealthCheckResponse.SERVING)
    host = listen.address.rpartition(":")[0]
    print(f"reprieve {service} listening on {host}:{port}", flush=True)  # noqa: T201 - its protocol
    watching = asyncio.ensure_future(_watch(watch, checks, full_name)) if watch else None
    await stop.wait()
    if watching is not None:
        watching.cancel()
    await checks.enter_graceful_shutdown()
    await server.stop(listen.grace_s)
    if push is not None:
        await push.close()
    spans.close()
    close_logs()


def _push_logs(version: str, service: str) -> Callable[[], None]:
    """Start to send the log to a collector, if the variables name one; return a stop function."""
    collector = collector_of(Signal.LOGS, os.environ)
    if collector is None:
        return lambda: None
    from services.telemetry import logs_push  # noqa: PLC0415 - when needed

    return logs_push.start(collector, version, service)


def _push(collect: Collect, version: str, service: str) -> MetricsPush | None:
    """Start to send metrics to a collector, if the variables name one. Raises StartError."""
    collector = collector_of(Signal.METRICS, os.environ)
    if collector is None:
        return None
    from services.telemetry.metrics_push import MetricsPush  # noqa: PLC0415 - when needed

    try:
        return MetricsPush.start(collector, collect, version, service)
    except TelemetryError as error:
        raise StartError(str(error)) from None


def _reflect(names: tuple[str, ...], server: grpc.aio.Server) -> None:
    """Serve reflection under its current and its former name; both have the same messages."""
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


async def _watch(watch: Watch, checks: health.aio.HealthServicer, full_name: str) -> None:
    async def report(responds: bool) -> None:
        states = health_pb2.HealthCheckResponse
        await checks.set(full_name, states.SERVING if responds else states.NOT_SERVING)

    await watch(report)


_PING_INTERVAL_MS_MIN = 100
"""A caller that pings more often is disconnected; a short --timeout keepalive must be possible."""
_METADATA_BYTES_MAX = 8192
"""Limit for a call's metadata; a token and a trace context take less. HPACK can expand few bytes to
many.
"""
_HANDSHAKE_MS, _IDLE_MS = 10_000, 60_000
"""How long a handshake may take, and how long a connection may be idle; clients reconnect."""
_UNARY_CALLS = 128
_FILES_MAX = 65536


def server_options(limits: Limits, timeouts: Timeouts) -> list[tuple[str, int]]:
    """Return gRPC's options, which bound the cost of a connection before its caller is identified.

    Half-open connections are detected, and idle ones closed. Messages above the limit are refused
    by name; gRPC itself refuses messages four times larger than the limit. The number of streams of
    a connection allows one for each session of its caller, and some other calls.
    """
    streams = limits.caller_sessions + _UNARY_CALLS if limits.caller_sessions else 0
    return [
        ("grpc.so_reuseport", 0),
        *([("grpc.max_concurrent_streams", streams)] if streams else []),
        ("grpc.max_metadata_size", _METADATA_BYTES_MAX),
        ("grpc.absolute_max_metadata_size", _METADATA_BYTES_MAX),
        ("grpc.server_handshake_timeout_ms", _HANDSHAKE_MS),
        ("grpc.max_connection_idle_ms", _IDLE_MS),
        ("grpc.max_receive_message_length", 4 * (limits.message_bytes or ACCEPTED_BYTES_MAX)),
        *timeouts.keepalive_options,
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", _PING_INTERVAL_MS_MIN),
    ]


def _allow_connections() -> None:
    """Raise the soft limit of open files: each connection is one, and 1,024 are soon used up."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _FILES_MAX if hard == resource.RLIM_INFINITY else min(hard, _FILES_MAX)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def interceptors(
    spans: ServiceSpans, limits: Limits = DEFAULT_LIMITS
) -> list[grpc.aio.ServerInterceptor]:
    """Return the interceptors of every method; spans are made only if there is a collector."""
    timing = [SpanInterceptor(spans)] if spans.are_needed else []
    return [*timing, RefusalInterceptor(limits.message_bytes)]


def _entrance(
    service: str, listen: Listen
) -> tuple[grpc.ServerCredentials | None, list[grpc.aio.ServerInterceptor]]:
    """Return a service's TLS credentials (None without TLS) and the check of callers, if any."""
    access = listen.access
    for option, address in (("--listen", listen.address), ("--metrics", listen.metrics)):
        if address:
            check_can_listen(option, address)
    policy = policy_of(service, access)
    if policy is None and not is_loopback(listen.address):
        _check_open(listen)
    credentials = server_credentials(access) if access.certificate else None
    return credentials, [AccessInterceptor(service, policy)] if policy else []


def _check_open(listen: Listen) -> None:
    """Warn if everyone may use the service; raise AccessError unless `insecure` is set."""
    where = f"--listen {listen.address}: other machines reach it, and callers show no identity"
    if not listen.insecure:
        raise AccessError(
            f"{where}: use --access, or --tls-cert, --tls-key and --tls-client-ca; or listen on "
            f"127.0.0.1; or pass --insecure"
        )
    plain = "" if listen.access.certificate else ", without TLS"
    click.echo(f"Warning: {where}{plain} (--insecure)", err=True)


def _bind(server: grpc.aio.Server, address: str, credentials: grpc.ServerCredentials | None) -> int:
    try:
        if credentials is None:
            return server.add_insecure_port(address)
        return server.add_secure_port(address, credentials)
    except RuntimeError as error:
        raise ListenError(f"--listen {address}: {error}") from None


def _stop_event(*, watch_stdin: bool) -> asyncio.Event:
    """Return an event that is set by SIGTERM, SIGINT, or the end of standard input."""
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
