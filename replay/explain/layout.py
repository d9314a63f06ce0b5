"""Tables and counts that every part of an explanation prints alike."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

_WORDS = frozenset({"NODE", "PLUGIN", "REASON", "SUCH AS", "POD", "LOT", "BUDGET"})


def new_table(*columns: str) -> Table:
    """Return a table without lines; words stand to the left, numbers to the right."""
    table = Table(box=None, pad_edge=False)
    for column in columns:
        if column in _WORDS:
            table.add_column(column, overflow="fold")
        else:
            table.add_column(column, justify="right")
    return table


def print_table(title: str, table: Table, console: Console) -> None:
    """Print a table under its title."""
    console.print(f"\n[bold]{title}[/]", highlight=False)
    console.print(table, highlight=False)


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, such as "1 node" or "2,000 nodes"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
