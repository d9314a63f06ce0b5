"""Errors at the start of a service: one line, an exit code, and no traceback."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import click
import pytest
import trustme
from click.testing import CliRunner

SERVICES = ("queue", "scheduler", "eviction", "autoscaler")
LOOPBACK = "127.0.0.1:0"


def command(service: str) -> click.Command:
    """Return the command that starts a service."""
    found: click.Command = import_module(f"services.{service}.__main__").main
    return found


def refused(service: str, *arguments: str, env: dict[str, str] | None = None) -> tuple[int, str]:
    """Return the exit code and the line of error of a service that does not start."""
    if service == "scheduler":
        arguments = (*arguments, "--no-warm-up")
    result = CliRunner().invoke(command(service), arguments, env=env)
    assert result.exception is None or isinstance(result.exception, SystemExit)
    lines = result.output.splitlines()
    assert len(lines) == 1
    return result.exit_code, lines[0]


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a pair, tls.crt and tls.key, and another key."""
    folder = tmp_path_factory.mktemp("pem")
    authority = trustme.CA()
    issued, other = authority.issue_cert("127.0.0.1"), authority.issue_cert("127.0.0.1")
    (folder / "tls.crt").write_bytes(issued.cert_chain_pems[0].bytes())
    (folder / "tls.key").write_bytes(issued.private_key_pem.bytes())
    (folder / "other.key").write_bytes(other.private_key_pem.bytes())
    for key in folder.glob("*.key"):
        key.chmod(0o600)
    return folder


@pytest.fixture
def used_port() -> Iterator[int]:
    """Return a port on which something listens."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        yield other.getsockname()[1]


@pytest.mark.parametrize("service", SERVICES)
def test_a_used_port_is_one_line(service: str, used_port: int) -> None:
    """The scheduler finds out before it warms up."""
    code, line = refused(service, "--listen", f"127.0.0.1:{used_port}")
    assert (code, line.startswith("Error: --listen 127.0.0.1:")) == (3, True)
    assert "another program listens there" in line


@pytest.mark.parametrize("service", ["queue", "eviction", "autoscaler"])
def test_a_used_port_for_metrics_is_one_line(service: str, used_port: int) -> None:
    """It names its own option."""
    code, line = refused(service, "--listen", LOOPBACK, "--metrics", f"127.0.0.1:{used_port}")
    assert (code, line.startswith("Error: --metrics 127.0.0.1:")) == (3, True)


@pytest.mark.parametrize("service", SERVICES)
def test_a_bad_address_is_one_line(service: str) -> None:
    """From the environment, too."""
    assert refused(service, "--listen", "192.0.2.1:0", "--insecure")[0] == 3
    assert refused(service, "--listen", "nowhere") == refused(
        service, env={"REPRIEVE_LISTEN": "nowhere"}
    )
    code, line = refused(service, "--listen", "nowhere")
    assert (code, line.startswith("Error: --listen: 'nowhere' is not HOST:PORT")) == (2, True)


@pytest.mark.parametrize("service", SERVICES)
def test_broken_files_of_tls_are_one_line(service: str, pem: Path, tmp_path: Path) -> None:
    """By options and by an access file; none shows a key."""
    pair = ("--tls-cert", str(pem / "tls.crt"), "--tls-key", str(pem / "other.key"))
    code, line = refused(service, "--listen", LOOPBACK, *pair)
    assert (code, line) == (
        2,
        f"Error: {pem}/other.key: is not the key of the certificate in {pem}/tls.crt: pair them",
    )
    access = tmp_path / "access.yaml"
    access.write_text("certificate: none.crt\nkey: none.key\nauthority: ca.crt", encoding="utf-8")
    code, line = refused(service, "--listen", LOOPBACK, env={"REPRIEVE_ACCESS": str(access)})
    assert (code, line.endswith(".crt: No such file or directory")) == (2, True)
    access.write_text("authority: ca.crt", encoding="utf-8")
    code, line = refused(service, "--listen", LOOPBACK, "--access", str(access))
    assert (code, line.partition(": ")[2].partition(": ")[2]) == (
        2,
        "certificate: is required for a service",
    )


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_without_identities_does_not_leave_the_machine(service: str, pem: Path) -> None:
    """In plaintext, and with TLS that asks callers for nothing."""
    pair = ("--tls-cert", str(pem / "tls.crt"), "--tls-key", str(pem / "tls.key"))
    for tls in ((), pair):
        code, line = refused(service, "--listen", "0.0.0.0:0", *tls)
        assert (code, "pass --insecure" in line) == (2, True)


def test_a_scheduler_does_not_send_plaintext_to_a_queue_elsewhere() -> None:
    """--insecure is for both of its sides."""
    code, line = refused("scheduler", "--listen", LOOPBACK, "--queue", "queue:50051")
    assert (code, line.startswith("Error: queue:50051: is on another machine")) == (2, True)
    assert refused("scheduler", "--queue", "nowhere")[0] == 2


@pytest.mark.parametrize("service", SERVICES)
def test_a_collector_that_is_not_served_is_one_line(service: str) -> None:
    """A protocol other than gRPC."""
    env = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json",
    }
    code, line = refused(service, "--listen", LOOPBACK, env=env)
    assert (code, line.startswith("Error: OTEL_EXPORTER_OTLP_PROTOCOL")) == (2, True)
