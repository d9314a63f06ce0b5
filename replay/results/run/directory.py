"""The folder of a run: written by one process, which holds its lock, and read by others."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import orjson

from replay.errors import RunError, unreadable, unwritable
from replay.results.durations import simulated
from replay.results.run.checkpoints import Checkpoint, Checkpoints, is_checkpoint, last_before
from replay.results.run.decision_log import DecisionLog, read_decisions, read_entries
from replay.results.run.files import (
    DECISIONS,
    EXTENDERS,
    GROWING,
    HISTORY,
    LATENCIES,
    MADE,
    MANIFEST,
    OBJECTS,
    RUNS,
    SPANS,
    SUMMARY,
    TABLES_DRAFT,
    check_files,
    is_before_the_beginning,
    is_ours,
    next_folder,
)
from replay.results.run.history import RoundLog, read_rounds, with_responses
from replay.results.run.lock import LOCK, RunLock, held_text, is_held, read_holder
from replay.results.run.log_file import whole_lines
from replay.results.run.manifest import Manifest, RunFile, described, unsigned_manifest
from replay.results.run.resume_point import RESUME, ResumePoint
from reprieve.scheduler.v1beta1 import scheduler_pb2
from reprieve.trace.v1beta1 import trace_pb2
from services.folder import Folder, drafted, read_file
from services.growing_file import ChangedFileError, GrowingFile, check_beginning
from services.rpc.kube import rfc3339


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState:
    """Whether a run is complete, still running, or broke off.

    going: the process that writes into the folder; "" if there is none. broke_off: why the run
    ended early; "" if it did not. Both are "" for a complete run.
    """

    going: str = ""
    broke_off: str = ""

    @property
    def is_whole(self) -> bool:
        """Return whether the run is complete."""
        return not (self.going or self.broke_off)

    def __str__(self) -> str:
        """Return why results are incomplete, as a sentence without a full stop; "" if complete."""
        if self.going:
            return f"the run is still going ({self.going}); this is what it has written so far"
        if self.broke_off:
            return f"the run broke off ({self.broke_off}); this is what it had written by then"
        return ""


class RunNote(NamedTuple):
    """A note of a run's summary; `times` counts its occurrences."""

    kind: str
    text: str
    times: int


