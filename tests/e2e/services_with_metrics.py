"""Real services that serve metrics, for as long as an exit stack lasts; the names they document."""

from __future__ import annotations

import re
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import dataclass

from tests.e2e.commands import environment
from tests.e2e.replays import ROOT
from tests.ports import free_port


@dataclass(frozen=True, slots=True)
class Started:
    """Addresses of a service and of its metrics."""

    address: str
    metrics: str


def start(stack: ExitStack, service: str, *options: str) -> Started:
    """Start a service until `stack` ends."""
    metrics = f"127.0.0.1:{free_port()}"
    command = ("-m", f"services.{service}", "--listen", "127.0.0.1:0", "--metrics", metrics)
    process = stack.enter_context(
        subprocess.Popen(
            [sys.executable, *command, "--child", *options],
            cwd=ROOT,
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
    )
    stack.callback(process.terminate)
    assert process.stdout is not None
    return Started(process.stdout.readline().decode().split()[-1], metrics)


def start_all(stack: ExitStack) -> dict[str, Started]:
    """Start all services."""
    queue = start(stack, "queue")
    scheduler = start(stack, "scheduler", "--queue", queue.address, "--no-warm-up")
    others = {name: start(stack, name) for name in ("eviction", "autoscaler")}
    return {"queue": queue, "scheduler": scheduler, **others}


def documented_metrics() -> dict[str, set[str]]:
    """Return the names that docs/metrics.md has for each service, without those of the process."""
    text = (ROOT / "docs" / "metrics.md").read_text("utf-8")
    sections = {
        title.lower(): {
            name
            for row in re.findall(r"^\| (`.*?) \|", body, re.MULTILINE)
            for name in re.findall(r"`(\w+)`", row)
            if not name.startswith("process_")
        }
        for title, body in re.findall(
            r"^## (.+?)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL
        )
    }
    common = sections["all services"]
    return {
        name: sections[name] | common for name in ("queue", "scheduler", "eviction", "autoscaler")
    }
