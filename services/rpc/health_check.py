"""Ask a service whether it serves, for a container's health check.

`python -m services.rpc.health_check HOST:PORT` ends with 0 if the service at that address answers
SERVING (grpc.health.v1), and with 1 and a line on standard error if not.
"""

from __future__ import annotations

from pathlib import Path

import click
import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from services.rpc.client import CHANNEL_OPTIONS

_PEM = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("address", metavar="HOST:PORT")
@click.option("--service", default="", help="Full name of the proto service. Default: the server.")
@click.option("--timeout", default=3.0, show_default=True, help="Seconds to wait for an answer.")
@click.option("--tls-ca", type=_PEM, help="PEM authority of the server; without it, no TLS.")
@click.option("--tls-cert", type=_PEM, help="PEM certificate to show; needs --tls-key.")
@click.option("--tls-key", type=_PEM, help="PEM private key.")
def main(
    address: str,
    service: str,
    timeout: float,
    tls_ca: Path | None,
    tls_cert: Path | None,
    tls_key: Path | None,
) -> None:
    """End with 0 if the service at HOST:PORT serves, with 1 if not."""
    if (tls_cert is None) != (tls_key is None):
        raise click.UsageError("--tls-cert and --tls-key go together")
    if tls_cert is not None and tls_ca is None:
        raise click.UsageError("--tls-cert needs --tls-ca")
    with _channel(address, tls_ca, tls_cert, tls_key) as channel:
        problem = why_not_serving(channel, service=service, timeout_s=timeout)
    if problem is not None:
        raise click.ClickException(f"{address}: {problem}")


def why_not_serving(channel: grpc.Channel, *, service: str, timeout_s: float) -> str | None:
    """Return None if `service` ("" is the whole server) answers SERVING, else what is wrong.

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


def _channel(
    address: str, authority: Path | None, certificate: Path | None, key: Path | None
) -> grpc.Channel:
    if authority is None:
        return grpc.insecure_channel(address, CHANNEL_OPTIONS)
    credentials = grpc.ssl_channel_credentials(
        authority.read_bytes(),
        key.read_bytes() if key else None,
        certificate.read_bytes() if certificate else None,
    )
    return grpc.secure_channel(address, credentials, CHANNEL_OPTIONS)


if __name__ == "__main__":
    main(prog_name="python -m services.rpc.health_check")
