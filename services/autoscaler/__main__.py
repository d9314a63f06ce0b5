"""The autoscaler service as a process of its own: `python -m services.autoscaler`."""

from __future__ import annotations

import asyncio
from functools import partial

import click

from reprieve.autoscaler.v1beta1 import autoscaler_service_pb2_grpc
from services.autoscaler.servicer import FULL_NAME, SERVICE, AutoscalerServicer
from services.rpc.limits import Limits, limit_options
from services.rpc.options import Listen, listen_options
from services.rpc.server import serve


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@limit_options
@listen_options(50054)
def main(listen: Listen, limits: Limits) -> None:
    """Serve the cluster autoscaler (reprieve.autoscaler.v1beta1.AutoscalerService).

    It decides which groups of nodes grow and shrink, as Kubernetes' Cluster Autoscaler does, and
    carries out nothing: each step returns the calls that it needs. Each session is created with its
    own options, by Cluster Autoscaler's flags.

    The first line of output has the address. SIGTERM ends it, after the running calls.

    \b
    Examples:
      reprieve serve autoscaler
      reprieve serve autoscaler --listen 127.0.0.1:0             # a free port
    """
    servicer = AutoscalerServicer(limits)
    add = autoscaler_service_pb2_grpc.add_AutoscalerServiceServicer_to_server
    register = partial(add, servicer)
    asyncio.run(serve(SERVICE, FULL_NAME, register, listen, servicer.collect, limits=limits))


if __name__ == "__main__":
    main()
