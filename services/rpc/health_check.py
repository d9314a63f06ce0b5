"""A container's health check: tests whether a service is SERVING.

`python -m services.rpc.health_check HOST:PORT` exits with 0 if the service at that address responds
SERVING (grpc.health.v1), and with 1 and a line on standard error if not.
"""

from __future__ import annotations

import click
import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from services.rpc.access import ClientTls
from services.rpc.client import channel, tls_options


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("address", metavar="HOST:PORT")
@click.option("--service", default="", help="Full name of the proto service. Default: the server.")
@click.option("--timeout", default=3.0, show_default=True, help="Seconds to wait for a response.")
@tls_options("", "the server", timeouts=None)
def main(address: str, service: str, timeout: float, tls: ClientTls) -> None:
    """Exit with 0 if the service at HOST:PORT is SERVING, with 1 if not."""
    with channel(address, tls) as opened:
        problem = why_not_serving(opened, service=service, timeout_s=timeout)
    if problem is not None:
        raise click.ClickException(f"{address}: {problem}")


def why_not_serving(channel: grpc.Channel, *, service: str, timeout_s: float) -> str | None:
    """Return None if `service` ("" is the whole server) responds SERVING, else the problem.

    Source: the protocol grpc.health.v1.Health/Check.
    """
    request = health_pb2.HealthCheckRequest(service=service)
    try:
        answer = health_pb2_grpc.HealthStub(channel).Check(request, timeout=timeout_s)
    except grpc.RpcError as error:
        return f"{error.code().name}: {error.details()}"
    if answer.status == health_pb2.HealthCheckResponse.SERVING:
        return None
    return str(health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status))


if __name__ == "__main__":
    main(prog_name="python -m services.rpc.health_check")
