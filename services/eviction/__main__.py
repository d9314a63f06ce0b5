"""The eviction service as a process of its own: `python -m services.eviction`."""

from __future__ import annotations

import asyncio

import click
import grpc

from reprieve.eviction.v1alpha1 import eviction_service_pb2_grpc
from services.eviction.servicer import FULL_NAME, SERVICE, EvictionServicer
from services.rpc.metrics_http import serve_metrics
from services.rpc.options import listen_options
from services.rpc.server import Listen, serve

PORT = 50053


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@listen_options(PORT)
@click.option(
    "--metrics",
    metavar="HOST:PORT",
    help="Where to show metrics to Prometheus, as GET /metrics. Nowhere unless given.",
)
def main(listen: Listen, metrics: str | None) -> None:
    """Serve the kubelet's node-pressure eviction (reprieve.eviction.v1alpha1.EvictionService).

    Example, with a free port that the first line of output tells:

        python -m services.eviction --listen 127.0.0.1:0
    """
    if metrics is not None and not metrics.rpartition(":")[2].isdecimal():
        raise click.UsageError(f"--metrics: {metrics!r} is not HOST:PORT")
    asyncio.run(_serve(listen, metrics))


async def _serve(listen: Listen, metrics: str | None) -> None:
    servicer = EvictionServicer()

    async def register(server: grpc.aio.Server) -> None:
        eviction_service_pb2_grpc.add_EvictionServiceServicer_to_server(servicer, server)
        if metrics is not None:
            await serve_metrics(metrics, servicer.metrics_text)

    await serve(SERVICE, FULL_NAME, register, listen)


if __name__ == "__main__":
    main()
