"""`reprieve examples`, `protos`, `demo` and `models`: the data and defaults of Reprieve itself."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import click
from rich.padding import Padding
from rich.text import Text

from replay.bundled import bundled
from replay.cli.console import TerminalConsole
from replay.cli.errors import REFUSED, ExitError, refusing
from replay.cli.parameters import DATA, echo_data, output_option
from replay.options import FOLDER
from replay.results.summary.table import plain_table
from replay.world.models import MODELS, OFF, Models
from services.folder import write_file

_GENERATED = frozenset({"__pycache__", "node_modules"})
"""Folders that an example creates in its own folder when it is used."""


_OUTPUT = click.option(
    "-o",
    "--output",
    "folder",
    type=FOLDER,
    required=True,
    help="The folder to write to; it is created if it does not exist.",
)
_FORCE = click.option("--force", is_flag=True, help="Replace existing files.")


@click.command(name="examples")
@_OUTPUT
@_FORCE
def examples_command(*, folder: Path, force: bool) -> None:
    """Write the examples into a folder: traces, a recording, plugins, an extender.

    The tour (docs/tour.md) begins with this command.

    \b
    Examples:
      reprieve examples -o examples
      reprieve replay examples/traces/four-tiers.ktr
    """
    _write(bundled("examples"), folder, force=force)


@click.command(name="protos")
@_OUTPUT
@_FORCE
def protos_command(*, folder: Path, force: bool) -> None:
    """Write the .proto files and those that they import, with buf's configuration.

    A service that implements one of the contracts can replace ours in a replay
    (docs/write-a-scheduler.md). v1beta1.binpb is the contract as a FileDescriptorSet. google/ has
    the import of all others, and the messages of refusals (docs/sessions.md).

    \b
    Examples:
      reprieve protos -o protos
      protoc -I protos --go_out=. $(cd protos && find reprieve -name '*.proto')
      buf generate protos --template protos/buf.gen.yaml --path protos/reprieve
    """
    _write(bundled("protos"), folder, force=force)


def _write(source: Path, folder: Path, *, force: bool) -> None:
    targets = {path: folder / path.relative_to(source) for path in _files(source)}
    taken = [path for path in targets.values() if path.exists()]
    if taken and not force:
        more = f", and {len(taken) - 1} others" if len(taken) > 1 else ""
        problem = f"{taken[0]} exists{more}; give another folder, or --force"
        raise ExitError(REFUSED, problem)
    with refusing(OSError):
        for path, target in targets.items():
            target.parent.mkdir(parents=True, exist_ok=True)
            write_file(target, path.read_bytes())
            click.echo(target)


def _files(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.is_dir():
            if path.name not in _GENERATED and path.suffix != ".egg-info":
                yield from _files(path)
        elif path.suffix not in {".pyc", ".nbc", ".nbi"}:
            yield path


@click.command(name="demo")
@click.option(
    "--run",
    type=FOLDER,
    default=Path("runs/demo"),
    show_default=True,
    help="The run directory for the results; an existing run is replaced.",
)
def demo_command(*, run: Path) -> None:
    """Replay the preemption of an nginx pod, and print the pods as `kubectl get pods -w` does.

    A pod of class high-priority requests 5 cores; an nginx pod uses 4 of the 6 cores of the only
    node. `reprieve examples` writes this trace, too.

    \b
    Example:
      reprieve demo --run runs/demo
    """
    from replay.cli.commands.get import command as get_command  # noqa: PLC0415 - loaded when needed
    from replay.cli.commands.replay import command as replay_command  # noqa: PLC0415 - loaded when needed

    trace = bundled("examples") / "traces" / "nginx-preemption.jsonl"
    for name, step, arguments in (
        ("replay", replay_command, [str(trace), "--run", str(run), "--force"]),
        ("get", get_command, ["pods", str(run), "-w", "-o", "wide"]),
    ):
        click.echo(f"$ reprieve {name} {shlex.join(arguments)}")
        with step.make_context(f"reprieve {name}", arguments) as context:
            step.invoke(context)


@click.command(name="models")
@output_option("table", "json", "yaml")
def models_command(*, output: str) -> None:
    """List the models: their names, their defaults, what "off" means, and their sources.

    A model is an assumption for what a trace does not have; recorded values always take precedence.
    `reprieve replay --model` sets a value.

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
    if output in DATA:
        echo_data(rows, output)
        return
    console = TerminalConsole()
    table = plain_table("NAME", "DEFAULT", "WHAT", OFF.upper(), "SOURCE")
    for row in rows:
        table.add_row(*row.values())
    if console.fits(table):
        console.print(table)
        return
    for row in rows:
        console.print(f"[bold]{row['name']}[/]={row['default']}", highlight=False)
        for text in (row["meaning"], f"off: {row['off']}", f"source: {row['source']}"):
            console.print(Padding(Text(text), (0, 0, 0, 2)))
