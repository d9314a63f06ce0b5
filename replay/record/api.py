"""Requests to an API server: objects as JSON, and watches as lines that come as they come.

The only module that needs urllib3, which the extra `reprieve[record]` brings.
"""

from __future__ import annotations

import contextlib
import ssl
import tempfile
import urllib.request
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from threading import Lock
from typing import Any
from urllib.parse import urlencode, urlsplit

import orjson
import urllib3
from urllib3.exceptions import HTTPError, InsecureRequestWarning

from replay.record.credentials import Credential, Credentials
from replay.record.errors import ApiError, KubeconfigError, RecordError, UnreachableError
from replay.record.kubeconfig import Access, Certificate, Tls

CONNECT_S = 10.0
ANSWER_S = 60.0
_CHUNK_BYTES = 1 << 16
_LINE_BYTES_MAX = 1 << 26
_CONNECTIONS = 64
Query = Mapping[str, str | int]


class Stream:
    """The lines of an answer that goes on; `stop` ends it, from any thread."""

    def __init__(self, path: str, response: urllib3.BaseHTTPResponse) -> None:
        self._path = path
        self._response = response

    def lines(self) -> Iterator[bytes]:
        """Yield whole lines until the server ends the answer. Raises UnreachableError."""
        rest = b""
        try:
            for chunk in self._response.stream(_CHUNK_BYTES):
                *lines, rest = (rest + chunk).split(b"\n")
                yield from filter(None, lines)
                if len(rest) > _LINE_BYTES_MAX:
                    raise UnreachableError(f"{self._path}: a line of the answer has no end")
        except (HTTPError, OSError, ValueError) as error:
            raise UnreachableError(f"{self._path}: {_words(error)}") from error

    def stop(self) -> None:
        """Let `lines` end soon."""
        # Where nothing is open any more there is nothing to be ended.
        with contextlib.suppress(OSError, RuntimeError, ValueError):
            self._response.shutdown()

    def close(self) -> None:
        """Give the connection up."""
        with contextlib.suppress(OSError, HTTPError):
            self._response.close()


class ApiServer:
    """One API server, asked by many threads at once. `now_ns` reads the wall clock."""

    def __init__(self, access: Access, now_ns: Callable[[], int]) -> None:
        self.address = access.server
        self._access = access
        self._credentials = Credentials(access, now_ns)
        self._lock = Lock()
        self._pool: urllib3.PoolManager | None = None
        self._certificate: Certificate | None = None

    def get(self, path: str, query: Query | None = None) -> dict[str, Any]:
        """Return the object at `path`. Raises ApiError, UnreachableError, RecordError."""
        response = self._request(path, query or {}, ANSWER_S, is_stream=False)
        try:
            answer = orjson.loads(response.data)
        except orjson.JSONDecodeError as error:
            raise ApiError(path, response.status, "NoJSON", "the answer is no JSON") from error
        if not isinstance(answer, dict):
            raise ApiError(path, response.status, "NoObject", "the answer is no object")
        return answer

    @contextlib.contextmanager
    def stream(self, path: str, query: Query, silence_s: float) -> Iterator[Stream]:
        """Open an answer that goes on; it breaks when nothing came for `silence_s`."""
        response = self._request(path, query, silence_s, is_stream=True)
        stream = Stream(path, response)
        try:
            yield stream
        finally:
            stream.close()

    def _request(
        self, path: str, query: Query, silence_s: float, *, is_stream: bool
    ) -> urllib3.BaseHTTPResponse:
        credential = self._credentials.current()
        response = self._send(credential, path, query, silence_s, is_stream=is_stream)
        if response.status == 401 and self._credentials.refused(credential):
            response.close()
            credential = self._credentials.current()
            response = self._send(credential, path, query, silence_s, is_stream=is_stream)
        if response.status != 200:
            raise _refusal(path, response)
        return response

    def _send(
        self, credential: Credential, path: str, query: Query, silence_s: float, *, is_stream: bool
    ) -> urllib3.BaseHTTPResponse:
        headers = {
            **credential.headers,
            "Accept": "application/json",
            "User-Agent": "reprieve",
            **({} if is_stream else {"Accept-Encoding": "gzip"}),
        }
        url = f"{self.address}{path}" + (f"?{urlencode(query)}" if query else "")
        try:
            return self._pool_for(credential).request(
                "GET",
                url,
                headers=headers,
                preload_content=not is_stream,
                redirect=False,
                retries=False,
                timeout=urllib3.Timeout(connect=CONNECT_S, read=silence_s),
            )
        except (HTTPError, OSError) as error:
            raise UnreachableError(f"{self.address}: {_words(error)}") from error

    def _pool_for(self, credential: Credential) -> urllib3.PoolManager:
        """Return the connections that show the credential's certificate."""
        with self._lock:
            if self._pool is None or self._certificate != credential.certificate:
                self._pool = _pool(self._access, credential.certificate)
                self._certificate = credential.certificate
            return self._pool


