"""`reprieve get`: what kubectl would have shown of a run's cluster."""

from __future__ import annotations

from pathlib import Path

import click

from replay.cli.errors import REFUSED, ExitError
from replay.cli.parameters import DURATION
from replay.results.errors import RunError
from replay.results.get import OUTPUTS, RESOURCES, Query, get
from replay.results.run_directory import RunDirectory


@click.command(name="get")
@click.argument("resource", type=click.Choice(RESOURCES))
@click.argument("run", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--at",
    "offset_ns",
    type=DURATION,
    help="The moment, from the run's beginning, not after its end. Default: the end; with -w "
    "the beginning.",
)
@click.option("-w", "--watch", is_flag=True, help="A row for every change from then on.")
@click.option(
    "-o", "--output", type=click.Choice(OUTPUTS), default="table", show_default=True, help="How."
)
@click.option("-n", "--namespace", default="", help="One namespace only.")
@click.option("-A", "--all-namespaces", is_flag=True, help="Show the namespace in a column.")
@click.option(
    "--kubernetes-version",
    default="",
    metavar="vX.Y",
    help="Whose kubectl prints STATUS. Default: the recorded cluster's, or the newest.",
)
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
    try:
        shown = get(RunDirectory.open(run), query, lambda text: click.echo(text, nl=False))
    except RunError as error:
        raise ExitError(REFUSED, str(error)) from error
    if not shown and output in {"table", "wide"}:
        click.echo("No resources found.", err=True)
