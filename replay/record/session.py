"""A recording from its first list to its end: a thread a resource, one for usage, one folder."""

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
from replay.record.frames import ABOUT, Folder, arrival
from replay.record.redact import Redactor
from replay.record.usage import Roster, UsageLog, UsageSource
from replay.record.usage_sources import Choice, choose
from replay.record.watcher import Told, Watcher

_JOIN_S, _JOINS = 0.02, 10
_FLUSH_NS = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What is recorded and how. `usage_every_s` is the time between two samples.

    `page` is how many objects a list asks for at once, `pause_s` the first wait after a failure.
    """

    resources: Sequence[Resource] = RESOURCES
    redactor: Redactor | None = None
    usage_every_s: float = 15.0
    page: int = 500
    pause_s: float = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """How far a recording has come. `told` is by the resources' names."""

    told: Mapping[str, Told]
    samples: int
    usage_problem: str

    @property
    def listed(self) -> int:
        """Return how many resources have been listed, or refused."""
        return sum(each.is_listed or bool(each.refused) for each in self.told.values())

    @property
    def objects(self) -> int:
        """Return how many objects are there."""
        return sum(each.objects for each in self.told.values())

    @property
    def events(self) -> int:
        """Return how many events watches have brought."""
        return sum(each.events for each in self.told.values())

    @property
    def problems(self) -> list[str]:
        """Return what goes wrong right now and is tried again."""
        found = (each.problem for each in self.told.values())
        return list(dict.fromkeys(each for each in found if each))


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A recording that has ended. `broken` is what ended it early, "" for nothing.

    `usage` names the source of usage, "" where nothing was told; `usage_why` says why this one.
    """

    folder: Folder
    server: str
    version: str
    seconds: float
    state: State
    usage: str
    usage_why: str
    broken: str
    notes: tuple[str, ...] = field(default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What a user asks for. `redact_key` None hashes nothing; `usage` is as `choose` has it."""

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
    usage = choose(wishes.usage, api)
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


def record(
    api: ApiServer,
    folder: Folder,
    usage: Choice,
    *,
    options: Options,
    now_ns: Callable[[], int],
    go_on: Callable[[State], bool],
) -> Recorded:
    """Record until `go_on`, which is asked again and again (and waits in between), says no.

    Raises RecordError where the server cannot be reached, does not know the user or refuses every
    resource; whatever goes wrong later ends the recording with what there is (`broken`).
    """
    version = str(api.get("/version").get("gitVersion") or "")
    source = usage.source
    session = _Session(api, folder, source, options, now_ns)
    began_ns = now_ns()
    about = {
        "server": api.address if options.redactor is None else "",
        "version": version,
        "began": arrival(began_ns),
        "redacted": options.redactor is not None,
        "usage": source.name if source else "",
    }
    folder.tell(about)
    with session.running():
        flushed_ns = now_ns()
        while session.goes_on() and go_on(session.state()):
            if now_ns() - flushed_ns >= _FLUSH_NS:
                session.flush()
                flushed_ns = now_ns()
    state, broken = session.state(), session.broken()
    _refuse_nothing(state, broken)
    seconds = (now_ns() - began_ns) / 1e9
    # What a server says of a refusal names its user.
    said = options.redactor.words if options.redactor else str
    notes = [f"{what}: {said(why)}" for what, why in session.notes()]
    # On a disk that is full, `broken` tells the same.
    with contextlib.suppress(OSError):
        folder.tell({**about, "ended": arrival(now_ns()), "notes": notes, "broken": said(broken)})
    return Recorded(
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


def _refuse_nothing(state: State, broken: str) -> None:
    """Raise RecordError where nothing was received at all."""
    if any(each.is_listed or each.objects for each in state.told.values()):
        return
    refused = next((each.refused for each in state.told.values() if each.refused), "")
    if broken or state.problems:
        raise RecordError(broken or state.problems[0])
    if refused:
        raise AllRefusedError(refused)


class _Session:
    def __init__(
        self,
        api: ApiServer,
        folder: Folder,
        usage: UsageSource | None,
        options: Options,
        now_ns: Callable[[], int],
    ) -> None:
        self._ending = Event()
        self._full = ""
        self._files = [folder.resource(each) for each in options.resources]
        redactor, roster = options.redactor, Roster()
        self._redactor = redactor
        self._watchers = [
            Watcher(
                resource=resource,
                api=api,
                file=file,
                roster=roster,
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
                roster=roster,
                redactor=redactor,
                ending=self._ending,
                now_ns=now_ns,
                every_s=options.usage_every_s,
            )

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Begin; at the end of the context, stop all threads and close all files."""
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
                # A disk that is full has been reported already.
                with contextlib.suppress(OSError):
                    file.close()

    def _join(self, threads: Sequence[Thread]) -> None:
        """Wait for threads to end, for a while; what a request in flight brings later is lost."""
        for _ in range(_JOINS):
            for watcher in self._watchers:
                watcher.interrupt()
            for thread in threads:
                thread.join(_JOIN_S)
            if not any(thread.is_alive() for thread in threads):
                return

    def flush(self) -> None:
        """Hand to the system what was received; a disk that is full ends the recording."""
        for file in self._files:
            try:
                file.flush()
            except OSError as error:
                self._full = f"{file.path}: {error.strerror or error}"

    def state(self) -> State:
        """Return how far the recording has come."""
        return State(
            told={each.resource.name: each.told for each in self._watchers},
            samples=self._usage.samples if self._usage else 0,
            usage_problem=self._usage.problem if self._usage else "",
        )

    def goes_on(self) -> bool:
        """Tell whether nothing is broken, and at least one resource is not refused."""
        return not self.broken() and not all(each.told.refused for each in self._watchers)

    def broken(self) -> str:
        """Return what ends the recording, "" for nothing."""
        found = (each.told.broken for each in self._watchers if each.told.broken)
        return next(found, self._full)

    def notes(self) -> list[tuple[str, str]]:
        """Return what of the cluster is missing, and why."""
        result = []
        if self._redactor is not None and self._redactor.unreadable:
            what = f"{self._redactor.unreadable:,} objects and events are not recorded"
            result.append((what, "they could not be read, so that nothing in them could be hashed"))
        if self._usage is not None and (silent := self._usage.silent()):
            result.append(
                (f"nodes that do not tell what is used ({len(silent):,})", ", ".join(silent[:5]))
            )
        for watcher in self._watchers:
            told, name = watcher.told, watcher.resource.name
            if told.refused:
                is_vital = watcher.resource in {NODES, PODS}
                weight = ", without which a trace is of little use" if is_vital else ""
                result.append((f"{name} are not recorded{weight}", told.refused))
            elif not told.is_listed:
                why = told.problem or "the recording ended before"
                result.append((f"{name} were not listed whole", why))
            if told.gaps:
                times = f"{len(told.gaps)} times, " if len(told.gaps) > 1 else ""
                what = f"{name} were listed again, {times}what happened meanwhile is told late"
                result.append((what, told.gaps[-1]))
        return result
