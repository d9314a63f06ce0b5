"""How an API server is reached and what it is told about who asks: the values of a kubeconfig."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """A client's certificate and its key, PEM."""

    chain_pem: bytes
    key_pem: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """What is checked of the server. `ca_pem` "" trusts what this machine trusts.

    `server_name` is the name that its certificate is checked for, "" for the address's.
    """

    ca_pem: str = ""
    insecure: bool = False
    server_name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecPlugin:
    """A program that prints credentials (kubeconfig's `exec`); `cluster` is what it may be told."""

    command: str
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    api_version: str = "client.authentication.k8s.io/v1"
    install_hint: str = ""
    is_interactive: bool = False
    cluster: Mapping[str, object] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """One cluster and one user. `server` is a URL; credentials that are not given are empty.

    `name` says where all this was found, for people.
    """

    name: str
    server: str
    tls: Tls = Tls()
    proxy_url: str = ""
    token: str = field(default="", repr=False)
    token_file: Path | None = None
    username: str = ""
    password: str = field(default="", repr=False)
    certificate: Certificate | None = None
    exec_plugin: ExecPlugin | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
