"""Kubeconfig files: merged, resolved, refused with the entry that is wrong."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from replay.errors import KubeconfigError
from replay.record import kubeconfig
from replay.record.kubeconfig import load

Raw = dict[str, Any]
PEM = b"-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n"


def config(user: Raw | None = None, cluster: Raw | None = None, name: str = "one") -> Raw:
    """Return a kubeconfig of one cluster, one user and one context, all of one name."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [
            {"name": name, "cluster": {"server": f"https://{name}:6443", **(cluster or {})}}
        ],
        "users": [{"name": name, "user": user or {}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
    }


def written(path: Path, raw: object) -> Path:
    """Write a kubeconfig and return its path."""
    path.write_text(yaml.safe_dump(raw), encoding="utf-8")
    return path


def test_a_token_and_certificates_within_the_file(tmp_path: Path) -> None:
    """Data stands before files of the same field."""
    user = {
        "token": "t",
        "client-certificate-data": base64.b64encode(PEM).decode(),
        "client-certificate": "nowhere.pem",
        "client-key-data": base64.b64encode(b"key").decode(),
    }
    ca = {"certificate-authority-data": base64.b64encode(PEM).decode()}
    access = load(written(tmp_path / "c", config(user, ca)), "", {})
    assert access.server == "https://one:6443"
    assert access.token == "t"  # noqa: S105 - no secret
    assert access.certificate is not None
    assert access.certificate.chain_pem == PEM
    assert access.tls.ca_pem == PEM.decode()
    assert access.name.endswith("context one")


def test_paths_are_relative_to_the_kubeconfigs_folder(tmp_path: Path) -> None:
    """Wherever it is read from."""
    (tmp_path / "ca.pem").write_bytes(PEM)
    user = {"tokenFile": "token"}
    raw = config(user, {"certificate-authority": "ca.pem", "tls-server-name": "inner"})
    access = load(written(tmp_path / "c", raw), "", {})
    assert access.tls.ca_pem == PEM.decode()
    assert access.tls.server_name == "inner"
    assert access.token_file == tmp_path / "token"


def test_several_files_are_one_and_the_first_to_name_something_counts(tmp_path: Path) -> None:
    """As $KUBECONFIG has it; files that are not there are passed over."""
    first = written(tmp_path / "a", config({"token": "first"}))
    second = config({"token": "second"})
    second["contexts"] += config(name="two")["contexts"]
    second["clusters"] += config(name="two")["clusters"]
    second["users"] += config({"token": "third"}, name="two")["users"]
    listed = os.pathsep.join(
        [str(tmp_path / "no"), str(first), str(written(tmp_path / "b", second))]
    )
    assert load(None, "", {"KUBECONFIG": listed}).token == "first"  # noqa: S105 - no secret
    assert load(None, "two", {"KUBECONFIG": listed}).token == "third"  # noqa: S105 - no secret


def test_a_pod_reaches_its_cluster_by_its_service_account(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there is not a kubeconfig and Kubernetes says where it is."""
    monkeypatch.setattr(kubeconfig, "SERVICE_ACCOUNT", tmp_path)
    (tmp_path / "ca.crt").write_bytes(PEM)
    there = {"HOME": str(tmp_path), "KUBERNETES_SERVICE_HOST": "fd00::1"}
    access = load(None, "", there)
    assert access.server == "https://[fd00::1]:443"
    assert access.token_file == tmp_path / "token"
    assert access.namespace == ""
    (tmp_path / "namespace").write_text("team-a")
    assert load(None, "", there).namespace == "team-a"


def test_a_context_may_have_a_namespace(tmp_path: Path) -> None:
    """Which a refusal in the whole cluster suggests."""
    raw = config()
    assert load(written(tmp_path / "c", raw), "", {}).namespace == ""
    raw["contexts"][0]["context"]["namespace"] = "team-a"
    assert load(written(tmp_path / "c", raw), "", {}).namespace == "team-a"


def test_an_exec_plugin_receives_its_cluster_if_it_requests_it(tmp_path: Path) -> None:
    """A command with a slash is meant from the kubeconfig's folder."""
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "bin/login",
        "args": ["get", "token"],
        "env": [{"name": "A", "value": "b"}],
        "interactiveMode": "Never",
        "provideClusterInfo": True,
    }
    found = load(written(tmp_path / "c", config({"exec": plugin})), "", {}).exec_plugin
    assert found is not None
    assert found.command == str(tmp_path / "bin/login")
    assert found.arguments == ("get", "token")
    assert found.environment == {"A": "b"}
    assert found.cluster == {"server": "https://one:6443"}
    assert not found.is_interactive


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        ([], "is not a kubeconfig"),
        ({"clusters": {}}, "has no current-context"),
        ({"clusters": {"a": 1}}, "clusters: expected a list"),
        ({"users": [{"user": {}}]}, r"users\[0\]: expected an entry with a name"),
        ({**config(), "current-context": "x"}, "has no context 'x'; it has: one"),
        ({**config(), "clusters": []}, "has no cluster 'one'; it has: none"),
        (config(cluster={"server": "one:6443"}), r"clusters\[one\].server: 'one:6443' is not an"),
        (config({"token": 5}), r"users\[one\].token: expected a string"),
        (config({"client-key-data": "%"}), r"client-key-data: is not base64"),
        (config({"client-key-data": "eA=="}), "belong together"),
        (config({"client-key": "gone.pem"}), r"client-key: .*gone.pem cannot be read: No such"),
        (config({"auth-provider": {"name": "gcp"}}), "auth-provider 'gcp' is of Kubernetes before"),
        (config({"exec": {"command": ""}}), r"exec.command: expected a program"),
        (config({"exec": {"command": "x", "apiVersion": "v9"}}), "'v9' is not supported"),
        (config({"as-groups": ["a"]}), "as-groups and as-user-extra are not supported"),
        (
            config(
                cluster={"insecure-skip-tls-verify": True, "certificate-authority-data": "eA=="}
            ),
            "is set together with a certificate",
        ),
    ],
)
def test_what_is_wrong_is_refused_with_file_and_entry(
    tmp_path: Path, raw: object, problem: str
) -> None:
    """Nothing is asked of any server."""
    with pytest.raises(KubeconfigError, match=problem) as refusal:
        load(written(tmp_path / "config", raw), "", {})
    assert str(tmp_path / "config") in str(refusal.value)


