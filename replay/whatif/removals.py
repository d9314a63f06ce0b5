"""Finds removable nodes: those that each point of a sweep removes, and the checks that fail."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from replay.results.run.directory import RunDirectory
from replay.whatif.ci import CheckResult
from replay.whatif.sweep import CELLS, RUN, FinishedCell


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """The nodes that are removed at a point, and the checks that fail there.

    is_checked: at least one check was made at each of the point's runs.
    """

    place: str
    nodes: tuple[str, ...]
    failures: tuple[str, ...] = ()
    is_checked: bool = False

    @property
    def holds(self) -> bool:
        """Return whether checks were made, and hold."""
        return self.is_checked and not self.failures


def removals(
    folder: Path, finished: Sequence[FinishedCell], results: Iterable[CheckResult]
) -> list[Removal]:
    """Return the removals of a sweep, in the grid's order; none where no point removes nodes."""
    checked: dict[str, list[CheckResult]] = {}
    for result in results:
        checked.setdefault(result.place, []).append(result)
    by_group: dict[tuple[tuple[str, str], ...], Removal] = {}
    for ended in finished:
        if ended.problem:
            continue
        cell_results = checked.get(ended.cell.label, [])
        before = by_group.get(ended.cell.group)
        failures = [
            result.error or f"{result.name} fails: {result.found}"
            for result in cell_results
            if not result.holds
        ]
        by_group[ended.cell.group] = Removal(
            place=", ".join(f"{axis}={value}" for axis, value in ended.cell.group),
            nodes=removed_nodes(folder / CELLS / ended.cell.name / RUN),
            failures=(*(before.failures if before else ()), *failures),
            is_checked=bool(cell_results) and (before is None or before.is_checked),
        )
    rows = list(by_group.values())
    return rows if any(row.nodes for row in rows) else []


def can_go(rows: Sequence[Removal]) -> list[Removal]:
    """Return the largest removals with which each check holds: none is part of another."""
    holding = [row for row in rows if row.holds and row.nodes]
    sets = [frozenset(row.nodes) for row in holding]
    return [
        row for row, nodes in zip(holding, sets, strict=True) if not any(nodes < o for o in sets)
    ]


def sentence(rows: Sequence[Removal]) -> str:
    """Return which nodes can be removed, "" if no checks were made."""
    if not any(row.is_checked for row in rows):
        return ""
    largest = can_go(rows)
    if not largest:
        return "No node can go: at each point that removes nodes a check fails."
    return "Can go while each check holds: " + "; or ".join(", ".join(row.nodes) for row in largest)


def removed_nodes(path: Path) -> tuple[str, ...]:
    """Return the nodes that a run's overrides have removed, in the order of their removal."""
    overrides = RunDirectory.open(path).manifest().configuration.get("overrides")
    nodes = overrides.get("removed_nodes") if isinstance(overrides, Mapping) else None
    return tuple(map(str, nodes)) if isinstance(nodes, list) else ()
