"""`reprieve demo`: replay a bundled trace that ends in seconds, and show its pods."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from replay.bundled import bundled
from replay.cli.parameters import FOLDER


@click.command(name="demo")
@click.option(
    "--run",
    type=FOLDER,
    default=Path("runs/demo"),
    show_default=True,
    help="Where to leave the results; a former run is replaced.",
)
def command(*, run: Path) -> None:
    """Replay the preemption of an nginx pod, and show its pods as `kubectl get pods -w` would.

    A pod of class high-priority asks for 5 cores and meets an nginx pod with 4 on a node of 6. The
    trace is one of those that `reprieve examples` writes.
    """
    from replay.cli.get_command import command as get_command  # noqa: PLC0415 - loaded when needed
    from replay.cli.replay_command import (  # noqa: PLC0415 - loaded when needed
        command as replay_command,
    )

    trace = bundled("examples") / "traces" / "nginx-preemption.jsonl"
    for name, step, arguments in (
        ("replay", replay_command, [str(trace), "--run", str(run), "--force"]),
        ("get", get_command, ["pods", str(run), "-w", "-o", "wide"]),
    ):
        click.echo(f"$ reprieve {name} {shlex.join(arguments)}")
        step.main(arguments, prog_name=f"reprieve {name}", standalone_mode=False)
