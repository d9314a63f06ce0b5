"""Sections of a long command's help, each with the options of one subject."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import click

_Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]
_titles: WeakKeyDictionary[click.Parameter, str] = WeakKeyDictionary()
_OTHER = "Other options"


def section(title: str, *decorators: _Decorator) -> _Decorator:
    """Return a decorator that adds options, which SectionedCommand lists below `title`.

    Options of an inner section keep theirs.
    """

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for each in reversed(decorators):
            count = len(_parameters(command))
            command = each(command)
            for parameter in _parameters(command)[count:]:
                _titles.setdefault(parameter, title)
        return command

    return decorate


def _parameters(command: Callable[..., Any]) -> list[click.Parameter]:
    """Return the parameters that click's decorators have added to a function so far."""
    found: list[click.Parameter] = getattr(command, "__click_params__", [])
    return found


class SectionedCommand(click.Command):
    """A command whose help has a section for each `section` of its options, in their order."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the sections; options without one are last."""
        sections: dict[str, list[tuple[str, str]]] = {}
        options = [each for each in self.get_params(ctx) if isinstance(each, click.Option)]
        for each in sorted(options, key=lambda each: each not in _titles):
            record = each.get_help_record(ctx)
            if record is not None:
                sections.setdefault(_titles.get(each, _OTHER), []).append(record)
        for title, records in sections.items():
            with formatter.section(title):
                formatter.write_dl(records)
