"""Sections in the help of a command with many options: one section for each subject."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click

from replay.options import TITLES, Decorator, parameters

_OTHER = "Other options"


def section(title: str, *decorators: Decorator) -> Decorator:
    """Return a decorator that adds options, which SectionedCommand lists below `title`.

    Options that already have a section, declared or from an inner `section`, keep it.
    """

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for decorator in reversed(decorators):
            count = len(parameters(command))
            command = decorator(command)
            for parameter in parameters(command)[count:]:
                TITLES.setdefault(parameter, title)
        return command

    return decorate


class SectionedCommand(click.Command):
    """A command whose help has a section for each subject of its options.

    `titles` are the first sections, in their order; others follow in the order of their options.
    """

    titles: Sequence[str] = ()

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the sections; options without a section come last."""
        sections: dict[str, list[tuple[str, str]]] = {title: [] for title in self.titles}
        options = [param for param in self.get_params(ctx) if isinstance(param, click.Option)]
        for option in sorted(options, key=lambda option: option not in TITLES):
            record = option.get_help_record(ctx)
            if record is not None:
                sections.setdefault(TITLES.get(option, _OTHER), []).append(record)
        for title, records in sections.items():
            with formatter.section(title):
                formatter.write_dl(records)
