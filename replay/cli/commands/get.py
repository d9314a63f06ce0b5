"""`reprieve get`: what kubectl would have shown of a run's cluster."""

from __future__ import annotations

from pathlib import Path

import click

from replay.cli.errors import refusing
from replay.cli.parameters import DURATION, output_option, run_argument, write
from replay.errors import RunError
from replay.results.kubectl.get import OUTPUTS, RESOURCES, Query, get
from replay.results.run.directory import RunDirectory


@click.command(name="get")
@click.argument("resource", type=click.Choice(RESOURCES))
@run_argument
@click.option(
    "--at",
    "offset_ns",
    type=DURATION,
    help="The moment, from the run's beginning, not after its end. Default: the end; with -w "
    "the beginning.",
)
@click.option("-w", "--watch", is_flag=True, help="A row for every change from then on.")
@output_option(*OUTPUTS, meaning="How.")
@click.option("-n", "--namespace", default="", help="One namespace only.")
@click.option("-A", "--all-namespaces", is_flag=True, help="Show the namespace in a column.")
@click.option(
    "--kubernetes-version",
    default="",
    metavar="vX.Y",
    help="Whose kubectl prints STATUS. Default: the recorded cluster's, or the newest.",
)
@refusing(RunError)
def command(
    *,
    resource: str,
    run: Path,
    offset_ns: int | None,
    watch: bool,
    output: str,
    namespace: str,
    all_namespaces: bool,
    kubernetes_version: str,
) -> None:
    """Show the pods, nodes or events of a run at a moment, as kubectl would have shown them.

    Events are those of scheduling, preemption, eviction, node conditions and controllers; as in a
    cluster, they are kept for an hour. The latest stand last.

    \b
    Examples:
      reprieve get pods runs/nginx-1 -w -o wide
      reprieve get pods runs/cluster-1 --at 1h30m -A
      reprieve get nodes runs/cluster-1 -o yaml
      reprieve get events runs/cluster-1 --at 1h30m -o wide
    """
    query = Query(
        resource=resource,
        output=output,
        namespace=namespace,
        show_namespace=all_namespaces,
        offset_ns=offset_ns,
        watch=watch,
        kubernetes_version=kubernetes_version,
    )
    shown = get(RunDirectory.open(run), query, write)
    if not shown and output in {"table", "wide"}:
        click.echo("No resources found.", err=True)
