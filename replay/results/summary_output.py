"""Printing a summary in the form that is asked for."""

from __future__ import annotations

import orjson
import yaml
from rich.console import Console

from replay.results.summary import Summary
from replay.results.summary_table import print_summary

FORMATS = ("table", "wide", "json", "yaml")


def render(summary: Summary, output: str, console: Console) -> None:
    """Print `summary` as one of FORMATS. Raises ValueError for another."""
    match output:
        case "table" | "wide":
            print_summary(summary, console, wide=output == "wide")
        case "json":
            text = orjson.dumps(summary.to_mapping(), option=orjson.OPT_INDENT_2)
            _plain(console, text.decode())
        case "yaml":
            mapping = orjson.loads(orjson.dumps(summary.to_mapping()))
            _plain(console, yaml.safe_dump(mapping, sort_keys=False, allow_unicode=True).rstrip())
        case _:
            raise ValueError(f"{output!r} is none of {', '.join(FORMATS)}")


def _plain(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)
