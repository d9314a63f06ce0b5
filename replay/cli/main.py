"""`reprieve`: the command line. The module of a command is imported when the command is used."""

from __future__ import annotations

import difflib
import importlib
import io
import os
import sys
from collections.abc import Mapping

import click
from click.shell_completion import get_completion_class, shell_complete

from replay.backends.processes import prepare
from replay.cli.errors import BROKEN_PIPE, INTERRUPTED, UNWRITABLE, ExitError, os_problem
from replay.errors import DISK, OutputError
from replay.interrupts import Interrupted, Interrupts
from services.rpc.version import package_version
from services.terminal import echo

_COMMANDS = {
    "demo": "Replay a bundled trace that ends in seconds.",
    "examples": "Write the bundled examples into a folder.",
    "protos": "Write the contract's .proto files into a folder.",
    "replay": "Replay a trace; show the decisions and their reasons.",
    "resume": "Resume an interrupted run.",
    "record": "Record a live cluster as a trace.",
    "report": "Write a run's report: one page that opens offline.",
    "query": "Query a run's tables in SQL.",
    "get": "Show a run's objects at one time, as kubectl does.",
    "describe": "Describe pods or nodes of a run at one time.",
    "export": "Export a run for Perfetto, or its rounds as requests.",
    "verify": "Check a run's files against its digests.",
    "node-groups": "Print a trace's node groups, for --autoscaler.",
    "models": "List the assumptions for what a trace does not have.",
    "compare": "Compare two runs: where they diverge, and why.",
    "sweep": "Replay a trace at every point of a grid.",
    "seek": "Find the values up to which checks hold, and the proof.",
    "fit": "Find how many more of some pods fit, and what stops the next.",
    "spare": "Find which nodes can go.",
    "size": "Find the cheapest numbers of nodes.",
    "explain": "Explain why a pod was bound, refused or is pending.",
    "generate": "Write a seeded synthetic workload.",
    "convert": "Convert a trace to the native format.",
    "validate": "Check a trace; show what a replay reads and ignores.",
    "conform": "Test services against upstream's vectors or the contract.",
    "node": "Watch this machine as a kubelet's eviction manager does.",
    "serve": "Run one of the services.",
    "doctor": "Check what works on this machine, and what is missing.",
    "completion": "Print a shell's completion of commands and options.",
}
_SHARED = {
    "examples": ("demo", "examples", "models", "protos"),
    "runs": ("query", "report", "explain"),
    "get": ("describe",),
    "traces": ("convert", "generate", "validate"),
}
_ELSEWHERE = {
    "node-groups": "replay.cli.commands.node_groups:command",
    "node": "services.eviction.host.__main__:main",
    "serve": "replay.cli.main:serve_command",
    "completion": "replay.cli.main:completion_command",
    **{
        name: f"replay.cli.commands.{module}:{name}_command"
        for module, names in _SHARED.items()
        for name in names
    },
}
"""The places of commands that are not `command` in replay.cli.commands.NAME."""
_SERVICES = {
    "queue": "The scheduling queue.",
    "scheduler": "The scheduler, with its preemptor.",
    "eviction": "Node-pressure eviction for many nodes.",
    "autoscaler": "The cluster autoscaler: node groups that grow and shrink.",
}
_COMPLETE = "_REPRIEVE_COMPLETE"
"""The environment variable with which a shell requests completions."""
EXIT_CODES: Mapping[str, str] = {
    "0": "success",
    "1": "conform: a vector failed, or the level was not reached; replay --compare-recorded: a "
    "decision differs; --assert: a check failed; sweep: a replay failed; get, describe: no object "
    "has that name; verify: a file is changed, missing, extra or unchecked; doctor: replays do not "
    "work on this machine",
    "2": "the command line or an input is refused",
    "3": "a service cannot be started or reached, stops answering, or breaks the contract; replay: "
    "the run is complete, but decisions of the scheduler were refused for its mistakes (see "
    "--tolerate-refusals); record: the API server "
    "cannot be reached, the recording ended early, or its end is missing",
    "4": "the run is complete, but spans were lost",
    "5": "the run has an endless loop at one instant",
    "6": "the output's disk is full, over a quota, read-only or failing",
    "129, 130, 143": "ended by SIGHUP, SIGINT (Ctrl-C) or SIGTERM; what was written until then can "
    "be read; a second signal ends at once",
    "141": "the program that reads the output has ended",
}
"""Exit codes of all commands, with their meanings."""


