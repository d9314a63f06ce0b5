"""A rich console for output to a terminal; rich is imported only by modules that print.

Output to a pipe or a file is for other programs: it is not wrapped or cut, unless COLUMNS sets a
width, and no line ends with spaces. On a narrow terminal, the cells of a table are wrapped between
words. If that is not enough, the gaps between columns shrink, then words are broken after
punctuation, and finally anywhere.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Sequence
from typing import IO, Any, cast

from rich.console import Console, ConsoleDimensions, ConsoleOptions, RenderableType
from rich.measure import Measurement
from rich.segment import Segment
from rich.table import Column, Table
from rich.text import Text

from services.terminal import escaped

_PIPE_COLUMNS = 1 << 20
_TRAILING_SPACES = re.compile(" +$", re.MULTILINE)
_GAPS = (2, 1)
"""Gaps to try between the columns of a table that is too wide, in spaces."""
_PIECE = re.compile(r"[^\s_\-./:={},]*[_\-./:={},]*")
"""A part of a word that may end a line."""


class _WithoutTrailingSpaces:
    """Writes to a stream that is not a terminal, and drops the spaces that pad a last column."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        return self._stream.write(_TRAILING_SPACES.sub("", text))

    def flush(self) -> None:
        self._stream.flush()


class TerminalConsole(Console):
    """A console that escapes control characters in texts, but not rich's control sequences."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        if not self.is_terminal:
            self.file = cast("IO[str]", _WithoutTrailingSpaces(self.file))
            if "width" not in options and not os.environ.get("COLUMNS"):
                self.width = _PIPE_COLUMNS
        elif self.is_dumb_terminal and "width" not in options:
            self.size = ConsoleDimensions(*shutil.get_terminal_size())

    def fits(self, table: Table) -> bool:
        """Return whether a table fits into the terminal's width."""
        return _natural(table, self, self.options) <= self.width

    def render_str(self, text: str, **options: Any) -> Text:
        """Escape a text before it is measured and wrapped."""
        return super().render_str(escaped(text), **options)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Escape a Text, and set the widths of a table's columns."""
        if isinstance(renderable, Table):
            _fit(renderable, self, options or self.options)
        for segment in super().render(renderable, options):
            if segment.control or escaped(segment.text) == segment.text:
                yield segment
            else:
                yield Segment(escaped(segment.text), segment.style)


def _fit(table: Table, console: Console, options: ConsoleOptions) -> None:
    """Set the columns' widths if a table is wider than the available width."""
    if _natural(table, console, options) <= options.max_width:
        return
    free = options.update(width=_PIPE_COLUMNS)
    sizes = [_sizes(column, console, free) for column in table.columns]
    words, highs = [word for word, _ in sizes], [high for _, high in sizes]
    for gap in _GAPS if table.box is None else ():
        if sum(words) <= _place(table, highs, console, options):
            break
        table.padding = (0, gap, 0, 0)
    place, lows = _place(table, highs, console, options), words
    if sum(words) > place:
        lows, highs = [_piece(column, console) for column in table.columns], words
    if sum(lows) > place:
        lows, highs = [1] * len(lows), lows
    if place < len(lows):
        return
    for column, width in zip(table.columns, _shared(place, lows, highs), strict=True):
        column.width, column.overflow, column.no_wrap = width, "fold", False
        column.header = _broken(column.header, width, console)
        column._cells = [_broken(cell, width, console) for cell in column.cells]


def _place(table: Table, highs: Sequence[int], console: Console, options: ConsoleOptions) -> int:
    """Return the width available to the cells, without gaps and lines."""
    return options.max_width - (_natural(table, console, options) - sum(highs))


def _piece(column: Column, console: Console) -> int:
    """Return the smallest width of a column if words are broken after punctuation."""
    texts = [_text(cell, console) for cell in (column.header, *column.cells)]
    return max(
        (len(piece) for text in texts if text is not None for piece in _PIECE.findall(text.plain)),
        default=1,
    )


def _text(cell: RenderableType, console: Console) -> Text | None:
    """Return a cell's text, None for a cell of another kind."""
    if isinstance(cell, str):
        return console.render_str(cell)
    return cell if isinstance(cell, Text) else None


def _broken(cell: RenderableType, width: int, console: Console) -> RenderableType:
    """Break words of a cell that are longer than a line, after punctuation if possible."""
    text = _text(cell, console)
    if text is None:
        return cell
    ends: list[int] = []
    for word in re.finditer(r"\S+", text.plain):
        if len(word[0]) <= width:
            continue
        begin = word.start()
        for piece in _PIECE.finditer(text.plain, word.start(), word.end()):
            if piece.end() - begin > width and piece.start() > begin:
                ends.append(piece.start())
                begin = piece.start()
    return Text("\n").join(text.divide(ends)) if ends else cell


def _natural(table: Table, console: Console, options: ConsoleOptions) -> int:
    return Measurement.get(console, options.update(width=_PIPE_COLUMNS), table).maximum


def _sizes(column: Column, console: Console, free: ConsoleOptions) -> tuple[int, int]:
    """Return the widths that a column needs to break no word, and to wrap no cell.

    Right-aligned columns hold numbers, which are never wrapped; their header may be.
    """
    header = Measurement.get(console, free, column.header)
    cells = [Measurement.get(console, free, cell) for cell in column.cells]
    whole = max((cell.maximum for cell in cells), default=0)
    word = max((cell.minimum for cell in cells), default=0)
    is_whole = column.no_wrap or column.justify == "right"
    return max(header.minimum, whole if is_whole else word), max(header.maximum, whole)


def _shared(place: int, lows: Sequence[int], highs: Sequence[int]) -> Sequence[int]:
    """Return widths between `lows` and `highs` with a sum of at most `place`.

    The widest columns are narrowed first.
    """
    for most in range(max(highs), 0, -1):
        widths = [max(low, min(high, most)) for low, high in zip(lows, highs, strict=True)]
        if sum(widths) <= place:
            return widths
    return lows
