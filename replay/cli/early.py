"""Early validation of replays: options, files, overrides and names, before the first one runs.

`compare` and `sweep` validate all their replays before they start the first one; the services have
accepted every configuration by then.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import click

from replay.cli.checks import Checks
from replay.cli.errors import ExitError, refusing
from replay.options import OptionError
from replay.results.run.directory import RunDirectory
from replay.trace.validate import pod_template
from replay.whatif.assertions import FigureError
from replay.whatif.facts import PodFacts, RunFacts
from replay.whatif.selectors import refuse_unmatched
from reprieve.kube.v1beta1 import meta_pb2, object_pb2, pod_pb2
from reprieve.trace.v1beta1 import trace_pb2
from services.kube.pod import SYSTEM_CLASSES

_KNOWN = frozenset({"namespace", "class", "workload"})
"""Labels whose values can be read from a trace before it is replayed."""
Records = Callable[[], Iterator[trace_pb2.Record]]


@contextlib.contextmanager
def labelled(where: str) -> Iterator[None]:
    """Put `where` before the messages of errors that end a command."""
    try:
        yield
    except click.UsageError as error:
        raise click.UsageError(f"{where}: {error.format_message()}") from error
    except OptionError as error:
        raise OptionError(f"{where}: {error.message}") from error
    except ExitError as error:
        raise ExitError(error.code, f"{where}: {error}") from error


def refuse_folders(folders: Iterable[Path], *, force: bool) -> None:
    """Refuse folders with files that a run would have to replace, unless `force` is set."""
    for folder in folders:
        RunDirectory.check(folder, force=force)


def refuse_unknown(checks: Checks, records: Records) -> None:
    """Refuse checks of names that neither the trace nor an override has. Raises ExitError."""
    named = [
        assertion
        for assertion in checks.assertions
        if any(condition.label in _KNOWN for condition in assertion.conditions)
    ]
    if checks.allows_no_effect or not named:
        return
    facts, labels = _names(records())
    with refusing(FigureError):
        for assertion in named:
            for label in sorted(labels):
                refuse_unmatched(assertion, [facts], (label,))


def _names(records: Iterable[trace_pb2.Record]) -> tuple[RunFacts, frozenset[str]]:
    """Return the names in a trace, as pods, and the labels for which it has all names.

    The names of Jobs that CronJobs create are known only after the run.
    """
    facts, labels = RunFacts(), _KNOWN
    templates: dict[int, pod_pb2.Pod] = {}
    for system in SYSTEM_CLASSES:
        _note(facts, "", system.name)
    for record in records:
        match record.WhichOneof("record"):
            case "template":
                templates[record.template.id] = record.template.pod
            case "pod_create":
                pod = record.pod_create.pod
                template = templates.get(record.pod_create.template_id)
                spec = pod.spec if template is None else template.spec
                _note_pod(facts, pod.metadata, spec)
            case "create" | "update" as case:
                message = getattr(record, case)
                _note_object(facts, message)
                if message.HasField("cron_job"):
                    labels = labels - {"workload"}
    return facts, labels


def _note_object(facts: RunFacts, message: object_pb2.KubernetesObject) -> None:
    template = pod_template(message)
    if template is not None:
        meta = getattr(message, message.WhichOneof("object") or "").metadata
        _note(facts, meta.namespace or "default", template.spec.priority_class_name, meta.name)
    elif message.HasField("pod"):
        _note_pod(facts, message.pod.metadata, message.pod.spec)
    elif message.HasField("priority_class"):
        _note(facts, "", message.priority_class.metadata.name)


def _note_pod(facts: RunFacts, meta: meta_pb2.ObjectMeta, spec: pod_pb2.PodSpec) -> None:
    owners = [owner.name for owner in meta.owner_references if owner.controller]
    namespace = meta.namespace or "default"
    for owner in owners or [""]:
        _note(facts, namespace, spec.priority_class_name, owner)


def _note(facts: RunFacts, namespace: str, class_name: str, workload: str = "") -> None:
    """Record a combination of names once, so that memory is bounded by the number of names."""
    facts.pods.setdefault(
        f"{namespace}/{class_name}/{workload}",
        PodFacts(
            namespace=namespace, name="", priority=0, priority_class=class_name, workload=workload
        ),
    )
