"""`kubectl describe` at a moment of a run: of pods, nodes, and kinds without a page of their own.

Fields that a run does not record are left out: addresses, image IDs, environments, mounts, leases.
Source: kubernetes v1.34 kubectl pkg/describe/describe.go, DescribeEvents; pkg/cmd/describe/
describe.go, DescribeMatchingResources.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from google.protobuf.message import Message

from replay.errors import RunError
from replay.results import durations
from replay.results.kubectl.describe_node import add_node
from replay.results.kubectl.describe_object import KINDS, add_object
from replay.results.kubectl.describe_pod import add_pod
from replay.results.kubectl.events import KubeEvents
from replay.results.kubectl.objects import RunObjects, objects_at
from replay.results.kubectl.page import Page
from replay.results.kubectl.printers import labels_of, mapping_of
from replay.results.kubectl.resources import NotFoundError, targets
from replay.results.kubectl.rows import NONE
from replay.results.run.cluster import ObjectKey
from replay.results.run.directory import RunDirectory
from reprieve.kube.v1beta1 import meta_pb2, node_pb2, pod_pb2
from services.kube.selector import LabelSelector
from services.rpc.kube import rfc3339

_KINDS = KINDS | {"Pod", "Node"}


def describe(
    run: RunDirectory,
    resource: str,
    names: Sequence[str],
    write: Callable[[str], object],
    *,
    namespace: str = "",
    selector: LabelSelector | None = None,
    offset_ns: int | None = None,
    at_ns: int | None = None,
) -> int:
    """Print objects at a moment (RunDirectory.moment_ns) with `write`; return their number.

    Without names, all objects are printed. A name that matches no object selects the objects whose
    names begin with it. Raises NotFoundError, after the other objects are printed, if a name
    selects nothing; RunError for a kind that is not in _KINDS, and where `get` raises it.
    """
    targeted = targets(resource, names)
    for target in targeted:
        if target.resource.kind not in _KINDS:
            raise RunError(
                f"describe shows pods, nodes and objects of devices; use `reprieve get "
                f"{target.resource.plural} {run.path} -o yaml`"
            )
    now_ns = run.moment_ns(offset_ns=offset_ns, at_ns=at_ns)
    kinds = {"Pod", "Node", *(target.resource.kind for target in targeted)}
    held, events = objects_at(run, kinds, now_ns), KubeEvents()
    for decision in run.decisions():
        if decision.time_ns > now_ns:
            break
        events.take(decision)
    where = f"{run.path} at {rfc3339.text(now_ns)}"
    hint = "--at shows other moments than the end" if offset_ns is at_ns is None else ""
    count, missing = 0, list[str]()
    for target in targeted:
        kind = target.resource.kind
        there = sorted(
            key
            for key, message in held.objects.items()
            if key[0] == kind
            and namespace in ("", key[1] or namespace)
            and (selector is None or selector.matches(labels_of(message)))
        )
        keys = [key for key in there if not target.names or key[2] in target.names]
        names_there = {key[2] for key in keys}
        prefixes = tuple(name for name in target.names if name not in names_there)
        begun = [key for key in there if prefixes and key[2].startswith(prefixes)]
        names_there |= {name for name in prefixes if any(key[2].startswith(name) for key in begun)}
        missing += target.missing(names_there, {key[2] for key in there}, where, hint)
        for key in dict.fromkeys([*keys, *begun]):
            write(("\n\n" if count else "") + _page(held, key, events, now_ns))
            count += 1
    if missing:
        raise NotFoundError(missing)
    return count


def _page(held: RunObjects, key: ObjectKey, events: KubeEvents, now_ns: int) -> str:
    page, message = Page(), held.objects[key]
    match message:
        case node_pb2.Node():
            add_node(page, message, held, now_ns)
        case pod_pb2.Pod():
            add_pod(page, message)
        case _:
            add_object(page, mapping_of(message))
    _events(page, message, key[0], events, now_ns)
    return page.text()


def _events(page: Page, message: Message, kind: str, events: KubeEvents, now_ns: int) -> None:
    meta: meta_pb2.ObjectMeta = message.metadata  # type: ignore[attr-defined] # of an object
    standing = [
        event
        for event in events.standing(now_ns)
        if (event.kind, event.object_name) == (kind, meta.name)
        and (kind == "Node" or event.namespace == meta.namespace)
        and event.uid in ("", meta.uid)
    ]
    if not standing:
        page.line("Events:", NONE)
        return
    page.line("Events:")
    lines = []
    for event in standing:
        age = durations.age(now_ns - event.last_ns)
        if event.count > 1:
            age += f" (x{event.count} over {durations.age(now_ns - event.first_ns)})"
        lines.append((event.type, event.reason, age, event.component, event.message.strip()))
    page.table("Type|Reason|Age|From|Message", lines)
