"""One POST at a time to a web service, bounded in time and size whatever the service does.

Each call runs in a thread of its own, which is left behind when the time is over: so are a name
that is not resolved, a handshake that hangs and an answer that comes byte by byte. A connection is
kept for the next call; where it turns out to have been closed meanwhile, the call is made anew.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from threading import Thread
from time import monotonic
from urllib.parse import urlsplit

ANSWER_BYTES_MAX = 64 * 1024 * 1024
SECOND_NS = 1_000_000_000
_OK = 200


class CallError(Exception):
    """A call that got no answer of status 200; the text says why, without a clock's value."""


class UrlError(ValueError):
    """An address that no call can be made to."""


@dataclass(slots=True)
class _Result:
    body: bytes | None = None
    error: Exception | None = None


class HttpCaller:
    """Calls below one address; `timeout_ns` bounds each. Raises UrlError for a bad `url_prefix`.

    context: for https, None elsewhere. server_name: what the server's certificate must be for,
    where that is not the host of the address.
    """

    def __init__(
        self,
        url_prefix: str,
        timeout_ns: int,
        context: ssl.SSLContext | None = None,
        server_name: str = "",
    ) -> None:
        try:
            parts = urlsplit(url_prefix)
            self._host, self._port = parts.hostname or "", parts.port
        except ValueError as error:
            raise UrlError(str(error)) from None
        if parts.scheme not in {"http", "https"} or not self._host:
            raise UrlError("must be http://HOST[:PORT][/PATH], https://... or grpc://HOST:PORT")
        self._path = parts.path.rstrip("/")
        self._secure = parts.scheme == "https"
        self._timeout_ns = timeout_ns
        self._context = context
        self._server_name = server_name
        self._connection: HTTPConnection | None = None

    def post(self, verb: str, body: bytes) -> bytes:
        """Return the answer's body. Raises CallError."""
        deadline = monotonic() + self._timeout_ns / SECOND_NS
        answer = self._bounded(verb, body, deadline)
        if answer is None:
            answer = self._bounded(verb, body, deadline)
        if answer is None:
            raise CallError("the connection was closed before the answer")
        return answer

    def close(self) -> None:
        """Close the connection, if there is one; the next call makes another."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        sock = connection.sock
        if isinstance(sock, socket.socket):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(OSError):
            connection.close()

    def _bounded(self, verb: str, body: bytes, deadline: float) -> bytes | None:
        """Call once; None where a kept connection had been closed by the other side."""
        kept = self._connection is not None
        connection = self._connection or self._connect()
        self._connection = connection
        result = _Result()
        thread = Thread(
            target=self._call, args=(connection, verb, body, result), daemon=True, name="extender"
        )
        thread.start()
        thread.join(max(deadline - monotonic(), 0))
        if thread.is_alive():
            self.close()
            raise CallError(f"no answer within {_seconds(self._timeout_ns)} s")
        if result.error is None:
            return result.body
        self.close()
        if kept and isinstance(result.error, ConnectionError):
            return None
        raise _call_error(result.error, self._timeout_ns)

    def _connect(self) -> HTTPConnection:
        timeout = self._timeout_ns / SECOND_NS
        if not self._secure:
            return HTTPConnection(self._host, self._port, timeout=timeout)
        context = self._context or ssl.create_default_context()
        if self._server_name:
            return _NamedConnection(self._host, self._port, timeout, context, self._server_name)
        return HTTPSConnection(self._host, self._port, timeout=timeout, context=context)

    def _call(self, connection: HTTPConnection, verb: str, body: bytes, result: _Result) -> None:
        try:
            headers = {"Content-Type": "application/json"}
            connection.request("POST", f"{self._path}/{verb}", body, headers)
            response = connection.getresponse()
            read = response.read(ANSWER_BYTES_MAX + 1)
            if response.status != _OK:
                raise CallError(f"status {response.status}")
            if len(read) > ANSWER_BYTES_MAX:
                raise CallError(f"the answer is larger than {ANSWER_BYTES_MAX} bytes")
            result.body = read
        except Exception as error:
            result.error = error


class _NamedConnection(HTTPSConnection):
    """An https connection whose server must show a certificate for another name."""

    def __init__(
        self, host: str, port: int | None, timeout: float, context: ssl.SSLContext, name: str
    ) -> None:
        super().__init__(host, port, timeout=timeout, context=context)
        self._named, self._name = context, name

    def connect(self) -> None:
        """Connect, and shake hands with the server under its other name."""
        HTTPConnection.connect(self)
        self.sock = self._named.wrap_socket(self.sock, server_hostname=self._name)


def _call_error(error: Exception, timeout_ns: int) -> CallError:
    if isinstance(error, CallError):
        return error
    if isinstance(error, TimeoutError):
        return CallError(f"no answer within {_seconds(timeout_ns)} s")
    if isinstance(error, HTTPException):
        return CallError(f"the answer is no HTTP ({type(error).__name__})")
    if isinstance(error, ssl.SSLError):
        return CallError(f"TLS failed: {error.reason or type(error).__name__}")
    if isinstance(error, OSError):
        return CallError(f"cannot be reached: {error.strerror or type(error).__name__}")
    return CallError(f"{type(error).__name__}: {error}")


def _seconds(timeout_ns: int) -> str:
    return f"{timeout_ns / SECOND_NS:g}"
