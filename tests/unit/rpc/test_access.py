"""Access files, PEM files and tokens: refusals, their messages, and reloading of changed files."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives import serialization

from services.rpc.access import AccessError, ClientTls, Rights, read_access
from services.rpc.client import channel
from services.rpc.credentials import Watched, read_authority, read_pair, read_token, warnings
from services.rpc.identity import policy_of, token_digest
from services.rpc.listening import StartError

NOW = datetime.now(UTC)


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    """Return an authority."""
    return trustme.CA()


def issue(
    authority: trustme.CA,
    folder: Path,
    name: str,
    *,
    begins: timedelta | None = None,
    ends: timedelta | None = None,
) -> tuple[Path, Path]:
    """Write a certificate of the authority and its key."""
    issued = authority.issue_cert(
        f"{name}.example",
        not_before=NOW + begins if begins else None,
        not_after=NOW + ends if ends else None,
    )
    certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
    certificate.write_bytes(issued.cert_chain_pems[0].bytes())
    key.write_bytes(issued.private_key_pem.bytes())
    key.chmod(0o600)
    return certificate, key


def refused(path: Path, text: str) -> str:
    """Return the message about an access file, which names the file."""
    path.write_text(text, encoding="utf-8")
    with pytest.raises(AccessError) as error:
        read_access(path)
    assert error.value.message.startswith(f"{path}: ")
    return error.value.message.removeprefix(f"{path}: ")


def test_paths_in_an_access_file_are_relative_to_it(tmp_path: Path) -> None:
    """An absolute path stays one."""
    path = tmp_path / "access.yaml"
    digest = token_digest("secret")
    path.write_text(
        f"certificate: tls.crt\nkey: /etc/tls.key\nauthority: ca.crt\ntoken: replay.token\n"
        f"tokens: {{alice: {digest}}}\n"
        'services:\n  queue: {drive: [scheduler.example]}\n  eviction: {look: ["*"]}\n',
        encoding="utf-8",
    )
    access = read_access(path)
    assert access.certificate == tmp_path / "tls.crt"
    assert access.key == Path("/etc/tls.key")
    assert access.tokens == {"alice": digest}
    assert access.rights("queue") == Rights(drive=frozenset({"scheduler.example"}))
    assert access.rights("eviction") == Rights(drive=frozenset(), look=frozenset({"*"}))
    with pytest.raises(AccessError, match=r"services\[scheduler\]: is required"):
        access.rights("scheduler")
    tls = access.client(insecure=False)
    assert (tls.authority, tls.token) == (tmp_path / "ca.crt", tmp_path / "replay.token")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "is not an access file"),
        ("- a", "is not an access file"),
        ("{", "is neither YAML nor JSON"),
        ("certificat: x", "certificat: is not a known field"),
        ("certificate: a", "key: is required: certificate and key go together"),
        ("key: a", "certificate: is required: certificate and key go together"),
        ("key: a\nkey: b", 'key: line 2: "key" comes twice'),
        ("authority: [a]", "authority: must be a text"),
        ("token: a", "authority: is required with token: tokens are sent over TLS only"),
        (f"tokens: {{a: {'f' * 64}}}", "certificate: is required with tokens"),
        ("{certificate: a, key: b, tokens: {a: secret}}", "tokens[a]: must be the token's SHA-256"),
        (f"{{certificate: a, key: b, tokens: {{'a:b': '{'f' * 64}'}}}}", "tokens[a:b]: is not a"),
        ("services: {kubelet: {}}", "services[kubelet]: is not a service: queue, scheduler,"),
        ("services: {queue: {drives: [a]}}", "services[queue].drives: is not a known field"),
    ],
)
def test_a_wrong_access_file_is_refused_by_field(tmp_path: Path, text: str, problem: str) -> None:
    """Strictly, for a misspelt field would open a door."""
    message = refused(tmp_path / "access.yaml", text)
    assert message.startswith(problem)
    assert "secret" not in message


def test_rights_without_identities_are_refused(tmp_path: Path) -> None:
    """They would not be applied."""
    path = tmp_path / "access.yaml"
    path.write_text("{certificate: a, key: b, services: {queue: {drive: [c]}}}", encoding="utf-8")
    with pytest.raises(AccessError, match="services: needs identities: add authority or tokens"):
        policy_of("queue", read_access(path))


def test_a_changed_access_file_changes_the_rights_of_callers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A wrong one changes nothing, and the log says so once."""
    path = tmp_path / "access.yaml"
    head = "certificate: a\nkey: b\nauthority: c\n"
    path.write_text(f"{head}services: {{queue: {{drive: [a.example]}}}}", encoding="utf-8")
    policy = policy_of("queue", read_access(path))
    assert policy is not None
    assert policy().rights.may_drive(("a.example",))
    path.write_text(f"{head}services: {{queue: {{drive: [bb.example]}}}}", encoding="utf-8")
    assert not policy().rights.may_drive(("a.example",))
    assert policy().rights.may_drive(("bb.example",))
    for wrong in (f"{head}services: [", "certificate: a\nkey: b\n", f"{head}services: {{}}\nx: 1"):
        caplog.clear()
        path.write_text(wrong, encoding="utf-8")
        with caplog.at_level(logging.WARNING):
            assert policy().rights.may_drive(("bb.example",))
            assert policy().rights.may_drive(("bb.example",))
        assert len(caplog.messages) == 1