class _LazyGroup(click.Group):
    """A group that imports a command only to run it; `summaries` has the help of each command."""

    summaries: Mapping[str, str] = _COMMANDS
    title = "Commands"

    def place(self, name: str) -> str:
        """Return "MODULE:NAME" of a command."""
        return _ELSEWHERE.get(name, f"replay.cli.commands.{name}:command")

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands in the order of `summaries`."""
        del ctx
        return list(self.summaries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command; None for an unknown name."""
        del ctx
        if cmd_name not in self.summaries:
            return None
        module, _, name = self.place(cmd_name).partition(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that the arguments name; for a mistyped one suggest another."""
        name = args[0]
        if name in self.summaries or name.startswith("-"):
            return super().resolve_command(ctx, args)
        close = difflib.get_close_matches(name, self.summaries, n=2)
        hint = f" Did you mean {' or '.join(close)}?" if close else ""
        raise click.UsageError(f"No such command {name!r}.{hint}", ctx)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        del ctx
        with formatter.section(self.title):
            formatter.write_dl(list(self.summaries.items()))


class _MainGroup(_LazyGroup):
    """The group of all commands, whose help ends with the exit codes."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the exit codes."""
        del ctx
        with formatter.section("Exit codes"):
            formatter.write_dl(list(EXIT_CODES.items()))


@click.group(cls=_MainGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_version(), prog_name="reprieve")
def command() -> None:
    """Replay cluster workloads offline: what is scheduled, preempted or evicted, and why.

    \b
    Examples:
      reprieve replay cluster.yaml pods.yaml
      reprieve replay recording/ --run runs/today -o wide
      reprieve get pods runs/today --at 1h30m -o wide
    """


class _Services(_LazyGroup):
    summaries = _SERVICES
    title = "Services"

    def place(self, name: str) -> str:
        return f"services.{name}.__main__:main"


@click.group(cls=_Services, name="serve")
def serve_command() -> None:
    """Run one of the services until SIGTERM.

    \b
    Examples:
      reprieve serve queue
      reprieve serve scheduler --queue 127.0.0.1:50051
      reprieve serve eviction --listen 0.0.0.0:50053 --access access.yaml

    A replay uses them with --scheduler and --eviction.
    """


@click.command(name="completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion_command(*, shell: str) -> None:
    """Print a script that completes commands, options and their values in a shell.

    \b
    Examples:
      source <(reprieve completion bash)                                  # in ~/.bashrc
      source <(reprieve completion zsh)                                   # in ~/.zshrc
      reprieve completion fish > ~/.config/fish/completions/reprieve.fish
    """
    made = get_completion_class(shell)
    assert made is not None  # noqa: S101 - click has these three
    click.echo(made(command, {}, "reprieve", _COMPLETE).source())


def main() -> None:
    """Run the command line; turn errors into messages and exit codes."""
    prepare()
    with Interrupts() as interrupts:
        _main(interrupts)


def _main(interrupts: Interrupts) -> None:
    try:
        try:
            _invoke()
            sys.stdout.flush()
        except Exception:
            interrupts.check()  # A signal may surface as an error of DuckDB, or of ended services.
            raise
    except click.exceptions.Exit as error:
        sys.exit(error.exit_code)
    except click.ClickException as error:
        shown = io.StringIO()
        error.show(shown)
        echo(*shown.getvalue().removesuffix("\n").split("\n"), err=True)
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt) as error:
        ended = error.__cause__ if isinstance(error, click.Abort) else error
        texts = [str(ended or "") or "aborted", *getattr(ended, "__notes__", [])]
        if sys.stderr.isatty():
            echo(err=True)  # the terminal has shown ^C
        echo(f"Error: {'; '.join(texts)}", err=True)
        sys.exit(ended.code if isinstance(ended, Interrupted) else INTERRUPTED)
    except ExitError as error:
        echo(*f"Error: {error}".split("\n"), err=True)
        sys.exit(error.code)
    except OutputError as error:
        echo(f"Error: {error}", *getattr(error, "__notes__", []), err=True)
        sys.exit(UNWRITABLE)
    except BrokenPipeError:
        _discard_output()
        sys.exit(BROKEN_PIPE)
    except OSError as error:
        if error.errno not in DISK:
            raise
        _discard_output()
        echo(f"Error: {os_problem(error)}; the output is not whole", err=True)
        sys.exit(UNWRITABLE)


def _invoke() -> None:
    """Run the command that the arguments name, or complete the arguments for a shell.

    click's main would turn a broken pipe into exit code 1, which means a failed check here.
    """
    if instruction := os.environ.get(_COMPLETE):
        sys.exit(shell_complete(command, {}, "reprieve", _COMPLETE, instruction))
    with command.make_context("reprieve", sys.argv[1:]) as context:
        command.invoke(context)


def _discard_output() -> None:
    """Discard buffered standard output; Python's flush at exit would fail again."""
    sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115 - until the process ends
