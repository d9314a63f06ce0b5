"""PEM files and token files: read and checked at the start, and read again when they change.

New connections use the new files. If the new files are invalid, the previous ones stay in use, and
one line is logged. Messages name files, but never show their content.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

import grpc

from services.rpc.access import Access, AccessError, ClientTls, problem_of

EXPIRES_SOON = timedelta(days=14)
_LOG = logging.getLogger("reprieve.rpc")
_Value = TypeVar("_Value")


class Watched(Generic[_Value]):
    """A value that `load` makes from files; `load` raises AccessError for invalid files."""

    def __init__(self, paths: Iterable[Path | None], load: Callable[[], _Value]) -> None:
        self._paths = [path for path in paths if path is not None]
        self._load = load
        self._seen = self._state()
        self._value = load()

    def current(self) -> _Value:
        """Return the value of the current files, or of their last valid version."""
        seen = self._state()
        if seen != self._seen:
            self._seen = seen
            try:
                self._value = self._load()
            except AccessError as error:
                _LOG.warning("%s; the previous files stay in use", error.message)
        return self._value

    def changed(self) -> bool:
        """Return whether `current` would read the files again."""
        return self._state() != self._seen

    def _state(self) -> list[tuple[int, ...] | None]:
        return [_file_state(path) for path in self._paths]


def _file_state(path: Path) -> tuple[int, ...] | None:
    try:
        state = path.stat()
    except OSError:
        return None
    return state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A certificate chain and its key, PEM; `expires` is when the first certificate expires."""

    certificate: bytes
    key: bytes
    expires: datetime

    def __repr__(self) -> str:
        """Hide the key."""
        return f"Pair(expires={self.expires:%Y-%m-%d})"


def read_pair(certificate: Path, key: Path) -> Pair:
    """Read a certificate and its key. Raises AccessError if a server cannot use them."""
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 - for TLS only

    chain_pem, key_pem = _bytes(certificate), _bytes(key)
    chain = _certificates(certificate, chain_pem)
    for member in chain:
        _check_dates(certificate, member)
    private = _private_key(key, key_pem)
    der = (serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    if private.public_key().public_bytes(*der) != chain[0].public_key().public_bytes(*der):
        raise AccessError(f"{key}: is not the key of the certificate in {certificate}: pair them")
    expires = min(certificate.not_valid_after_utc for certificate in chain)
    return Pair(certificate=chain_pem, key=key_pem, expires=expires)


def read_authority(path: Path) -> bytes:
    """Read the certificates of authorities. Raises AccessError if none of them is valid."""
    pem = _bytes(path)
    problem: AccessError | None = None
    for certificate in _certificates(path, pem):
        try:
            _check_dates(path, certificate)
        except AccessError as error:
            problem = error
        else:
            return pem
    assert problem is not None  # noqa: S101 - there is a certificate
    raise problem


def read_token(path: Path) -> str:
    """Read a bearer token, without white space around it. Raises AccessError."""
    token = _bytes(path).strip()
    if not token:
        raise AccessError(f"{path}: is empty: write the token into it")
    if not all(0x21 <= byte <= 0x7E for byte in token):
        raise AccessError(f"{path}: is not a token: one line of printable ASCII without spaces")
    return token.decode("ascii")


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise AccessError(f"{path}: {problem_of(error)}") from None


def _certificates(path: Path, pem: bytes) -> Sequence[Any]:
    from cryptography.x509 import load_pem_x509_certificates  # noqa: PLC0415 - for TLS only

    try:
        return load_pem_x509_certificates(pem)
    except ValueError:
        raise AccessError(
            f"{path}: has no valid PEM certificate: it begins with -----BEGIN CERTIFICATE-----"
        ) from None


def _check_dates(path: Path, certificate: Any) -> None:
    now = datetime.now(UTC)
    begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if ends < now:
        raise AccessError(f"{path}: the certificate expired on {ends:%Y-%m-%d %H:%M} UTC: renew it")
    if begins > now:
        raise AccessError(
            f"{path}: the certificate is valid from {begins:%Y-%m-%d %H:%M} UTC on: check the "
            f"machine's clock, or issue it again"
        )


def _private_key(path: Path, pem: bytes) -> Any:
    from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415 - for TLS only
    from cryptography.hazmat.primitives.serialization import load_pem_private_key  # noqa: PLC0415

    try:
        return load_pem_private_key(pem, password=None)
    except TypeError:
        raise AccessError(
            f"{path}: the key is encrypted: write it without a passphrase, and readable by the "
            f"service's user only"
        ) from None
    except (ValueError, UnsupportedAlgorithm):
        raise AccessError(f"{path}: has no valid PEM private key") from None


def warnings(pair: Pair, certificate: Path, key: Path) -> list[str]:
    """Return warnings about files that are usable but unsafe."""
    problems = []
    if pair.expires - datetime.now(UTC) < EXPIRES_SOON:
        problems.append(
            f"{certificate}: the certificate expires on {pair.expires:%Y-%m-%d}: renew it"
        )
    if os.name == "posix" and key.stat().st_mode & 0o004:
        problems.append(f"{key}: every user of this machine can read the key: chmod o-r {key}")
    return problems


def server_credentials(access: Access) -> grpc.ServerCredentials:
    """Return credentials that follow the files of `access`, which has a certificate.

    Raises AccessError.
    """
    certificate, key = access.certificate, access.key
    assert certificate is not None and key is not None  # noqa: S101, PT018 - the callers have looked
    authority = None if access.tokens else access.authority

    def load() -> grpc.ServerCertificateConfiguration:
        pair = read_pair(certificate, key)
        for warning in warnings(pair, certificate, key):
            _LOG.warning("%s", warning)
        return grpc.ssl_server_certificate_configuration(
            [(pair.key, pair.certificate)],
            root_certificates=read_authority(authority) if authority else None,
        )

    watched = Watched([certificate, key, authority], load)
    return grpc.dynamic_ssl_server_credentials(
        watched.current(), watched.current, require_client_authentication=authority is not None
    )


def client_files(tls: ClientTls) -> Watched[grpc.ChannelCredentials]:
    """Return credentials that follow the files of `tls`, which has an authority.

    Raises AccessError.
    """
    token = Watched([tls.token], partial(read_token, tls.token)) if tls.token else None

    def load() -> grpc.ChannelCredentials:
        assert tls.authority is not None  # noqa: S101 - the callers have looked
        authority = read_authority(tls.authority)
        pair = read_pair(tls.certificate, tls.key) if tls.certificate and tls.key else None
        credentials = grpc.ssl_channel_credentials(
            authority, pair.key if pair else None, pair.certificate if pair else None
        )
        if token is None:
            return credentials
        calls = grpc.metadata_call_credentials(_Token(token), name="token")
        return grpc.composite_channel_credentials(credentials, calls)

    return Watched([tls.authority, tls.certificate, tls.key], load)


class _Token(grpc.AuthMetadataPlugin):
    """Adds the bearer token to each call; gRPC sends it over TLS only."""

    def __init__(self, token: Watched[str]) -> None:
        self._token = token

    def __call__(
        self, context: grpc.AuthMetadataContext, callback: grpc.AuthMetadataPluginCallback
    ) -> None:
        """Add the header."""
        del context
        callback((("authorization", f"Bearer {self._token.current()}"),), None)
