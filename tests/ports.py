"""Ports for what has to know its own before it is started, or keeps it when it starts again."""

from __future__ import annotations

import os
import random
import socket
from pathlib import Path

_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_FIRST = 10_000
_chance = random.Random(os.getpid())  # noqa: S311 - no secret


def free_port() -> int:
    """Return a port of this machine that nobody listens on.

    It is below the range from which the system gives ports to connections and to those who listen
    on port 0, so that neither takes it before it is used. Processes of tests draw apart.
    """
    last = int(_RANGE.read_text(encoding="ascii").split()[0]) - 1
    while True:
        port = _chance.randint(_FIRST, last)
        try:
            with socket.create_server(("127.0.0.1", port)):
                return port
        except OSError:
            continue
