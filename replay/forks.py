"""A run that begins with a part of another one: it goes on from a checkpoint which that has kept.

Two replays with the same settings, and whose traces have the same records up to some moment, make
the same run up to there: what a replay reads ahead of its time changes no decision, and a state
that depends on the end of the trace is not kept (replay/recovery.py). So the later part is all that
has to be played, and the new run has the bytes of one that was played from its beginning.

The new run has copies of the files up to the checkpoint (docs/decisions/0032): it is whole to its
readers, and neither run depends on the other from then on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

from replay.errors import RunError
from replay.results.run.checkpoints import Checkpoint, checkpoints_in
from replay.results.run.directory import RunDirectory
from replay.results.run.files import SPANS
from replay.results.run.manifest import EMBEDDED, IN_PROCESS, Manifest, SharedBeginning
from replay.results.run.resume_point import ResumePoint

_MAY_DIFFER = frozenset(
    {
        *("configuration", "models", "services", "batch_size", "argv", "shared"),
        *("kubernetes_version", "finished", "end", "end_ns", "files"),
    }
)
"""What of two manifests may differ; configuration and models: their owner compares the settings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """A run whose states before `until_ns` are those of another one, too; None: all of them."""

    run: RunDirectory
    until_ns: int | None

    def checkpoint(self, manifest: Manifest, *, exports_spans: bool) -> Checkpoint | None:
        """Return the latest checkpoint from which a new run can go on; None without any.

        manifest: the new run's. exports_spans: its spans go to a collector.
        """
        former = self.run.manifest()
        if not (self.run.has_digests and _is_same_beginning(former, manifest)):
            return None
        if manifest.spans != "off" and (exports_spans or SPANS not in former.files):
            return None
        usable = [
            checkpoint
            for checkpoint in checkpoints_in(self.run.path)
            if checkpoint.path.name in former.files
            and (self.until_ns is None or checkpoint.at_ns < self.until_ns)
        ]
        return usable[-1] if usable else None


def begun_from(
    checkpoint: Checkpoint,
    origin: RunDirectory,
    run: RunDirectory,
    point: ResumePoint,
    notice: Callable[[str], None],
) -> ResumePoint:
    """Begin a new run with another one's files up to a checkpoint; return where it goes on.

    That is its beginning, `point`, where the other run has not the bytes any more that it wrote.
    Raises OutputError, and RunError where files cannot be written.
    """
    try:
        origin.intact(checkpoint.path.name)
        state = checkpoint.point()
    except RunError as error:
        notice(f"{error}; nothing of {origin.path} is shared")
        return point
    files = run.take_beginning(origin, checkpoint, state.files)
    try:
        run.go_back(files)
    except RunError as error:
        notice(f"{error}; nothing of {origin.path} is shared")
        run.go_back({})
        return point
    begun = point.taken(
        at_ns=state.at_ns,
        rounds=state.rounds,
        scheduler=state.scheduler,
        eviction=state.eviction,
        autoscaler=state.autoscaler,
        recorder=state.recorder,
        world=state.world,
        files=run.recorded_files(),
    )
    run.write_resume_point(begun)
    return begun


def shared_beginning(origin: RunDirectory, point: ResumePoint, start_ns: int) -> SharedBeginning:
    """Return what a run that goes on at `point` has from another one; both begin at `start_ns`."""
    length_ns = point.at_ns - start_ns
    return SharedBeginning(
        run=str(origin.path), at_ns=point.at_ns, length_ns=length_ns, rounds=point.rounds
    )


def _is_same_beginning(former: Manifest, manifest: Manifest) -> bool:
    """Return whether inputs other than the settings are the same, and who decided."""
    if _addresses(former) != _addresses(manifest):
        return False
    if [trace.sha256 for trace in former.traces] != [trace.sha256 for trace in manifest.traces]:
        return False
    return all(
        getattr(former, field.name) == getattr(manifest, field.name)
        for field in fields(Manifest)
        if field.name not in _MAY_DIFFER | {"traces"}
    )


def _addresses(manifest: Manifest) -> dict[str, str]:
    """Return the services at addresses; where others run changes nothing."""
    started = {EMBEDDED, IN_PROCESS}
    return {name: at for name, at in manifest.services.items() if at not in started}
