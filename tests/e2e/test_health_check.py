"""The command that a container's health check runs, against a real service."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from services.rpc.health_check import why_not_serving
from tests.e2e.eviction_client import running_eviction

pytestmark = pytest.mark.e2e
ROOT = Path(__file__).resolve().parents[2]
DEADLINE_S = 20


def health_check(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command as a container does."""
    return subprocess.run(
        [sys.executable, "-P", "-m", "services.rpc.health_check", *arguments],
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'gen'}"},
        check=False,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )


def test_a_service_that_serves_is_healthy() -> None:
    """The server as a whole and the proto's service both answer SERVING."""
    with running_eviction() as (_, channel):
        assert why_not_serving(channel, service="", timeout_s=DEADLINE_S) is None
        name = "reprieve.eviction.v1beta1.EvictionService"
        assert why_not_serving(channel, service=name, timeout_s=DEADLINE_S) is None


def test_a_service_that_the_server_does_not_know_is_not_healthy() -> None:
    """So a check that asks the wrong port cannot pass."""
    with running_eviction() as (_, channel):
        problem = why_not_serving(channel, service="no.Service", timeout_s=DEADLINE_S)
    assert problem is not None
    assert problem.startswith("NOT_FOUND")


def test_an_address_without_a_listener_ends_the_command_with_1() -> None:
    """And its one line says which address, and why."""
    checked = health_check("127.0.0.1:1", "--timeout", "5")
    assert checked.returncode == 1
    assert checked.stderr.startswith("Error: 127.0.0.1:1: ")
    assert checked.stdout == ""


def test_a_client_certificate_without_its_key_is_a_usage_error() -> None:
    """A wrong option never looks like a service that is down."""
    checked = health_check("127.0.0.1:1", "--tls-cert", __file__)
    assert checked.returncode == 2
    assert "--tls-key" in checked.stderr
