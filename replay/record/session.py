"""A recording from its first list to its end: a thread a resource, a thread for usage, a folder."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from typing import Any

from replay.errors import AllRefusedError, RecordError
from replay.kube.kinds import NODES, PODS, RESOURCES, Resource
from replay.record import kubeconfig
from replay.record.api import ApiServer
from replay.record.frames import ABOUT, RecordingFolder, arrival_time
from replay.record.redact import Redactor
from replay.record.usage import ClusterIndex, UsageLog, UsageSource
from replay.record.usage_sources import ChosenSource, choose_source
from replay.record.watcher import Watcher, WatcherStatus

_JOIN_S, _JOINS = 0.02, 10
_FLUSH_NS = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class RecorderSettings:
    """What is recorded and how. `usage_every_s` is the time between two samples.

    `page` is the limit of a list request, `pause_s` the first back-off after a failure.
    """

    resources: Sequence[Resource] = RESOURCES
    redactor: Redactor | None = None
    usage_every_s: float = 15.0
    page: int = 500
    pause_s: float = 0.8


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


def record_live(
    request: RecordingRequest, keep_going: Callable[[RecordingProgress], bool]
) -> RecordingResult:
    """Record a live cluster until `keep_going` returns False. Raises RecordError.

    The folder is removed where nothing was received.
    """
    access = kubeconfig.load(request.kubeconfig, request.context)
    api = ApiServer(access, time.time_ns)
    api.get("/version")
    usage = choose_source(request.usage, api)
    folder = RecordingFolder.create(request.folder)
    options = RecorderSettings(
        redactor=Redactor(request.redact_key) if request.redact_key is not None else None,
        usage_every_s=request.usage_every_s,
    )
    try:
        return record(
            api, folder, usage, options=options, now_ns=time.time_ns, keep_going=keep_going
        )
    except RecordError:
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
    options: RecorderSettings,
    now_ns: Callable[[], int],
    keep_going: Callable[[RecordingProgress], bool],
) -> RecordingResult:
    """Record until `keep_going` returns False; it is called again and again, and waits a little.

    Raises RecordError where the server cannot be reached, does not accept the user's credentials,
    or refuses every resource. A later failure ends the recording and is its `broken`.
    """
    version = str(api.get("/version").get("gitVersion") or "")
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
        flushed_ns = now_ns()
        while session.goes_on() and keep_going(session.state()):
            if now_ns() - flushed_ns >= _FLUSH_NS:
                session.flush()
                flushed_ns = now_ns()
    state, broken = session.state(), session.broken()
    _check_received(state, broken)
    seconds = (now_ns() - began_ns) / 1e9
    # A server's refusal names its user.
    redacted = options.redactor.words if options.redactor else str
    about |= {
        "ended": arrival_time(now_ns()),
        "notes": [f"{what}: {redacted(why)}" for what, why in session.notes()],
        "broken": redacted(broken),
    }
    # `broken` reports a full disk, too.
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
        notes=tuple(f"{what}: {why}" for what, why in session.notes()),
    )


def _check_received(state: RecordingProgress, broken: str) -> None:
    if any(each.is_listed or each.objects for each in state.statuses.values()):
        return
    refused = next((each.refused for each in state.statuses.values() if each.refused), "")
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
        self._ending = Event()
        self._full = ""
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
                pause_s=options.pause_s,
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
            )

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Start all threads; at the end of the context, stop them and close all files."""
        runs: list[Callable[[], Any]] = [each.run for each in self._watchers]
        if self._usage is not None:
            runs.append(self._usage.run)
        threads = [Thread(target=run, daemon=True) for run in runs]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._ending.set()
            self._join(threads)
            for file in self._files:
                # A full disk was reported before.
                with contextlib.suppress(OSError):
                    file.close()

    def _join(self, threads: Sequence[Thread]) -> None:
        """Wait a short time for the threads; the response of a request in flight is lost."""
        for _ in range(_JOINS):
            for watcher in self._watchers:
                watcher.interrupt()
            for thread in threads:
                thread.join(_JOIN_S)
            if not any(thread.is_alive() for thread in threads):
                return

    def flush(self) -> None:
        """Flush all files; a full disk ends the recording."""
        for file in self._files:
            try:
                file.flush()
            except OSError as error:
                self._full = f"{file.path}: {error.strerror or error}"

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
        found = (each.status.broken for each in self._watchers if each.status.broken)
        return next(found, self._full)

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
                effect = "; a replay needs them" if is_needed else ""
                result.append((f"{name} are not recorded{effect}", status.refused))
            elif not status.is_listed:
                why = status.problem or "the recording ended before"
                result.append((f"{name} were not listed completely", why))
            if status.gaps:
                times = f"{len(status.gaps)} times, " if len(status.gaps) > 1 else ""
                what = f"{name} were listed again, {times}changes in between are recorded late"
                result.append((what, status.gaps[-1]))
        return result
