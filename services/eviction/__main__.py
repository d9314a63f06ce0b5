"""Runs the eviction service as a process: `python -m services.eviction`."""

from __future__ import annotations

import asyncio
from functools import partial

import click

from reprieve.eviction.v1beta1 import eviction_service_pb2_grpc
from services.eviction.servicer import FULL_NAME, SERVICE, EvictionServicer
from services.rpc.limits import Limits, limit_options
from services.rpc.options import Listen, listen_options
from services.rpc.server import serve


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@limit_options
@listen_options(50053)
def main(listen: Listen, limits: Limits) -> None:
    """Serve the kubelet's node-pressure eviction (reprieve.eviction.v1beta1.EvictionService).

    It is the eviction manager of every node of a session: which thresholds are met and since when,
    which pod is evicted and why, which conditions the node has. It reads no statistics and no
    clock: each step has its node's observations and time, and each session is created with its
    kubelets' configuration (EvictionConfig; docs/eviction.md, docs/write-an-eviction-service.md).

    The first line of output has the address. SIGTERM ends it, after the running calls.

    \b
    Examples:
      reprieve serve eviction
      reprieve serve eviction --listen 127.0.0.1:0             # a free port
      reprieve replay pods.ktr --eviction 127.0.0.1:50053
    """
    servicer = EvictionServicer(limits)
    add = eviction_service_pb2_grpc.add_EvictionServiceServicer_to_server
    register = partial(add, servicer)
    asyncio.run(serve(SERVICE, FULL_NAME, register, listen, servicer.collect, limits=limits))


if __name__ == "__main__":
    main()
