"""One POST at a time to a web service, bounded in time and size whatever the service does.

Each call runs in a thread of its own, which is abandoned at the timeout: so a name that is not
resolved, a handshake that hangs and an answer that arrives byte by byte are all bounded. A
connection is kept for the next call; if it turns out to have been closed, the call is repeated.
"""

from __future__ import annotations

import ssl
import warnings
from dataclasses import dataclass
from http.client import HTTPException
from threading import Thread
from time import monotonic
from typing import Any
from urllib.parse import urlsplit

from urllib3 import BaseHTTPResponse, HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import HTTPError, InsecureRequestWarning

from services.kube.time import SECOND_NS
from services.scheduler.config.extenders import UrlError

ANSWER_BYTES_MAX = 64 * 1024 * 1024
_OK = 200
_HEADERS = {"Content-Type": "application/json"}


class CallError(Exception):
    """A call without a response of status 200; the text says why, without clock values."""


@dataclass(slots=True)
class _Result:
    response: BaseHTTPResponse | None = None
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
        self._timeout_ns = timeout_ns
        self._tls: dict[str, Any] | None = None
        if parts.scheme == "https":
            context = context or ssl.create_default_context()
            self._tls = {"ssl_context": context}
            if context.verify_mode is ssl.CERT_NONE:
                warnings.simplefilter("ignore", InsecureRequestWarning)  # as configured
            if server_name:
                self._tls |= {"server_hostname": server_name, "assert_hostname": server_name}
        self._pool = self._connections()

    def post(self, verb: str, body: bytes) -> bytes:
        """Return the answer's body. Raises CallError."""
        deadline = monotonic() + self._timeout_ns / SECOND_NS
        kept = self._pool.num_requests > 0
        try:
            return self._bounded(verb, body, deadline)
        except ConnectionError as error:
            if not kept:
                raise _call_error(error, self._timeout_ns) from error
        try:
            return self._bounded(verb, body, deadline)
        except ConnectionError as error:
            raise _call_error(error, self._timeout_ns) from error

    def close(self) -> None:
        """Close the connection, if there is one; the next call makes another."""
        self._pool.close()
        self._pool = self._connections()

    def _connections(self) -> HTTPConnectionPool:
        timeout = self._timeout_ns / SECOND_NS
        if self._tls is None:
            return HTTPConnectionPool(self._host, self._port, timeout=timeout)
        return HTTPSConnectionPool(self._host, self._port, timeout=timeout, **self._tls)

    def _bounded(self, verb: str, body: bytes, deadline: float) -> bytes:
        """Call once. Raises ConnectionError if the other side closed, CallError otherwise."""
        result = _Result()
        thread = Thread(
            target=self._call, args=(self._pool, verb, body, result), daemon=True, name="extender"
        )
        thread.start()
        thread.join(max(deadline - monotonic(), 0))
        if result.body is not None:
            return result.body
        self.close()
        if result.error is None:
            if result.response is not None:
                result.response.shutdown()  # ends the thread, which may be reading
            raise CallError(f"no answer within {_seconds(self._timeout_ns)} s")
        cause = _cause(result.error)
        if isinstance(cause, ConnectionError):
            raise cause
        raise _call_error(cause, self._timeout_ns)

    def _call(self, pool: HTTPConnectionPool, verb: str, body: bytes, result: _Result) -> None:
        try:
            result.response = pool.urlopen(
                "POST",
                f"{self._path}/{verb}",
                body,
                _HEADERS,
                retries=False,
                redirect=False,
                preload_content=False,
            )
            result.body = _body(result.response)
        except Exception as error:
            result.error = error


def _body(response: BaseHTTPResponse) -> bytes:
    body = response.read(ANSWER_BYTES_MAX + 1, decode_content=False)
    if response.status != _OK:
        raise CallError(f"status {response.status}")
    if len(body) > ANSWER_BYTES_MAX:
        raise CallError(f"the answer is larger than {ANSWER_BYTES_MAX} bytes")
    response.release_conn()
    return body


def _cause(error: Exception) -> Exception:
    """Return what urllib3's error wraps: in its arguments, or as its cause."""
    while isinstance(error, HTTPError):
        inner = [cause for cause in (*error.args, error.__cause__) if isinstance(cause, Exception)]
        if not inner:
            return error
        error = inner[-1]
    return error


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
