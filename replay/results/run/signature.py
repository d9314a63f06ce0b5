"""Signatures: whether this user's own replays have written a file of a run.

`reprieve resume` repeats a command that a run's folder names: it writes the files and connects to
the addresses that the command has. A folder may come from a stranger, so manifest and checkpoint
have a signature, an HMAC-SHA256 of their content by a key of the user's. The key is 32 random
bytes in the user's state folder (XDG Base Directory Specification, XDG_STATE_HOME), made when a
run is first written, and read by its owner only. It never leaves the machine.

Where no key can be made, such as without a home folder, runs are written without a signature.
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
    """Return where the user's key is. Raises RuntimeError for a user without a home folder."""
    state = os.environ.get("XDG_STATE_HOME", "")
    # The specification: a relative path is invalid, and ignored.
    root = Path(state) if state.startswith("/") else Path.home() / ".local" / "state"
    return root / _ENTRY / _NAME


def signature(purpose: str, content: bytes) -> bytes:
    """Return the signature of a content; b"" if the user has no key and none can be made.

    purpose: what the content is, so that a signature of one file is not that of another.
    """
    try:
        return _signed(_key_or_new(), purpose, content)
    except (OSError, RuntimeError):
        return b""


def unsigned(purpose: str, content: bytes, signed: bytes) -> str:
    """Return why `signed` is not this user's signature of a content; "" if it is."""
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
            # Another process may make one at the same time: the first one stays.
            folder.write_private(path.name, secrets.token_bytes(_KEY_BYTES))
        return _key(path)


def _key(path: Path) -> bytes:
    """Read a key. Raises OSError, also for one that somebody else could have written or read."""
    with Folder(path.parent) as folder, os.fdopen(folder.open(path.name), "rb") as file:
        status = os.fstat(file.fileno())
        if status.st_uid != os.geteuid() or status.st_mode & _OTHERS:
            raise OSError(f"{path} must be yours and without rights of others (chmod 600)")
        key = file.read(_KEY_BYTES + 1)
    if len(key) != _KEY_BYTES:
        raise OSError(f"{path} is not a key: it does not have {_KEY_BYTES} bytes; remove it")
    return key
