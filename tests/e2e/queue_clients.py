"""The queue service as a process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc

ROOT = Path(__file__).resolve().parents[2]


@contextmanager
def running_queue() -> Iterator[tuple[subprocess.Popen[bytes], grpc.Channel]]:
    """Start the service on a free port, and end it if the test has not."""
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "services.queue", "--listen", "127.0.0.1:0", "--child"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'gen'}"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    line = process.stdout.readline().decode()
    assert line.startswith("reprieve queue listening on "), line
    with process, grpc.insecure_channel(line.split()[-1]) as channel:
        yield process, channel
        process.terminate()
