"""HTTP requests with bounds on bytes and time; another thread can abort each of them.

Two rules hold. First, a request ends at its deadline, whatever the server does: a thread of
`Connections` shuts down its socket, whether the request is in the TLS handshake, the headers or the
body. Second, a response never takes more memory than its bound: bytes are counted after
decompression, while they arrive.
"""

from __future__ import annotations

import contextlib
import re
import socket
import time
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from http.client import HTTPException
from threading import Condition, Lock, Thread
from typing import Any

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import DecodeError, HTTPError

from replay.errors import RecordError, UnreachableError

_PIECE_BYTES = 1 << 16
_LARGE_BYTES = 1 << 24
_GATE_S = 0.05
_FAILURES = (HTTPError, HTTPException, OSError, ValueError)
_CONNECTION = re.compile(r"^<?[\w.]*Connection(?:\(.*?\)| object at 0x\w+>)?: ")
STOPPED = "the recording has ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestBounds:
    """The bounds of requests; OPTIONS has the option of `reprieve record` for each bound.

    Seconds: `connect_s` to connect to an address. `idle_s` without a byte. `request_s` for a whole
    request with its response. `usage_s` the same for a source of usage. `end_s` the same for a
    request that proves a watch complete, and for all such requests at the end of a recording.

    Bytes, decompressed: `response_bytes` and `usage_bytes` of one response, `event_bytes` of one
    line of a watch, `list_bytes` of all objects of one kind.
    """

    connect_s: float = 10.0
    idle_s: float = 60.0
    request_s: float = 300.0
    usage_s: float = 30.0
    end_s: float = 5.0
    response_bytes: int = 256 << 20
    usage_bytes: int = 64 << 20
    event_bytes: int = 16 << 20
    list_bytes: int = 4 << 30


OPTIONS: Mapping[str, str] = {
    "connect_s": "--connect-timeout",
    "idle_s": "--idle-timeout",
    "request_s": "--request-timeout",
    "usage_s": "--usage-timeout",
    "end_s": "--end-timeout",
    "response_bytes": "--max-response-bytes",
    "usage_bytes": "--max-usage-bytes",
    "event_bytes": "--max-event-bytes",
    "list_bytes": "--max-list-bytes",
}
"""The options by the fields of RequestBounds."""


class BoundError(RecordError):
    """A response exceeds a bound of bytes; the message names the bound and its option."""

    def __init__(self, where: str, what: str, bound: str, limit_bytes: int) -> None:
        option = OPTIONS[bound]
        super().__init__(
            f"{where}: {what} has more than {limit_bytes:,} bytes, the bound of {option}; "
            f"raise it with {option}"
        )


class Request:
    """A request in progress; `why` is the reason why it was aborted, "" if it was not."""

    def __init__(self, where: str, until_s: float, why: str) -> None:
        self.where = where
        self.until_s = until_s
        self.why = ""
        self.late_why = why
        self.is_large = False
        self._handle: _Handle | None = None

    def attach(self, handle: _Handle) -> None:
        """Use this connection; shut it down at once if the request was already aborted."""
        self.detach()
        self._handle = handle.taken()
        if self.why:
            handle.shut_down()

    def detach(self) -> None:
        """Release the connection."""
        handle, self._handle = self._handle, None
        if handle is not None:
            handle.close()

    def cut(self, why: str) -> None:
        """Abort the request; the thread that waits for it raises `failure`."""
        self.why = self.why or why
        handle = self._handle
        if handle is not None:
            handle.shut_down()

    def failure(self, error: Exception | None = None) -> UnreachableError:
        """Return the error of a request that was aborted, or that failed with `error`."""
        return UnreachableError(f"{self.where}: {self.why or (error and _message(error))}")


_CURRENT: ContextVar[Request | None] = ContextVar("request", default=None)


