"""`kubectl describe` of pods and nodes at a moment of a run.

What a run does not have is left out: addresses, image IDs, environments, mounts and leases.
Source: kubernetes v1.34 kubectl pkg/describe/describe.go, DescribeEvents.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from google.protobuf.message import Message

from replay.errors import RunError
from replay.results import durations
from replay.results.kubectl.describe_node import add_node
from replay.results.kubectl.describe_pod import add_pod
from replay.results.kubectl.events import KubeEvents
from replay.results.kubectl.objects import objects_at
from replay.results.kubectl.page import Page
from replay.results.kubectl.resources import targets
from replay.results.kubectl.rows import NONE
from replay.results.run.directory import RunDirectory
from reprieve.kube.v1beta1 import meta_pb2, node_pb2, pod_pb2


def describe(
    run: RunDirectory,
    resource: str,
    names: Sequence[str],
    write: Callable[[str], object],
    *,
    namespace: str = "",
    offset_ns: int | None = None,
    at_ns: int | None = None,
) -> None:
    """Print pods or nodes, by name or all, at a moment (RunDirectory.moment_ns) with `write`.

    Raises RunError where there is no such object, for other types, and as `get` does.
    """
    wanted = targets(resource, names)
    for each in wanted:
        if each.resource.kind not in ("Pod", "Node"):
            raise RunError(
                f"describe shows pods and nodes; use `reprieve get {each.resource.plural} "
                f"{run.path} -o yaml`"
            )
    now_ns = run.moment_ns(offset_ns=offset_ns, at_ns=at_ns)
    held, events = objects_at(run, ("Pod", "Node"), now_ns), KubeEvents()
    for decision in run.decisions():
        if decision.at_ns > now_ns:
            break
        events.take(decision)
    begun = False
    for each in wanted:
        kind = each.resource.kind
        names = each.names
        keys = sorted(
            key for key in held.objects if key[0] == kind and (not names or key[2] in names)
        )
        if kind == "Pod":
            keys = [key for key in keys if namespace in ("", key[1])]
        absent = [name for name in each.names if name not in {key[2] for key in keys}]
        for key in keys:
            page = Page()
            message = held.objects[key]
            if isinstance(message, node_pb2.Node):
                add_node(page, message, held, now_ns)
            else:
                assert isinstance(message, pod_pb2.Pod)  # noqa: S101 - of that kind
                add_pod(page, message)
            _events(page, message, kind, events, now_ns)
            write(("\n\n" if begun else "") + page.text())
            begun = True
        if absent:
            raise RunError(f"{run.path} has no {kind.lower()} {absent[0]!r} at that moment")


def _events(page: Page, message: Message, kind: str, events: KubeEvents, now_ns: int) -> None:
    meta: meta_pb2.ObjectMeta = message.metadata  # type: ignore[attr-defined] # of an object
    found = [
        each
        for each in events.standing(now_ns)
        if (each.kind, each.object_name) == (kind, meta.name)
        and (kind == "Node" or each.namespace == meta.namespace)
        and each.uid in ("", meta.uid)
    ]
    if not found:
        page.line("Events:", NONE)
        return
    page.line("Events:")
    lines = []
    for each in found:
        age = durations.age(now_ns - each.last_ns)
        if each.count > 1:
            age += f" (x{each.count} over {durations.age(now_ns - each.first_ns)})"
        lines.append((each.type, each.reason, age, each.component, each.message.strip()))
    page.table("Type|Reason|Age|From|Message", lines)
