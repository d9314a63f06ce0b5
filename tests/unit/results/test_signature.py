"""The user's key, and signatures with it."""

from __future__ import annotations

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from replay.results.run.signature import key_path, signature, unsigned


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the test a user without a key; return the folder of the user's state."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


def test_a_content_is_signed_by_a_key_that_is_made_at_first_use(state: Path) -> None:
    """Its owner alone may read the key and its folder."""
    signed = signature("manifest", b"content")
    assert unsigned("manifest", b"content", signed) == ""
    assert key_path() == state / "reprieve" / "key"
    assert stat.S_IMODE(key_path().stat().st_mode) == 0o600
    assert stat.S_IMODE(key_path().parent.stat().st_mode) == 0o700
    assert signature("manifest", b"content") == signed


def test_another_content_purpose_or_user_has_another_signature(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a user without a key cannot check one."""
    signed = signature("manifest", b"content")
    for purpose, content in (("manifest", b"contents"), ("resume point", b"content")):
        assert "is not by your key" in unsigned(purpose, content, signed)
    assert unsigned("manifest", b"content", b"") == "it has no signature"
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "other"))
    assert "there is no key" in unsigned("manifest", b"content", signed)
    assert signature("manifest", b"content") != signed
    assert "is not by your key" in unsigned("manifest", b"content", signed)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620])
def test_a_key_that_others_may_use_signs_nothing(mode: int) -> None:
    """Somebody else may have signed with it."""
    signed = signature("manifest", b"content")
    key_path().chmod(mode)
    assert "chmod 600" in unsigned("manifest", b"content", signed)
    assert signature("manifest", b"content") == b""


def test_a_key_that_is_cut_or_a_link_is_no_key(tmp_path: Path) -> None:
    """An empty key would be known to all."""
    signed = signature("manifest", b"content")
    key = key_path().read_bytes()
    key_path().write_bytes(b"")
    assert "is not a key" in unsigned("manifest", b"content", signed)
    assert signature("manifest", b"content") == b""
    key_path().unlink()
    (tmp_path / "elsewhere").write_bytes(key)
    key_path().symlink_to(tmp_path / "elsewhere")
    assert "a symbolic link" in unsigned("manifest", b"content", signed)


def test_a_user_without_a_place_for_a_key_signs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs are written as ever."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    assert signature("manifest", b"content") == b""
    assert "cannot be checked" in unsigned("manifest", b"content", b"x")


def test_a_relative_state_folder_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder of the command, which may be a stranger's, has no key."""
    monkeypatch.setenv("XDG_STATE_HOME", "state")
    monkeypatch.setenv("HOME", "/home/user")
    assert key_path() == Path("/home/user/.local/state/reprieve/key")


def test_replays_that_begin_at_once_have_one_key() -> None:
    """The first one stays."""
    with ThreadPoolExecutor(8) as pool:
        signed = {*pool.map(lambda _: signature("manifest", b"content"), range(32))}
    assert len(signed) == 1
    assert unsigned("manifest", b"content", signed.pop()) == ""
    assert os.listdir(key_path().parent) == ["key"]  # noqa: PTH208 - names
