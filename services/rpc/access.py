"""Reads access control: an access file, which services and clients share, or the TLS options.

    certificate: tls.crt          # PEM; presented to clients, and to servers
    key: tls.key
    authority: ca.crt             # signs the certificates of the other side
    token: replay.token           # a client's token, if servers require one
    tokens: {alice: 9f86d0...}    # SHA-256 of the tokens that a server accepts, by name
    services:
      scheduler: {drive: [replay.example], look: ["spiffe://example/ops", "token:alice"]}

Paths are relative to the file. A server with `tokens` requires one of the tokens; without `tokens`,
it requires a certificate signed by `authority`. Without `services`, every caller with an identity
may drive.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import click

from services.rpc.timeouts import DEFAULT_TIMEOUTS, Timeouts

ANYONE = "*"
"""In a list of names, this stands for every caller with an identity."""
SERVICES = ("queue", "scheduler", "eviction", "autoscaler")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_TOKEN_NAME = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?")


class AccessError(click.ClickException):
    """An invalid file or option of access control; the message names it and what to do."""

    exit_code = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientTls:
    """A client's PEM files: the authority of the server's certificate, and the client's own pair.

    `token` is a file whose content is sent as a bearer token. Without an authority, the channel
    does not use TLS; then `insecure` must be set unless the address is a loopback address.
    `timeouts` limit how long the client waits.
    """

    authority: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    token: Path | None = None
    insecure: bool = False
    timeouts: Timeouts = DEFAULT_TIMEOUTS

    @property
    def plain(self) -> ClientTls:
        """The same timeouts without TLS, for services that the client starts itself."""
        return ClientTls(timeouts=self.timeouts)


PLAIN = ClientTls()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rights:
    """The names of callers that may drive a service, and of those that may look at its sessions."""

    drive: frozenset[str] = frozenset((ANYONE,))
    look: frozenset[str] = frozenset()

    def may_drive(self, names: Iterable[str]) -> bool:
        """Return whether a caller with any of these names may drive."""
        return not self.drive.isdisjoint((ANYONE, *names))

    def may_look(self, names: Iterable[str]) -> bool:
        """Return whether any of these names is in the list of callers that may look."""
        return not self.look.isdisjoint((ANYONE, *names))


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """The fields of an access file; `source` is the file, None for options."""

    certificate: Path | None = None
    key: Path | None = None
    authority: Path | None = None
    token: Path | None = None
    tokens: Mapping[str, str] = field(default_factory=dict)
    services: Mapping[str, Rights] = field(default_factory=dict)
    source: Path | None = None

    @property
    def identifies(self) -> bool:
        """Whether a server requires an identity of its callers."""
        return self.certificate is not None and bool(self.tokens or self.authority)

    def rights(self, service: str) -> Rights:
        """Return the rights on a service. Raises AccessError if the file does not list it."""
        if not self.services:
            return Rights()
        access = self.services.get(service)
        if access is None:
            raise AccessError(
                f"{self.source}: services[{service}]: is required: list who may drive and look, "
                f"such as {{drive: [replay.example], look: []}}"
            )
        return access

    def client(self, *, insecure: bool) -> ClientTls:
        """Return the access settings of a client."""
        return ClientTls(
            authority=self.authority,
            certificate=self.certificate,
            key=self.key,
            token=self.token,
            insecure=insecure,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rights:
    drive: tuple[str, ...] = ()
    look: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    certificate: str | None = None
    key: str | None = None
    authority: str | None = None
    token: str | None = None
    tokens: Mapping[str, str] = field(default_factory=dict)
    services: Mapping[str, _Rights] = field(default_factory=dict)


def read_access(path: Path) -> Access:
    """Read an access file, strictly. Raises AccessError."""
    from services.config import strict  # noqa: PLC0415 - loads yaml, which few runs need
    from services.typed import DataError  # noqa: PLC0415

    try:
        data = strict.document(path.read_text(encoding="utf-8"))
        if not isinstance(data, dict):
            raise DataError("", "is not an access file: write a mapping of its fields")
        file = strict.reading().read(_File, data)
        _check(file)
    except DataError as error:
        where = f"{error.field}: " if error.field else ""
        raise AccessError(f"{path}: {where}{error}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise AccessError(f"{path}: {problem_of(error)}") from None
    rights = {
        name: Rights(drive=frozenset(service.drive), look=frozenset(service.look))
        for name, service in file.services.items()
    }
    return Access(
        certificate=_beside(path, file.certificate),
        key=_beside(path, file.key),
        authority=_beside(path, file.authority),
        token=_beside(path, file.token),
        tokens=file.tokens,
        services=rights,
        source=path,
    )


def _beside(path: Path, name: str | None) -> Path | None:
    return path.parent / name if name else None


def problem_of(error: OSError | ValueError) -> str:
    """Return the system's message without the file name, or the text of a ValueError."""
    return (error.strerror or str(error)) if isinstance(error, OSError) else "is not UTF-8 text"


def _check(file: _File) -> None:
    """Raise DataError for fields that contradict each other."""
    from services.typed import DataError  # noqa: PLC0415 - as above

    if (file.certificate is None) != (file.key is None):
        missing = "key" if file.key is None else "certificate"
        raise DataError(missing, "is required: certificate and key go together")
    if file.token is not None and file.authority is None:
        raise DataError("authority", "is required with token: tokens are sent over TLS only")
    if file.tokens and file.certificate is None:
        raise DataError("certificate", "is required with tokens: tokens are sent over TLS only")
    for name, digest in file.tokens.items():
        where = f"tokens[{name}]"
        if not _TOKEN_NAME.fullmatch(name):
            raise DataError(where, "is not a name: use letters, digits, '-', '_' and '.'")
        if not _DIGEST.fullmatch(digest):
            raise DataError(where, "must be the token's SHA-256, 64 hexadecimal digits")
    for name in file.services:
        if name not in SERVICES:
            raise DataError(f"services[{name}]", f"is not a service: {', '.join(SERVICES)}")
