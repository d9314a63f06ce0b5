"""Resumes a run: its checkpoints, and recovery from the loss of a service.

A checkpoint has the state of everything between two instants: the services' sessions, the cluster,
and how far the run's files were written. A lost service, a broken stream and a dead replay are one
case: new sessions are restored from the last checkpoint, the files are cut to it, and the run goes
on from there with the same decisions. Without a checkpoint it continues from the beginning.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from time import perf_counter_ns, process_time_ns
from typing import TypeVar

from replay.errors import RunError, ServiceLostError
from replay.results.recorder import RecorderPosition, RunRecorder
from replay.results.run.directory import RunDirectory
from replay.results.run.resume_point import ResumePoint, packed
from replay.sessions import Services
from replay.state_codec import UnreadableStateError, dump, dump_parts, load, restore_parts
from replay.world.ahead.windows import UnforeseenRejectionError
from replay.world.loop.replay import RETRIES_SKIPPED, Replay

SHARE = 100
"""Lowest ratio of a run's wall time to the time that its resume points take."""
KEPT_SHARE = 0.03
"""The largest share of a run's CPU time, of this process, that the checkpoints take which it keeps.

Of wall time, a wait for a busy machine during one of them would cost a run those after it.
"""
FIRST_NS, FIRST_OBJECT_NS, FEW_OBJECTS = 5_000_000, 75_000, 1000
"""What the first of them is expected to take, and for each pod and node.

Later ones are expected to take what the last one took, and more as the cluster has grown beyond
FEW_OBJECTS.
"""
LOOK_NS = 5_000_000
"""The wall time between two looks at the CPU time, which costs a system call, at least."""
AGAIN_MAX = 3
"""How often a service may be lost at one instant of a run before the run ends."""
WAIT_MIN_S, WAIT_MAX_S = 10.0, 300.0
_FIRST_PAUSE_S, _PAUSE_MAX_S = 0.1, 5.0
_T = TypeVar("_T")


