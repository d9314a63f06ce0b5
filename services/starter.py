"""Starts services for a replay, as forks of one process that has imported what they share.

`python -m services.starter FD` reads messages from a socket. A message is a JSON list: a service
whose modules are imported after the fork, or "", then the service to start, and its arguments. The
service's standard input, output and error are sent with it. The response is its process id. This
process makes no gRPC objects and no threads, so that a fork is like a new process.

It is a process of its own because imports are most of a service's start: shared ones happen once
for the three services of a replay and for all replays of a sweep. multiprocessing's fork server
does not replace it: a child there has its parent's streams, where a service here writes its address
and why it failed to its own, and nothing reports which signal ended a child to who reads these.

It holds a service's output open until it has written to its error how the service ended, where that
needs a word: by a signal, or with an exit code and without an error of its own.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import socket
import sys
from collections.abc import Iterator
from typing import Any

from services.process_end import ProcessEnd

_SHARED = ("services.rpc.server", "services.rpc.sessions")
_MESSAGE_BYTES_MAX = 1 << 16
ENDED_BY = "it was ended by "
"""What the last line of a service's error begins with where a signal ended it."""
_Running = dict[int, tuple[int, int]]  # standard output and error, by process id


def main() -> None:
    """Fork services until the socket closes, and wait for them; in a fork, run its service."""
    for name in _SHARED:
        importlib.import_module(name)
    ProcessEnd(code=0)
    running: _Running = {}
    signal.signal(signal.SIGCHLD, lambda *_: _reap(running, os.WNOHANG))
    with socket.socket(fileno=int(sys.argv[1])) as requests:
        arguments = _serve(requests, running)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if arguments:
        _module(arguments[0]).main(arguments[1:])
    while running:
        _reap(running, 0)


def _serve(requests: socket.socket, running: _Running) -> list[str]:
    """Return a service and its arguments in its fork, [] here when the socket closes."""
    while True:
        message, streams, _, _ = socket.recv_fds(requests, _MESSAGE_BYTES_MAX, 3)
        if not message:
            return []
        arguments: list[str] = json.loads(message)
        imported_next = arguments.pop(0)
        with _without_signals():
            pid = os.fork()
            if pid:
                os.close(streams[0])
                running[pid] = streams[1], streams[2]
            else:
                _take(streams, running)
        if not pid:
            return arguments
        requests.send(str(pid).encode())
        if imported_next:
            _module(imported_next)


@contextlib.contextmanager
def _without_signals() -> Iterator[None]:
    """Let no child's end interrupt."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])


def _take(streams: list[int], running: _Running) -> None:
    """In a fork, make `streams` the standard ones, and close those of the other services."""
    for standard, stream in enumerate(streams):
        os.dup2(stream, standard)
        os.close(stream)
    for others in running.values():
        for stream in others:
            os.close(stream)
    running.clear()


def _reap(running: _Running, options: int) -> None:
    """Collect services that have ended; write how, and close their output."""
    with contextlib.suppress(ChildProcessError):
        while running:
            pid, status = os.waitpid(-1, options)
            if not pid:
                return
            output, error = running.pop(pid)
            code = os.waitstatus_to_exitcode(status)
            if code < 0 or (code and not os.fstat(error).st_size):
                os.write(error, f"{_how_it_ended(code)}\n".encode())
            os.close(error)
            os.close(output)


def _how_it_ended(code: int) -> str:
    if code >= 0:
        return f"it exited with code {code} and wrote no error"
    hint = ", as the kernel does when memory is short" if code == -signal.SIGKILL else ""
    return f"{ENDED_BY}{signal.Signals(-code).name}{hint}"


def _module(service: str) -> Any:
    return importlib.import_module(f"services.{service}.__main__")


if __name__ == "__main__":
    main()
