"""`reprieve explain`: why a pod was bound, refused or made to wait."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console

from replay.cli.errors import refusing
from replay.cli.parameters import DURATION, echo_json, output_option, run_argument
from replay.errors import RunError
from replay.explain.explain import explain
from replay.explain.table import print_explanation
from replay.explain.target import Wish
from replay.results.run.directory import RunDirectory
from services.rpc.client import ClientTls, tls_options


@click.command(name="explain")
@click.argument("pod")
@run_argument
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
@output_option("table", "json", meaning="For people or for programs.")
@refusing(RunError)
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
    found = explain(RunDirectory.open(run), wish, top=top, address=scheduler, tls=tls)
    if output == "json":
        echo_json(found.to_mapping())
    else:
        print_explanation(found, Console())
