"""Starts services for a replay, as forks of one process that has imported what they share.

`python -m services.starter FD` reads a socket. A message has, in JSON, a service whose modules are
to be imported afterwards or "", a service to start, and its arguments; with it come the service's
standard input, output and error. The answer is its process number.
Nothing of gRPC is made here, and no thread runs, so that a fork is a fresh process.
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

_SHARED = ("services.rpc.server", "services.rpc.checkpoint")
_MESSAGE_BYTES_MAX = 1 << 16


def main() -> None:
    """Fork services until the socket closes, and wait for them; in a fork, run its service."""
    for name in _SHARED:
        importlib.import_module(name)
    atexit.register(_leave)
    with socket.socket(fileno=int(sys.argv[1])) as asked:
        arguments = _serve(asked)
    if arguments:
        _module(arguments[0]).main(arguments[1:])
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()


def _serve(asked: socket.socket) -> list[str]:
    """Return a service and its arguments in its fork, [] here when the socket closes."""
    while True:
        message, streams, _, _ = socket.recv_fds(asked, _MESSAGE_BYTES_MAX, 3)
        if not message:
            return []
        arguments: list[str] = json.loads(message)
        then = arguments.pop(0)
        pid = os.fork()
        for standard, stream in enumerate(streams):
            if not pid:
                os.dup2(stream, standard)
            os.close(stream)
        if not pid:
            return arguments
        asked.send(str(pid).encode())
        if then:
            _module(then)


def _leave() -> None:
    """End without taking every module apart, which would copy the memory that forks share."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _module(service: str) -> Any:
    return importlib.import_module(f"services.{service}.__main__")


if __name__ == "__main__":
    main()