class RunDirectory:
    """A run directory: made by `create` or `create_next`, read after `open`.

    The run that makes the directory holds its lock until `end` or the exit of the context manager,
    which also records why a run broke off. A method that reads raises RunError if it cannot read a
    file. A method that writes raises OutputError if the disk is full or failing, otherwise
    RunError.
    """

    def __init__(self, path: Path, lock: RunLock | None = None) -> None:
        self.path = path
        self._lock = lock
        self._continues = False
        self._growing: dict[str, GrowingFile] = {}
        self._continued: dict[str, GrowingFile] = {}
        self._whole: dict[str, RunFile] = {}
        self._described: dict[str, RunFile] = {}
        self._checked: set[str] = set()

    @classmethod
    def create(cls, path: Path, *, force: bool = False) -> Self:
        """Make the folder, which may exist if it is empty.

        `force` removes a former run in the folder; a run that broke off because its input was
        invalid is removed without `force`, too. Raises RunError if the folder holds anything else,
        or if a live run holds its lock.
        """
        cls.check(path, force=force)
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise unwritable(path, error, "made") from error
        force = force or _is_refused(path)
        run = cls(path, RunLock.take(path))
        try:
            # Another run may have ended here since the check.
            check_files(path, force=force)
            # The manifest goes first: if the rest is removed in part, the folder is not a run.
            run._remove(lambda name: name == MANIFEST)
            run._remove(lambda name: name != LOCK)
        except BaseException:
            run.end()
            raise
        return run

    @staticmethod
    def check(path: Path, *, force: bool = False) -> None:
        """Raise RunError if `create` would refuse the folder's content; change nothing."""
        if is_held(path):
            raise RunError(held_text(path))
        check_files(path, force=force or _is_refused(path))

    @classmethod
    def create_next(cls, trace_name: str, parent: Path = RUNS) -> Self:
        """Make the next free folder PARENT/TRACE_NAME-N, N from 1."""
        path = next_folder(trace_name, parent)
        return cls(path, RunLock.take(path))

    @classmethod
    def open(cls, path: Path) -> Self:
        """Return an existing run. Raises RunError if `path` has no manifest."""
        if not path.is_dir():
            raise RunError(f"{path} is not a run directory: there is no such folder")
        if is_before_the_beginning(path):
            raise RunError(
                f"{path} has nothing of a run: its replay was killed before it began; replay the "
                "trace again, into this folder if you like"
            )
        if not (path / MANIFEST).is_file():
            raise RunError(f"{path} is not a run directory: it has no {MANIFEST}")
        return cls(path)

    @classmethod
    def reopen(cls, path: Path) -> Self:
        """Return a run that broke off, locked, to be continued after `go_back`.

        Raises RunError if the run is complete, and if a live run holds its lock.
        """
        run, former = cls.open(path), read_holder(path)
        run._lock, run._continues = RunLock.take(path), True
        try:
            if run.manifest().finished:
                raise RunError(f"{path} has its end; there is nothing to continue")
        except BaseException:
            run._lock.release(former.broke_off if former is not None else "")
            raise
        return run

    def complete(self) -> None:
        """Remove the resume point and drafts of a complete run that was killed before it could.

        Raises RunError if a live run holds the folder.
        """
        lock = RunLock.take(self.path)
        try:
            self._remove(lambda name: name == RESUME or (is_ours(name) and bool(drafted(name))))
        finally:
            lock.release()

    # The lock

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.end()
        elif self._lock is not None:
            # Invalid input (traces, overrides) raises a ValueError, which may be wrapped as a cause
            # here, and would fail again. Other problems, such as a lost service, a full disk or an
            # interruption, may be gone when the run is resumed.
            problem = error.__cause__ or error
            is_input = isinstance(problem, ValueError) and not isinstance(problem, RunError)
            refused = is_input and not self._continues
            self._lock.release(str(error) or type(error).__name__, refused=refused)
            error.add_note(f"{self.path} has what was written until then")

    def end(self) -> None:
        """Release the lock of a complete run; a second call does nothing."""
        self._close_continued()
        if self._lock is not None:
            self._lock.release()

    def state(self) -> RunState:
        """Return whether the run is complete, still running, or broke off and why."""
        holder, held = read_holder(self.path), is_held(self.path)
        if self.manifest().finished:
            return RunState()
        if held:
            return RunState(going=str(holder or "process unknown"))
        if holder is None:
            return RunState(broke_off="it has no end")
        return RunState(broke_off=holder.broke_off or f"killed: {holder}")

    # Writing

    def write_manifest(self, manifest: Manifest) -> None:
        """Write the manifest: at the beginning, and again at the end, with the files' digests.

        Call this when the disk has all files that the manifest names.
        """
        if manifest.finished:
            manifest = dataclasses.replace(manifest, files=self.recorded_files())
        self._write(MANIFEST, manifest.encoded())

    def write_resume_point(self, point: ResumePoint) -> None:
        """Replace the resume point; call this when the disk has all files that it names."""
        self._write(RESUME, point.encoded())

    def recorded_files(self) -> dict[str, RunFile]:
        """Return the digests of the files that the run wrote, without manifest and lock.

        A digest is of the bytes as written, so a later change on the disk does not affect it.
        """
        growing = {
            name: RunFile(sha256=file.sha256, size=file.size)
            for name, file in self._growing.items()
        }
        return growing | self._whole

    def take_beginning(
        self, origin: RunDirectory, checkpoint: Checkpoint, files: Mapping[str, RunFile]
    ) -> dict[str, RunFile]:
        """Take another run's files up to one of its checkpoints; return them and the checkpoint.

        files: the files that the checkpoint names. Files that grow are copied up to their size in
        `files`; checkpoints never change, and are hard-linked. Returns after the disk has them;
        `go_back` compares the bytes with the digests.
        """
        kept = [name for name in files if is_checkpoint(name)]
        try:
            with Folder(origin.path) as source, self._opened() as folder:
                present = set(source.names())
                for name in GROWING:
                    if name in files:
                        folder.copy_beginning(source, name, files[name].size)
                for name in [*kept, checkpoint.path.name]:
                    if name in present:
                        folder.link(source, name)
                folder.sync()
        except OSError as error:
            raise unwritable(self.path, error) from error
        return {**files, checkpoint.path.name: described(checkpoint.path)}

    def go_back(self, files: Mapping[str, RunFile]) -> None:
        """Truncate the run's files to the sizes in `files`; remove other files, tables and report.

        Raises RunError, and changes nothing, if the bytes of a file that grows do not match its
        digest. Later checkpoints, and checkpoints whose bytes have changed, are removed.
        """
        self._close_continued()
        with contextlib.ExitStack() as opened, self._opened() as folder:
            continued: dict[str, GrowingFile] = {}
            for name in GROWING:
                if name not in files:
                    continue
                try:
                    file = GrowingFile.continued(folder, name, files[name].size, files[name].sha256)
                except ChangedFileError as error:
                    raise RunError(str(error)) from error
                except OSError as error:
                    raise unreadable(self.path / name, error) from error
                opened.callback(file.close)
                continued[name] = file
            whole = {
                name: file
                for name, file in files.items()
                if is_checkpoint(name) and self._has(name, file)
            }
            kept = {MANIFEST, LOCK, RESUME, *continued, *whole}
            self._remove(lambda name: is_ours(name) and name not in kept)
            for file in continued.values():
                try:
                    file.cut()
                except OSError as error:
                    raise unwritable(file.path, error) from error
            opened.pop_all()
        self._growing, self._continued, self._whole = dict(continued), continued, whole

    def _close_continued(self) -> None:
        """Close files that `go_back` opened and nobody has taken with `growing`."""
        for file in self._continued.values():
            file.close()
        self._continued = {}

    def growing(self, name: str) -> GrowingFile:
        """Return a file that grows: a new one, or the file that `go_back` truncated."""
        file = self._continued.pop(name, None)
        if file is None:
            try:
                with self._opened() as folder:
                    file = GrowingFile(folder, name)
            except OSError as error:
                raise unwritable(self.path / name, error) from error
            self._growing[name] = file
        return file

    def decision_log(self) -> DecisionLog:
        """Return the decision log, to write to it."""
        return DecisionLog(self.growing(DECISIONS))

    def round_log(self) -> RoundLog:
        """Return the history, to write to it."""
        return RoundLog(self.growing(HISTORY))

    def responses_log(self) -> RoundLog:
        """Return the log of extender responses, to write to it."""
        return RoundLog(self.growing(EXTENDERS))

    def objects_log(self) -> RoundLog:
        """Return the log of objects, to write to it."""
        return RoundLog(self.growing(OBJECTS))

    def checkpoints(self, count: int) -> Checkpoints:
        """Return the writer of the checkpoints that the run keeps, `count` at most."""
        kept = {name: file.size for name, file in self._whole.items() if is_checkpoint(name)}
        return Checkpoints(self._write_recorded, self._remove_recorded, kept, count)

    def sync(self) -> None:
        """Wait until the disk has the folder's directory entries."""
        try:
            with self._opened() as folder:
                folder.sync()
        except OSError as error:
            raise unwritable(self.path, error) from error

    def remove_resume_point(self) -> None:
        """Remove what `reprieve resume` needs, at the run's end."""
        self._remove(lambda name: name == RESUME)

    def write_latencies(self, latencies: dict[str, Any]) -> None:
        """Write the wall times."""
        self._write_recorded(LATENCIES, _json(latencies))

    def write_summary(self, summary: dict[str, Any]) -> None:
        """Write the summary, as Summary.to_mapping returns it."""
        self._write_recorded(SUMMARY, _json(summary))

    def note_made(self, files: Mapping[str, RunFile]) -> None:
        """Add the digests of files derived from the run's to those recorded before."""
        noted = {name: dataclasses.asdict(file) for name, file in {**self.made(), **files}.items()}
        manifest = self._described_now(MANIFEST).sha256
        self._write(MADE, _json({"manifest": manifest, "files": noted}))

    # Reading

    def manifest(self) -> Manifest:
        """Read the manifest."""
        return Manifest.from_mapping(self._read_json(MANIFEST))

    def signed_manifest(self) -> tuple[Manifest, str]:
        """Read the manifest; return also why its signature is not this user's, "" if it is."""
        mapping = self._read_json(MANIFEST)
        return Manifest.from_mapping(mapping), unsigned_manifest(mapping)

    def made(self) -> dict[str, RunFile]:
        """Return the recorded files derived from this run's, with their digests."""
        try:
            noted = _mapping(read_file(self.path / MADE), MADE)
            if noted["manifest"] == self._described_now(MANIFEST).sha256:
                return {name: RunFile(**file) for name, file in noted["files"].items()}
        except (OSError, RunError, KeyError, TypeError, AttributeError):
            pass
        return {}

    def has_made(self, name: str) -> bool:
        """Return whether a file derived from the run's exists unchanged."""
        file = self.made().get(name)
        return file is not None and self._has(name, file)

    def checkpoint_before(self, at_ns: int) -> Checkpoint | None:
        """Return the latest checkpoint that was kept before `at_ns`, None without any."""
        checkpoint = last_before(self.path, at_ns)
        if checkpoint is not None:
            self.intact(checkpoint.path.name)
        return checkpoint

    def decisions(self) -> Iterator[trace_pb2.Decision]:
        """Yield the decision log, in order."""
        return read_decisions(self.intact(DECISIONS), is_whole=self.is_whole)

    def entries(self, uid: str) -> Iterator[tuple[trace_pb2.Decision, int]]:
        """Yield a pod's decisions, each with how many attempts precede it at its moment."""
        return read_entries(self.intact(DECISIONS), uid, is_whole=self.is_whole)

    def rounds(self) -> Iterator[scheduler_pb2.Round]:
        """Yield the rounds that were sent to the scheduler, in order."""
        return read_rounds(self.intact(HISTORY), is_whole=self.is_whole)

    @property
    def has_objects(self) -> bool:
        """Return whether there are objects that the scheduler does not receive in full."""
        return (self.path / OBJECTS).is_file()

    def object_rounds(self) -> Iterator[scheduler_pb2.Round]:
        """Yield the changes of objects.rounds.zst in order, one change in a round."""
        if self.has_objects:
            yield from read_rounds(self.intact(OBJECTS), is_whole=self.is_whole)

    def moment_ns(self, *, offset_ns: int | None = None, at_ns: int | None = None) -> int:
        """Return a moment of the run in ns since the Unix epoch.

        The moment is `offset_ns` after the run's first event, or `at_ns`; without either, the end.
        Raises RunError for a moment before the first event or after the end.
        """
        start_ns: int | None = None
        end_ns = self.manifest().end_ns
        if end_ns and offset_ns is None and at_ns is None:
            return end_ns
        for round_ in self.rounds():
            if start_ns is None and round_.events:
                start_ns = round_.events[0].time_ns
                if offset_ns is not None:
                    at_ns = start_ns + offset_ns
                if at_ns is not None and at_ns < start_ns:
                    begins = rfc3339.text(start_ns)
                    raise RunError(
                        f"the run begins at {begins}; {rfc3339.text(at_ns)} is before it"
                    )
            end_ns = max(end_ns, round_.time_ns)
            if start_ns is not None and at_ns is not None and at_ns <= end_ns:
                return at_ns
        if start_ns is None or at_ns is None:
            return end_ns
        moment = rfc3339.text(at_ns) if offset_ns is None else simulated(offset_ns)
        ends = f"{simulated(end_ns - start_ns)} ({rfc3339.text(end_ns)})"
        raise RunError(f"the run ends at {ends}; {moment} is after its end")

    @property
    def has_extenders(self) -> bool:
        """Return whether extenders took part in decisions."""
        return (self.path / EXTENDERS).is_file()

    def rounds_with_responses(self) -> Iterator[scheduler_pb2.Round]:
        """Yield the rounds with the responses of the scheduler's extenders."""
        answered: Iterator[scheduler_pb2.Round] = iter(())
        if self.has_extenders:
            answered = read_rounds(self.intact(EXTENDERS), is_whole=self.is_whole)
        return with_responses(self.rounds(), answered)

    def spans(self) -> Iterator[dict[str, Any]]:
        """Yield the TracesData of each line of the spans' file."""
        for where, text in whole_lines(self.intact(SPANS), is_whole=self.is_whole):
            yield _mapping(text, where)

    def latencies(self) -> dict[str, Any]:
        """Read the wall times."""
        return self._read_json(LATENCIES)

    def summary(self) -> dict[str, Any]:
        """Read the summary."""
        return self._read_json(SUMMARY)

    def notes(self) -> list[RunNote]:
        """Return the summary's notes, [] if there is no summary. Raises RunError."""
        if not (self.path / SUMMARY).exists():
            return []
        summary = self.summary()
        try:
            notes = summary["notes"]
            return [RunNote(note["kind"], note["text"], int(note["count"])) for note in notes]
        except (KeyError, TypeError, ValueError):
            return []

    def eviction_not_judged(self) -> str:
        """Return why the run could not decide evictions; "" if it could, or has no summary.

        Raises RunError.
        """
        if not (self.path / SUMMARY).exists():
            return ""
        summary = self.summary()
        try:
            return str(summary["decided"].get("eviction_not_judged", ""))
        except (KeyError, AttributeError):
            return ""

    @property
    def has_digests(self) -> bool:
        """Return whether the run is complete and its manifest has the files' digests."""
        manifest = self.manifest()
        return manifest.finished and bool(manifest.files)

    @property
    def is_whole(self) -> bool:
        """Return whether the manifest is readable and states the run's end."""
        try:
            return self.manifest().finished
        except RunError:
            return False

    def intact(self, name: str) -> Path:
        """Return a file's path. Raises RunError if its bytes are not those that the run wrote.

        A file is compared only once. If the run broke off, the file is compared up to the last
        checkpoint; if the run is still running, it is not compared.
        """
        path = self.path / name
        if not (self.path / MANIFEST).exists():
            return path
        manifest = self.manifest()
        if not manifest.finished:
            self._check_up_to_checkpoint(name)
            return path
        expected = manifest.files.get(name)
        if expected is None:
            return path
        if name not in self._described:
            self._described[name] = described(path)
        present = self._described[name]
        if present != expected:
            what = "other bytes than"
            if present.size != expected.size:
                what = f"{present.size:,} bytes, and had {expected.size:,}"
            raise RunError(
                f"{path} has {what} at the run's end: it was changed or damaged; "
                f"`reprieve verify {self.path}` checks all files"
            )
        return path

    def _check_up_to_checkpoint(self, name: str) -> None:
        expected = self._at_checkpoint.get(name)
        if expected is None or name in self._checked or is_held(self.path):
            return
        try:
            with self._opened() as folder:
                check_beginning(folder, name, expected.size, expected.sha256)
        except ChangedFileError as error:
            problem = f"{error}; `reprieve verify {self.path}` checks all files"
            raise RunError(problem) from error
        except OSError as error:
            raise unreadable(self.path / name, error) from error
        self._checked.add(name)

    @functools.cached_property
    def _at_checkpoint(self) -> Mapping[str, RunFile]:
        """Return the files as of the last checkpoint; none if it is damaged (see `verify`)."""
        try:
            return ResumePoint.read(self.path).files
        except RunError:
            return {}

    def _described_now(self, name: str) -> RunFile:
        return described(self.path / name)

    def _has(self, name: str, file: RunFile) -> bool:
        """Return whether a file exists with the given digest and size."""
        try:
            return self._described_now(name) == file
        except RunError:
            return False

    def _read_json(self, name: str) -> dict[str, Any]:
        path = self.path / name if name == MANIFEST else self.intact(name)
        try:
            return _mapping(read_file(path), str(path))
        except OSError as error:
            raise unreadable(path, error) from error

    def _opened(self) -> contextlib.AbstractContextManager[Folder]:
        """Return the folder opened with the lock; without a lock, open it for this `with`."""
        if self._lock is not None and self._lock.is_held:
            return contextlib.nullcontext(self._lock.folder)
        return Folder(self.path)

    def _write(self, name: str, content: bytes) -> None:
        """Replace a file atomically; a write that fails leaves the former content."""
        try:
            with self._opened() as folder:
                folder.write(name, content)
        except OSError as error:
            raise unwritable(self.path / name, error) from error

    def _write_recorded(self, name: str, content: bytes) -> None:
        self._write(name, content)
        self._whole[name] = RunFile.of(content)

    def _remove_recorded(self, name: str) -> None:
        self._remove(lambda present: present == name)
        self._whole.pop(name, None)

    def _remove(self, chosen: Callable[[str], bool]) -> None:
        """Remove the files whose names `chosen` accepts, and the folders of drafts."""
        try:
            with self._opened() as folder:
                for name in folder.names():
                    if folder.is_folder(name) and name.startswith(TABLES_DRAFT):
                        folder.remove_folder(name)
                    elif chosen(name):
                        folder.remove(name)
                folder.sync()
        except OSError as error:
            raise unwritable(self.path, error, "made") from error


def _json(mapping: Mapping[str, Any]) -> bytes:
    return orjson.dumps(mapping, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def _mapping(text: bytes, where: str) -> dict[str, Any]:
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise RunError(f"{where}: not JSON: {error}") from error
    if not isinstance(value, dict):
        raise RunError(f"{where}: not a JSON object")
    return value


def _is_refused(path: Path) -> bool:
    """Return whether a folder's run broke off because its input was invalid."""
    holder = read_holder(path)
    return holder is not None and holder.refused
