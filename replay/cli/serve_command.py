"""`reprieve serve`: one service alone, as `python -m services.NAME` runs it."""

from __future__ import annotations

import click

from replay.cli.main import LazyGroup

_SERVICES = {
    "queue": "The pods that wait to be scheduled.",
    "scheduler": "Where pods go, and whom they displace.",
    "eviction": "Node-pressure eviction for many nodes.",
}


class _Services(LazyGroup):
    found = _SERVICES
    title = "Services"

    def place(self, name: str) -> str:
        return f"services.{name}.__main__:main"


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
