"""The scheduling queue as a process of its own: `python -m services.queue`."""

from __future__ import annotations

import asyncio
from functools import partial

import click

from reprieve.queue.v1beta1 import queue_service_pb2_grpc
from services.queue.servicer import FULL_NAME, SERVICE, QueueServicer
from services.rpc.limits import Limits, limit_options
from services.rpc.options import Listen, listen_options
from services.rpc.server import serve


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@limit_options
@listen_options(50051)
def main(listen: Listen, limits: Limits) -> None:
    """Serve the scheduling queue (reprieve.queue.v1beta1.QueueService).

    Example, with a free port that the first line of output shows:

        python -m services.queue --listen 127.0.0.1:0
    """
    servicer = QueueServicer(limits)
    add = queue_service_pb2_grpc.add_QueueServiceServicer_to_server
    register = partial(add, servicer)
    asyncio.run(serve(SERVICE, FULL_NAME, register, listen, servicer.collect, limits=limits))


if __name__ == "__main__":
    main()
