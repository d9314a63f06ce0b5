"""Requests to an API server: objects as JSON, and watches as streams of lines."""

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
from urllib3.exceptions import InsecureRequestWarning

from replay.errors import ApiError, KubeconfigError, RecordError
from replay.record.backoff import retry_after_s
from replay.record.credentials import Credential, Credentials
from replay.record.http_client import Answer, Connections, RequestBounds, pool_manager
from replay.record.kubeconfig import Access, Certificate, Tls, without_user

_CONNECTIONS = 64
_STATUS_BYTES = 1 << 20
_TEXT_LENGTH_MAX = 500
_BOUNDS = {
    "response": ("request_s", "response_bytes"),
    "usage": ("usage_s", "usage_bytes"),
    "proof": ("end_s", "response_bytes"),
}
"""The fields of RequestBounds for a response, a sample of usage, and a proof of completeness."""
Query = Mapping[str, str | int]


class ApiServer:
    """The client of one API server; thread-safe. `now_ns` reads the wall clock."""

    def __init__(
        self, access: Access, now_ns: Callable[[], int], bounds: RequestBounds | None = None
    ) -> None:
        self.address = access.server
        self.namespace = access.namespace
        self.connections = Connections(bounds or RequestBounds())
        self._access = access
        self._now_ns = now_ns
        self._credentials = Credentials(access, now_ns)
        self._lock = Lock()
        self._pool: urllib3.PoolManager | None = None
        self._certificate: Certificate | None = None

    @property
    def bounds(self) -> RequestBounds:
        """Return the bounds of requests."""
        return self.connections.bounds

    def stop(self) -> None:
        """Abort all requests, and refuse new ones; any thread may call this."""
        self.connections.stop()

    def get(self, path: str, query: Query | None = None, *, of: str = "response") -> dict[str, Any]:
        """Return the object at `path`. Raises ApiError, UnreachableError, RecordError."""
        with self.opened(path, query, of=of) as answer:
            return answer

    @contextlib.contextmanager
    def opened(
        self, path: str, query: Query | None = None, *, of: str = "response"
    ) -> Iterator[dict[str, Any]]:
        """Yield the object at `path`; until the context ends, no other large response is read.

        `of` selects the bounds, by its key in _BOUNDS. Raises as `get`.
        """
        bound_s, bound_bytes = _BOUNDS[of]
        with self._request(path, query or {}, bound_s, {"Accept-Encoding": "gzip"}) as answer:
            try:
                content = orjson.loads(answer.body(bound_bytes))
            except orjson.JSONDecodeError as error:
                raise ApiError(path, answer.status, "NoJSON", "the answer is not JSON") from error
            if not isinstance(content, dict):
                raise ApiError(path, answer.status, "NoObject", "the answer is not an object")
            yield content

    @contextlib.contextmanager
    def stream(self, path: str, query: Query, silence_s: float) -> Iterator[Answer]:
        """Open a streamed response; reading it fails after `silence_s` without data."""
        with self._request(path, query, "request_s", {}, silence_s) as answer:
            yield answer

    def shown(self, text: str) -> str:
        """Return a server's text for users: one short line without the secrets that were sent."""
        text = self._credentials.hide(text)
        if len(text) > _TEXT_LENGTH_MAX:
            text = f"{text[:_TEXT_LENGTH_MAX]}..."
        return "".join(character if character.isprintable() else " " for character in text)

    @contextlib.contextmanager
    def _request(
        self,
        path: str,
        query: Query,
        bound: str,
        headers: Mapping[str, str],
        silence_s: float | None = None,
    ) -> Iterator[Answer]:
        with contextlib.ExitStack() as open_requests:

            def send(credential: Credential) -> Answer:
                return open_requests.enter_context(
                    self.connections.get(
                        self._pool_for(credential),
                        f"{self.address}{path}" + (f"?{urlencode(query)}" if query else ""),
                        {
                            **credential.headers,
                            "Accept": "application/json",
                            "User-Agent": "reprieve",
                            **headers,
                        },
                        server=self.address,
                        where=path,
                        bound=bound,
                        idle_s=silence_s,
                    )
                )

            credential = self._credentials.current()
            answer = send(credential)
            if answer.status == 401 and self._credentials.refused(credential):
                open_requests.close()
                answer = send(self._credentials.current())
            if answer.status != 200:
                raise self._refusal(path, answer)
            yield answer

    def _refusal(self, path: str, answer: Answer) -> ApiError:
        reason, message = answer.reason, ""
        if 300 <= answer.status < 400:
            host = urlsplit(answer.headers.get("Location") or "").hostname or "another path"
            message = f"the answer is a redirect to {host}, which is not followed"
        with contextlib.suppress(RecordError, ValueError, KeyError, TypeError):
            status = orjson.loads(answer.start(_STATUS_BYTES))
            reason, message = str(status["reason"]), str(status["message"])
        header = answer.headers.get("Retry-After")
        wait_s = retry_after_s(answer.status, header, self._now_ns())
        return ApiError(path, answer.status, self.shown(reason), self.shown(message), wait_s)

    def _pool_for(self, credential: Credential) -> urllib3.PoolManager:
        with self._lock:
            if self._pool is None or self._certificate != credential.certificate:
                self._pool = _pool(self._access, credential.certificate)
                self._certificate = credential.certificate
            return self._pool


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
    if proxy_url and not proxy_url.startswith(("http://", "https://")):
        problem = f"proxy-url {without_user(proxy_url)}: only http and https are supported"
        raise KubeconfigError(access.name, problem)
    return pool_manager(proxy_url, **options)


def _proxy_of_environment(server: str) -> str:
    address = urlsplit(server)
    if urllib.request.proxy_bypass(address.hostname or ""):
        return ""
    return urllib.request.getproxies().get(address.scheme, "")


def _ssl_context(access: Access, certificate: Certificate | None) -> ssl.SSLContext:
    try:
        context = _trusting(access.tls)
        if certificate is not None:
            _load(context, certificate)
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


def _load(context: ssl.SSLContext, certificate: Certificate) -> None:
    """Load a certificate from temporary files, because Python can read it only from files."""
    with tempfile.TemporaryDirectory(prefix="reprieve-") as folder:
        chain, key = Path(folder, "chain.pem"), Path(folder, "key.pem")
        chain.write_bytes(certificate.chain_pem)
        key.touch(mode=0o600)
        key.write_bytes(certificate.key_pem)
        context.load_cert_chain(chain, key)
