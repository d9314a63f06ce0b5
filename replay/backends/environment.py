"""What is set for gRPC, here and in the services that a replay starts, unless the user has set it.

An exchange takes three quarters of the CPU without gRPC's event engine (`python -m
benchmarks.exchange`). The switch is gRPC's own and experimental, and a version without it complains
on standard error, so it is set for the versions that are known to have it; others are slower.
"""

from __future__ import annotations

import os
from functools import cache
from importlib.metadata import version

_KNOWN = ("1.85.",)
_SWITCHES = "-event_engine_client,-event_engine_listener"


@cache
def grpc_environment() -> dict[str, str]:
    """Return environment variables by name."""
    quiet = {"GRPC_VERBOSITY": "NONE"}  # What goes wrong is raised.
    return quiet | ({"GRPC_EXPERIMENTS": _SWITCHES} if version("grpcio").startswith(_KNOWN) else {})


def prepare() -> None:
    """Set them for this process; gRPC reads them before its first call."""
    for name, value in grpc_environment().items():
        os.environ.setdefault(name, value)
