"""Bidirectional streaming calls, as an exchange uses them: write a request, take the next response.

gRPC's own object for such a call takes its requests from an iterator, in a thread, and its events
from a second thread. Each message wakes both, and a request leaves only once its caller waits:
until then the caller holds Python's lock. A call without a thread (single_threaded.py) has sent a
request when `write` returns, and takes half the CPU of the client's side
(`python -m benchmarks.exchange`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Any, Protocol

import grpc

TESTED_VERSIONS = ("1.85.",)
"""Beginnings of the versions of grpcio whose private parts and experiments were tested."""


class Duplex(Protocol):
    """A bidirectional streaming call."""

    def write(self, request: Any) -> None:
        """Send a request; where the call has failed, the next response raises."""

    def __next__(self) -> Any:
        """Return the next response. Raises StopIteration at the end, and grpc.RpcError."""

    def cancel(self) -> object:
        """Cancel the call; any thread may."""

    def close(self) -> None:
        """End the call."""


def opener(method: Any) -> Callable[[], Duplex]:
    """Return a function that calls a channel's bidirectional streaming method."""
    if grpc.__version__.startswith(TESTED_VERSIONS):
        from replay.backends import single_threaded  # noqa: PLC0415 - others may lack its imports

        if single_threaded.is_of_grpc(method):
            return lambda: single_threaded.SingleThreadedDuplex(method)
    return lambda: _ThreadedDuplex(method)


class _ThreadedDuplex:
    """A call of the public interface: of other versions of gRPC, and within this process."""

    def __init__(self, open_stream: Callable[[Iterator[Any]], Any]) -> None:
        self._requests: SimpleQueue[Any] = SimpleQueue()
        self._call = open_stream(iter(self._requests.get, None))

    def write(self, request: Any) -> None:
        self._requests.put(request)

    def __next__(self) -> Any:
        return next(self._call)

    def cancel(self) -> None:
        self._call.cancel()

    def close(self) -> None:
        self._requests.put(None)
        self._call.cancel()