def test_scalars_are_read_as_kubectl_reads_them(tmp_path: Path) -> None:
    """`12:30` is a name, and `y` is true."""
    file = tmp_path / "config"
    file.write_text(
        "current-context: 12:30\n"
        "contexts: [{name: 12:30, context: {cluster: 1:00, user: 2:00}}]\n"
        "clusters: [{name: 1:00, cluster: {server: 'https://a', insecure-skip-tls-verify: y}}]\n"
        "users: [{name: 2:00, user: {token: t}}]\n"
    )
    access = load(file, "", {})
    assert access.name.endswith("context 12:30")
    assert access.tls.insecure


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"\xff", "is not UTF-8"),
        (b"[" * 5_000, "nested too deeply"),
        (b"users: !!int x", "is not YAML"),
    ],
)
def test_a_file_of_a_stranger_is_refused_within_the_bounds(
    tmp_path: Path, content: bytes, problem: str
) -> None:
    """As that of a trace is."""
    (tmp_path / "config").write_bytes(content)
    with pytest.raises(KubeconfigError, match=problem):
        load(tmp_path / "config", "", {})


@pytest.mark.parametrize(
    ("content", "problem"), [(b"a: [", "is not YAML"), (None, "cannot be read: No such file")]
)
def test_a_file_that_cannot_be_read_is_refused(
    tmp_path: Path, content: bytes | None, problem: str
) -> None:
    """With its name."""
    if content is not None:
        (tmp_path / "c").write_bytes(content)
    with pytest.raises(KubeconfigError, match=problem):
        load(tmp_path / "c", "", {})


def test_without_any_kubeconfig_the_option_is_named(tmp_path: Path) -> None:
    """Outside of a cluster."""
    with pytest.raises(KubeconfigError, match="give one with --kubeconfig"):
        load(None, "", {"HOME": str(tmp_path)})
    with pytest.raises(KubeconfigError, match=r"\$KUBECONFIG: no such file"):
        load(None, "", {"KUBECONFIG": str(tmp_path / "no")})


def test_a_file_that_is_not_yaml_is_named_without_its_lines(tmp_path: Path) -> None:
    """The line may have a token."""
    file = tmp_path / "config"
    file.write_text("users:\n- name: u\n  user: {token: nobody-may-see-this, [\n")
    with pytest.raises(KubeconfigError, match=r"config, line \d+: is not YAML") as refusal:
        load(file, "")
    assert "nobody" not in str(refusal.value)
