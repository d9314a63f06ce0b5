"""The three services as docker-compose.yml runs them: confined, healthy, and deciding the same.

It uses a Docker engine that answers, or with REPRIEVE_ENGINE=1 the one that deploy/test-engine.sh
starts. Without an engine it skips; with REPRIEVE_REQUIRE_ENGINE=1 that is a failure.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("compose")]
ROOT = Path(__file__).resolve().parents[2]
TRACE = ROOT / "examples" / "traces" / "nginx-preemption.jsonl"
SERVICES = ("queue", "scheduler", "eviction")
ENGINE_S, BUILD_S, HEALTHY_S, COMMAND_S = 300, 600, 90, 60
KERNEL_STATS = """
import sys
from numba.core.dispatcher import Dispatcher
from services.scheduler.core.warm_up import warm_up

warm_up()
kernels = {
    id(value): value
    for module in list(sys.modules.values())
    if module.__name__.startswith("services.")
    for value in vars(module).values()
    if isinstance(value, Dispatcher)
}.values()
loaded = sum(sum(kernel.stats.cache_hits.values()) for kernel in kernels)
compiled = sum(sum(kernel.stats.cache_misses.values()) for kernel in kernels)
print("some" if loaded else "none", compiled)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """One compose project, and the commands that act on it."""

    compose_command: tuple[str, ...]
    environment: Mapping[str, str]

    def compose(self, *arguments: str, timeout_s: float = COMMAND_S) -> str:
        """Run a compose command; return its output."""
        return run(*self.compose_command, *arguments, env=self.environment, timeout_s=timeout_s)

    def docker(self, *arguments: str) -> str:
        """Run a docker command; return its output."""
        return run("docker", *arguments, env=self.environment)

    def container(self, service: str) -> str:
        """Return the id of a service's container, running or not."""
        return self.compose("ps", "--all", "--quiet", service).strip() if self._is_v2() else (
            self.compose("ps", "--quiet", service).strip()
        )

    def inspect(self, service: str, field: str) -> str:
        """Return a field of a service's container, such as `.State.Pid`."""
        return self.docker("inspect", "--format", f"{{{{{field}}}}}", self.container(service)).strip()

    def sh(self, service: str, script: str) -> str:
        """Run a shell script in a service's container; return its output."""
        return self.docker("exec", self.container(service), "sh", "-c", script)

    def address(self, service: str) -> str:
        """Return where this machine reaches a service."""
        return f"127.0.0.1:{self.environment[port_variable(service)]}"

    def wait_until_healthy(self) -> None:
        """Wait until each service's own health check has passed."""
        for service in SERVICES:
            wait_for(f"{service} is healthy", lambda s=service: self._health(s) == "healthy")

    def _health(self, service: str) -> str:
        return self.inspect(service, ".State.Health.Status")
