"""`reprieve serve`: one service alone, as `python -m services.NAME` runs it."""

from __future__ import annotations

import importlib

import click

_SERVICES = {
    "queue": "The pods that wait to be scheduled.",
    "scheduler": "Where pods go, and whom they displace.",
    "eviction": "Node-pressure eviction for many nodes.",
}


class _Services(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(_SERVICES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in _SERVICES:
            return None
        found: click.Command = importlib.import_module(f"services.{cmd_name}.__main__").main
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        with formatter.section("Services"):
            formatter.write_dl(list(_SERVICES.items()))


@click.group(cls=_Services, name="serve")
def command() -> None:
    """Run one of the services alone, until SIGTERM.

    \b
    Examples:
      reprieve serve queue
      reprieve serve scheduler --queue 127.0.0.1:50051
      reprieve serve eviction --listen 0.0.0.0:50053
    A replay finds them with --scheduler and --eviction.
    """
