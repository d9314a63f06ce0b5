"""Runs one recording, from the first API request to the final report."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from replay.errors import AllRefusedError, OutputError, RecordError, ReplayError, unwritable
from replay.importers.kubernetes.watch import partial_text
from replay.importers.kubernetes.watch_coverage import missing_since, named, recording_coverage
from replay.importers.records import Issues
from replay.record import kubeconfig
from replay.record.api import ApiServer
from replay.record.connect import UNANSWERED, connected
from replay.record.coverage import is_refused, resources_of
from replay.record.frames import ABOUT, RecordingFolder
from replay.record.http_client import RequestBounds
from replay.record.recorder import ClusterRecorder, RecorderSettings, RecordingProgress
from replay.record.redact import Redactor
from replay.record.usage_sources import ChosenSource
from services.rpc.kube import rfc3339


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingResult:
    """A recording that has ended. `broken` is the failure that ended it early, or "".

    `is_disk`: whether that failure concerns the disk that holds the folder. `usage`: the name of
    the source of usage, "" without samples; `usage_why`: why that source was chosen. `missing`: the
    resources that are not complete to the end, with the times, or "". `hint`: what the user can do
    about refused resources, or "".
    """

    folder: RecordingFolder
    server: str
    version: str
    seconds: float
    state: RecordingProgress
    usage: str
    usage_why: str
    broken: str
    is_disk: bool = False
    missing: str = ""
    notes: tuple[str, ...] = field(default=())
    hint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingRequest:
    """The options of `reprieve record`. `redact_key` None does not redact.

    `usage` is an argument of `choose_source`; `namespaces` () records all namespaces.
    """

    kubeconfig: Path | None
    context: str
    usage: str
    usage_every_s: float
    redact_key: bytes | None
    folder: Path
    bounds: RequestBounds = RequestBounds()  # noqa: RUF009 - a frozen value
    namespaces: tuple[str, ...] = ()


def record_live(
    request: RecordingRequest, keep_going: Callable[[RecordingProgress], bool]
) -> RecordingResult:
    """Record a live cluster until `keep_going` returns False. Raises RecordError, OutputError.

    The folder is removed if nothing was received.
    """
    access = kubeconfig.load(request.kubeconfig, request.context)
    api = ApiServer(access, time.time_ns, request.bounds)
    nothing = RecordingProgress(statuses={}, samples=0, usage_problem="")
    connection = connected(api, request.usage, lambda: keep_going(nothing), request.namespaces)
    folder = RecordingFolder.create(request.folder)
    key, names = request.redact_key, request.namespaces
    options = RecorderSettings(
        redactor=Redactor(key, names) if key is not None else None,
        usage_every_s=request.usage_every_s,
        namespaces=request.namespaces,
        absent=connection.absent,
        resources=resources_of(connection.devices),
    )
    try:
        return record(
            api,
            folder,
            connection.usage,
            version=connection.version,
            options=options,
            now_ns=time.time_ns,
            keep_going=keep_going,
        )
    except OSError as error:
        _remove_empty(folder)
        raise unwritable(folder.path, error) from error
    except AllRefusedError:
        _remove(folder)
        raise
    except ReplayError:
        _remove_empty(folder)
        raise


def _remove_empty(folder: RecordingFolder) -> None:
    if not folder.watches() and not folder.usage_file():
        _remove(folder)


def _remove(folder: RecordingFolder) -> None:
    """Remove the recorder's files, and the folder if it is empty then."""
    for path in [*folder.path.glob("*.jsonl.zst"), folder.path / ABOUT]:
        path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        folder.path.rmdir()


def record(
    api: ApiServer,
    folder: RecordingFolder,
    usage: ChosenSource,
    *,
    version: str,
    options: RecorderSettings,
    now_ns: Callable[[], int],
    keep_going: Callable[[RecordingProgress], bool],
) -> RecordingResult:
    """Record until `keep_going` returns False; it is called repeatedly, and must wait a little.

    `version` is the server's version. Raises RecordError if the server cannot be reached, does not
    accept the user's credentials, or refuses every resource; OutputError if the disk is full before
    anything is written. A later failure ends the recording and becomes its `broken`.
    """
    source = usage.source
    recorder = ClusterRecorder(api, folder, usage, options, now_ns)
    began_ns = now_ns()
    hidden = options.redactor.text if options.redactor else str
    about: dict[str, object] = {
        "server": api.address if options.redactor is None else "",
        "version": version,
        "began": rfc3339.text(began_ns, 6),
        "redacted": options.redactor is not None,
        "usage": source.name if source else "",
    }
    if options.namespaces:
        about["namespaces"] = [hidden(namespace) for namespace in options.namespaces]
    folder.write_about(about)
    with recorder.running():
        while recorder.goes_on() and keep_going(recorder.state()):
            pass
    state, broken = recorder.state(), recorder.broken()
    _check_received(recorder, api.address, state, broken)
    seconds = (recorder.ended_ns - began_ns) / 1e9
    # A server's refusal contains the user's name.
    redacted = options.redactor.server_words if options.redactor else str
    about |= {
        "ended": rfc3339.text(recorder.ended_ns, 6),
        "notes": [f"{what}: {redacted(why)}" for what, why in recorder.notes(hidden)],
        "broken": redacted(broken),
    }
    # `broken` reports a full disk.
    with contextlib.suppress(OSError):
        folder.write_about(about)
    notes = [f"{what}: {why}" for what, why in recorder.notes(str)]
    notes += _gaps(folder)
    if options.namespaces:
        # The importer adds the same note to the trace.
        notes.insert(0, partial_text(options.namespaces))
    return RecordingResult(
        folder=folder,
        server=api.address,
        version=version,
        seconds=seconds,
        state=state,
        usage=source.name if source and state.samples else "",
        usage_why=usage.why,
        broken=broken,
        is_disk=recorder.is_disk,
        missing=_missing(recorder.without_end(str)),
        notes=tuple(notes),
        hint=recorder.hint(),
    )


def _gaps(folder: RecordingFolder) -> list[str]:
    """Return the notes about gaps and missing ends that the trace will have."""
    issues = Issues()
    # The reader of the changes reports a damaged file.
    with contextlib.suppress(OSError):
        recording_coverage(folder.watches()).add_issues(issues)
    return [issue.message for issue in issues]


def _missing(resources: Sequence[tuple[str, int, str]]) -> str:
    """Return a text about resources that are not complete to the end; "" if all are.

    It has the times up to which they are complete, and the reason for the first one.
    """
    if not resources:
        return ""
    never = [title for title, until_ns, _ in resources if not until_ns]
    since = [(title, until_ns) for title, until_ns, _ in resources if until_ns]
    parts = [missing_since(since)] if since else []
    if never:
        parts.append(f"never listed completely: {named(never)}")
    return f"{'; '.join(parts)} ({resources[0][2]})"


def _check_received(
    recorder: ClusterRecorder, address: str, state: RecordingProgress, broken: str
) -> None:
    """Raise RecordError or OutputError if nothing was received."""
    statuses, all_refused = state.statuses.values(), is_refused(recorder.watched())
    if not all_refused and any(status.has_received for status in statuses):
        return
    if recorder.is_disk:
        raise OutputError(broken)
    if broken:
        raise RecordError(broken)
    if state.problems and not all_refused:
        raise RecordError(state.problems[0])
    if all_refused:
        raise recorder.all_refused()
    raise RecordError(f"{address}: {UNANSWERED}")
