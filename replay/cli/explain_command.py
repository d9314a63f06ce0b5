"""`reprieve explain`: why a pod was bound, refused or made to wait."""

from __future__ import annotations

from pathlib import Path

import click
import orjson
from rich.console import Console

from replay.backends.errors import BackendError, ConfigurationError
from replay.cli.errors import REFUSED, SERVICE, ExitError
from replay.cli.parameters import DURATION
from replay.explain.explain import explain
from replay.explain.table import print_explanation
from replay.explain.target import Wish
from replay.results.errors import RunError
from replay.results.run_directory import RunDirectory
from services.rpc.client import ClientTls, tls_options


@click.command(name="explain")
@click.argument("pod")
@click.argument("run", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--at",
    "offset_ns",
    type=DURATION,
    help="The last attempt until this moment, from the run's beginning. Default: the run's last.",
)
@click.option(
    "--attempt", type=click.IntRange(1), help="That attempt of the pod, from 1, in place of --at."
)
@click.option("-n", "--namespace", default="", help="The pod's namespace.")
@click.option(
    "--top",
    default=5,
    show_default=True,
    type=click.IntRange(1, 100_000),
    help="How many nodes, groups and candidates to show.",
)
@click.option(
    "--scheduler",
    default="",
    metavar="HOST:PORT",
    help="A scheduler service to tell the run to. Default: the one that made the run.",
)
@tls_options("", "that service")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="For people or for programs.",
)
def command(
    *,
    pod: str,
    run: Path,
    offset_ns: int | None,
    attempt: int | None,
    namespace: str,
    top: int,
    scheduler: str,
    tls: ClientTls,
    output: str,
) -> None:
    """Explain one decision of a run: tell its history again up to it, and ask for every verdict.

    POD is a name, NAMESPACE/NAME or a UID. Shown are who refused which nodes first and why, what
    each plugin gave the best nodes, whom preemption would displace and who is reprieved, and where
    the pod waits, until when and for what. Of an evicted pod: the threshold, what its node
    observed, and its rank among the pods there.

    \b
    Examples:
      reprieve explain nginx-a runs/nginx-1 --attempt 1
      reprieve explain prod/web-0 runs/today --at 1h30m --top 10
      reprieve explain web-0 runs/today -o json
      reprieve explain cache-0 runs/eviction-loop-1 --at 10m
    """
    if attempt is not None and offset_ns is not None:
        raise click.UsageError("--at and --attempt do not go together")
    wish = Wish(pod=pod, namespace=namespace, offset_ns=offset_ns, attempt=attempt or 0)
    try:
        found = explain(RunDirectory.open(run), wish, top=top, address=scheduler, tls=tls)
    except (RunError, ConfigurationError) as error:
        raise ExitError(REFUSED, str(error)) from error
    except BackendError as error:
        notes = getattr(error, "__notes__", [])
        raise ExitError(SERVICE, "\n".join([str(error), *notes])) from error
    if output == "json":
        text = orjson.dumps(found.to_mapping(), option=orjson.OPT_INDENT_2)
        click.echo(text.decode())
    else:
        print_explanation(found, Console())
