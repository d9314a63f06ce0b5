"""Reads kubeconfig files as kubectl does, or a pod's service account without such files.

Source: kubernetes v1.34 client-go tools/clientcmd (loader.go for merging, client_config.go for
precedence), rest/config.go (InClusterConfig).
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import yaml

from replay.bounds import yaml_value
from replay.errors import KubeconfigError, TraceError

_Raw = Mapping[str, Any]
_NOTHING: _Raw = {}
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_EXEC_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
_LISTS = ("clusters", "users", "contexts")
_INNER = {"clusters": "cluster", "users": "user", "contexts": "context"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """A client's certificate and its key, PEM."""

    chain_pem: bytes
    key_pem: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """The verification of the server. `ca_pem` "" trusts this machine's certificates.

    `server_name` is the name expected in its certificate, "" for that of the address.
    """

    ca_pem: str = ""
    insecure: bool = False
    server_name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecPlugin:
    """A program that prints credentials (kubeconfig's `exec`); `cluster` is part of its input."""

    command: str
    arguments: tuple[str, ...] = field(default=(), repr=False)
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    api_version: str = "client.authentication.k8s.io/v1"
    install_hint: str = ""
    is_interactive: bool = False
    cluster: Mapping[str, object] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """One cluster and one user. `server` is a URL without a user; absent credentials are empty.

    `name` tells users where the configuration comes from. `namespace` is the namespace of the
    context or of the service account; "" without one.
    """

    name: str
    server: str
    namespace: str = ""
    tls: Tls = Tls()
    proxy_url: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    token_file: Path | None = None
    username: str = ""
    password: str = field(default="", repr=False)
    certificate: Certificate | None = None
    exec_plugin: ExecPlugin | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    """A named entry and its file."""

    file: Path
    name: str
    content: _Raw

    @property
    def where(self) -> str:
        return f"{self.file}, {self.name}"

    def text(self, field: str) -> str:
        value = self.content.get(field)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise KubeconfigError(f"{self.where}.{field}", "expected a string")
        return value

    def part(self, field: str) -> _Raw:
        value = self.content.get(field)
        return value if isinstance(value, dict) else _NOTHING

    def pem(self, field: str) -> bytes:
        """Return the decoded FIELD-data, or the content of the file FIELD; b"" without either."""
        if data := self.text(f"{field}-data"):
            try:
                return base64.b64decode(data, validate=True)
            except binascii.Error as error:
                raise KubeconfigError(
                    f"{self.where}.{field}-data", f"is not base64: {error}"
                ) from error
        name = self.text(field)
        return _bytes(self.file.parent / name, f"{self.where}.{field}") if name else b""


def load(path: Path | None, context: str, environment: Mapping[str, str] = os.environ) -> Access:
    """Return the access to a cluster. Raises KubeconfigError.

    If `path` is None, the files in $KUBECONFIG are used, or else ~/.kube/config, or else the
    service account of the pod in which this process runs. `context` "" is the current context.
    """
    files = _files(path, environment)
    if not files:
        return _in_cluster(environment)
    entries, current = _merged(files)
    chosen = context or current
    if not chosen:
        named = ", ".join(sorted(name for kind, name in entries if kind == "contexts"))
        problem = (
            f"has no current-context; choose a context with --context: {named or '(no contexts)'}"
        )
        raise KubeconfigError(_listed(files), problem)
    context_entry = _entry(entries, "contexts", chosen, files)
    cluster = _entry(entries, "clusters", context_entry.text("cluster"), files)
    user_name = context_entry.text("user")
    user = _entry(entries, "users", user_name, files) if user_name else None
    access = _access(f"{_listed(files)}, context {chosen}", cluster, user)
    return replace(access, namespace=context_entry.text("namespace"))


def _files(path: Path | None, environment: Mapping[str, str]) -> list[Path]:
    if path is not None:
        return [path]
    if listed := environment.get("KUBECONFIG"):
        named = [Path(name) for name in listed.split(os.pathsep) if name]
        existing = [file for file in named if file.exists()]
        if not existing:
            raise KubeconfigError("$KUBECONFIG", f"no such file: {listed}")
        return existing
    default = Path(environment.get("HOME", "~")).expanduser() / ".kube" / "config"
    if default.exists():
        return [default]
    if environment.get("KUBERNETES_SERVICE_HOST"):
        return []
    raise KubeconfigError(str(default), "no such file; give one with --kubeconfig")


