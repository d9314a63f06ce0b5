"""tlsConfig of an extender: what is shown to the server, and what the server must show.

Source: kubernetes v1.34 pkg/scheduler/extender.go, makeTransport; client-go rest.TLSConfigFor.
"""

from __future__ import annotations

import base64
import binascii
import ssl
import tempfile
from dataclasses import dataclass
from pathlib import Path

import grpc

from services.config.scheduler_extenders import ExtenderConfig


class TlsError(ValueError):
    """A setting that cannot be used; `field` is its name, "" for all of them."""

    def __init__(self, field: str, text: str) -> None:
        super().__init__(text)
        self.field = field


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """PEM texts, empty where there are none; data that is given goes before a file."""

    authority: bytes = b""
    certificate: bytes = b""
    key: bytes = b""
    server_name: str = ""
    insecure: bool = False

    @property
    def are_given(self) -> bool:
        """Tell whether anything is set at all."""
        return bool(self.authority or self.certificate or self.server_name or self.insecure)


def credentials_of(config: ExtenderConfig) -> Credentials:
    """Read the settings, and files that they name. Raises TlsError.

    With enableHTTPS and no authority, the server's certificate is not looked at, as upstream.
    """
    tls = config.tls
    authority = _pem("ca", tls.ca_data, tls.ca_file)
    certificate = _pem("cert", tls.cert_data, tls.cert_file)
    key = _pem("key", tls.key_data, tls.key_file)
    if bool(certificate) != bool(key):
        raise TlsError("", "a client certificate and its key go together")
    if tls.insecure and authority:
        text = "specifying a root certificates file with the insecure flag is not allowed"
        raise TlsError("insecure", text)
    return Credentials(
        authority=authority,
        certificate=certificate,
        key=key,
        server_name=tls.server_name,
        insecure=tls.insecure or (config.enable_https and not authority),
    )


def context_of(credentials: Credentials) -> ssl.SSLContext:
    """Return what an https connection needs. Raises TlsError."""
    try:
        context = ssl.create_default_context(
            cadata=credentials.authority.decode("ascii") if credentials.authority else None
        )
        if credentials.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if credentials.certificate:
            _show(context, credentials)
    except (ssl.SSLError, UnicodeDecodeError, OSError) as error:
        raise TlsError("", f"holds no PEM that can be used: {error}") from None
    return context


def channel_credentials(credentials: Credentials) -> grpc.ChannelCredentials:
    """Return what a gRPC channel needs. Raises TlsError where it may not look at a certificate."""
    if credentials.insecure:
        text = "gRPC always looks at the server's certificate: give its authority (caFile, caData)"
        raise TlsError("", text)
    return grpc.ssl_channel_credentials(
        credentials.authority or None, credentials.key or None, credentials.certificate or None
    )


def _show(context: ssl.SSLContext, credentials: Credentials) -> None:
    """Load certificate and key, which the library reads from files only."""
    with tempfile.TemporaryDirectory() as folder:
        pair = Path(folder) / "pair.pem"
        pair.touch(mode=0o600)
        pair.write_bytes(credentials.key + b"\n" + credentials.certificate)
        context.load_cert_chain(pair)


def _pem(name: str, data: str, path: str) -> bytes:
    if data:
        try:
            return base64.b64decode("".join(data.split()), validate=True)
        except (binascii.Error, ValueError):
            raise TlsError(f"{name}Data", "is not base64") from None
    if not path:
        return b""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        text = f"cannot be read: {error.strerror}"
        raise TlsError(f"{name}File", text) from None
