"""What each request says about who asks; tokens are read again, plugins run again when due.

Source: kubernetes v1.34 client-go plugin/pkg/client/auth/exec/exec.go (what a plugin is told and
answers), transport/token_source.go (a token's file is read again after a minute).
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import Lock
from typing import Any

from replay.importers.recording.change import time_ns
from replay.record.errors import RecordError
from replay.record.kubeconfig import Access, Certificate, ExecPlugin

_PLUGIN_TIMEOUT_S = 120
_TOKEN_FILE_NS = 60 * 10**9
_EARLY_NS = 10 * 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """Headers and certificate of a request; `until_ns` is when they are to be had anew, or None."""

    headers: Mapping[str, str]
    certificate: Certificate | None
    until_ns: int | None = None


class Credentials:
    """Keeps one user's credential; threads may ask at once. `now_ns` reads the wall clock."""

    def __init__(self, access: Access, now_ns: Callable[[], int]) -> None:
        self._access = access
        self._now_ns = now_ns
        self._lock = Lock()
        self._held: Credential | None = None

    def current(self) -> Credential:
        """Return the credential, had anew where it is due. Raises RecordError."""
        with self._lock:
            now_ns = self._now_ns()
            until_ns = self._held.until_ns if self._held else None
            if self._held is None or (until_ns is not None and now_ns >= until_ns):
                self._held = _credential(self._access, now_ns)
            return self._held

    def refused(self, credential: Credential) -> bool:
        """Forget a credential that the server did not accept; tell whether a new one may differ."""
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
        status = _ask(access.exec_plugin)
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


def _ask(plugin: ExecPlugin) -> Mapping[str, Any]:
    """Run a plugin and return the status of its ExecCredential. Raises RecordError."""
    is_interactive = plugin.is_interactive and sys.stdin.isatty()
    spec: dict[str, object] = {"interactive": is_interactive}
    if plugin.cluster is not None:
        spec["cluster"] = plugin.cluster
    told = {"kind": "ExecCredential", "apiVersion": plugin.api_version, "spec": spec}
    environment = {**os.environ, **plugin.environment, "KUBERNETES_EXEC_INFO": json.dumps(told)}
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
            f"exec plugin {plugin.command}: there is no such program.{hint}"
        ) from error
    except (OSError, subprocess.SubprocessError) as error:
        raise RecordError(f"exec plugin {plugin.command}: {error}") from error
    except ValueError as error:
        raise RecordError(f"exec plugin {plugin.command}: its answer is no JSON") from error
    status = answer.get("status") if isinstance(answer, dict) else None
    if not isinstance(status, dict) or not (
        status.get("token") or status.get("clientCertificateData")
    ):
        raise RecordError(f"exec plugin {plugin.command}: its answer holds no credential")
    return status


def _plugin_certificate(status: Mapping[str, Any]) -> Certificate | None:
    chain, key = status.get("clientCertificateData"), status.get("clientKeyData")
    if not isinstance(chain, str) or not isinstance(key, str):
        return None
    return Certificate(chain_pem=chain.encode(), key_pem=key.encode())
