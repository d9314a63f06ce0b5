"""`python -m services.scheduler`: the scheduler alone."""

from __future__ import annotations

import asyncio

import click
import grpc

from reprieve.scheduler.v1alpha1 import scheduler_service_pb2_grpc
from services.rpc.client import ClientTls, tls_options
from services.rpc.options import listen_options
from services.rpc.server import Listen, serve
from services.scheduler.core.warm_up import warm_up
from services.scheduler.queue_client import QueueLink
from services.scheduler.servicer import SchedulerServicer

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
@tls_options("queue-", "the queue")
@listen_options(50052)
def main(queue_address: str, tls: ClientTls, listen: Listen) -> None:
    """Run the scheduler service: where pods go, and whom they displace.

    It needs a scheduling queue service:

    \b
      reprieve serve queue --listen 127.0.0.1:50051
      reprieve serve scheduler --queue 127.0.0.1:50051
    """
    asyncio.run(_serve(queue_address, tls, listen))


async def _serve(queue_address: str, tls: ClientTls, listen: Listen) -> None:
    link = QueueLink(queue_address, tls)

    def register(server: grpc.aio.Server) -> None:
        warm_up()
        scheduler_service_pb2_grpc.add_SchedulerServiceServicer_to_server(
            SchedulerServicer(link), server
        )

    await serve("scheduler", FULL_NAME, register, listen)
    await link.close()


if __name__ == "__main__":
    main(prog_name="python -m services.scheduler")