class Checkpointer:
    """Saves a run from time to time, and keeps some of its states.

    `point` is the last one saved, `every_ns` of wall time or more after the one before; such points
    take at most one part in SHARE of the run's time. `keeps`: how many states are kept on the way
    (replay/results/run/checkpoints.py), where they take at most KEPT_SHARE of it. `notice` receives
    a line for users where no state can be saved; the run then goes on without.
    """

    def __init__(
        self,
        run: RunDirectory,
        services: Services,
        point: ResumePoint,
        every_ns: int,
        keeps: int,
        notice: Callable[[str], None],
    ) -> None:
        self.point = point
        self._notice = notice
        self._run = run
        self._services = services
        self._every_ns = every_ns
        self._kept = run.checkpoints(keeps)
        self._began_cpu_ns = process_time_ns()
        self._last_ns = perf_counter_ns()
        self._took_ns = 0
        self._keeping_ns = 0
        self._looked_ns = 0
        self._kept_last: tuple[int, int] | None = None
        self._is_possible = services.are_resumable

    @property
    def is_due(self) -> bool:
        """Return whether another point to resume from should be saved."""
        waited_ns = perf_counter_ns() - self._last_ns
        return self._is_possible and waited_ns >= max(self._every_ns, SHARE * self._took_ns)

    def is_wanted(self, at_ns: int, replay: Replay) -> bool:
        """Return whether the state at `at_ns` should be saved, to resume from it or to keep it."""
        if self.is_due:
            return True
        now_ns = perf_counter_ns()
        if now_ns - self._looked_ns < LOOK_NS:
            return False
        self._looked_ns = now_ns
        return self.is_keeping(at_ns, replay)

    def is_keeping(self, at_ns: int, replay: Replay) -> bool:
        """Return whether the state at `at_ns` should be kept.

        Not where it depends on the end of the trace, as it does after retries were skipped for want
        of further records: a run that is forked from it may have some.
        """
        if not (self._is_possible and self._kept.is_due(at_ns, replay.source.first_ns)):
            return False
        if ("retries", RETRIES_SKIPPED) in replay.journal.notes:
            return False
        if self.is_due:
            return True  # The state is saved anyway; keeping it is writing it once more.
        passed_ns = process_time_ns() - self._began_cpu_ns
        return self._keeping_ns + self._expected_ns(replay) <= KEPT_SHARE * passed_ns

    def _expected_ns(self, replay: Replay) -> int:
        objects = _objects(replay)
        if self._kept_last is None:
            return FIRST_NS + FIRST_OBJECT_NS * objects
        took_ns, before = self._kept_last
        return took_ns * max(objects, before, FEW_OBJECTS) // max(before, FEW_OBJECTS)

    def save(self, at_ns: int, replay: Replay, recorder: RunRecorder) -> None:
        """Save everything between two instants. Raises OutputError and BackendError."""
        began_ns, began_cpu_ns = perf_counter_ns(), process_time_ns()
        is_kept = self.is_keeping(at_ns, replay)
        is_point = self.is_due or not is_kept
        try:
            # A state that is only kept counts for nothing before a later point, or the run's end,
            # names it: the disk has everything by then.
            position = dump(RecorderPosition, recorder.position(syncs=is_point))
            world = dump_parts(replay)
        except TypeError as error:
            self._is_possible = False
            self._notice(f"no checkpoint can be taken from here on: {error}; please report this")
            return
        scheduler = self._services.scheduler.checkpoint()
        eviction, autoscaler = self._services.eviction, self._services.autoscaler
        rounds = self._services.scheduler.rounds
        if is_point:
            # The recorder's position has synced what its files have; so are their names, before a
            # point counts on them.
            self._run.sync()
        point = self.point.taken(
            at_ns=at_ns,
            rounds=rounds,
            scheduler=packed(scheduler),
            eviction=packed(eviction.checkpoint()) if eviction is not None else (),
            autoscaler=packed(autoscaler.checkpoint()) if autoscaler is not None else (),
            recorder=position,
            world=world,
            files=self._run.recorded_files(),
        )
        if is_kept:
            made_cpu_ns = process_time_ns()
            self._kept.save(at_ns, rounds, point.encoded(), replay.source.first_ns)
            ended_cpu_ns = process_time_ns()
            self._kept_last = (ended_cpu_ns - began_cpu_ns, _objects(replay))
            self._keeping_ns += ended_cpu_ns - (made_cpu_ns if is_point else began_cpu_ns)
        if is_point:
            # With the state that was kept just now among its files.
            self.point = point.taken(files=self._run.recorded_files())
            self._run.write_resume_point(self.point)
            self._last_ns = perf_counter_ns()
            self._took_ns = self._last_ns - began_ns


def _objects(replay: Replay) -> int:
    """Return the number of objects that the time of saving a replay grows with."""
    return len(replay.cluster.pods) + len(replay.cluster.nodes)


def gone_back(run: RunDirectory, point: ResumePoint, notice: Callable[[str], None]) -> ResumePoint:
    """Truncate a run's files to their state at `point`, and return the point to resume from.

    That is the run's beginning if a file no longer has the bytes that it had at `point`. Raises
    RunError and OutputError.
    """
    try:
        run.go_back(point.files)
    except RunError as error:
        if not point.files:
            raise
        notice(f"{error}; the run is replayed from its beginning")
        run.go_back({})
        # Readers compare the files with those of the point.
        run.write_resume_point(point.beginning)
        return point.beginning
    return point


def position_at(point: ResumePoint) -> RecorderPosition | None:
    """Return the counts of a recorder at a point; None at the beginning. Raises RunError."""
    if not point.recorder:
        return None
    with _reading():
        return load(RecorderPosition, point.recorder)


def restore(replay: Replay, point: ResumePoint) -> None:
    """Restore the cluster of a checkpoint, if there is one, into a new replay. Raises RunError."""
    if point.world:
        with _reading():
            restore_parts(replay, point.world)


@contextlib.contextmanager
def _reading() -> Iterator[None]:
    try:
        yield
    except UnreadableStateError as error:
        raise RunError(f"resume.zst: {error}") from error


