"""Requests and responses over a bidirectional stream, with a deadline for each response.

A service that does not implement the stream is called by the unary RPC with the same messages.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

import grpc

from replay.backends.duplex import Duplex
from replay.errors import BackendError, ServiceLostError, ServiceSilentError
from replay.interrupts import is_interrupted
from services.rpc.interceptors.statuses import reason_of
from services.rpc.timeouts import DEFAULT_TIMEOUTS

Request = TypeVar("Request")
Answer = TypeVar("Answer")


class Exchange(Generic[Request, Answer]):
    """The client side of a stream: requests are sent, responses arrive in their order.

    A watchdog cancels the stream when a response is overdue, so that a service that hangs is
    reported, and when a signal waits for the response.
    """

    def __init__(
        self,
        open_stream: Callable[[], Duplex],
        service: str,
        address: str,
        unary: Callable[..., Answer] | None = None,
        response_s: float = DEFAULT_TIMEOUTS.response,
    ) -> None:
        self._response_s = response_s
        self._service = f"the {service} at {address}"
        self._unary = unary
        self._is_streaming = True
        self._unanswered: deque[Request] = deque()
        self._call = open_stream()
        self._due = float("inf")
        self._is_overdue = False
        self._ended = threading.Event()
        threading.Thread(target=self._watch, name=f"{service}-watchdog", daemon=True).start()

    def exchange(self, request: Request) -> Answer:
        """Return the response to `request`, when no other is outstanding. Raises BackendError."""
        self.send(request)
        return self.receive()

    def send(self, request: Request) -> None:
        """Send a request; responses arrive in the order of requests."""
        if self._unary is not None:
            self._unanswered.append(request)
        if self._is_streaming:
            self._due = time.monotonic() + self._response_s
            self._call.write(request)

    def receive(self) -> Answer:
        """Wait for the next response. Raises BackendError."""
        if not self._is_streaming:
            return self._called()
        self._due = time.monotonic() + self._response_s
        try:
            answer: Answer = next(self._call)
        except StopIteration as error:
            text = f"{self._service} ended the stream without a response"
            raise ServiceLostError(text) from error
        except grpc.RpcError as error:
            self._due = float("inf")
            if self._unary is not None and _is_unserved(error):
                self._is_streaming = False
                return self._called()
            if self._unary is not None and _is_unknown(error):
                text = f"{self._service} answers its stream with {describe(error)}"
                raise BackendError(f"{text}; {_NOT_SERVED}") from error
            if self._is_overdue:
                raise silent(self._service, "response", self._response_s) from error
            raise failed(self._service, error) from error
        self._due = float("inf")
        self._unary = None
        self._unanswered.clear()
        return answer

    def _called(self) -> Answer:
        assert self._unary is not None  # noqa: S101 - only such an exchange does not stream
        try:
            return self._unary(self._unanswered.popleft(), timeout=self._response_s)
        except grpc.RpcError as error:
            if is_overdue(error):
                raise silent(self._service, "response", self._response_s) from error
            raise failed(self._service, error) from error

    def close(self) -> None:
        """End the stream."""
        self._ended.set()
        self._call.close()

    def _watch(self) -> None:
        while not self._ended.wait(1.0):
            self._is_overdue = time.monotonic() > self._due
            if self._is_overdue or is_interrupted():
                self._call.cancel()
                return


def _is_unknown(error: grpc.RpcError) -> bool:
    return isinstance(error, grpc.Call) and error.code() is grpc.StatusCode.UNKNOWN


def _is_unserved(error: grpc.RpcError) -> bool:
    return isinstance(error, grpc.Call) and error.code() is grpc.StatusCode.UNIMPLEMENTED


def failed(service: str, error: grpc.RpcError) -> BackendError:
    """Return the error of a failed call; a ServiceLostError if service or session is gone."""
    kind = ServiceLostError if is_lost(error) else BackendError
    return kind(f"{service} answers {describe(error)}")


def silent(service: str, timeout: str, seconds: float) -> ServiceSilentError:
    """Return the error of a call that had no response for the seconds of --timeout `timeout`."""
    text = f"{service} did not respond in {seconds:g} s"
    return ServiceSilentError(f"{text}; --timeout {timeout}=DURATION waits for longer")


_NOT_SERVED = (
    "a stream that is not served has to be answered with UNIMPLEMENTED, then the unary method is "
    "called"
)
_LOST = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED, grpc.StatusCode.DEADLINE_EXCEEDED)
_LOST_REASONS = ("SESSION_EXPIRED", "SESSION_BROKEN", "SEQUENCE_MISMATCH")
_TRANSPORT = ("Stream removed", "Received RST_STREAM")
_ADVICE = {
    "Connection refused": "nothing listens there: start the service, or correct the address",
    "SETTINGS frame": "what listens there does not speak gRPC without TLS: correct the address, "
    "or use --tls-ca or --access for a service with TLS",
}
"""What to do, by a part of gRPC's own texts."""


def is_lost(error: grpc.RpcError) -> bool:
    """Return whether a failed call shows that the connection, the service or its session is gone.

    _TRANSPORT are gRPC's own texts for streams that the other end has reset.
    """
    if not isinstance(error, grpc.Call) or error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED:
        return False
    if error.code() in _LOST or (error.details() or "").startswith(_TRANSPORT):
        return True
    return reason_of(error) in _LOST_REASONS


def is_overdue(error: grpc.RpcError) -> bool:
    """Return whether a call failed because its own deadline has passed, by gRPC's text for that."""
    if not isinstance(error, grpc.Call):
        return False
    is_deadline = error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    return is_deadline and (error.details() or "").startswith("Deadline Exceeded")


def describe(error: grpc.RpcError) -> str:
    """Return a failed call's status code and details, with what to do where that is known."""
    if not isinstance(error, grpc.Call):
        return str(error)
    details = error.details() or "nothing more"
    advice = [text for part, text in _ADVICE.items() if part in details]
    return "; ".join([f"{error.code().name}: {details}", *advice])
