"""Overrides of the number of nodes.

A keyed hash of their names alone decides which nodes are removed or cloned, so that 0.8 of a
cluster is part of 0.9 of it, also with other overrides. A pod that ran on a removed node becomes
pending; a pod that belongs to its node (of a DaemonSet, or static) is removed with it.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from replay.hashing import KeyedRandom, name_suffix, object_uid
from replay.overrides.assignment import (
    NoEffectError,
    OverrideError,
    TraceInventory,
    existing_labels,
)
from reprieve.kube.v1beta1 import node_pb2, pod_pb2
from reprieve.trace.v1beta1 import trace_pb2
from services.kube.node import LABEL_HOSTNAME
from services.kube.selector import LabelSelector

_FACTOR = re.compile(r"\d+(\.\d+)?")
_DIFFERENCE = re.compile(r"[+-]\d+")
_EXACTLY = re.compile(r"=\d{1,7}")
_FACTOR_MAX = 100
_NODE_OWNERS = frozenset({"DaemonSet", "Node"})
_MIRROR = "kubernetes.io/config.mirror"
_SCALE_SEED = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePlan:
    """The removed nodes, and the names of the clones of other nodes."""

    removed: frozenset[str] = frozenset()
    clones: Mapping[str, Sequence[str]] = field(default_factory=dict)


def nodes_to_drop(selector: LabelSelector, text: str, inventory: TraceInventory) -> frozenset[str]:
    """Return the nodes that match a selector. Raises OverrideError for no node, or all nodes."""
    matched = {name for name, labels in inventory.nodes.items() if selector.matches(labels)}
    if not matched:
        labels_text = existing_labels(selector, inventory.nodes.values())
        raise NoEffectError(f"--drop-nodes {text} has no effect: the nodes have {labels_text}")
    if len(matched) == len(inventory.nodes):
        raise OverrideError(f"--drop-nodes {text} removes all {len(matched):,} nodes")
    return frozenset(matched)


def scale_plan(scale: str, names: Iterable[str]) -> NodePlan:
    """Return the plan for a factor ("0.8"), a difference ("+10", "-10") or a number ("=5").

    Raises OverrideError for any other text, for one without an effect, and where no node would be
    left.
    """
    draw = KeyedRandom(_SCALE_SEED)
    ranked = sorted(names, key=lambda name: (draw.share("node", name), name))
    target = _target_count(scale, len(ranked))
    if target == len(ranked):
        raise NoEffectError(
            f"--scale-nodes {scale} has no effect: there are already {target:,} nodes"
        )
    if target < 1:
        raise OverrideError(f"--scale-nodes {scale} removes all {len(ranked):,} nodes")
    if target < len(ranked):
        return NodePlan(removed=frozenset(ranked[target:]))
    clones: dict[str, list[str]] = {}
    for number in range(target - len(ranked)):
        ordinal, index = divmod(number, len(ranked))
        original = ranked[index]
        suffix = name_suffix(object_uid("Node", "", original), ordinal)
        clones.setdefault(original, []).append(f"{original}-{suffix}")
    return NodePlan(clones=clones)


def _target_count(scale: str, count: int) -> int:
    if _DIFFERENCE.fullmatch(scale):
        return count + int(scale)
    if _EXACTLY.fullmatch(scale):
        return int(scale[1:])
    if not _FACTOR.fullmatch(scale) or float(scale) > _FACTOR_MAX:
        raise OverrideError(f"--scale-nodes {scale}: write 0.8, 1.5, +10, -10 or =5")
    return round(float(scale) * count)


def change_nodes(records: Iterable[trace_pb2.Record], plan: NodePlan) -> Iterator[trace_pb2.Record]:
    """Yield the records with the plan applied, renumbered."""
    sequence = 0
    for record in records:
        for each in _with_plan(record, plan):
            sequence += 1
            each.sequence = sequence
            yield each


def _with_plan(record: trace_pb2.Record, plan: NodePlan) -> Iterator[trace_pb2.Record]:
    kept = copy.deepcopy(record)
    name = _node_of(kept)
    if name:
        if name in plan.removed:
            return
        yield kept
        for clone in plan.clones.get(name, ()):
            yield _cloned(record, clone)
        return
    pod = _pod_of(kept)
    if pod is not None and pod.spec.node_name in plan.removed:
        if _belongs_to_node(pod):
            return
        pod.spec.ClearField("node_name")
        pod.ClearField("status")
    yield kept


def _node_of(record: trace_pb2.Record) -> str:
    """Return the node of a record, "" for a record of another kind."""
    match record.WhichOneof("record"):
        case "create" | "update" as case:
            return str(getattr(record, case).node.metadata.name)
        case "delete" if record.delete.object.kind == "Node":
            return record.delete.object.name
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


def _belongs_to_node(pod: pod_pb2.Pod) -> bool:
    return _MIRROR in pod.metadata.annotations or any(
        owner.controller and owner.kind in _NODE_OWNERS for owner in pod.metadata.owner_references
    )


def _cloned(record: trace_pb2.Record, name: str) -> trace_pb2.Record:
    clone = copy.deepcopy(record)
    match clone.WhichOneof("record"):
        case "create" | "update" as case:
            _rename(getattr(clone, case).node, name)
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
