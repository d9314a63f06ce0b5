"""All services in this process, without sockets: the same servicers, the same messages.

So are the audit of another scheduler's decisions, and the parts of the autoscaler that have golden
vectors of their own; neither is a service.

Elsewhere services refer to each other by protos and addresses only; this module imports them.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

import grpc

from reprieve.autoscaler.v1beta1 import autoscaler_service_pb2_grpc
from reprieve.eviction.v1beta1 import eviction_service_pb2_grpc
from reprieve.queue.v1beta1 import queue_service_pb2_grpc
from reprieve.scheduler.v1beta1 import scheduler_pb2, scheduler_service_pb2_grpc
from services.rpc.errors import UnavailableError
from services.rpc.limits import UNLIMITED
from services.rpc.local import LocalServer
from services.rpc.server import interceptors
from services.rpc.version import package_version
from services.telemetry.service_spans import ServiceSpans

if TYPE_CHECKING:
    from services.scheduler.audit import PlacementAudit


@contextlib.contextmanager
def in_process(
    *,
    scheduler: bool,
    eviction: bool,
    autoscaler: bool = False,
    warms_up: bool,
    compiling: Callable[[int, int], None] = lambda _done, _all: None,
    extenders: Collection[str] = (),
    extender_files: Collection[str] = (),
) -> Iterator[dict[str, str]]:
    """Serve the scheduler with its queue, eviction, the autoscaler; yield their addresses by name.

    The scheduler calls `extenders`, whose TLS settings may name `extender_files`.

    With `warms_up` the scheduler's kernels are compiled, or loaded, before it serves; `compiling`
    receives how many of all were compiled, after each.
    Raises UnavailableError if an installed plugin cannot be loaded.
    """
    with contextlib.ExitStack() as stack:
        runner = stack.enter_context(asyncio.Runner())
        loop = runner.get_loop()

        def serve(name: str, register: Callable[[grpc.aio.Server], None]) -> str:
            spans = ServiceSpans.from_environment(name, package_version())
            stack.callback(spans.close)
            server = LocalServer(loop, interceptors(spans, UNLIMITED))
            stack.callback(server.close)
            register(cast("grpc.aio.Server", server))
            return server.address

        addresses = {}
        if scheduler:
            addresses["queue"] = serve("queue", _queue)
            queue = addresses["queue"]
            if warms_up:
                _warm_up(compiling)

            def register_scheduler(server: grpc.aio.Server) -> None:
                _scheduler(server, queue, extenders, extender_files)

            addresses["scheduler"] = serve("scheduler", register_scheduler)
        if eviction:
            addresses["eviction"] = serve("eviction", _eviction)
        if autoscaler:
            addresses["autoscaler"] = serve("autoscaler", _autoscaler)
        yield addresses


def autoscaler_parts() -> Mapping[str, Callable[[dict[str, Any]], dict[str, Any]]]:
    """Return "estimate" and "expander": what they decide for a golden vector, both as JSON."""
    from services.autoscaler.estimates import chosen, estimated  # noqa: PLC0415 - numba

    return {"estimate": estimated, "expander": chosen}


def placement_audit(
    config: scheduler_pb2.SchedulerConfig, scheduler_names: Collection[str]
) -> PlacementAudit:
    """Return the audit of a session that has that configuration and takes pods of those names.

    Installed plugins are loaded.

    Raises UnavailableError if one cannot be loaded, and FieldError for a configuration that our
    scheduler would refuse.
    """
    from services.scheduler import out_of_tree  # noqa: PLC0415 - when needed
    from services.scheduler.audit import PlacementAudit  # noqa: PLC0415 - when needed

    plugins = os.environ.get(out_of_tree.PLUGINS_VARIABLE, "").split()
    try:
        return PlacementAudit(config, scheduler_names, plugins)
    except out_of_tree.PluginLoadError as error:
        raise UnavailableError(str(error)) from error


def _queue(server: grpc.aio.Server) -> None:
    from services.queue.servicer import QueueServicer  # noqa: PLC0415 - when needed

    servicer = QueueServicer(UNLIMITED)
    queue_service_pb2_grpc.add_QueueServiceServicer_to_server(servicer, server)


def _scheduler(
    server: grpc.aio.Server,
    queue_address: str,
    extenders: Collection[str],
    extender_files: Collection[str],
) -> None:
    from services.scheduler import out_of_tree  # noqa: PLC0415 - when needed
    from services.scheduler.extenders.allowed import AllowedExtenders  # noqa: PLC0415 - when needed
    from services.scheduler.queue_client import QueueLink  # noqa: PLC0415 - when needed
    from services.scheduler.servicer import SchedulerServicer  # noqa: PLC0415

    try:
        named = os.environ.get(out_of_tree.PLUGINS_VARIABLE, "").split()
        registry = out_of_tree.registry_with(named)
    except out_of_tree.PluginLoadError as error:
        raise UnavailableError(str(error)) from error
    servicer = SchedulerServicer(
        QueueLink(queue_address),
        registry=registry,
        allowed=AllowedExtenders(extenders, extender_files),
        limits=UNLIMITED,
    )
    scheduler_service_pb2_grpc.add_SchedulerServiceServicer_to_server(servicer, server)


def _warm_up(compiling: Callable[[int, int], None]) -> None:
    from services.scheduler.core.session.warm_up import warm_up  # noqa: PLC0415 - when needed

    warm_up(compiling)


def _eviction(server: grpc.aio.Server) -> None:
    from services.eviction.servicer import EvictionServicer  # noqa: PLC0415 - when needed

    eviction_service_pb2_grpc.add_EvictionServiceServicer_to_server(
        EvictionServicer(UNLIMITED), server
    )


def _autoscaler(server: grpc.aio.Server) -> None:
    from services.autoscaler.servicer import AutoscalerServicer  # noqa: PLC0415 - when needed

    autoscaler_service_pb2_grpc.add_AutoscalerServiceServicer_to_server(
        AutoscalerServicer(UNLIMITED), server
    )
