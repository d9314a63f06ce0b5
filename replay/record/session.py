"""A recording from its first list to its end: a thread a resource, a thread for usage, a folder."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from typing import Any

from replay.errors import AllRefusedError, OutputError, RecordError, ReplayError, unwritable
from replay.kube.kinds import NODES, PODS, RESOURCES, Resource
from replay.record import kubeconfig
from replay.record.api import ApiServer
from replay.record.backoff import Backoff
from replay.record.connect import connected
from replay.record.frames import ABOUT, RecordingFolder, arrival_time
from replay.record.http_client import RequestBounds
from replay.record.redact import Redactor
from replay.record.usage import ClusterIndex, UsageLog, UsageSource
from replay.record.usage_sources import ChosenSource
from replay.record.watcher import Watcher, WatcherStatus

_END_S = 0.5
_FLUSH_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class RecorderSettings:
    """What is recorded and how. `usage_every_s` is the time between two samples.

    `page` is the limit of a list request; `backoff` makes the waits between a requester's attempts.
    """

    resources: Sequence[Resource] = RESOURCES
    redactor: Redactor | None = None
    usage_every_s: float = 15.0
    page: int = 500
    backoff: Callable[[], Backoff] = Backoff


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingProgress:
    """The progress of a recording. `statuses` are by the names of resources."""

    statuses: Mapping[str, WatcherStatus]
    samples: int
    usage_problem: str

    @property
    def listed(self) -> int:
        """Return the number of resources that were listed or refused."""
        return sum(each.is_listed or bool(each.refused) for each in self.statuses.values())

    @property
    def objects(self) -> int:
        """Return the number of objects that exist."""
        return sum(each.objects for each in self.statuses.values())

    @property
    def events(self) -> int:
        """Return the number of events that watches received."""
        return sum(each.events for each in self.statuses.values())

    @property
    def problems(self) -> list[str]:
        """Return the current failures that are retried, each text once."""
        found = (each.problem for each in self.statuses.values())
        return list(dict.fromkeys(each for each in found if each))


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingResult:
    """A recording that has ended. `broken` is the failure that ended it early, or "".

    `is_disk` is whether that failure is one of the disk that the frames are written to.
    `usage` is the name of the source of usage, "" without samples; `usage_why` is why that source
    was chosen.
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
    notes: tuple[str, ...] = field(default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingRequest:
    """The options of `reprieve record`. `redact_key` None does not redact.

    `usage` is a selection for `choose_source`.
    """

    kubeconfig: Path | None
    context: str
    usage: str
    usage_every_s: float
    redact_key: bytes | None
    folder: Path
    bounds: RequestBounds = RequestBounds()  # noqa: RUF009 - a frozen value


def record_live(
    request: RecordingRequest, keep_going: Callable[[RecordingProgress], bool]
) -> RecordingResult:
    """Record a live cluster until `keep_going` returns False. Raises RecordError, OutputError.

    The folder is removed where nothing was received.
    """
    access = kubeconfig.load(request.kubeconfig, request.context)
    api = ApiServer(access, time.time_ns, request.bounds)
    nothing = RecordingProgress(statuses={}, samples=0, usage_problem="")
    version, usage = connected(api, request.usage, lambda: keep_going(nothing))
    folder = RecordingFolder.create(request.folder)
    options = RecorderSettings(
        redactor=Redactor(request.redact_key) if request.redact_key is not None else None,
        usage_every_s=request.usage_every_s,
    )
    try:
        return record(
            api,
            folder,
            usage,
            version=version,
            options=options,
            now_ns=time.time_ns,
            keep_going=keep_going,
        )
    except OSError as error:
        _remove_empty(folder)
        raise unwritable(folder.path, error) from error
    except ReplayError:
        _remove_empty(folder)
        raise


def _remove_empty(folder: RecordingFolder) -> None:
    if folder.watches() or folder.usage_file():
        return
    for each in [*folder.path.glob("*.jsonl.zst"), folder.path / ABOUT]:
        each.unlink(missing_ok=True)
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
    """Record until `keep_going` returns False; it is called again and again, and waits a little.

    `version` is that of the server. Raises RecordError where the server cannot be reached, does not
    accept the user's credentials, or refuses every resource, OutputError where the disk has no room
    for anything. A later failure ends the recording and is its `broken`.
    """
    source = usage.source
    session = _Session(api, folder, source, options, now_ns)
    began_ns = now_ns()
    about: dict[str, object] = {
        "server": api.address if options.redactor is None else "",
        "version": version,
        "began": arrival_time(began_ns),
        "redacted": options.redactor is not None,
        "usage": source.name if source else "",
    }
    folder.write_about(about)
    with session.running():
        while session.goes_on() and keep_going(session.state()):
            pass
    state, broken = session.state(), session.broken()
    _check_received(state, broken, is_disk=session.is_disk)
    seconds = (now_ns() - began_ns) / 1e9
    # A server's refusal names its user.
    redacted = options.redactor.words if options.redactor else str
    about |= {
        "ended": arrival_time(now_ns()),
        "notes": [f"{what}: {redacted(why)}" for what, why in session.notes()],
        "broken": redacted(broken),
    }
    # `broken` reports a full disk.
    with contextlib.suppress(OSError):
        folder.write_about(about)
    return RecordingResult(
        folder=folder,
        server=api.address,
        version=version,
        seconds=seconds,
        state=state,
        usage=source.name if source and state.samples else "",
        usage_why=usage.why,
        broken=broken,
        is_disk=session.is_disk,
        notes=tuple(f"{what}: {why}" for what, why in session.notes()),
    )


def _check_received(state: RecordingProgress, broken: str, *, is_disk: bool) -> None:
    if any(each.is_listed or each.objects for each in state.statuses.values()):
        return
    refused = next((each.refused for each in state.statuses.values() if each.refused), "")
    if is_disk:
        raise OutputError(broken)
    if broken or state.problems:
        raise RecordError(broken or state.problems[0])
    if refused:
        raise AllRefusedError(refused)


class _Session:
    def __init__(
        self,
        api: ApiServer,
        folder: RecordingFolder,
        usage: UsageSource | None,
        options: RecorderSettings,
        now_ns: Callable[[], int],
    ) -> None:
        self._api = api
        self._ending = Event()
        self._files = [folder.resource(each) for each in options.resources]
        redactor, index = options.redactor, ClusterIndex()
        self._redactor = redactor
        self._watchers = [
            Watcher(
                resource=resource,
                api=api,
                file=file,
                index=index,
                ending=self._ending,
                now_ns=now_ns,
                redact=redactor.object if redactor else lambda raw: raw,
                page=options.page,
                backoff=options.backoff(),
            )
            for resource, file in zip(options.resources, self._files, strict=True)
        ]
        self._usage: UsageLog | None = None
        if usage is not None:
            file = folder.usage()
            self._files.append(file)
            self._usage = UsageLog(
                source=usage,
                file=file,
                index=index,
                redactor=redactor,
                ending=self._ending,
                now_ns=now_ns,
                every_s=options.usage_every_s,
                backoff=options.backoff(),
            )

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Start all threads; at the end of the context, stop them and close all files."""
        runs: list[Callable[[], Any]] = [each.run for each in self._watchers]
        if self._usage is not None:
            runs.append(self._usage.run)
        threads = [Thread(target=run, daemon=True) for run in runs]
        flusher = Thread(target=self._flush_all, daemon=True)
        for thread in [*threads, flusher]:
            thread.start()
        try:
            yield
        finally:
            self._ending.set()
            # Cuts every request; the thread of one that resolves a name is left alone.
            self._api.stop()
            end_s = time.monotonic() + _END_S
            for thread in [*threads, flusher]:
                thread.join(max(0.0, end_s - time.monotonic()))
            for file in self._files:
                file.close()

    def _flush_all(self) -> None:
        """Flush all files again and again until the end; the body of a thread.

        A thread of its own: a terminal that takes no output delays no write to the disk.
        """
        while not self._ending.wait(_FLUSH_S):
            for file in self._files:
                file.flush()

    def state(self) -> RecordingProgress:
        """Return the progress of the recording."""
        return RecordingProgress(
            statuses={each.resource.name: each.status for each in self._watchers},
            samples=self._usage.samples if self._usage else 0,
            usage_problem=self._usage.problem if self._usage else "",
        )

    def goes_on(self) -> bool:
        """Return whether nothing is broken, and at least one resource is not refused."""
        return not self.broken() and not all(each.status.refused for each in self._watchers)

    def broken(self) -> str:
        """Return the failure that ends the recording, or ""."""
        if failed := self._failed_file():
            return str(failed)
        return next((each.status.broken for each in self._watchers if each.status.broken), "")

    @property
    def is_disk(self) -> bool:
        """Return whether that failure is one of the disk that the frames are written to."""
        return isinstance(self._failed_file(), OutputError)

    def _failed_file(self) -> ReplayError | None:
        failed = (unwritable(each.path, each.failure) for each in self._files if each.failure)
        return next(failed, None)

    def notes(self) -> list[tuple[str, str]]:
        """Return what is missing in the recording, and why."""
        result = []
        if self._redactor is not None and self._redactor.unreadable:
            what = f"{self._redactor.unreadable:,} objects and events are not recorded"
            result.append((what, "they could not be read, and so they could not be hashed"))
        if self._usage is not None and (silent := self._usage.silent()):
            result.append(
                (f"nodes without recorded usage ({len(silent):,})", ", ".join(silent[:5]))
            )
        for watcher in self._watchers:
            status, name = watcher.status, watcher.resource.name
            if status.refused:
                is_needed = watcher.resource in {NODES, PODS}
                what = "only recorded until then" if status.is_listed else "not recorded"
                effect = "; a replay needs them" if is_needed else ""
                result.append((f"{name} are {what}{effect}", status.refused))
            elif not status.is_listed:
                why = status.problem or "the recording ended before"
                result.append((f"{name} were not listed completely", why))
            if status.gaps:
                times = f"{status.gaps:,} times, " if status.gaps > 1 else ""
                what = f"{name} were listed again, {times}changes in between are recorded late"
                result.append((what, status.gap))
            if unreadable := watcher.unreadable:
                what = f"{unreadable:,} objects and events of {name} are not recorded"
                result.append((what, "they are malformed, or nested deeper than 254 levels"))
        return result
