"""The credentials of a kubeconfig's user: fixed ones, a token file, or an exec plugin.

Source: kubernetes v1.34 client-go plugin/pkg/client/auth/exec/exec.go (the input and output of a
plugin), transport/token_source.go (the file of a token is read again after a minute).
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import orjson

from replay.errors import RecordError
from replay.kube.changes import time_ns
from replay.record.backoff import Backoff
from replay.record.kubeconfig import Access, Certificate, ExecPlugin
from services.kube.time import MINUTE_NS, SECOND_NS

_PLUGIN_TIMEOUT_S = 120
_TOKEN_FILE_NS = MINUTE_NS
_EARLY_NS = 10 * SECOND_NS
_SECRET_LENGTH_MIN = 4
_SECRETS_MAX = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """Headers and certificate of a request; `until_ns` is when they expire, or None."""

    headers: Mapping[str, str] = field(repr=False)
    certificate: Certificate | None
    until_ns: int | None = None


class Credentials:
    """The current credential of one user; thread-safe. `now_ns` reads the wall clock."""

    def __init__(self, access: Access, now_ns: Callable[[], int]) -> None:
        self._access = access
        self._now_ns = now_ns
        self._lock = Lock()
        self._held: Credential | None = None
        self._renewals: Backoff | None = None
        self._renewable_ns = 0
        self._secrets: list[str] = []

    def current(self) -> Credential:
        """Return the credential; renew it if it has expired. Raises RecordError."""
        with self._lock:
            now_ns = self._now_ns()
            until_ns = self._held.until_ns if self._held else None
            if self._held is None or (until_ns is not None and now_ns >= until_ns):
                self._held = _credential(self._access, now_ns)
                self._keep_secrets(self._held)
            return self._held

    def refused(self, credential: Credential) -> bool:
        """Forget a credential that the server refused; return whether a new one may differ.

        If the server also refuses a renewed credential, that one is kept for a while (`Backoff`),
        so that an exec plugin does not run for every request that a server, or a kubelet behind
        it, refuses.
        """
        if self._access.exec_plugin is None and self._access.token_file is None:
            return False
        with self._lock:
            if self._held is not credential:
                return True
            now_ns = self._now_ns()
            if now_ns < self._renewable_ns:
                return False
            if self._renewals is None:
                self._renewals = Backoff(clock=lambda: self._now_ns() / 1e9)
            self._renewals.begin()
            self._renewable_ns = now_ns + round(self._renewals.wait_s() * 1e9)
            self._held = None
            return True

    def hide(self, text: str) -> str:
        """Return a text without the secrets that were sent; servers may repeat them in messages."""
        with self._lock:
            secrets = list(self._secrets)
        for secret in secrets:
            text = text.replace(secret, "***")
        return text

    def _keep_secrets(self, credential: Credential) -> None:
        sent = credential.headers.get("Authorization", "").partition(" ")[2]
        for secret in (sent, self._access.password):
            if len(secret) >= _SECRET_LENGTH_MIN and secret not in self._secrets:
                self._secrets.append(secret)
        del self._secrets[:-_SECRETS_MAX]


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
        answer = orjson.loads(done.stdout)
    except FileNotFoundError as error:
        hint = f" {plugin.install_hint}" if plugin.install_hint else ""
        raise RecordError(
            f"exec plugin {plugin.command}: the program is not installed.{hint}"
        ) from error
    except OSError as error:
        problem = error.strerror or type(error).__name__
        raise RecordError(f"exec plugin {plugin.command}: {problem}") from error
    # The texts of these errors contain the arguments, which may be secret.
    except subprocess.CalledProcessError as error:
        problem = f"returned non-zero exit status {error.returncode}"
        raise RecordError(f"exec plugin {plugin.command}: {problem}") from None
    except subprocess.TimeoutExpired:
        problem = f"printed no credential within {_PLUGIN_TIMEOUT_S} s"
        raise RecordError(f"exec plugin {plugin.command}: {problem}") from None
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
