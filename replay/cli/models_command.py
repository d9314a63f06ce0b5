"""`reprieve models`: list what a replay assumes where a trace does not say."""

from __future__ import annotations

import json

import click
from rich.console import Console
from rich.table import Table

from replay.cli.parameters import output_option
from replay.world.models import MODELS, OFF, Models


@click.command(name="models")
@output_option("table", "json")
def command(*, output: str) -> None:
    """List the models: their names, their defaults, what "off" means, and where they come from.

    A recorded value always stands before a model's. A value is given to a replay by --model.

    \b
    Examples:
      reprieve models
      reprieve replay cluster.yaml --model start-delay=2s --model pod-gc=off
    """
    defaults = Models()
    rows = [
        {
            "name": model.name,
            "default": model.shown(defaults),
            "meaning": model.meaning,
            "off": model.when_off,
            "source": model.source,
        }
        for model in MODELS.values()
    ]
    if output == "json":
        click.echo(json.dumps(rows, indent=2))
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("NAME", "DEFAULT", "WHAT", OFF.upper(), "SOURCE"):
        table.add_column(title, overflow="fold", no_wrap=title in {"NAME", "DEFAULT"})
    for row in rows:
        table.add_row(*row.values())
    Console().print(table)
