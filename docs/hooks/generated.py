"""Hook of MkDocs: parts of pages that are made from code, in place of `<!-- build: NAME -->`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import click

from replay.cli.main import command
from replay.results.schema import TABLES

_MARK = re.compile(r"^<!-- build: ([a-z-]+) -->$", re.MULTILINE)


def commands() -> Iterator[str]:
    """Yield the help of every command, as `--help` prints it."""
    with click.Context(command, info_name="reprieve") as context:
        yield from _commands(context)


def _commands(context: click.Context) -> Iterator[str]:
    yield f"### {context.command_path}\n\n```text\n{context.get_help()}\n```\n"
    if isinstance(group := context.command, click.Group):
        for name in group.list_commands(context):
            if (member := group.get_command(context, name)) is not None:
                with click.Context(member, info_name=name, parent=context) as inner:
                    yield from _commands(inner)


def tables() -> Iterator[str]:
    """Yield the columns of a run's tables."""
    for table in TABLES.values():
        yield f"## {table.name}\n\nA row is {table.row}.\n"
        yield "| Column | Type | Meaning |\n|---|---|---|"
        for column in table.columns:
            yield f"| `{column.name}` | {column.type} | {column.meaning} |"
        yield ""


_PARTS: dict[str, Callable[[], Iterator[str]]] = {"commands": commands, "tables": tables}


def on_page_markdown(markdown: str, **_: object) -> str:
    """Return a page with its generated parts."""
    return _MARK.sub(lambda mark: "\n".join(_PARTS[mark[1]]()), markdown)
