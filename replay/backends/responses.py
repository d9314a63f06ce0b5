"""Responses of services as this client reads them: decoded here, and within the contract's size.

gRPC reports bytes that it cannot decode as a status of the call, INTERNAL, as if the service had
returned it, and messages above a library's limit as RESOURCE_EXHAUSTED. Here neither is left to
gRPC: the calls of a `checked` channel raise a ResponseError, which says what the service has sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

import grpc
from google.protobuf.message import DecodeError

from replay.backends.duplex import Duplex, opener
from replay.errors import BackendError
from services.rpc.parts import MESSAGE_BYTES_MAX

_Parse = Callable[[bytes], Any]


class ResponseError(BackendError):
    """A service has sent what is not a response of the contract: other bytes, or too many."""


class _Unreadable:
    """Stands in the place of a response until its caller takes it; `problem` is for users.

    An error that is raised while gRPC decodes a response does not reach the caller.
    """

    __slots__ = ("problem",)

    def __init__(self, problem: str) -> None:
        self.problem = problem


def checked(channel: grpc.Channel, service: str) -> grpc.Channel:
    """Return a channel for generated stubs whose calls raise ResponseError.

    `service` names the service in errors. Calls that stream responses can only be iterated and
    cancelled. One that streams requests, too, is a Duplex where it is called without them.
    """
    return cast("grpc.Channel", _CheckedChannel(channel, service))


class _CheckedChannel:
    """The part of a grpc.Channel that generated stubs use."""

    def __init__(self, channel: grpc.Channel, service: str) -> None:
        self._channel = channel
        self._service = service

    def unary_unary(self, path: str, **codec: Any) -> Callable[..., Any]:
        """Return a method of one request and one response."""
        return _one(self._channel.unary_unary(path, **self._reading(path, codec)))

    def stream_unary(self, path: str, **codec: Any) -> Callable[..., Any]:
        """Return a method of a stream of requests and one response."""
        return _one(self._channel.stream_unary(path, **self._reading(path, codec)))

    def unary_stream(self, path: str, **codec: Any) -> Callable[..., _Responses]:
        """Return a method of one request and a stream of responses."""
        return _many(self._channel.unary_stream(path, **self._reading(path, codec)))

    def stream_stream(self, path: str, **codec: Any) -> Callable[..., Duplex | _Responses]:
        """Return a method of a stream of requests and a stream of responses."""
        method = self._channel.stream_stream(path, **self._reading(path, codec))
        open_stream, of_requests = opener(method), _many(method)

        def call(*requests: Any, **options: Any) -> Duplex | _Responses:
            return of_requests(*requests, **options) if requests else _CheckedDuplex(open_stream())

        return call

    def _reading(self, path: str, codec: dict[str, Any]) -> dict[str, Any]:
        """Return the options of a method with a decoder that never raises."""
        parse: _Parse = codec["response_deserializer"]
        problem = f"{self._service} returned an invalid response to {path.rpartition('/')[2]}: "

        def read(data: bytes) -> Any:
            if len(data) > MESSAGE_BYTES_MAX:
                return _Unreadable(
                    f"{problem}it has {len(data):,} bytes, but a message may have at most "
                    f"{MESSAGE_BYTES_MAX:,}; send it in parts"
                )
            try:
                return parse(data)
            except DecodeError as error:
                return _Unreadable(
                    f"{problem}this client cannot decode its {len(data):,} bytes as "
                    f"{_message_name(parse)} ({error}); compile the service with the files of "
                    "`reprieve protos`"
                )

        return {**codec, "response_deserializer": read}


class _Responses:
    """The responses of a stream, as they arrive."""

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
    """A call of two streams."""

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
    if type(response) is _Unreadable:
        raise ResponseError(response.problem)
    return response


def _message_name(parse: _Parse) -> str:
    """Return the name of the message whose FromString `parse` is."""
    message = getattr(parse, "__self__", None)
    return message.DESCRIPTOR.full_name if message is not None else "a message of the contract"
