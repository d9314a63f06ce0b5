"""A rich console at the edge to a person's terminal; rich is loaded only where it prints."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from services.terminal import escaped


class TerminalConsole(Console):
    """A console that escapes what it prints; rich's own control sequences are left."""

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
