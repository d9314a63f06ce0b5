"""Verifies, by the digests in the manifest, that a run's files are unchanged since its end.

Tables and report are derived from those files; made.json has their digests. The manifest's digest
of itself detects damage, not intent: a person who changes the manifest can change its digest, too.

If a run is incomplete, the last checkpoint is verified by its own checksum, and each file, up to
its size at that checkpoint, by the digest in the checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from replay.errors import RunError
from replay.results.run.checkpoints import checkpoints_in
from replay.results.run.directory import RunDirectory
from replay.results.run.files import DERIVED, MADE, RECORDED
from replay.results.run.manifest import Manifest, RunFile, described
from replay.results.run.resume_point import RESUME, ResumePoint
from services.folder import Folder
from services.growing_file import ChangedFileError, check_beginning

Verdict = Literal["ok", "changed", "missing", "extra", "unchecked", "gone"]
FAULTS: frozenset[Verdict] = frozenset({"changed", "missing", "extra", "unchecked"})
"""Verdicts that fail a verification; a missing trace does not: a run no longer needs it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedFile:
    """A file and its verdict; `problem` is the reason for a verdict other than ok.

    The verdict extra: readers of the run would use the file, but the run did not write it.
    unchecked: there is no digest, because the run broke off or an older version wrote it. gone: a
    trace is no longer at its path.
    """

    path: str
    verdict: Verdict
    problem: str = ""


def verify(run: RunDirectory) -> Iterator[VerifiedFile]:
    """Yield each file of a run, then its traces. Raises RunError if its manifest is broken."""
    manifest, folder = run.manifest(), run.path
    recorded = [*RECORDED, *(checkpoint.path.name for checkpoint in checkpoints_in(folder))]
    present = [
        name for name in recorded if (folder / name).is_symlink() or (folder / name).exists()
    ]
    if not manifest.files:
        yield from _unchecked(run, present)
    else:
        yield from _checked(manifest, folder, present)
        yield from _made(run)
    for trace in manifest.traces:
        yield _trace(Path(trace.path), trace.sha256)


def _checked(manifest: Manifest, folder: Path, present: list[str]) -> Iterator[VerifiedFile]:
    for name, expected in manifest.files.items():
        # In a manipulated manifest, a name may be a path out of the folder.
        if Path(name).name != name:
            problem = "the manifest names a file outside the run"
            yield VerifiedFile(path=name, verdict="changed", problem=problem)
        else:
            yield _compared(folder / name, expected)
    for name in present:
        if name not in manifest.files:
            problem = "the run did not write it"
            yield VerifiedFile(path=str(folder / name), verdict="extra", problem=problem)


def _made(run: RunDirectory) -> Iterator[VerifiedFile]:
    """Verify tables and report; a missing one is no fault, it is rebuilt when needed."""
    folder, made = run.path, run.made()
    if not made and (folder / MADE).exists():
        problem = "it is not of this run, or damaged; `reprieve report` makes it again"
        yield VerifiedFile(path=str(folder / MADE), verdict="changed", problem=problem)
    for name in DERIVED:
        path = folder / name
        if name == MADE or not (path.exists() or path.is_symlink()):
            continue
        if name in made:
            yield _compared(path, made[name])
        else:
            problem = "no digest of it was noted; `reprieve report` makes it again"
            yield VerifiedFile(path=str(path), verdict="extra", problem=problem)


def _unchecked(run: RunDirectory, present: list[str]) -> Iterator[VerifiedFile]:
    """Verify a run that broke off: its last checkpoint, and its files up to that checkpoint."""
    why = str(run.state()) or "the run was made by a version that kept no digests"
    files: dict[str, RunFile] = {}
    checkpoint = None
    if (run.path / RESUME).exists():
        path = str(run.path / RESUME)
        try:
            files = dict(ResumePoint.read(run.path).files)
            checkpoint = VerifiedFile(path=path, verdict="ok")
        except RunError as error:
            checkpoint = VerifiedFile(path=path, verdict="changed", problem=str(error))
    for name in present:
        problem = _problem_up_to(run.path, name, files[name]) if name in files else ""
        yield VerifiedFile(
            path=str(run.path / name),
            verdict="changed" if problem else "unchecked",
            problem=problem or why,
        )
    if checkpoint is not None:
        yield checkpoint


def _problem_up_to(folder: Path, name: str, expected: RunFile) -> str:
    """Return why a file differs from its digest at the last checkpoint; "" if it does not."""
    try:
        with Folder(folder) as opened:
            check_beginning(opened, name, expected.size, expected.sha256)
    except ChangedFileError as error:
        return str(error)
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _compared(path: Path, expected: RunFile) -> VerifiedFile:
    """Compare a file of a run with its digest."""
    shown = str(path)
    if not (path.exists() or path.is_symlink()):
        return VerifiedFile(path=shown, verdict="missing", problem="it does not exist")
    try:
        present = described(path)
    except RunError as error:
        return VerifiedFile(path=shown, verdict="changed", problem=str(error))
    if present.size != expected.size:
        problem = f"it has {present.size:,} bytes, and had {expected.size:,}"
        return VerifiedFile(path=shown, verdict="changed", problem=problem)
    if present != expected:
        return VerifiedFile(path=shown, verdict="changed", problem="its SHA-256 is another one")
    return VerifiedFile(path=shown, verdict="ok")


def _trace(path: Path, sha256: str) -> VerifiedFile:
    """Compare a trace with its digest; its path may be a link."""
    if not path.exists():
        return VerifiedFile(path=str(path), verdict="gone", problem="it does not exist")
    try:
        present = described(path.resolve())
    except RunError as error:
        return VerifiedFile(path=str(path), verdict="changed", problem=str(error))
    if present.sha256 != sha256:
        problem = "its SHA-256 is another one"
        return VerifiedFile(path=str(path), verdict="changed", problem=problem)
    return VerifiedFile(path=str(path), verdict="ok")
