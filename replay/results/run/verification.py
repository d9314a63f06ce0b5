"""Whether a run's files are those of its end, by the digests in its manifest.

Of a run without its end, the last checkpoint is checked by its own checksum.

Files that are made of a run afterwards (tables, report, exports) have no digest and are not
checked. The manifest has none of itself: it is as trustworthy as the place where it is kept.
"""

from __future__ import annotations

import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from replay.errors import RunError
from replay.results.run.directory import RunDirectory
from replay.results.run.files import RECORDED
from replay.results.run.history import checkpoints_in
from replay.results.run.manifest import file_sha256
from replay.results.run.resume_point import RESUME, ResumePoint

Verdict = Literal["ok", "changed", "missing", "extra", "unchecked", "gone"]
FAULTS: frozenset[Verdict] = frozenset({"changed", "missing", "extra", "unchecked"})
"""Verdicts that fail a verification: a trace may be gone, for a run does not need it any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedFile:
    """A file and its verdict; `problem` is the reason where it is not ok.

    extra: a file that readers of the run would use, and the run did not write. unchecked: the run
    broke off or is older than digests. gone: a trace that is no longer at its path.
    """

    path: str
    verdict: Verdict
    problem: str = ""


def verify(run: RunDirectory) -> Iterator[VerifiedFile]:
    """Yield each file of a run, then its traces. Raises RunError where its manifest is broken."""
    manifest, folder = run.manifest(), run.path
    present = [each for each in RECORDED if (folder / each).exists()]
    present += [each.path.name for each in checkpoints_in(folder)]
    if not manifest.files:
        why = str(run.state()) or "the run was made by a version that kept no digests"
        for name in present:
            yield VerifiedFile(path=str(folder / name), verdict="unchecked", problem=why)
        if (folder / RESUME).exists():
            yield _resumable(folder)
    else:
        for name, expected in manifest.files.items():
            # A name in a changed manifest may lead anywhere.
            if Path(name).name != name:
                problem = "the manifest names a file outside the run"
                yield VerifiedFile(path=name, verdict="changed", problem=problem)
            else:
                yield _verified(folder / name, expected.sha256, expected.size, "missing")
        for name in present:
            if name not in manifest.files:
                problem = "the run did not write it"
                yield VerifiedFile(path=str(folder / name), verdict="extra", problem=problem)
    for trace in manifest.traces:
        yield _verified(Path(trace.path), trace.sha256, None, "gone")


def _resumable(folder: Path) -> VerifiedFile:
    """Check a run's last checkpoint, which has a checksum of its own."""
    path = str(folder / RESUME)
    try:
        ResumePoint.read(folder)
    except RunError as error:
        return VerifiedFile(path=path, verdict="changed", problem=str(error))
    return VerifiedFile(path=path, verdict="ok")


def _verified(path: Path, sha256: str, size: int | None, absent: Verdict) -> VerifiedFile:
    """Compare a file with its digest; `absent` is the verdict where there is no such file."""
    shown = str(path)
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            return VerifiedFile(path=shown, verdict="changed", problem="it is not a file")
        if size is not None and status.st_size != size:
            problem = f"it has {status.st_size:,} bytes, and had {size:,}"
            return VerifiedFile(path=shown, verdict="changed", problem=problem)
        if file_sha256(path) != sha256:
            problem = "its SHA-256 is another one"
            return VerifiedFile(path=shown, verdict="changed", problem=problem)
    except FileNotFoundError:
        return VerifiedFile(path=shown, verdict=absent, problem="it does not exist")
    except (OSError, RunError) as error:
        return VerifiedFile(path=shown, verdict="changed", problem=str(error))
    return VerifiedFile(path=shown, verdict="ok")
