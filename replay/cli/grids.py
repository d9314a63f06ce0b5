"""The cells of grids and searches: checks of their command lines, and shared beginnings of runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path

from replay.cli.baseline import is_baseline, own_values
from replay.cli.checks import Checks
from replay.cli.errors import ExitError, refusing
from replay.cli.parameters import open_run
from replay.overrides.errors import NoEffectError, OverrideError
from replay.results.durations import simulated
from replay.results.run.directory import RunDirectory
from replay.whatif.sweep import SweepAxis, SweepCell
from services.terminal import counted, echo

TYPE_CHECKING = False
if TYPE_CHECKING:
    from replay.cli.forks import Prepared


def inputs_of(run: Path, options: Sequence[str]) -> Sequence[str]:
    """Return the command line of a run with further options. Raises ExitError."""
    from replay.cli.commands.replay import inputs_of  # noqa: PLC0415 - when needed

    return *inputs_of(open_run(run)), *options


def begun_at(grid: Iterable[SweepCell], moment: str, common: Sequence[str]) -> list[SweepCell]:
    """Return the cells with their what-ifs set to begin at `moment`; "" is the trace's beginning.

    `common` has the arguments of every replay.
    """
    from replay.cli.commands.replay import begun_at  # noqa: PLC0415 - when needed

    if not moment:
        return list(grid)
    count = len(common)
    return [
        dataclasses.replace(
            cell, arguments=(*common, *begun_at(cell.arguments[count:], moment, common))
        )
        for cell in grid
    ]


def completed(
    grid: Sequence[SweepCell], axes: Iterable[SweepAxis], common: Sequence[str]
) -> list[SweepCell]:
    """Mark the cells that are the baseline. Raises the errors of the replays' options.

    A value of scale-nodes that changes nothing is allowed.
    """
    from replay.cli.commands.replay import command as replay_command  # noqa: PLC0415 - when needed

    for cell in grid:
        replay_command.make_context("replay", list(cell.arguments))
    baseline = own_values(axes, common)
    free = {place for place in baseline if place[0] == "scale-nodes"}
    return [
        dataclasses.replace(
            cell,
            options=("--allow-no-effect",) if free & set(cell.place) else (),
            is_baseline=is_baseline(cell, baseline),
        )
        for cell in grid
    ]


def allowing_no_effect(
    grid: Sequence[SweepCell], checks: Checks, common: Sequence[str]
) -> list[SweepCell]:
    """Validate cells as `look_at`, but allow a value that equals the trace's and changes nothing.

    `common` has the arguments of every replay.
    """
    from replay.cli.commands import replay  # noqa: PLC0415 - when needed

    looked_at = []
    for cell in grid:
        try:
            replay.look(cell.command_line, checks, cell.label)
        except ExitError as error:
            if not _is_without_effect(error) or not _has_own_value(cell, common):
                raise
            allowing = dataclasses.replace(cell, options=("--allow-no-effect",))
            replay.look(allowing.command_line, checks, cell.label)
            looked_at.append(allowing)
        else:
            looked_at.append(cell)
    return looked_at


def _is_without_effect(error: BaseException | None) -> bool:
    while error is not None and not isinstance(error, NoEffectError):
        error = error.__cause__
    return error is not None


def _has_own_value(cell: SweepCell, common: Sequence[str]) -> bool:
    axes = [SweepAxis(name=axis, values=(value,)) for axis, value in cell.group]
    return bool(own_values(axes, common))


def sharing_with(run: Path, grid: Sequence[SweepCell]) -> list[SweepCell]:
    """Return the cells; each takes as much as possible of its beginning from `run`."""
    share = ("--share", str(run))
    return [dataclasses.replace(cell, options=(*cell.options, *share)) for cell in grid]


def look_at(grid: Sequence[SweepCell], checks: Checks) -> None:
    """Raise the errors that a replay of the grid would raise; try only one seed of each point."""
    from replay.cli.commands import replay  # noqa: PLC0415 - when needed

    for cell in {point.group: point for point in reversed(grid)}.values():
        replay.look(cell.command_line, checks, cell.label)


class Sharing:
    """Finds, for each cell, an earlier cell whose run shares much with it.

    Cells with equal settings share one origin, because every comparison reads the traces again.
    """

    def __init__(self) -> None:
        self._origins: list[tuple[str, Prepared]] = []

    def of(self, grid: Sequence[SweepCell]) -> list[SweepCell]:
        """Return the cells with their origins; the baseline is the first cell to be an origin.

        Raises ExitError.
        """
        from replay.cli.commands.replay import command as replay_command  # noqa: PLC0415 - when needed
        from replay.cli.forks import Prepared, shares_much  # noqa: PLC0415 - when needed

        shared: dict[str, SweepCell] = {}
        for cell in sorted(grid, key=lambda cell: not cell.is_baseline):
            with refusing(OverrideError):
                prepared = Prepared(replay_command.request(cell.command_line))
                same = next(
                    (origin for origin in self._origins if origin[1].binding == prepared.binding),
                    None,
                )
                is_shared = same is not None and shares_much(same[1], prepared)
            shares = same[0] if same is not None and is_shared else ""
            shared[cell.name] = dataclasses.replace(cell, shares=shares)
            if same is None:
                self._origins.append((cell.name, prepared))
        return [shared[cell.name] for cell in grid]


def print_shared(runs: Sequence[Path]) -> None:
    """Print how much of some runs was taken from other runs instead of being replayed."""
    shared = [RunDirectory.open(run).manifest().shared for run in runs]
    lengths_ns = [beginning.length_ns for beginning in shared if beginning is not None]
    if lengths_ns:
        begun, total = counted(len(lengths_ns), "run"), simulated(sum(lengths_ns))
        echo(f"{begun} of {len(runs):,} begin with what others played: {total} in all", err=True)
