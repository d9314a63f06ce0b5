"""Decodes the responses of a service on the client's side, within the contract's size.

gRPC does not report responses that it cannot decode: a synchronous call ends with the status
INTERNAL, as if the service had returned it, and in asyncio the reader waits forever. A message
above a library's limit ends a call with RESOURCE_EXHAUSTED. Therefore decoders here never raise;
they return an `Unreadable` in place of the response, and the caller reports it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from google.protobuf.message import DecodeError

from services.rpc.parts import MESSAGE_BYTES_MAX

_Parse = Callable[[bytes], Any]


class Unreadable:
    """Takes the place of a response that cannot be decoded; `problem` is for users."""

    __slots__ = ("problem",)

    def __init__(self, problem: str) -> None:
        self.problem = problem


class ReadingChannel:
    """A channel whose calls return an Unreadable if gRPC would fail to decode a response.

    It wraps a grpc.Channel or a grpc.aio.Channel. `service` is the service's name in problems.
    """

    def __init__(self, channel: Any, service: str) -> None:
        self._channel = channel
        self._service = service

    def unary_unary(self, path: str, **codec: Any) -> Callable[..., Any]:
        """Return a method of one request and one response."""
        return self._method("unary_unary", path, codec)

    def stream_unary(self, path: str, **codec: Any) -> Callable[..., Any]:
        """Return a method of a stream of requests and one response."""
        return self._method("stream_unary", path, codec)

    def unary_stream(self, path: str, **codec: Any) -> Callable[..., Any]:
        """Return a method of one request and a stream of responses."""
        return self._method("unary_stream", path, codec)

    def stream_stream(self, path: str, **codec: Any) -> Callable[..., Any]:
        """Return a method of a stream of requests and a stream of responses."""
        return self._method("stream_stream", path, codec)

    def _method(self, kind: str, path: str, codec: dict[str, Any]) -> Callable[..., Any]:
        read = _reader(codec["response_deserializer"], self._service, path)
        method: Callable[..., Any] = getattr(self._channel, kind)(
            path, **{**codec, "response_deserializer": read}
        )
        return method


def _reader(parse: _Parse, service: str, path: str) -> _Parse:
    """Return a decoder that never raises."""
    problem = f"{service} returned an invalid response to {path.rpartition('/')[2]}: "

    def read(data: bytes) -> Any:
        if len(data) > MESSAGE_BYTES_MAX:
            return Unreadable(
                f"{problem}it has {len(data):,} bytes, but a message may have at most "
                f"{MESSAGE_BYTES_MAX:,}; send it in parts"
            )
        try:
            return parse(data)
        except DecodeError as error:
            return Unreadable(
                f"{problem}this client cannot decode its {len(data):,} bytes as "
                f"{_message_name(parse)} ({error}); compile the service with the files of "
                "`reprieve protos`"
            )

    return read


def _message_name(parse: _Parse) -> str:
    """Return the name of the message whose FromString `parse` is."""
    message = getattr(parse, "__self__", None)
    return message.DESCRIPTOR.full_name if message is not None else "a message of the contract"
