"""Requests to an API server: objects as JSON, and watches as streams of lines.

Source of the credentials: kubernetes v1.34 client-go plugin/pkg/client/auth/exec/exec.go (the input
and output of a plugin), transport/token_source.go (the file of a token is read again after a
minute).
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import ssl
import subprocess
import sys
import tempfile
import urllib.request
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any
from urllib.parse import urlencode, urlsplit

import orjson
import urllib3
from urllib3.exceptions import HTTPError, InsecureRequestWarning

from replay.errors import ApiError, KubeconfigError, RecordError, UnreachableError
from replay.kube.changes import time_ns
from replay.record.kubeconfig import Access, Certificate, ExecPlugin, Tls

CONNECT_S = 10.0
ANSWER_S = 60.0
_CHUNK_BYTES = 1 << 16
_LINE_BYTES_MAX = 1 << 26
_CONNECTIONS = 64
Query = Mapping[str, str | int]
_PLUGIN_TIMEOUT_S = 120
_TOKEN_FILE_NS = 60 * 10**9
_EARLY_NS = 10 * 10**9


class Stream:
    """The lines of a streamed answer; `stop` may be called by any thread."""

    def __init__(self, path: str, response: urllib3.BaseHTTPResponse) -> None:
        self._path = path
        self._response = response

    def lines(self) -> Iterator[bytes]:
        """Yield complete lines until the server ends the answer. Raises UnreachableError."""
        rest = b""
        try:
            for chunk in self._response.stream(_CHUNK_BYTES):
                *lines, rest = (rest + chunk).split(b"\n")
                yield from filter(None, lines)
                if len(rest) > _LINE_BYTES_MAX:
                    raise UnreachableError(f"{self._path}: a line is longer than 64 MiB")
        except (HTTPError, OSError, ValueError) as error:
            raise UnreachableError(f"{self._path}: {_message(error)}") from error

    def stop(self) -> None:
        """Shut the connection down, so that `lines` ends."""
        # The connection may be closed already.
        with contextlib.suppress(OSError, RuntimeError, ValueError):
            self._response.shutdown()

    def close(self) -> None:
        """Close the connection."""
        with contextlib.suppress(OSError, HTTPError):
            self._response.close()


class ApiServer:
    """The client of one API server; thread-safe. `now_ns` reads the wall clock."""

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
            raise ApiError(path, response.status, "NoJSON", "the answer is not JSON") from error
        if not isinstance(answer, dict):
            raise ApiError(path, response.status, "NoObject", "the answer is not an object")
        return answer

    @contextlib.contextmanager
    def stream(self, path: str, query: Query, silence_s: float) -> Iterator[Stream]:
        """Open a streamed answer; it fails after `silence_s` without data."""
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
            raise UnreachableError(f"{self.address}: {_message(error)}") from error

    def _pool_for(self, credential: Credential) -> urllib3.PoolManager:
        with self._lock:
            if self._pool is None or self._certificate != credential.certificate:
                self._pool = _pool(self._access, credential.certificate)
                self._certificate = credential.certificate
            return self._pool


def plain_pool() -> urllib3.PoolManager:
    """Return a pool for servers other than API servers; it trusts this machine's certificates."""
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
        problem = f"proxy-url {proxy_url}: only http and https are supported"
        raise KubeconfigError(access.name, problem)
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
    """Load a certificate from temporary files, since Python reads it only from files."""
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


def _message(error: Exception) -> str:
    """Return the message of an error, without the reprs of objects in urllib3's texts."""
    cause: BaseException = getattr(error, "reason", None) or error
    text = str(cause) if isinstance(cause, BaseException) else str(error)
    return text.rpartition("object at 0x")[2].partition(">: ")[2] or text or type(error).__name__


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """Headers and certificate of a request; `until_ns` is when they expire, or None."""

    headers: Mapping[str, str]
    certificate: Certificate | None
    until_ns: int | None = None