class Connections:
    """All requests in progress: aborts each at its deadline, and all of them on `stop`."""

    def __init__(self, bounds: RequestBounds) -> None:
        self.bounds = bounds
        self._changed = Condition()
        self._open: set[Request] = set()
        self._cutter: Thread | None = None
        self._is_stopped = False
        # Only one large response is in memory at a time, however many servers respond at once.
        self._gate = Lock()

    def stop(self) -> None:
        """Abort all requests, and refuse new ones."""
        with self._changed:
            self._is_stopped = True
            for request in self._open:
                request.cut(STOPPED)
            self._changed.notify_all()

    @contextlib.contextmanager
    def get(
        self,
        pool: urllib3.PoolManager,
        url: str,
        headers: Mapping[str, str],
        *,
        server: str,
        where: str,
        bound: str = "request_s",
        idle_s: float | None = None,
    ) -> Iterator[Answer]:
        """Send GET and yield the response before its body is read. Raises UnreachableError.

        Error messages begin with `server`; messages about the response begin with `where`. `bound`
        is the field of RequestBounds for the whole request; `idle_s` replaces that of the bounds.
        Redirects are not followed, because the credentials in `headers` are only for this server.
        """
        with self._request(server, bound) as request:
            timeout = urllib3.Timeout(
                connect=self.bounds.connect_s, read=idle_s or self.bounds.idle_s
            )
            try:
                response = pool.request(
                    "GET",
                    url,
                    headers=headers,
                    preload_content=False,
                    redirect=False,
                    retries=False,
                    timeout=timeout,
                )
            except _FAILURES as error:
                raise request.failure(error) from error
            request.where = where
            try:
                yield Answer(self, request, response)
            finally:
                with contextlib.suppress(*_FAILURES):
                    response.close()

    @contextlib.contextmanager
    def _request(self, where: str, bound: str) -> Iterator[Request]:
        seconds: float = getattr(self.bounds, bound)
        option = OPTIONS[bound]
        why = f"the answer was not complete after {seconds:g}s, the bound of {option}"
        request = Request(where, time.monotonic() + seconds, why)
        with self._changed:
            if self._is_stopped:
                raise UnreachableError(f"{where}: {STOPPED}")
            self._open.add(request)
            if self._cutter is None:
                self._cutter = Thread(target=self._cut_late, daemon=True)
                self._cutter.start()
            self._changed.notify_all()
        token = _CURRENT.set(request)
        try:
            yield request
        finally:
            _CURRENT.reset(token)
            if request.is_large:
                self._gate.release()
            with self._changed:
                self._open.discard(request)
                request.detach()

    def _cut_late(self) -> None:
        """Abort requests at their deadlines, until none is in progress; runs in a thread."""
        with self._changed:
            while self._open and not self._is_stopped:
                now_s = time.monotonic()
                for request in self._open:
                    if request.until_s <= now_s:
                        request.cut(request.late_why)
                remaining_s = [
                    open_request.until_s - now_s
                    for open_request in self._open
                    if not open_request.why
                ]
                self._changed.wait(max(0.0, min(remaining_s)) if remaining_s else None)
            self._cutter = None

    def renew(self, request: Request, seconds: float, why: str) -> None:
        """Set a request's deadline to `seconds` from now; `why`: the reason given if it passes."""
        with self._changed:
            request.until_s, request.late_why = time.monotonic() + seconds, why
            self._changed.notify_all()

    def enter_large(self, request: Request) -> None:
        """Wait until no other large response is in memory. Raises UnreachableError."""
        while not self._gate.acquire(timeout=_GATE_S):
            if request.why:
                raise request.failure()
        request.is_large = True


