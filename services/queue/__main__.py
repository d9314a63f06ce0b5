"""The scheduling queue as a process of its own: `python -m services.queue`."""

from __future__ import annotations

import asyncio

import click
import grpc

from reprieve.queue.v1alpha1 import queue_service_pb2_grpc
from services.queue.servicer import FULL_NAME, SERVICE, SchedulingQueueServicer
from services.rpc.metrics_http import serve_metrics
from services.rpc.options import listen_options
from services.rpc.server import Listen, serve

PORT = 50051


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@listen_options(PORT)
@click.option(
    "--metrics",
    metavar="HOST:PORT",
    help="Where to show metrics to Prometheus, as GET /metrics. Nowhere unless given.",
)
def main(listen: Listen, metrics: str | None) -> None:
    """Serve the scheduling queue (reprieve.queue.v1alpha1.SchedulingQueueService).

    Example, with a free port that the first line of output tells:

        python -m services.queue --listen 127.0.0.1:0
    """
    if metrics is not None and not metrics.rpartition(":")[2].isdecimal():
        raise click.UsageError(f"--metrics: {metrics!r} is not HOST:PORT")
    asyncio.run(_serve(listen, metrics))


async def _serve(listen: Listen, metrics: str | None) -> None:
    servicer = SchedulingQueueServicer()

    async def register(server: grpc.aio.Server) -> None:
        queue_service_pb2_grpc.add_SchedulingQueueServiceServicer_to_server(servicer, server)
        if metrics is not None:
            await serve_metrics(metrics, servicer.metrics_text)

    await serve(SERVICE, FULL_NAME, register, listen)


if __name__ == "__main__":
    main()
