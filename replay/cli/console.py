"""A rich console at the edge to a person's terminal; rich is loaded only where it prints.

Into a pipe or a file nothing is wrapped or cut, unless COLUMNS asks for a width, and no line ends
with spaces: other programs read it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import IO, Any, cast

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from services.terminal import escaped

_PIPE_COLUMNS = 1 << 20
_TRAILING_SPACES = re.compile(" +$", re.MULTILINE)


class _WithoutTrailingSpaces:
    """Writes to a stream that is no terminal; tables fill their last column with spaces."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        return self._stream.write(_TRAILING_SPACES.sub("", text))

    def flush(self) -> None:
        self._stream.flush()


class TerminalConsole(Console):
    """A console that escapes what it prints; rich's own control sequences are left."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        if not self.is_terminal:
            self.file = cast("IO[str]", _WithoutTrailingSpaces(self.file))
            if not os.environ.get("COLUMNS"):
                self.width = _PIPE_COLUMNS

    def render_str(self, text: str, **options: Any) -> Text:
        """Escape a text before it is measured and wrapped."""
        return super().render_str(escaped(text), **options)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Escape what came as a Text."""
        for segment in super().render(renderable, options):
            if segment.control or escaped(segment.text) == segment.text:
                yield segment
            else:
                yield Segment(escaped(segment.text), segment.style)