def test_a_pair_is_read_with_its_expiry(authority: trustme.CA, tmp_path: Path) -> None:
    """The value shows no key."""
    certificate, key = issue(authority, tmp_path, "good")
    pair = read_pair(certificate, key)
    assert pair.key == key.read_bytes()
    assert "PRIVATE" not in repr(pair)
    assert warnings(pair, certificate, key) == []
    read_authority(certificate)


def test_a_pair_that_no_server_could_use_is_refused(authority: trustme.CA, tmp_path: Path) -> None:
    """Each with the file and what to do."""
    good, good_key = issue(authority, tmp_path, "good")
    other, other_key = issue(authority, tmp_path, "other")
    old, old_key = issue(authority, tmp_path, "old", ends=timedelta(days=-1))
    new, new_key = issue(authority, tmp_path, "new", begins=timedelta(days=1))
    junk, folder = tmp_path / "junk.pem", tmp_path / "folder"
    junk.write_bytes(b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    folder.mkdir()
    locked = tmp_path / "locked.key"
    private = serialization.load_pem_private_key(good_key.read_bytes(), None)
    locked.write_bytes(
        private.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"pass"),
        )
    )
    for certificate, key, problem in (
        (old, old_key, f"{old}: the certificate expired on "),
        (new, new_key, f"{new}: the certificate is valid from "),
        (good, other_key, f"{other_key}: is not the key of the certificate in {good}"),
        (junk, good_key, f"{junk}: has no valid PEM certificate"),
        (good, junk, f"{junk}: has no valid PEM private key"),
        (good, other, f"{other}: has no valid PEM private key"),
        (good, locked, f"{locked}: the key is encrypted: write it without a passphrase"),
        (folder, good_key, f"{folder}: Is a directory"),
        (good, tmp_path / "none", f"{tmp_path / 'none'}: No such file or directory"),
    ):
        with pytest.raises(AccessError) as error:
            read_pair(certificate, key)
        assert error.value.message.startswith(problem)
        assert "PRIVATE" not in error.value.message
    with pytest.raises(AccessError, match="expired"):
        read_authority(old)
    both = tmp_path / "both.pem"
    both.write_bytes(old.read_bytes() + good.read_bytes())
    assert read_authority(both)


def test_a_certificate_that_expires_soon_and_a_key_for_everyone_are_warned_of(
    authority: trustme.CA, tmp_path: Path
) -> None:
    """The pair is used nevertheless."""
    certificate, key = issue(authority, tmp_path, "soon", ends=timedelta(days=13))
    key.chmod(0o644)
    warned = warnings(read_pair(certificate, key), certificate, key)
    assert [text.split(": ")[1].split(" on ")[0] for text in warned] == [
        "the certificate expires",
        "every user of this machine can read the key",
    ]


@pytest.mark.parametrize("content", [b"", b" \n", b"a b", b"a\nb", b"a\x00", "é".encode()])
def test_a_file_that_holds_no_token_is_refused_without_its_content(
    tmp_path: Path, content: bytes
) -> None:
    """A line break in it would be another header."""
    path = tmp_path / "token"
    path.write_bytes(content)
    with pytest.raises(AccessError, match=r"is empty|is not a token"):
        read_token(path)
    path.write_bytes(b"abc\n")
    assert read_token(path) == "abc"


def test_only_a_changed_file_is_read_again(tmp_path: Path) -> None:
    """Also where another file takes its place, as a mounted secret does."""
    path, other = tmp_path / "token", tmp_path / "other"
    path.write_text("one", encoding="ascii")
    reads = []
    watched = Watched([path], lambda: reads.append(0) or read_token(path))  # type: ignore[func-returns-value] # counts
    assert [watched.current(), watched.current()] == ["one", "one"]
    assert len(reads) == 1
    other.write_text("two", encoding="ascii")
    other.replace(path)
    assert watched.current() == "two"
    path.unlink()
    assert watched.current() == "two"
    assert watched.current() == "two"
    path.write_text("three", encoding="ascii")
    assert watched.current() == "three"


def test_a_broken_file_keeps_the_previous_one_and_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """However many connections are opened."""
    path = tmp_path / "token"
    path.write_text("one", encoding="ascii")
    watched = Watched([path], partial(read_token, path))
    path.write_text("", encoding="ascii")
    with caplog.at_level(logging.WARNING):
        assert [watched.current() for _ in range(3)] == ["one"] * 3
    assert caplog.messages == [
        f"{path}: is empty: write the token into it; the previous files stay in use"
    ]


def test_plaintext_to_another_machine_needs_insecure(capsys: pytest.CaptureFixture[str]) -> None:
    """And warns once for each address; a loopback address needs nothing."""
    for address in ("127.0.0.1:1", "localhost:1", "[::1]:1", "127.9.9.9:1", "unix:/run/x"):
        channel(address).close()
    for address in (
        "192.0.2.1:1",
        "0.0.0.0:1",
        "queue:50051",
        "localhost.example:1",
        "[2001::1]:1",
    ):
        with pytest.raises(AccessError, match="--insecure"):
            channel(address)
    assert not capsys.readouterr().err
    for _ in range(2):
        channel("192.0.2.1:1", ClientTls(insecure=True)).close()
    assert capsys.readouterr().err.count("Warning: 192.0.2.1:1: no TLS") == 1


@pytest.mark.parametrize(
    "address", ["localhost", "localhost:", "127.0.0.1", "http://127.0.0.1:1", "127.0.0.1:x"]
)
def test_an_address_that_is_not_a_host_and_port_is_refused(address: str) -> None:
    """It is refused at once, not reported as another machine or as unreachable."""
    with pytest.raises(StartError, match="is not HOST:PORT"):
        channel(address)
