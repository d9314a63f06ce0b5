"""The commands that show a run's objects as kubectl does: `get` and `describe`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from replay.cli.errors import NOT_FOUND, ExitError, refusing
from replay.cli.parameters import at_option, of_run, write
from replay.cli.which_run import complete_name, run_option, which_run
from replay.errors import RunError
from replay.importers.records import Moment
from replay.options import ParsedParam
from replay.overrides.selector import parse_selector
from replay.results.kubectl.describe import describe
from replay.results.kubectl.fields import CustomColumns, FieldSelector
from replay.results.kubectl.get import GetQuery, get
from replay.results.kubectl.jsonpath import Field, Template
from replay.results.kubectl.printers import CUSTOM, OUTPUTS, TEMPLATE
from replay.results.kubectl.resources import RESOURCES, NotFoundError, targets
from replay.results.run.directory import RunDirectory
from services.kube.selector import LabelSelector
from services.terminal import echo, one_line

_FORMS: dict[str, Callable[[str], object]] = {TEMPLATE: Template, CUSTOM: CustomColumns.parse}
"""Outputs that take a text, such as a template, with its parser."""


def _output(text: str) -> str:
    for prefix, read in _FORMS.items():
        if text.startswith(prefix):
            read(text.removeprefix(prefix))
            return text
    if text not in OUTPUTS:
        forms = f"{TEMPLATE}TEMPLATE, {CUSTOM}HEADER:PATH,..."
        raise ValueError(f"{text!r} is not one of {', '.join(OUTPUTS)}, {forms}")
    return text


@contextlib.contextmanager
def _reporting(
    resource: str, names: Sequence[str], namespace: str
) -> Iterator[Callable[..., None]]:
    """Turn NotFoundError into an exit code; yield a function that reports the number of objects."""

    def report(shown: int) -> None:
        if shown:
            return
        of_namespace = all(target.resource.namespaced for target in targets(resource, names))
        if namespace and of_namespace:
            echo(f"No resources found in {namespace} namespace.", err=True)
        else:
            echo("No resources found", err=True)

    try:
        yield report
    except NotFoundError as error:
        raise ExitError(NOT_FOUND, "\n".join(map(one_line, error.lines))) from error


def _check_selection(resource: str, names: Sequence[str], *selectors: object) -> None:
    """Raise UsageError for names together with a non-empty selector, as kubectl does."""
    if any(selectors) and (names or "/" in resource):
        raise click.UsageError("give names, or --selector and --field-selector, not both")


def _objects(
    run: Path | None, resource: str, names: Sequence[str]
) -> tuple[RunDirectory, list[str]]:
    """Return the run, and the type with the names."""
    directory, objects = which_run((resource, *names), run)
    if not objects:
        raise click.UsageError(f"name a type of objects: reprieve get pods {resource}")
    return directory, objects


def _selector(text: str) -> LabelSelector:
    return parse_selector(text) if text else LabelSelector()


def _resources(_ctx: click.Context, _param: click.Parameter, text: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in RESOURCES if name.startswith(text)]


def _outputs(_ctx: click.Context, _param: click.Parameter, text: str) -> list[CompletionItem]:
    return [CompletionItem(form) for form in (*OUTPUTS, *_FORMS) if form.startswith(text)]


_namespace_option = click.option(
    "-n", "--namespace", default="", help="Only this namespace. Default: all."
)
_selector_option = click.option(
    "-l",
    "--selector",
    type=ParsedParam("SELECTOR", _selector),
    default="",
    help="Only objects with these labels: app=web,!tier.",
)


@click.command(name="get")
@click.argument("resource", shell_complete=_resources)
@click.argument("names", nargs=-1, metavar="[NAME]... [RUN]", shell_complete=complete_name)
@run_option
@at_option("The moment, from which --watch continues")
@click.option(
    "-w",
    "--watch",
    is_flag=True,
    help="Continue with a row for every change; without --at from the run's beginning on.",
)
@click.option(
    "-o",
    "--output",
    type=ParsedParam("FORMAT", _output),
    default="table",
    show_default=True,
    shell_complete=_outputs,
    help="table, wide, json, yaml, name, jsonpath=TEMPLATE with a template of kubectl's, or "
    "custom-columns=NAME:.metadata.name,NODE:.spec.nodeName.",
)
@_selector_option
@click.option(
    "--field-selector",
    "fields",
    type=ParsedParam("FIELD=VALUE,...", FieldSelector.parse),
    default="",
    help="Only objects with these fields of -o json: status.phase=Failed,spec.nodeName!=n1.",
)
@_namespace_option
@click.option("-A", "--all-namespaces", is_flag=True, help="Show a column with the namespace.")
@click.option(
    "--sort-by",
    type=ParsedParam("PATH", Field),
    help="Sort by a field: .metadata.creationTimestamp. Default: by namespace and name.",
)
@click.option(
    "-L",
    "--label-columns",
    multiple=True,
    metavar="LABEL,...",
    help="Show columns with these labels. Repeatable.",
)
@click.option("--show-labels", is_flag=True, help="Show a column with all labels.")
@click.option("--no-headers", is_flag=True, help="Print tables without their headers.")
@click.option(
    "--kubernetes-version",
    default="",
    metavar="vX.Y",
    help="Version of the kubectl whose STATUS is shown. Default: the recorded cluster's, or the "
    "newest.",
)
@refusing(RunError)
def command(
    *,
    resource: str,
    run: Path | None,
    names: Sequence[str],
    moment: Moment | None,
    watch: bool,
    output: str,
    selector: LabelSelector,
    fields: FieldSelector,
    namespace: str,
    all_namespaces: bool,
    sort_by: Field | None,
    label_columns: Sequence[str],
    show_labels: bool,
    no_headers: bool,
    kubernetes_version: str,
) -> None:
    """Show objects of a run at a moment, as `kubectl get` would have shown them.

    RESOURCE is a type by any name that kubectl has for it (pods, pod, po), several with commas,
    all, or TYPE/NAME: pods, nodes, deployments, replicasets, statefulsets, daemonsets, jobs,
    cronjobs, replicationcontrollers, poddisruptionbudgets, priorityclasses, resourcequotas,
    limitranges, runtimeclasses, namespaces, services, persistentvolumes, persistentvolumeclaims,
    storageclasses, csinodes, volumeattachments, events.

    RUN is the folder of a run; without it, the latest one under runs/.

    A name that does not exist is reported after the objects that do, with exit code 1.

    \b
    Examples:
      reprieve get pods
      reprieve get po runs/nginx-1 -w -o wide
      reprieve get deploy,rs,po runs/cluster-1 --at 1h30m -l app=web
      reprieve get po web-0 web-1 runs/cluster-1 --at 2026-01-31T12:00:00Z
      reprieve get no/worker-1 runs/cluster-1 -o yaml
      reprieve get po runs/cluster-1 --field-selector spec.nodeName=w1 --sort-by .spec.priority
      reprieve get po runs/cluster-1 -o jsonpath='{range .items[*]}{.spec.nodeName}{"\\n"}{end}'
    """
    directory, (resource, *names) = _objects(run, resource, names)
    query = GetQuery(
        resource=resource,
        names=names,
        output=output,
        namespace=namespace,
        show_namespace=all_namespaces,
        selector=selector,
        fields=fields,
        sort_by=sort_by,
        label_columns=[name for column in label_columns for name in column.split(",") if name],
        shows_labels=show_labels,
        **of_run(moment),
        watch=watch,
        headers=not no_headers,
        kubernetes_version=kubernetes_version,
    )
    _check_selection(resource, names, selector != LabelSelector(), fields.terms)
    with _reporting(resource, names, namespace) as report:
        shown = get(directory, query, write)
        if output in {"table", "wide", "name"} or output.startswith(CUSTOM):
            report(shown)


@click.command(name="describe")
@click.argument("resource", shell_complete=_resources)
@click.argument("names", nargs=-1, metavar="[NAME]... [RUN]", shell_complete=complete_name)
@run_option
@at_option("The moment")
@_selector_option
@_namespace_option
@refusing(RunError)
def describe_command(
    *,
    resource: str,
    run: Path | None,
    names: Sequence[str],
    moment: Moment | None,
    selector: LabelSelector,
    namespace: str,
) -> None:
    """Describe objects of a run at a moment, as `kubectl describe` would have done.

    RESOURCE is pod, node, or a kind of devices and their claims (resourceclaim, resourceslice,
    deviceclass, resourceclaimtemplate), by any name that kubectl has for it, or TYPE/NAME. Shown
    are the object's status, conditions, resources and Events; of a node also its pods and what they
    request. A NAME without such an object selects all objects whose names begin
    with it. RUN is the folder of a run; without it, the latest one under runs/.

    A name that does not exist is reported after the objects that do, with exit code 1.

    \b
    Examples:
      reprieve describe pod web-0
      reprieve describe pod web-0 runs/cluster-1 --at 1h30m -n prod
      reprieve describe no/worker-1 runs/cluster-1 --at 2026-01-31T12:00:00Z
      reprieve describe resourceclaim train-gpu-gmxsl
    """
    directory, (resource, *names) = _objects(run, resource, names)
    _check_selection(resource, names, selector != LabelSelector())
    with _reporting(resource, names, namespace) as report:
        shown = describe(
            directory,
            resource,
            names,
            write,
            namespace=namespace,
            selector=selector,
            **of_run(moment),
        )
        report(shown)
