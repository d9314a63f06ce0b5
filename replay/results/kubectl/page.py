"""A page of `kubectl describe`: lines whose cells form columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

from google.protobuf.message import Message

from replay.results.kubectl.rows import NONE
from services.kube.time import SECOND_NS
from services.rpc.kube.fields import optional_time_ns
from services.terminal import one_line

_PADDING = 2


class Page:
    """Lines of cells; a column is as wide as its widest cell in consecutive lines.

    Source: Go's text/tabwriter, as kubectl uses it.
    """

    def __init__(self) -> None:
        self._lines: list[list[str]] = []

    def line(self, *cells: str, indent: int = 0) -> None:
        """Add a line of cells; control characters are escaped."""
        first, *rest = map(one_line, cells)
        self._lines.append([f"{'  ' * indent}{first}", *rest])

    def table(self, header: str, lines: Iterable[Sequence[str]]) -> None:
        """Add an indented table; `header` holds the column names, separated by |."""
        columns = header.split("|")
        self.line(*columns, indent=1)
        self.line(*("-" * len(column) for column in columns), indent=1)
        for line in lines:
            self.line(*line, indent=1)

    def values(self, name: str, values: Sequence[str]) -> None:
        """Add a name and one line for each value; "<none>" if there are no values."""
        for number, value in enumerate(values or [NONE]):
            self.line(f"{name}:" if number == 0 else "", value)

    def text(self) -> str:
        """Return the page, without spaces at the end of lines."""
        widths: list[list[int]] = [[0] * len(cells) for cells in self._lines]
        for column in range(max(map(len, self._lines), default=0) - 1):
            block: list[int] = []
            for number in range(len(self._lines) + 1):
                line = self._lines[number] if number < len(self._lines) else []
                if len(line) > column + 1:
                    block.append(number)
                    continue
                width = max((len(self._lines[index][column]) for index in block), default=0)
                for index in block:
                    widths[index][column] = width + _PADDING
                block = []
        return "".join(
            "".join(cell.ljust(width) for cell, width in zip(line, sizes, strict=True)).rstrip()
            + "\n"
            for line, sizes in zip(self._lines, widths, strict=True)
        )


def pairs(labels: Mapping[str, str], sign: str) -> list[str]:
    """Return keys and values joined by `sign`, sorted."""
    return [f"{key}{sign}{labels[key]}" for key in sorted(labels)]


def time_text(message: Message, name: str) -> str:
    """Return the time in the field `name`; "<unset>" for an absent one."""
    at_ns = optional_time_ns(message, name)
    if at_ns is None:
        return "<unset>"
    moment = datetime.fromtimestamp(at_ns // SECOND_NS, UTC)
    return moment.strftime("%a, %d %b %Y %H:%M:%S +0000")
