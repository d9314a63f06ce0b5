"""Starts services for a replay, as forks of one process that has imported what they share.

`python -m services.starter FD` reads messages from a socket. A message is a JSON list: a service
whose modules are imported after the fork, or "", then the service to start, and its arguments. The
service's standard input, output and error are sent with it. The response is its process id. This
process makes no gRPC objects and no threads, so that a fork is like a new process.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import json
import os
import socket
import sys
from typing import Any

_SHARED = ("services.rpc.server", "services.rpc.sessions")
_MESSAGE_BYTES_MAX = 1 << 16


def main() -> None:
    """Fork services until the socket closes, and wait for them; in a fork, run its service."""
    for name in _SHARED:
        importlib.import_module(name)
    atexit.register(_leave)
    with socket.socket(fileno=int(sys.argv[1])) as requests:
        arguments = _serve(requests)
    if arguments:
        _module(arguments[0]).main(arguments[1:])
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()


def _serve(requests: socket.socket) -> list[str]:
    """Return a service and its arguments in its fork, [] here when the socket closes."""
    while True:
        message, streams, _, _ = socket.recv_fds(requests, _MESSAGE_BYTES_MAX, 3)
        if not message:
            return []
        arguments: list[str] = json.loads(message)
        imported_next = arguments.pop(0)
        pid = os.fork()
        for standard, stream in enumerate(streams):
            if not pid:
                os.dup2(stream, standard)
            os.close(stream)
        if not pid:
            return arguments
        requests.send(str(pid).encode())
        if imported_next:
            _module(imported_next)


def _leave() -> None:
    """Exit without clearing modules, which would copy the memory that forks share."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _module(service: str) -> Any:
    return importlib.import_module(f"services.{service}.__main__")


if __name__ == "__main__":
    main()