def _merged(files: Sequence[Path]) -> tuple[dict[tuple[str, str], _Entry], str]:
    """Return the first entries by (list, name) of all files, and the first current context."""
    entries: dict[tuple[str, str], _Entry] = {}
    current = ""
    for file in files:
        config = _parsed(file)
        current = current or str(config.get("current-context") or "")
        for kind in _LISTS:
            for entry in _items(config, kind, file):
                entries.setdefault((kind, str(entry.get("name"))), _named(entry, kind, file))
    return entries, current


def _parsed(file: Path) -> _Raw:
    try:
        config = yaml_value(_bytes(file, str(file)).decode("utf-8-sig"), str(file))
    except yaml.YAMLError as error:
        # The error's text quotes the line, which may contain a secret.
        mark = getattr(error, "problem_mark", None)
        where = f"{file}, line {mark.line + 1}" if mark else str(file)
        problem = getattr(error, "problem", None) or "it has what YAML does not allow"
        raise KubeconfigError(where, f"is not YAML: {problem}") from None
    except UnicodeDecodeError:
        raise KubeconfigError(str(file), "is not UTF-8") from None
    except TraceError as error:
        raise KubeconfigError(str(file), f"is not a kubeconfig: {error.problem}") from error
    if not isinstance(config, dict):
        raise KubeconfigError(str(file), "is not a kubeconfig: expected a mapping with clusters")
    return config


def _items(config: _Raw, kind: str, file: Path) -> Iterator[_Raw]:
    listed = config.get(kind) or []
    if not isinstance(listed, list):
        raise KubeconfigError(f"{file}, {kind}", "expected a list")
    for number, entry in enumerate(listed):
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
            raise KubeconfigError(f"{file}, {kind}[{number}]", "expected an entry with a name")
        yield entry


def _named(raw: _Raw, kind: str, file: Path) -> _Entry:
    content = raw.get(_INNER[kind])
    name = f"{kind}[{raw['name']}]"
    return _Entry(file=file, name=name, content=content if isinstance(content, dict) else _NOTHING)


def _entry(
    entries: Mapping[tuple[str, str], _Entry], kind: str, name: str, files: Sequence[Path]
) -> _Entry:
    if entry := entries.get((kind, name)):
        return entry
    names = ", ".join(sorted(entry_name for of, entry_name in entries if of == kind)) or "none"
    problem = f"has no {_INNER[kind]} {name!r}; it has: {names}"
    raise KubeconfigError(_listed(files), problem)


def _access(name: str, cluster: _Entry, user: _Entry | None) -> Access:
    server, url_user, url_password = _split_user(cluster.text("server").rstrip("/"))
    if not server.startswith(("https://", "http://")):
        problem = f"{server!r} is not an http or https URL"
        raise KubeconfigError(f"{cluster.where}.server", problem)
    ca_pem = cluster.pem("certificate-authority").decode("ascii", "replace")
    tls = Tls(
        ca_pem=ca_pem,
        insecure=cluster.content.get("insecure-skip-tls-verify") is True,
        server_name=cluster.text("tls-server-name"),
    )
    if tls.insecure and ca_pem:
        problem = "is set together with a certificate authority; remove one of the two"
        raise KubeconfigError(f"{cluster.where}.insecure-skip-tls-verify", problem)
    proxy_url = cluster.text("proxy-url")
    if user is None:
        return Access(
            name=name,
            server=server,
            tls=tls,
            proxy_url=proxy_url,
            username=url_user,
            password=url_password,
        )
    token_file = user.text("tokenFile")
    return Access(
        name=name,
        server=server,
        tls=tls,
        proxy_url=proxy_url,
        token=user.text("token"),
        token_file=user.file.parent / token_file if token_file else None,
        username=user.text("username") or url_user,
        password=user.text("password") or url_password,
        certificate=_certificate(user),
        exec_plugin=_exec_plugin(user, cluster),
        headers=_impersonation(user),
    )


def without_user(url: str) -> str:
    """Return a URL without its user and password, for users."""
    return _split_user(url)[0]


