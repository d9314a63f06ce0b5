"""Connections to an API server: TLS, certificates, tokens, exec plugins, proxies."""

from __future__ import annotations

import json
import ssl
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import trustme

from replay.errors import ApiError, KubeconfigError, RecordError, UnreachableError
from replay.record.api import ApiServer
from replay.record.connect import device_version
from replay.record.coverage import resources_of
from replay.record.kubeconfig import Access, Certificate, ExecPlugin, Tls
from tests.api_server import ApiServerDouble
from tests.unit.record.recording import access

AUTHORITY = trustme.CA()
HIDDEN = "hidden"
CA_PEM = AUTHORITY.cert_pem.bytes().decode()


def served(*names: str) -> ssl.SSLContext:
    """Return what a server needs to show a certificate for names and to request a client's."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    AUTHORITY.issue_cert(*names).configure_cert(context)
    AUTHORITY.configure_trust(context)
    context.verify_mode = ssl.CERT_OPTIONAL
    return context


@pytest.fixture
def server() -> Iterator[ApiServerDouble]:
    """Yield a server that speaks TLS."""
    with ApiServerDouble({}, tls=served("127.0.0.1")) as double:
        yield double


def asked(how: Access) -> object:
    """Return the version that a server says it has."""
    return ApiServer(how, lambda: 0).get("/version")["gitVersion"]


def test_a_server_is_trusted_by_the_kubeconfigs_authority(server: ApiServerDouble) -> None:
    """And by nothing else."""
    assert asked(replace(access(server), tls=Tls(ca_pem=CA_PEM))) == "v1.34.1"
    with pytest.raises(UnreachableError, match="CERTIFICATE_VERIFY_FAILED"):
        asked(access(server))


def test_a_server_that_is_not_to_be_checked_is_taken(server: ApiServerDouble) -> None:
    """As insecure-skip-tls-verify has it."""
    assert asked(replace(access(server), tls=Tls(insecure=True))) == "v1.34.1"


def test_a_certificate_for_another_name_needs_tls_server_name() -> None:
    """As behind a tunnel."""
    with ApiServerDouble({}, tls=served("inner.example")) as server:
        with pytest.raises(UnreachableError, match="mismatch"):
            asked(replace(access(server), tls=Tls(ca_pem=CA_PEM)))
        how = replace(access(server), tls=Tls(ca_pem=CA_PEM, server_name="inner.example"))
        assert asked(how) == "v1.34.1"


def test_a_client_shows_its_certificate() -> None:
    """A server that wants one refuses who has none."""
    context = served("127.0.0.1")
    context.verify_mode = ssl.CERT_REQUIRED
    issued = AUTHORITY.issue_cert("somebody")
    certificate = Certificate(
        chain_pem=issued.cert_chain_pems[0].bytes(), key_pem=issued.private_key_pem.bytes()
    )
    with ApiServerDouble({}, tls=context) as server:
        how = replace(access(server), tls=Tls(ca_pem=CA_PEM))
        with pytest.raises(UnreachableError):
            asked(how)
        assert asked(replace(how, certificate=certificate)) == "v1.34.1"


def test_a_file_that_is_not_a_certificate_is_refused(server: ApiServerDouble) -> None:
    """With where it was found, before anything is sent."""
    broken = Certificate(chain_pem=b"x", key_pem=b"y")
    with pytest.raises(KubeconfigError, match="a test: a certificate or key cannot be read"):
        asked(replace(access(server), certificate=broken))


def test_a_token_and_a_password_are_sent() -> None:
    """As HTTP headers, with the impersonated user."""
    with ApiServerDouble({}) as server:
        asked(replace(access(server), token=HIDDEN))
        asked(replace(access(server), username="u", password=HIDDEN))
        assert server.seen == [f"Bearer {HIDDEN}", "Basic dTpoaWRkZW4="]


def test_a_token_file_is_read_again(tmp_path: Path) -> None:
    """After a minute, and whenever the server does not know the token any more."""
    file, clock = tmp_path / "token", [0]
    file.write_text("one\n")
    with ApiServerDouble({}) as server:
        api = ApiServer(replace(access(server), token_file=file), lambda: clock[0])
        api.get("/version")
        file.write_text("two\n")
        api.get("/version")
        clock[0] += 61 * 10**9
        api.get("/version")
        file.write_text("three\n")
        server.bearer = "three"
        api.get("/version")
        assert server.seen == [f"Bearer {token}" for token in ("one", "one", "two", "two", "three")]


def plugin(tmp_path: Path, status: object) -> ExecPlugin:
    """Return a plugin that counts its runs, keeps its input, and answers `status`."""
    script = tmp_path / "plugin.py"
    script.write_text(
        "import json, os, pathlib\n"
        f"folder = pathlib.Path({str(tmp_path)!r})\n"
        "told = json.loads(os.environ['KUBERNETES_EXEC_INFO'])\n"
        "(folder / 'told.json').write_text(json.dumps(told))\n"
        "runs = len(list(folder.glob('run-*')))\n"
        "(folder / f'run-{runs}').touch()\n"
        f"text = json.dumps(json.loads({json.dumps(status)!r})).replace('RUN', str(runs))\n"
        "print(json.dumps({'kind': 'ExecCredential', 'status': json.loads(text)}))\n"
    )
    return ExecPlugin(
        command=sys.executable, arguments=(str(script),), cluster={"server": "https://x"}
    )


def test_an_exec_plugin_gives_the_token_and_is_asked_again_when_it_is_refused(
    tmp_path: Path,
) -> None:
    """Once for each refusal; it receives the version and the cluster."""
    with ApiServerDouble({}) as server:
        how = replace(access(server), exec_plugin=plugin(tmp_path, {"token": "token-RUN"}))
        api = ApiServer(how, lambda: 0)
        api.get("/version")
        server.bearer = "token-1"
        api.get("/version")
        assert server.seen == ["Bearer token-0", "Bearer token-0", "Bearer token-1"]
        server.bearer = "nobody's"
        with pytest.raises(ApiError, match="401 Unauthorized"):
            api.get("/version")
    printed = json.loads((tmp_path / "told.json").read_text())
    assert printed["apiVersion"] == "client.authentication.k8s.io/v1"
    assert printed["spec"] == {"interactive": False, "cluster": {"server": "https://x"}}


def test_a_plugins_credential_is_renewed_before_it_expires(tmp_path: Path) -> None:
    """By its expirationTimestamp."""
    status = {"token": "token-RUN", "expirationTimestamp": "1970-01-01T00:01:00Z"}
    clock = count(0, 30 * 10**9)
    with ApiServerDouble({}) as server:
        how = replace(access(server), exec_plugin=plugin(tmp_path, status))
        api = ApiServer(how, lambda: next(clock))
        for _ in range(3):
            api.get("/version")
        assert server.seen == ["Bearer token-0", "Bearer token-0", "Bearer token-1"]


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ("no-such-program-anywhere", "the program is not installed. Install it"),
        ("false", "returned non-zero exit status 1"),
        ("echo", "its output is not JSON"),
    ],
)
def test_a_plugin_that_fails_is_named(command: str, problem: str) -> None:
    """With its install hint where it is not there."""
    how = Access(
        name="x",
        server="http://127.0.0.1:1",
        exec_plugin=ExecPlugin(command=command, install_hint="Install it"),
    )
    with pytest.raises(RecordError, match=f"exec plugin {command}: .*{problem}"):
        asked(how)


def test_the_arguments_of_a_plugin_are_not_shown() -> None:
    """They may be secret."""
    for command, arguments in (("false", (HIDDEN,)), ("printf", (HIDDEN,)), ("/", (HIDDEN,))):
        exec_plugin = ExecPlugin(command=command, arguments=arguments)
        how = Access(name="x", server="http://127.0.0.1:1", exec_plugin=exec_plugin)
        with pytest.raises(RecordError, match=f"exec plugin {command}") as refusal:
            asked(how)
        assert HIDDEN not in f"{refusal.value} {how!r}"


def test_a_plugin_does_not_run_for_every_refusal(tmp_path: Path) -> None:
    """A kubelet that accepts no credential answers every request with 401."""
    with ApiServerDouble({}, bearer="another") as server:
        how = replace(access(server), exec_plugin=plugin(tmp_path, {"token": "token-RUN"}))
        api = ApiServer(how, lambda: 0)
        for _ in range(10):
            with pytest.raises(ApiError, match="401"):
                api.get("/version")
    assert len(list(tmp_path.glob("run-*"))) == 2


def test_a_plugin_that_prints_endless_brackets_is_refused(tmp_path: Path) -> None:
    """Its output is not a credential."""
    script = tmp_path / "p.py"
    script.write_text("print('[' * 100_000)")
    exec_plugin = ExecPlugin(command=sys.executable, arguments=(str(script),))
    how = Access(name="x", server="http://127.0.0.1:1", exec_plugin=exec_plugin)
    with pytest.raises(RecordError, match="its output is not JSON"):
        asked(how)


def test_a_plugin_without_a_credential_is_refused(tmp_path: Path) -> None:
    """An empty status is no login."""
    how = Access(name="x", server="http://127.0.0.1:1", exec_plugin=plugin(tmp_path, {"token": ""}))
    with pytest.raises(RecordError, match="has no credential"):
        asked(how)


def test_a_proxy_that_is_not_served_is_refused() -> None:
    """SOCKS needs more than this library."""
    how = Access(name="here", server="http://127.0.0.1:1", proxy_url="socks5://127.0.0.1:1")
    with pytest.raises(KubeconfigError, match=r"here: proxy-url socks5.*only http and https"):
        asked(how)


def test_secrets_are_not_shown() -> None:
    """Neither in an error nor in a log."""
    how = Access(
        name="x",
        server="s",
        token=HIDDEN,
        password=HIDDEN,
        proxy_url=f"http://u:{HIDDEN}@proxy",
        exec_plugin=ExecPlugin(command="c", environment={"A": HIDDEN}),
        certificate=Certificate(chain_pem=b"", key_pem=HIDDEN.encode()),
    )
    assert HIDDEN not in repr(how)


@pytest.mark.parametrize(
    ("answer", "version"),
    [
        ({"versions": [{"version": "v1beta1"}, {"version": "v1"}]}, "v1"),
        ({"versions": [{"version": "v1beta1"}, {"version": "v1beta2"}]}, "v1beta2"),
        ({"versions": [{"version": "v1alpha3"}]}, ""),
        ((404, "NotFound", "not found"), ""),
        ((403, "Forbidden", "no"), "v1"),
    ],
)
def test_devices_are_recorded_in_the_newest_version_that_is_served(
    answer: Any, version: str
) -> None:
    """Those of a server without any are not listed at all."""
    with ApiServerDouble({}, answers={"/apis/resource.k8s.io": answer}) as double:
        assert device_version(ApiServer(access(double), lambda: 0)) == version
    paths = {
        resource.path for resource in resources_of(version) if resource.group == "resource.k8s.io"
    }
    names = ("resourceslices", "deviceclasses", "resourceclaims", "resourceclaimtemplates")
    expected = {f"/apis/resource.k8s.io/{version}/{name}" for name in names}
    assert paths == (expected if version else set())