class Answer:
    """A server's response; its body can be read once, by `body` or by `lines`.

    `is_within_line`: whether a part of a line has been received, but not its end.
    """

    def __init__(
        self, connections: Connections, request: Request, response: urllib3.BaseHTTPResponse
    ) -> None:
        self.status = response.status
        self.reason = response.reason or ""
        self.headers: Mapping[str, str] = response.headers
        self._connections = connections
        self._request = request
        self._response = response
        self.is_within_line = False

    def body(self, bound: str) -> bytes:
        """Return the body; `bound` is the field of RequestBounds for its bytes.

        Raises BoundError as soon as the bytes exceed the bound (if Content-Length exceeds the
        bound, before reading), and UnreachableError.
        """
        limit_bytes: int = getattr(self._connections.bounds, bound)
        length = self.headers.get("Content-Length") or ""
        if length.isdecimal() and (len(length) > 18 or int(length) > limit_bytes):
            raise BoundError(self._request.where, "the answer", bound, limit_bytes)
        pieces, held = list[bytes](), 0
        for piece in self._pieces():
            held += len(piece)
            if held > limit_bytes:
                raise BoundError(self._request.where, "the answer", bound, limit_bytes)
            if held > _LARGE_BYTES and not self._request.is_large:
                self._connections.enter_large(self._request)
            pieces.append(piece)
        return b"".join(pieces)

    def start(self, limit_bytes: int) -> bytes:
        """Return the beginning of the body, for a message. Raises UnreachableError."""
        start = b""
        for piece in self._pieces():
            start += piece
            if len(start) >= limit_bytes:
                break
        return start[:limit_bytes]

    def lines(self, seconds: float) -> Iterator[bytes]:
        """Yield complete lines until the server ends the response, for at most `seconds`.

        Raises BoundError for a line above `event_bytes`, and UnreachableError.
        """
        why = f"the server did not end the watch after {seconds:g}s"
        self._connections.renew(self._request, seconds, why)
        limit_bytes = self._connections.bounds.event_bytes
        rest = bytearray()
        for piece in self._pieces():
            searched = len(rest)
            rest += piece
            self.is_within_line = True
            end = rest.find(b"\n", searched)
            begin = 0
            while end >= 0:
                if end > begin:
                    yield bytes(rest[begin:end])
                begin = end + 1
                end = rest.find(b"\n", begin)
            del rest[:begin]
            self.is_within_line = bool(rest)
            if len(rest) > limit_bytes:
                what = "a line of the watch"
                raise BoundError(self._request.where, what, "event_bytes", limit_bytes)

    def _pieces(self) -> Iterator[bytes]:
        while True:
            try:
                piece = self._response.read1(_PIECE_BYTES, decode_content=True)
            except _FAILURES as error:
                raise self._request.failure(error) from error
            if self._request.why:
                # A body without a length ends with its connection: an aborted one looks complete.
                raise self._request.failure()
            if not piece:
                return
            yield piece


class _Handle:
    """A second handle of a connected socket, which any thread may shut down.

    The handle is closed after both its connection and its request have closed it, because the body
    of a response may be read after the connection object is closed.
    """

    def __init__(self, connected: socket.socket) -> None:
        # The TLS wrapper detaches the original socket.
        self._socket = connected.dup()
        self._users = 1
        self._lock = Lock()

    def taken(self) -> _Handle:
        with self._lock:
            self._users += 1
        return self

    def shut_down(self) -> None:
        with self._lock, contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        with self._lock:
            self._users -= 1
            if not self._users:
                self._socket.close()


class _CuttableConnection(HTTPConnection):
    _handle: _Handle | None = None

    def _new_conn(self) -> socket.socket:
        connected = super()._new_conn()
        self._handle = _Handle(connected)
        self._attach()
        return connected

    def putrequest(self, *arguments: Any, **options: Any) -> None:
        self._attach()
        super().putrequest(*arguments, **options)

    def close(self) -> None:
        super().close()
        if self._handle is not None:
            self._handle.close()
            self._handle = None

    def _attach(self) -> None:
        request = _CURRENT.get()
        if request is not None and self._handle is not None:
            request.attach(self._handle)


class _CuttableTlsConnection(_CuttableConnection, HTTPSConnection):
    pass


class _Pool(HTTPConnectionPool):
    ConnectionCls = _CuttableConnection


class _TlsPool(HTTPSConnectionPool):
    ConnectionCls = _CuttableTlsConnection


def pool_manager(proxy_url: str = "", **options: Any) -> urllib3.PoolManager:
    """Return a pool of connections for `Connections.get`; `options` are urllib3's."""
    manager = (
        urllib3.ProxyManager(proxy_url, **options) if proxy_url else urllib3.PoolManager(**options)
    )
    manager.pool_classes_by_scheme = {"http": _Pool, "https": _TlsPool}
    return manager


def _message(error: Exception) -> str:
    """Return the message of an error, without the object reprs in urllib3's texts."""
    parts = [getattr(error, "reason", None), *reversed(error.args), error]
    cause = next(argument for argument in parts if isinstance(argument, BaseException))
    if isinstance(error, DecodeError):
        return str(error.args[0])
    return _CONNECTION.sub("", str(cause)) or type(cause).__name__
