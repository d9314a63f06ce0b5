"""Removes and clones nodes: `--drop-nodes` and `--scale-nodes`.

`--scale-nodes` removes the first nodes in an order, or clones the last ones. The default order is
that of a keyed hash of the nodes' names, so that a cluster scaled to 0.8 is part of the same
cluster scaled to 0.9, also with other overrides. A pod that ran on a removed node becomes pending.
A pod that is bound to its node (a DaemonSet's or a static pod), terminates there or has ended is
removed with the node. A node's ResourceSlices are removed and cloned with it.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from replay.hashing import KeyedRandom, name_suffix, object_uid
from replay.overrides.errors import NoEffectError, OverrideError
from replay.overrides.inventory import TraceInventory
from replay.overrides.names import closest, shown_names
from replay.overrides.selector import existing_labels, parse_selector
from replay.overrides.timed import renumbered
from replay.world.api.node_order import NodeOrder, ordered_nodes
from reprieve.kube.v1beta1 import device_pb2, node_pb2, object_pb2, pod_pb2
from reprieve.trace.v1beta1 import trace_pb2
from services.kube.node import LABEL_HOSTNAME
from services.kube.pod import TERMINAL_PHASES

_FACTOR = re.compile(r"\d+(\.\d+)?")
_DIFFERENCE = re.compile(r"[+-]\d+")
_EXACTLY = re.compile(r"=\d{1,7}")
_FACTOR_MAX = 100
_NODE_OWNERS = frozenset({"DaemonSet", "Node"})
_MIRROR = "kubernetes.io/config.mirror"
_NAME = re.compile(r"[a-z0-9][-a-z0-9.]*")
_SCALE_SEED = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePlan:
    """The removed nodes, in order of removal, and the names of the clones of other nodes."""

    removed: Mapping[str, None] = field(default_factory=dict)
    clones: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.removed or self.clones)


ORDERS = ("hash", *(order.value for order in NodeOrder))
"""The values of --scale-order."""


def nodes_named(option: str, target: str, inventory: TraceInventory) -> list[str]:
    """Return the nodes that `target` names: names separated by commas, or a label selector.

    Nodes that a selector matches are sorted by name. Raises NoEffectError if no node matches.
    """
    names = [part.strip() for part in target.split(",")]
    if all(name in inventory.nodes for name in names):
        return names
    selector = parse_selector(target)
    labels = inventory.node_labels
    matched = sorted(name for name in labels if selector.matches(labels[name]))
    if matched:
        return matched
    keys = {key for node_labels in labels.values() for key in node_labels}
    if len(names) == 1 and _NAME.fullmatch(target) and target not in keys:
        unknown = next(name for name in names if name not in inventory.nodes)
        raise NoEffectError(
            f"{option} has no effect: no node is named {unknown}{closest(unknown, labels)}, and no "
            f"node has a label of that name; the nodes are {shown_names(labels, 'none')}"
        )
    labels_text = existing_labels(selector, labels.values())
    raise NoEffectError(f"{option} has no effect: the nodes have {labels_text}")


def nodes_to_drop(text: str, inventory: TraceInventory) -> list[str]:
    """Return the nodes of --drop-nodes. Raises OverrideError for no node, or all nodes."""
    matched = nodes_named(f"--drop-nodes {text}", text, inventory)
    if len(matched) == len(inventory.nodes):
        raise OverrideError(f"--drop-nodes {text} removes all {len(matched):,} nodes")
    return matched


def ranked_nodes(
    order: str, nodes: Mapping[str, node_pb2.Node], records: Iterable[trace_pb2.Record]
) -> list[str]:
    """Return the nodes' names in the reverse order of removal by --scale-nodes.

    `records` are the records of the trace; orders by usage depend on its bound pods.
    """
    if order == "hash":
        draw = KeyedRandom(_SCALE_SEED)
        return sorted(nodes, key=lambda name: (draw.share("node", name), name))
    return ordered_nodes(nodes, NodeOrder(order), _bound_pods(records))[::-1]


def scale_plan(scale: str, ranked: Sequence[str], inventory: TraceInventory) -> NodePlan:
    """Return the plan for "0.8", "+10", "-10" or "=5", each also as "SELECTOR:-10".

    `ranked` has the nodes that other options have not removed. Raises OverrideError for any other
    text, for a text without an effect, and if no node would be left.
    """
    selector, colon, amount = scale.rpartition(":")
    pool = ranked
    if colon:
        try:
            chosen = set(nodes_named(f"--scale-nodes {scale}", selector, inventory))
        except NoEffectError as error:
            raise OverrideError(str(error)) from error
        pool = [name for name in ranked if name in chosen]
    target = _target_count(scale, amount, len(pool))
    if target == len(pool):
        raise NoEffectError(
            f"--scale-nodes {scale} has no effect: there are already {target:,} nodes"
        )
    if target < 0 or len(ranked) - len(pool) + target < 1:
        raise OverrideError(f"--scale-nodes {scale} removes all {len(pool):,} nodes")
    if target < len(pool):
        return NodePlan(removed=dict.fromkeys(reversed(pool[target:])))
    if not pool:
        raise OverrideError(f"--scale-nodes {scale}: no node is left that can be cloned")
    clones: dict[str, list[str]] = {}
    for number in range(target - len(pool)):
        ordinal, index = divmod(number, len(pool))
        original = pool[index]
        suffix = name_suffix(object_uid("Node", "", original), ordinal)
        clones.setdefault(original, []).append(f"{original}-{suffix}")
    return NodePlan(clones=clones)


def _target_count(scale: str, amount: str, count: int) -> int:
    if _DIFFERENCE.fullmatch(amount):
        return count + int(amount)
    if _EXACTLY.fullmatch(amount):
        return int(amount[1:])
    if not _FACTOR.fullmatch(amount) or float(amount) > _FACTOR_MAX:
        raise OverrideError(
            f"--scale-nodes {scale}: write 0.8, 1.5, +10, -10 or =5, of a pool as pool=gpu:-1"
        )
    return round(float(amount) * count)


def _bound_pods(records: Iterable[trace_pb2.Record]) -> Iterator[pod_pb2.Pod]:
    """Yield the pods that the trace creates with a node, with the spec of their template."""
    templates: dict[int, pod_pb2.Pod] = {}
    for record in records:
        if record.HasField("template"):
            templates[record.template.id] = record.template.pod
            continue
        pod = _pod_of(record)
        if pod is None or not pod.spec.node_name or pod.status.phase in TERMINAL_PHASES:
            continue
        template = templates.get(record.pod_create.template_id)
        if template is not None:
            bound = pod_pb2.Pod()
            bound.CopyFrom(template)
            bound.spec.node_name = pod.spec.node_name
            pod = bound
        yield pod


def change_nodes(records: Iterable[trace_pb2.Record], plan: NodePlan) -> Iterator[trace_pb2.Record]:
    """Yield the records with the plan applied, renumbered."""
    slices: dict[str, str] = {}
    return renumbered(changed for record in records for changed in _with_plan(record, plan, slices))


def _with_plan(
    record: trace_pb2.Record, plan: NodePlan, slices: dict[str, str]
) -> Iterator[trace_pb2.Record]:
    """Yield a record with the plan applied; `slices` has the nodes of ResourceSlices so far."""
    kept = copy.deepcopy(record)
    name = _node_of(kept, slices)
    if name:
        if name in plan.removed:
            return
        yield kept
        for clone in plan.clones.get(name, ()):
            yield _cloned(record, name, clone)
        return
    pod = _pod_of(kept)
    if pod is not None and pod.spec.node_name in plan.removed:
        if _goes_with_its_node(pod):
            return
        pod.spec.ClearField("node_name")
        pod.ClearField("status")
    yield kept


def _node_of(record: trace_pb2.Record, slices: dict[str, str]) -> str:
    """Return the node that a record, or its ResourceSlice, is about; "" for another object."""
    match record.WhichOneof("record"):
        case "create" | "update" as case:
            put: object_pb2.KubernetesObject = getattr(record, case)
            if put.HasField("resource_slice"):
                slice_ = put.resource_slice
                return slices.setdefault(slice_.metadata.name, slice_.spec.node_name)
            return put.node.metadata.name
        case "delete" if record.delete.object.kind == "Node":
            return record.delete.object.name
        case "delete" if record.delete.object.kind == "ResourceSlice":
            return slices.get(record.delete.object.name, "")
        case "usage":
            return record.usage.node_name
    return ""


def _pod_of(record: trace_pb2.Record) -> pod_pb2.Pod | None:
    match record.WhichOneof("record"):
        case "pod_create":
            return record.pod_create.pod
        case "create" | "update" as case if getattr(record, case).HasField("pod"):
            pod: pod_pb2.Pod = getattr(record, case).pod
            return pod
    return None


def _goes_with_its_node(pod: pod_pb2.Pod) -> bool:
    """Return whether a pod is removed with its node, as pod garbage collection would do."""
    if pod.metadata.HasField("deletion_timestamp") or pod.status.phase in TERMINAL_PHASES:
        return True
    return _MIRROR in pod.metadata.annotations or any(
        owner.controller and owner.kind in _NODE_OWNERS for owner in pod.metadata.owner_references
    )


def _cloned(record: trace_pb2.Record, original: str, name: str) -> trace_pb2.Record:
    """Return the record of a node, or of one of its slices, for its clone of that name."""
    clone = copy.deepcopy(record)
    match clone.WhichOneof("record"):
        case "create" | "update" as case:
            put: object_pb2.KubernetesObject = getattr(clone, case)
            if put.HasField("resource_slice"):
                _rename_slice(put.resource_slice, original, name)
            else:
                _rename(put.node, name)
        case "delete" if clone.delete.object.kind == "ResourceSlice":
            clone.delete.object.name = _of_clone(clone.delete.object.name, original, name)
            clone.delete.object.ClearField("uid")
        case "delete":
            clone.delete.object.name = name
            clone.delete.object.uid = object_uid("Node", "", name)
        case "usage":
            clone.usage.node_name = name
    return clone


def _rename(node: node_pb2.Node, name: str) -> None:
    if node.metadata.labels.get(LABEL_HOSTNAME) == node.metadata.name:
        node.metadata.labels[LABEL_HOSTNAME] = name
    node.metadata.name = name
    node.metadata.uid = object_uid("Node", "", name)
    node.spec.ClearField("provider_id")  # A clone is another machine.


def _rename_slice(slice_: device_pb2.ResourceSlice, original: str, name: str) -> None:
    """Make a slice one of another node, with a pool of its own."""
    meta, pool = slice_.metadata, slice_.spec.pool
    meta.name = _of_clone(meta.name, original, name)
    meta.uid = object_uid("ResourceSlice", "", meta.name)
    pool.name = _of_clone(pool.name, original, name)
    slice_.spec.node_name = name
    for owner in meta.owner_references:
        if owner.kind == "Node" and owner.name == original:
            owner.name, owner.uid = name, object_uid("Node", "", name)


def _of_clone(text: str, original: str, name: str) -> str:
    """Return the name of a node's slice or pool for a clone of the node."""
    if original in text:
        return text.replace(original, name)
    return f"{text}{name.removeprefix(original)}"
