"""From a user's wishes to a recording: kubeconfig, connection, usage and folder."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from replay.record import kubeconfig, usage_choice
from replay.record.api import ApiServer
from replay.record.errors import RecordError
from replay.record.frames import ABOUT, Folder
from replay.record.redact import Redactor
from replay.record.session import Options, Recorded, State, record


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What a user asks for. `redact_key` None hashes nothing; `usage` as usage_choice has it."""

    kubeconfig: Path | None
    context: str
    usage: str
    usage_every_s: float
    redact_key: bytes | None
    folder: Path


def record_live(wishes: Wishes, go_on: Callable[[State], bool]) -> Recorded:
    """Record a live cluster until `go_on` says no. Raises RecordError.

    Where nothing could be received, no folder is left.
    """
    access = kubeconfig.load(wishes.kubeconfig, wishes.context)
    api = ApiServer(access, time.time_ns)
    api.get("/version")
    usage = usage_choice.choose(wishes.usage, api)
    folder = Folder.create(wishes.folder)
    options = Options(
        redactor=Redactor(wishes.redact_key) if wishes.redact_key is not None else None,
        usage_every_s=wishes.usage_every_s,
    )
    try:
        return record(api, folder, usage, options=options, now_ns=time.time_ns, go_on=go_on)
    except RecordError:
        _remove_empty(folder)
        raise


def _remove_empty(folder: Folder) -> None:
    """Remove a folder that nothing was received in."""
    if folder.watches() or folder.usage_file():
        return
    for each in [*folder.path.glob("*.jsonl.zst"), folder.path / ABOUT]:
        each.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        folder.path.rmdir()
