"""`python -m services.scheduler`: the scheduler alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import click
import grpc

from reprieve.scheduler.v1beta1 import scheduler_service_pb2_grpc
from services.rpc.access import Access, ClientTls
from services.rpc.client import tls_options
from services.rpc.limits import Limits, limit_options
from services.rpc.listening import StartError, host_and_port
from services.rpc.options import Listen, listen_options
from services.rpc.server import serve
from services.scheduler.core.session.warm_up import warm_up
from services.scheduler.extenders.allowed import AllowedExtenders
from services.scheduler.metrics import SchedulerMetrics
from services.scheduler.out_of_tree import PLUGINS_VARIABLE, PluginLoadError, registry_with
from services.scheduler.queue_client import QueueLink
from services.scheduler.servicer import SchedulerServicer
from services.terminal import echo

FULL_NAME = "reprieve.scheduler.v1beta1.SchedulerService"


@click.command()
@click.option(
    "--queue",
    "queue_address",
    default="127.0.0.1:50051",
    show_default=True,
    envvar="REPRIEVE_QUEUE",
    metavar="HOST:PORT",
    help="Address of the scheduling queue service.",
)
@click.option(
    "--plugin",
    "plugins",
    multiple=True,
    envvar=PLUGINS_VARIABLE,
    metavar="MODULE:NAME",
    help="An out-of-tree plugin that profiles may name, beside those that are installed.",
)
@click.option(
    "--extender",
    "extenders",
    multiple=True,
    envvar="REPRIEVE_EXTENDERS",
    metavar="URL_PREFIX",
    help="An extender that sessions' configurations may list, by its urlPrefix; '*' allows every "
    "address. Default: no extender is called.",
)
@click.option(
    "--extender-file",
    "extender_files",
    multiple=True,
    envvar="REPRIEVE_EXTENDER_FILES",
    metavar="PATH",
    help="A PEM file that an extender's tlsConfig may name, written as there.",
)
@click.option(
    "--warm-up/--no-warm-up",
    "warms_up",
    default=True,
    show_default=True,
    help="Whether to load compiled kernels before the first pod comes. A small cluster needs none.",
)
@tls_options("queue-", "the queue")
@limit_options
@listen_options(50052)
def main(
    *,
    queue_address: str,
    plugins: tuple[str, ...],
    extenders: tuple[str, ...],
    extender_files: tuple[str, ...],
    warms_up: bool,
    tls: ClientTls,
    listen: Listen,
    limits: Limits,
) -> None:
    """Run the scheduler service: it binds pods to nodes, and preempts others.

    It needs a scheduling queue service. With --access, the file is for the queue, too:

    \b
      reprieve serve queue --listen 127.0.0.1:50051
      reprieve serve scheduler --queue 127.0.0.1:50051
    """
    try:
        registry = registry_with(plugins)
    except PluginLoadError as error:
        raise StartError(str(error)) from None
    host_and_port("--queue", queue_address)
    shared = listen.access if listen.access.source else Access()
    queue_access = tls if tls.authority else shared.client(insecure=listen.insecure)
    queue_access = replace(queue_access, timeouts=listen.timeouts)
    link = partial(QueueLink, queue_address, queue_access)
    metrics = SchedulerMetrics() if listen.counts else None
    servicer = partial(
        SchedulerServicer,
        registry=registry,
        allowed=AllowedExtenders(extenders, extender_files),
        limits=limits,
        metrics=metrics,
    )
    asyncio.run(_serve(link, servicer, listen, limits, warms_up=warms_up))


async def _serve(
    connect: Callable[[], QueueLink],
    servicer: Callable[[QueueLink], SchedulerServicer],
    listen: Listen,
    limits: Limits,
    *,
    warms_up: bool,
) -> None:
    link = connect()
    scheduler = servicer(link)

    def register(server: grpc.aio.Server) -> None:
        if warms_up:
            warm_up(_compiling(to_parent=listen.watch_stdin))
        scheduler_service_pb2_grpc.add_SchedulerServiceServicer_to_server(scheduler, server)

    await serve(
        "scheduler", FULL_NAME, register, listen, scheduler.collect, limits=limits, watch=link.watch
    )
    await link.close()


def _compiling(*, to_parent: bool) -> Callable[[int, int], None]:
    """Return a callback that reports the progress of compiling kernels, once after an install.

    A parent reads lines of standard output; people read one line on standard error.
    """

    def report(done: int, count: int) -> None:
        if to_parent:
            print(f"reprieve scheduler compiled {done} of {count} kernels", flush=True)  # noqa: T201
        elif done == 1:
            echo("compiling kernels, once after an install; this takes some 20 s", err=True)

    return report


if __name__ == "__main__":
    main(prog_name="python -m services.scheduler")