class Credentials:
    """The current credential of one user; thread-safe. `now_ns` reads the wall clock."""

    def __init__(self, access: Access, now_ns: Callable[[], int]) -> None:
        self._access = access
        self._now_ns = now_ns
        self._lock = Lock()
        self._held: Credential | None = None

    def current(self) -> Credential:
        """Return the credential; renew it where it has expired. Raises RecordError."""
        with self._lock:
            now_ns = self._now_ns()
            until_ns = self._held.until_ns if self._held else None
            if self._held is None or (until_ns is not None and now_ns >= until_ns):
                self._held = _credential(self._access, now_ns)
            return self._held

    def refused(self, credential: Credential) -> bool:
        """Forget a credential that the server refused; return whether a new one may differ."""
        with self._lock:
            if self._held is credential:
                self._held = None
        return self._access.exec_plugin is not None or self._access.token_file is not None


def _credential(access: Access, now_ns: int) -> Credential:
    token, until_ns = access.token, None
    if access.token_file is not None:
        token, until_ns = _token_of(access), now_ns + _TOKEN_FILE_NS
    certificate = access.certificate
    if access.exec_plugin is not None:
        status = _run(access.exec_plugin)
        token = str(status.get("token") or "")
        certificate = _plugin_certificate(status) or certificate
        expires_ns = time_ns(status.get("expirationTimestamp"))
        until_ns = None if expires_ns is None else expires_ns - _EARLY_NS
    headers = dict(access.headers)
    if token:
        headers["Authorization"] = f"Bearer {token}"
    elif access.username:
        pair = f"{access.username}:{access.password}".encode()
        headers["Authorization"] = "Basic " + base64.b64encode(pair).decode()
    return Credential(headers=headers, certificate=certificate, until_ns=until_ns)


def _token_of(access: Access) -> str:
    file = access.token_file
    if file is None:
        return ""
    try:
        return file.read_text(encoding="utf-8").strip()
    except OSError as error:
        problem = f"the token cannot be read: {error.strerror or error}"
        raise RecordError(f"{file}: {problem}") from error


def _run(plugin: ExecPlugin) -> Mapping[str, Any]:
    """Run a plugin and return the status of its ExecCredential. Raises RecordError."""
    is_interactive = plugin.is_interactive and sys.stdin.isatty()
    spec: dict[str, object] = {"interactive": is_interactive}
    if plugin.cluster is not None:
        spec["cluster"] = plugin.cluster
    info = {"kind": "ExecCredential", "apiVersion": plugin.api_version, "spec": spec}
    environment = {**os.environ, **plugin.environment, "KUBERNETES_EXEC_INFO": json.dumps(info)}
    try:
        done = subprocess.run(  # noqa: S603 - the program that the user's own kubeconfig names
            [plugin.command, *plugin.arguments],
            env=environment,
            stdin=None if is_interactive else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            timeout=_PLUGIN_TIMEOUT_S,
            check=True,
        )
        answer = json.loads(done.stdout)
    except FileNotFoundError as error:
        hint = f" {plugin.install_hint}" if plugin.install_hint else ""
        raise RecordError(
            f"exec plugin {plugin.command}: the program is not installed.{hint}"
        ) from error
    except (OSError, subprocess.SubprocessError) as error:
        raise RecordError(f"exec plugin {plugin.command}: {error}") from error
    except ValueError as error:
        raise RecordError(f"exec plugin {plugin.command}: its output is not JSON") from error
    status = answer.get("status") if isinstance(answer, dict) else None
    if not isinstance(status, dict) or not (
        status.get("token") or status.get("clientCertificateData")
    ):
        raise RecordError(f"exec plugin {plugin.command}: its output has no credential")
    return status


def _plugin_certificate(status: Mapping[str, Any]) -> Certificate | None:
    chain, key = status.get("clientCertificateData"), status.get("clientKeyData")
    if not isinstance(chain, str) or not isinstance(key, str):
        return None
    return Certificate(chain_pem=chain.encode(), key_pem=key.encode())
