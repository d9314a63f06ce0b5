"""Runs the scheduling queue as a process: `python -m services.queue`."""

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

    It keeps pending pods as kube-scheduler's queue does: which one is next, which ones back off,
    and which ones wait for which event. It has no clock, no nodes and no settings of its own:
    each session is created with its rules, backoff and hints (QueueConfig), and each operation
    has its own time. Our scheduler uses it with --queue; a scheduler of your own can, too
    (docs/queue.md, docs/write-a-queue-client.md).

    The first line of output has the address. SIGTERM ends it, after the running calls.

    \b
    Examples:
      reprieve serve queue
      reprieve serve queue --listen 127.0.0.1:0                # a free port
      reprieve serve queue --limit sessions=10 --session-idle 1h
      reprieve conform --contract queue 127.0.0.1:50051        # what it serves
    """
    servicer = QueueServicer(limits)
    add = queue_service_pb2_grpc.add_QueueServiceServicer_to_server
    register = partial(add, servicer)
    asyncio.run(serve(SERVICE, FULL_NAME, register, listen, servicer.collect, limits=limits))


if __name__ == "__main__":
    main()
