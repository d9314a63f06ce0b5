"""A grid of runs: axes, and the cells that they span.

An axis is `NAME=VALUES`: a replay option by its long name (`seed=1..10`,
`scheduler-config=a.yaml,b.yaml`), or `set:KEY=VALUES` for an override
(`set:priorityClass.batch.value=0,50,100`).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b

SEED = "seed"
_RANGE = re.compile(r"(-?\d+)\.\.(-?\d+)")
_NAME = re.compile(r"[a-z][a-z0-9-]*")
_SET = "set:"
_VALUES_MAX = 100_000
_OURS = frozenset({"run", "force", "output", "quiet", "assert", "compare-recorded", "free-run"})


class GridError(ValueError):
    """An axis that is none; the text is for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """One axis: its name as given, and its values as texts."""

    name: str
    values: tuple[str, ...]

    def arguments(self, value: str) -> tuple[str, ...]:
        """Return what a replay's command line has for one value."""
        if self.name.startswith(_SET):
            return ("--set", f"{self.name.removeprefix(_SET)}={value}")
        if value in {"true", "false"}:
            return (f"--{self.name}",) if value == "true" else ()
        return (f"--{self.name}", value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One run of a grid: its place on each axis, and the replay's arguments.

    `name` is a hash of the arguments, so that a grid which grows keeps the cells that it has.
    """

    place: tuple[tuple[str, str], ...]
    arguments: tuple[str, ...]

    @property
    def name(self) -> str:
        """Return the name of the cell's folder."""
        text = "\x00".join(self.arguments).encode()
        return blake2b(text, digest_size=8, person=b"cell").hexdigest()

    @property
    def group(self) -> tuple[tuple[str, str], ...]:
        """Return the place without the seed, over which figures are averaged."""
        return tuple(each for each in self.place if each[0] != SEED)


def parse_axis(text: str) -> Axis:
    """Return an axis. Raises GridError for what is none."""
    head, equals, values = text.rpartition("=") if text.startswith(_SET) else text.partition("=")
    if not equals or not head or not values:
        raise GridError(f"--over {text}: write seed=1..10 or set:priorityClass.batch.value=0,50")
    if not head.startswith(_SET) and not _NAME.fullmatch(head):
        raise GridError(f"--over {text}: {head!r} is no option of replay")
    if head in _OURS:
        raise GridError(f"--over {text}: the sweep itself sets --{head}")
    found = tuple(itertools.chain.from_iterable(map(_expanded, values.split(","))))
    if len(set(found)) != len(found):
        raise GridError(f"--over {text}: a value comes twice")
    return Axis(name=head, values=found)


def cells(axes: Sequence[Axis], common: Sequence[str]) -> Iterator[Cell]:
    """Yield all cells, the last axis fastest; `common` are the arguments of each.

    Raises GridError for an axis that comes twice.
    """
    names = [axis.name for axis in axes]
    for name in names:
        if names.count(name) > 1:
            raise GridError(f"--over {name} comes twice")
    for values in itertools.product(*(axis.values for axis in axes)):
        pairs = list(zip(axes, values, strict=True))
        chosen = itertools.chain.from_iterable(axis.arguments(value) for axis, value in pairs)
        yield Cell(
            place=tuple((axis.name, value) for axis, value in pairs),
            arguments=(*common, *chosen),
        )


def _expanded(text: str) -> Sequence[str]:
    match = _RANGE.fullmatch(text)
    if match is None:
        if not text:
            raise GridError("--over: an empty value")
        return (text,)
    first, last = int(match[1]), int(match[2])
    if not first <= last < first + _VALUES_MAX:
        raise GridError(f"--over {text}: a range goes up, by {_VALUES_MAX:,} values at most")
    return [str(number) for number in range(first, last + 1)]