def plain_pool() -> urllib3.PoolManager:
    """Return connections to servers that are no API server, trusting what this machine trusts."""
    timeout = urllib3.Timeout(connect=CONNECT_S, read=ANSWER_S)
    return urllib3.PoolManager(retries=False, timeout=timeout)


def _pool(access: Access, certificate: Certificate | None) -> urllib3.PoolManager:
    options: dict[str, Any] = {"maxsize": _CONNECTIONS}
    if access.server.startswith("https://"):
        options["ssl_context"] = _ssl_context(access, certificate)
        if access.tls.server_name:
            options["server_hostname"] = access.tls.server_name
            options["assert_hostname"] = access.tls.server_name
    if access.tls.insecure:
        warnings.simplefilter("ignore", InsecureRequestWarning)
    proxy_url = access.proxy_url or _proxy_of_environment(access.server)
    if not proxy_url:
        return urllib3.PoolManager(**options)
    if not proxy_url.startswith(("http://", "https://")):
        raise KubeconfigError(access.name, f"proxy-url {proxy_url}: only http and https are served")
    return urllib3.ProxyManager(proxy_url, **options)


def _proxy_of_environment(server: str) -> str:
    address = urlsplit(server)
    if urllib.request.proxy_bypass(address.hostname or ""):
        return ""
    return urllib.request.getproxies().get(address.scheme, "")


def _ssl_context(access: Access, certificate: Certificate | None) -> ssl.SSLContext:
    try:
        context = _trusting(access.tls)
        if certificate is not None:
            _show(context, certificate)
    except (ssl.SSLError, ValueError) as error:
        problem = f"a certificate or key cannot be read: {error}"
        raise KubeconfigError(access.name, problem) from error
    return context


def _trusting(tls: Tls) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=tls.ca_pem or None)
    if tls.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _show(context: ssl.SSLContext, certificate: Certificate) -> None:
    """Load a certificate, which Python takes from files only; they are gone at once."""
    with tempfile.TemporaryDirectory(prefix="reprieve-") as folder:
        chain, key = Path(folder, "chain.pem"), Path(folder, "key.pem")
        chain.write_bytes(certificate.chain_pem)
        key.touch(mode=0o600)
        key.write_bytes(certificate.key_pem)
        context.load_cert_chain(chain, key)


def _refusal(path: str, response: urllib3.BaseHTTPResponse) -> RecordError:
    reason, message = response.reason or "", ""
    try:
        status = orjson.loads(response.data)
        reason, message = str(status["reason"]), str(status["message"])
    except (HTTPError, OSError, ValueError, KeyError, TypeError):
        pass
    response.close()
    return ApiError(path, response.status, reason, message)


def _words(error: Exception) -> str:
    """Return what went wrong, without the objects that urllib3's texts begin with."""
    cause: BaseException = getattr(error, "reason", None) or error
    text = str(cause) if isinstance(cause, BaseException) else str(error)
    return text.rpartition("object at 0x")[2].partition(">: ")[2] or text or type(error).__name__
