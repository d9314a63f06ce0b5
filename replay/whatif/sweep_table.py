"""What a sweep came to: for each place on its axes the mean and the deviation over seeds."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass

from replay.whatif.sweep import Finished


@dataclass(frozen=True, slots=True, kw_only=True)
class Summed:
    """One figure over `count` runs; the deviation is that of a sample, 0 of a single run."""

    mean: float
    deviation: float
    least: float
    most: float
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One place, without the seed, and each figure there; `failed` runs have none."""

    place: tuple[tuple[str, str], ...]
    figures: dict[str, Summed]
    failed: int = 0


def table(finished: Sequence[Finished]) -> list[Row]:
    """Return the rows in the grid's order."""
    groups: dict[tuple[tuple[str, str], ...], list[Finished]] = {}
    for each in finished:
        groups.setdefault(each.cell.group, []).append(each)
    return [
        Row(
            place=place,
            figures={
                name: _summed([each.figures[name] for each in group if name in each.figures])
                for name in dict.fromkeys(name for each in group for name in each.figures)
            },
            failed=sum(bool(each.problem) for each in group),
        )
        for place, group in groups.items()
    ]


def cells_csv(finished: Sequence[Finished]) -> str:
    """Return a line for each run: its place, and every figure."""
    names = list(dict.fromkeys(name for each in finished for name in each.figures))
    axes = [axis for axis, _ in finished[0].cell.place] if finished else []
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*axes, "cell", "problem", *names])
    for each in finished:
        values = [each.figures.get(name, "") for name in names]
        place = [value for _, value in each.cell.place]
        writer.writerow([*place, each.cell.name, each.problem, *values])
    return text.getvalue()


def table_csv(rows: Sequence[Row]) -> str:
    """Return a line for each place and figure: mean, deviation, least, most, runs."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    axes = [axis for axis, _ in rows[0].place] if rows else []
    writer.writerow([*axes, "figure", "mean", "deviation", "least", "most", "runs", "failed"])
    for row in rows:
        for name, each in row.figures.items():
            numbers = [each.mean, each.deviation, each.least, each.most, each.count, row.failed]
            writer.writerow([*(value for _, value in row.place), name, *numbers])
    return text.getvalue()


def _summed(values: Sequence[float]) -> Summed:
    count = len(values)
    mean = math.fsum(values) / count
    spread = math.fsum((value - mean) ** 2 for value in values)
    return Summed(
        mean=mean,
        deviation=math.sqrt(spread / (count - 1)) if count > 1 else 0.0,
        least=min(values),
        most=max(values),
        count=count,
    )
