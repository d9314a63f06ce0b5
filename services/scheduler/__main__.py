"""`python -m services.scheduler`: the scheduler alone."""

from __future__ import annotations

import asyncio

import click
import grpc

from reprieve.scheduler.v1alpha1 import scheduler_service_pb2_grpc
from services.rpc.client import ClientTls, tls_options
from services.rpc.options import listen_options
from services.rpc.server import Listen, serve
from services.scheduler.core.registry import Registry
from services.scheduler.core.warm_up import warm_up
from services.scheduler.queue_client import QueueLink
from services.scheduler.servicer import SchedulerServicer
from services.scheduler.user_plugins import PluginLoadError, registry_with

FULL_NAME = "reprieve.scheduler.v1alpha1.SchedulerService"


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
    envvar="REPRIEVE_PLUGINS",
    metavar="MODULE:NAME",
    help="A plugin of your own, for profiles to name, beside those that are installed.",
)
@tls_options("queue-", "the queue")
@listen_options(50052)
def main(queue_address: str, plugins: tuple[str, ...], tls: ClientTls, listen: Listen) -> None:
    """Run the scheduler service: where pods go, and whom they displace.

    It needs a scheduling queue service:

    \b
      reprieve serve queue --listen 127.0.0.1:50051
      reprieve serve scheduler --queue 127.0.0.1:50051
    """
    try:
        registry = registry_with(plugins)
    except PluginLoadError as error:
        raise click.ClickException(str(error)) from None
    asyncio.run(_serve(queue_address, registry, tls, listen))


async def _serve(queue_address: str, registry: Registry, tls: ClientTls, listen: Listen) -> None:
    link = QueueLink(queue_address, tls)

    def register(server: grpc.aio.Server) -> None:
        warm_up()
        scheduler_service_pb2_grpc.add_SchedulerServiceServicer_to_server(
            SchedulerServicer(link, registry), server
        )

    await serve("scheduler", FULL_NAME, register, listen)
    await link.close()


if __name__ == "__main__":
    main(prog_name="python -m services.scheduler")
