"""Signatures show whether a replay of this user wrote a file of a run.

`reprieve resume` runs a command again that it reads from a run's folder; that command writes files
and connects to addresses. The folder may come from another person, so manifest and checkpoint are
signed: an HMAC-SHA256 of their content with the user's key. The key is 32 random bytes in the
user's state folder (XDG Base Directory Specification, XDG_STATE_HOME), created when a run is first
written, and readable by its owner only. It never leaves the machine.

If no key can be created, for example without a home folder, runs are written without a signature.
"""

from __future__ import annotations

import hmac
import os
import secrets
import stat
from pathlib import Path

from services.folder import Folder

_NAME = "key"
_KEY_BYTES = 32
_ENTRY = Path("reprieve")
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def key_path() -> Path:
    """Return the path of the user's key. Raises RuntimeError for a user without a home folder."""
    state = os.environ.get("XDG_STATE_HOME", "")
    # The specification: a relative path is invalid, and ignored.
    root = Path(state) if state.startswith("/") else Path.home() / ".local" / "state"
    return root / _ENTRY / _NAME


def signature(purpose: str, content: bytes) -> bytes:
    """Return the signature of `content`; b"" if the user has no key and none can be created.

    purpose: the kind of content, so that a signature of one kind is invalid for another.
    """
    try:
        return _signed(_key_or_new(), purpose, content)
    except (OSError, RuntimeError):
        return b""


def unsigned(purpose: str, content: bytes, signed: bytes) -> str:
    """Return why `signed` is not this user's signature of `content`; "" if it is."""
    if not signed:
        return "it has no signature"
    try:
        path = key_path()
        key = _key(path)
    except FileNotFoundError:
        return f"its signature cannot be checked: there is no key {path}"
    except (OSError, RuntimeError) as error:
        return f"its signature cannot be checked: {error}"
    if hmac.compare_digest(signed, _signed(key, purpose, content)):
        return ""
    return f"its signature is not by your key {path}"


def _signed(key: bytes, purpose: str, content: bytes) -> bytes:
    return hmac.digest(key, purpose.encode() + b"\0" + content, "sha256")


def _key_or_new() -> bytes:
    path = key_path()
    try:
        return _key(path)
    except FileNotFoundError:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with Folder(path.parent) as folder:
            # Another process may create a key at the same time: the first key stays.
            folder.write_private(path.name, secrets.token_bytes(_KEY_BYTES))
        return _key(path)


def _key(path: Path) -> bytes:
    """Read a key. Raises OSError, also if another user could have written or read the file."""
    with Folder(path.parent) as folder, os.fdopen(folder.open(path.name), "rb") as file:
        status = os.fstat(file.fileno())
        if status.st_uid != os.geteuid() or status.st_mode & _OTHERS:
            raise OSError(f"{path} must be yours and without rights of others (chmod 600)")
        key = file.read(_KEY_BYTES + 1)
    if len(key) != _KEY_BYTES:
        raise OSError(f"{path} is not a key: it does not have {_KEY_BYTES} bytes; remove it")
    return key