def _split_user(url: str) -> tuple[str, str, str]:
    """Return a URL without its user, and the user and the password in it."""
    scheme, separator, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    user, at, host = authority.rpartition("@")
    name, _, password = user.partition(":")
    if not at:
        return url, "", ""
    return f"{scheme}{separator}{host}{slash}{path}", unquote(name), unquote(password)


def _certificate(user: _Entry) -> Certificate | None:
    chain, key = user.pem("client-certificate"), user.pem("client-key")
    if not chain and not key:
        return None
    if not chain or not key:
        raise KubeconfigError(user.where, "client-certificate and client-key belong together")
    return Certificate(chain_pem=chain, key_pem=key)


def _exec_plugin(user: _Entry, cluster: _Entry) -> ExecPlugin | None:
    if provider := user.part("auth-provider"):
        problem = f"auth-provider {provider.get('name')!r} is of Kubernetes before 1.26; use exec"
        raise KubeconfigError(user.where, problem)
    raw = user.part("exec")
    if not raw:
        return None
    where, command = f"{user.where}.exec", raw.get("command")
    if not isinstance(command, str) or not command:
        raise KubeconfigError(f"{where}.command", "expected a program")
    version = str(raw.get("apiVersion") or "")
    if version not in _EXEC_VERSIONS:
        problem = f"{version!r} is not supported; expected {' or '.join(_EXEC_VERSIONS)}"
        raise KubeconfigError(f"{where}.apiVersion", problem)
    # A path is relative to the file's folder; a bare name is searched in PATH.
    if "/" in command:
        command = str(user.file.parent / command)
    return ExecPlugin(
        command=command,
        arguments=tuple(str(argument) for argument in raw.get("args") or ()),
        environment={
            str(variable["name"]): str(variable["value"]) for variable in raw.get("env") or ()
        },
        api_version=version,
        install_hint=str(raw.get("installHint") or ""),
        is_interactive=raw.get("interactiveMode") != "Never",
        cluster=_cluster_info(cluster) if raw.get("provideClusterInfo") is True else None,
    )


def _cluster_info(cluster: _Entry) -> _Raw:
    ca = cluster.pem("certificate-authority")
    info = {
        "server": cluster.text("server"),
        "tls-server-name": cluster.text("tls-server-name"),
        "insecure-skip-tls-verify": cluster.content.get("insecure-skip-tls-verify"),
        "certificate-authority-data": base64.b64encode(ca).decode() if ca else None,
        "proxy-url": cluster.text("proxy-url"),
        "config": _plugin_config(cluster),
    }
    return {name: value for name, value in info.items() if value}


def _plugin_config(cluster: _Entry) -> object:
    for extension in cluster.content.get("extensions") or ():
        if (
            isinstance(extension, dict)
            and extension.get("name") == "client.authentication.k8s.io/exec"
        ):
            return extension.get("extension")
    return None


def _impersonation(user: _Entry) -> dict[str, str]:
    if user.content.get("as-groups") or user.content.get("as-user-extra"):
        problem = "as-groups and as-user-extra are not supported; give the user its own role"
        raise KubeconfigError(user.where, problem)
    headers = {"Impersonate-User": user.text("as"), "Impersonate-Uid": user.text("as-uid")}
    return {name: value for name, value in headers.items() if value}


def _in_cluster(environment: Mapping[str, str]) -> Access:
    host = environment["KUBERNETES_SERVICE_HOST"]
    port = environment.get("KUBERNETES_SERVICE_PORT", "443")
    ca = _bytes(SERVICE_ACCOUNT / "ca.crt", "service account")
    return Access(
        name="the pod's service account",
        server=f"https://{f'[{host}]' if ':' in host else host}:{port}",
        tls=Tls(ca_pem=ca.decode("ascii", "replace")),
        token_file=SERVICE_ACCOUNT / "token",
        namespace=_namespace_of_pod(),
    )


def _namespace_of_pod() -> str:
    try:
        return (SERVICE_ACCOUNT / "namespace").read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return ""


def _bytes(file: Path, where: str) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        problem = f"{file} cannot be read: {error.strerror or error}"
        raise KubeconfigError(where, problem) from error


def _listed(files: Sequence[Path]) -> str:
    return os.pathsep.join(str(path) for path in files)