def patient_services(
    stack: contextlib.ExitStack,
    open_: Callable[[contextlib.ExitStack], Services],
    wait_ns: int | None,
    notice: Callable[[str], None],
) -> Services:
    """Return the services of `open_`; wait at most `wait_ns` for services at addresses.

    None: as long as for a service that a long run has lost.
    """

    def attempt() -> Services:
        with contextlib.ExitStack() as attempt_stack:
            services = open_(attempt_stack)
            stack.push(attempt_stack.pop_all())
            return services

    try:
        return attempt()
    except ServiceLostError as lost:
        wait_s = WAIT_MAX_S if wait_ns is None else wait_ns / 1e9
        if not wait_s:
            raise
        return _brought_back(lost, attempt, wait_s, notice)


class Recovery:
    """Brings lost services back, for at most `wait_ns` each time.

    None: for as long as the run has taken, which is what its end would lose, from 10 s to 5 min.
    `notice` receives lines for users. `opens_windows`: whether rounds may be sent ahead.
    """

    opens_windows: bool

    def __init__(
        self, services: Services, wait_ns: int | None, notice: Callable[[str], None]
    ) -> None:
        self._services = services
        self._wait_ns = wait_ns
        self._began_s = time.monotonic()
        self._notice = notice
        self.opens_windows = True
        self._instants = -1
        self._times = 0

    @property
    def _wait_s(self) -> float:
        if self._wait_ns is not None:
            return self._wait_ns / 1e9
        return min(max(time.monotonic() - self._began_s, WAIT_MIN_S), WAIT_MAX_S)

    def reopen(self, point: ResumePoint) -> None:
        """Open the sessions of a run that is resumed at `point`. Raises as `recover` does."""
        try:
            self._services.reopen(point)
        except ServiceLostError as error:
            self._bring_back(error, point, -1)

    def recover(
        self, lost: ServiceLostError, run: RunDirectory, point: ResumePoint, instants: int
    ) -> ResumePoint:
        """Open new sessions after a service was lost at instant number `instants`.

        They are as at `point`, or as at the run's beginning if its files have changed since; the
        files are cut to that, once the service is back: else the run keeps what it has written.
        Raises `lost` where the services do not come back in time, and where this instant cannot be
        passed; BackendError if a child process does not start or a checkpoint is refused.
        """
        self._bring_back(lost, point, instants)
        position = gone_back(run, point, self._notice)
        if position is not point:
            self.reopen(position)
        return position

    def _bring_back(self, lost: ServiceLostError, point: ResumePoint, instants: int) -> None:
        self._times = self._times + 1 if instants <= self._instants else 1
        self._instants = max(instants, self._instants)
        wait_s = self._wait_s
        if not wait_s:
            raise lost
        if self._times > AGAIN_MAX:
            lost.add_note(f"it was lost {self._times} times at the same moment of the run")
            raise lost
        _brought_back(lost, lambda: self._again(point), wait_s, self._notice)

    def go_on_without_windows(self, refuted: UnforeseenRejectionError, point: ResumePoint) -> None:
        """Open new sessions at `point`, and send no round ahead from there on.

        `refuted` is why rounds that were sent ahead were wrong. Raises as `recover` does.
        """
        self._notice(f"{refuted}; the run goes back and sends no round ahead any more")
        self.opens_windows = False
        self.reopen(point)

    def _again(self, point: ResumePoint) -> None:
        self._services.restart()
        self._services.reopen(point)


def _brought_back(
    lost: ServiceLostError, attempt: Callable[[], _T], wait_s: float, notice: Callable[[str], None]
) -> _T:
    """Return what `attempt` returns as soon as no service is lost, with growing pauses.

    Raises `lost` after `wait_s`, and the attempt's other errors at once.
    """
    began_s, pause_s = time.monotonic(), _FIRST_PAUSE_S
    notice(f"{lost}; waiting for it, to go on from the last checkpoint")
    while True:
        try:
            result = attempt()
        except ServiceLostError as error:
            if time.monotonic() - began_s + pause_s > wait_s:
                lost.add_note(f"it did not come back within {wait_s:g} s: {error}")
                raise lost from error
        else:
            notice("the run goes on")
            return result
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, _PAUSE_MAX_S)
