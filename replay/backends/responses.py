"""Wraps a gRPC channel so that a response that cannot be decoded raises ResponseError.

The calls of a `checked` channel raise it; its text describes what the service sent
(services/rpc/responses.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

import grpc

from replay.backends.duplex import Duplex, opener
from replay.errors import BackendError
from services.rpc.responses import ReadingChannel, Unreadable


class ResponseError(BackendError):
    """Raised for bytes that are not a response of the contract, or for too many of them."""


def checked(channel: grpc.Channel, service: str) -> grpc.Channel:
    """Return a channel for generated stubs whose calls raise ResponseError.

    `service` names the service in errors. Calls that stream responses can only be iterated and
    cancelled. One that streams requests, too, is a Duplex where it is called without them.
    """
    return cast("grpc.Channel", _CheckedChannel(channel, service))


class _CheckedChannel:
    """The part of a grpc.Channel that generated stubs use."""

    def __init__(self, channel: grpc.Channel, service: str) -> None:
        self._channel = ReadingChannel(channel, service)

    def unary_unary(self, path: str, **codec: Any) -> Callable[..., Any]:
        """Return a stub method for a unary RPC."""
        return _one(self._channel.unary_unary(path, **codec))

    def stream_unary(self, path: str, **codec: Any) -> Callable[..., Any]:
        """Return a stub method for a client streaming RPC."""
        return _one(self._channel.stream_unary(path, **codec))

    def unary_stream(self, path: str, **codec: Any) -> Callable[..., _Responses]:
        """Return a stub method for a server streaming RPC."""
        return _many(self._channel.unary_stream(path, **codec))

    def stream_stream(self, path: str, **codec: Any) -> Callable[..., Duplex | _Responses]:
        """Return a stub method for a bidirectional streaming RPC."""
        method = self._channel.stream_stream(path, **codec)
        open_stream, of_requests = opener(method), _many(method)

        def call(*requests: Any, **options: Any) -> Duplex | _Responses:
            return of_requests(*requests, **options) if requests else _CheckedDuplex(open_stream())

        return call


class _Responses:
    """The responses of a streaming call, as they arrive."""

    def __init__(self, call: Any) -> None:
        self._call = call

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return _taken(next(self._call))

    def cancel(self) -> None:
        """End the call."""
        self._call.cancel()


class _CheckedDuplex:
    """A bidirectional streaming call."""

    def __init__(self, call: Duplex) -> None:
        self._call = call
        self.write, self.cancel, self.close = call.write, call.cancel, call.close

    def __next__(self) -> Any:
        return _taken(next(self._call))


def _one(method: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *request, **options: _taken(method(*request, **options))


def _many(method: Callable[..., Any]) -> Callable[..., _Responses]:
    return lambda *request, **options: _Responses(method(*request, **options))


def _taken(response: Any) -> Any:
    if type(response) is Unreadable:
        raise ResponseError(response.problem)
    return response
