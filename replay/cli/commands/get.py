"""The commands that show a run's objects as kubectl does: `get` and `describe`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from replay.cli.errors import refusing
from replay.cli.parameters import MOMENT, ParsedParam, open_run, run_argument, write
from replay.errors import RunError
from replay.importers.records import Moment
from replay.overrides.assignment import OverrideError, parse_selector
from replay.results.kubectl.describe import describe
from replay.results.kubectl.get import GetQuery, get
from replay.results.kubectl.jsonpath import Template
from replay.results.kubectl.printers import OUTPUTS, TEMPLATE
from replay.results.kubectl.resources import RESOURCES
from services.kube.selector import LabelSelector
from services.terminal import echo


def _output(text: str) -> str:
    if text.startswith(TEMPLATE):
        Template(text.removeprefix(TEMPLATE))
    elif text not in OUTPUTS:
        raise ValueError(f"{text!r} is not one of {', '.join(OUTPUTS)}, {TEMPLATE}TEMPLATE")
    return text


def _resources(_ctx: click.Context, _param: click.Parameter, text: str) -> list[CompletionItem]:
    return [CompletionItem(each) for each in RESOURCES if each.startswith(text)]


def _outputs(_ctx: click.Context, _param: click.Parameter, text: str) -> list[CompletionItem]:
    return [CompletionItem(each) for each in (*OUTPUTS, TEMPLATE) if each.startswith(text)]


_at_option = click.option(
    "--at",
    "moment",
    type=MOMENT,
    help="The moment: a duration from the run's beginning, or a time of the run's clock. Default: "
    "the end; of a watch the beginning.",
)


@click.command(name="get")
@click.argument("resource", shell_complete=_resources)
@run_argument
@click.argument("names", nargs=-1, metavar="[NAME]...")
@_at_option
@click.option("-w", "--watch", is_flag=True, help="Continue with a row for every change.")
@click.option(
    "-o",
    "--output",
    type=ParsedParam("FORMAT", _output),
    default="table",
    show_default=True,
    shell_complete=_outputs,
    help="table, wide, json, yaml, name, or jsonpath=TEMPLATE with a template of kubectl's.",
)
@click.option("-l", "--selector", default="", help="Only objects with these labels: app=web,!tier.")
@click.option("-n", "--namespace", default="", help="Only this namespace. Default: all.")
@click.option("-A", "--all-namespaces", is_flag=True, help="Show a column with the namespace.")
@click.option("--no-headers", is_flag=True, help="Print tables without their headers.")
@click.option(
    "--kubernetes-version",
    default="",
    metavar="vX.Y",
    help="Version of the kubectl whose STATUS is shown. Default: the recorded cluster's, or the "
    "newest.",
)
@refusing(RunError, OverrideError)
def command(
    *,
    resource: str,
    run: Path,
    names: Sequence[str],
    moment: Moment | None,
    watch: bool,
    output: str,
    selector: str,
    namespace: str,
    all_namespaces: bool,
    no_headers: bool,
    kubernetes_version: str,
) -> None:
    """Show objects of a run at a moment, as `kubectl get` would have shown them.

    RESOURCE is a type by any name that kubectl has for it (pods, pod, po), several with commas,
    all, or TYPE/NAME: pods, nodes, deployments, replicasets, statefulsets, daemonsets, jobs,
    cronjobs, replicationcontrollers, poddisruptionbudgets, priorityclasses, namespaces, services,
    persistentvolumes, persistentvolumeclaims, storageclasses, csinodes, volumeattachments, events.

    A name that does not exist is reported after the objects that do, with exit code 2.

    \b
    Examples:
      reprieve get po runs/nginx-1 -w -o wide
      reprieve get deploy,rs,po runs/cluster-1 --at 1h30m -l app=web
      reprieve get po runs/cluster-1 web-0 web-1 --at 2026-01-31T12:00:00Z
      reprieve get no/worker-1 runs/cluster-1 -o yaml
      reprieve get po runs/cluster-1 -o jsonpath='{range .items[*]}{.spec.nodeName}{"\\n"}{end}'
    """
    query = GetQuery(
        resource=resource,
        names=names,
        output=output,
        namespace=namespace,
        show_namespace=all_namespaces,
        selector=parse_selector(selector) if selector else LabelSelector(),
        offset_ns=moment.since_start_ns if moment is not None else None,
        at_ns=moment.at_ns if moment is not None and moment.since_start_ns is None else None,
        watch=watch,
        headers=not no_headers,
        kubernetes_version=kubernetes_version,
    )
    shown = get(open_run(run), query, write)
    if not shown and output in {"table", "wide"}:
        echo("No resources found.", err=True)


@click.command(name="describe")
@click.argument("resource", shell_complete=_resources)
@click.argument("names", nargs=-1, metavar="[NAME]...")
@run_argument
@_at_option
@click.option("-n", "--namespace", default="", help="Only this namespace. Default: all.")
@refusing(RunError)
def describe_command(
    *, resource: str, names: Sequence[str], run: Path, moment: Moment | None, namespace: str
) -> None:
    """Describe pods or nodes of a run at a moment, as `kubectl describe` would have done.

    RESOURCE is pod or node, by any name that kubectl has for it, or TYPE/NAME. Shown are the
    object's status, conditions, resources and Events; of a node also its pods and what they
    request.

    \b
    Examples:
      reprieve describe pod web-0 runs/cluster-1
      reprieve describe pod web-0 runs/cluster-1 --at 1h30m -n prod
      reprieve describe no/worker-1 runs/cluster-1 --at 2026-01-31T12:00:00Z
    """
    describe(
        open_run(run),
        resource,
        names,
        write,
        namespace=namespace,
        offset_ns=moment.since_start_ns if moment is not None else None,
        at_ns=moment.at_ns if moment is not None and moment.since_start_ns is None else None,
    )
