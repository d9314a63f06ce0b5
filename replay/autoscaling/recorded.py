"""Removes from a trace what an autoscaler in the loop decides anew: nodes of its groups, taints.

The nodes of the trace's first moment are those that the groups begin with. Later nodes of the
groups are left out, and deletions of their nodes, and what a recorded Cluster Autoscaler did to the
others: its taints, and the cordon with them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from replay.autoscaling.observed import OF_AUTOSCALER
from replay.world.controllers.autoscaling.node_groups import Autoscaling
from reprieve.kube.v1beta1 import node_pb2
from reprieve.trace.v1beta1 import trace_pb2
from services.kube.taints import UNSCHEDULABLE

LEFT_OUT = "autoscaler"
_CAME = (
    "recorded nodes of the node groups that came after the beginning are left out: --autoscaler "
    "decides in their place"
)
_DELETED = (
    "recorded deletions of nodes of the node groups are left out: --autoscaler decides in their "
    "place"
)
_TO_BE_DELETED = OF_AUTOSCALER[0]


def without_recorded_scaling(
    records: Iterable[trace_pb2.Record], autoscaling: Autoscaling
) -> Iterator[trace_pb2.Record]:
    """Yield the records of a trace for a run that scales its groups itself.

    In place of what is left out there are notes.
    """
    start_ns: int | None = None
    kept: dict[str, bool] = {}
    for record in records:
        start_ns = record.time_ns if start_ns is None else start_ns
        case = record.WhichOneof("record") or ""
        if case in ("create", "update") and getattr(record, case).HasField("node"):
            node: node_pb2.Node = getattr(record, case).node
            name = node.metadata.name
            is_of_group = autoscaling.group_of(node) is not None
            if not is_of_group:
                yield record
                continue
            if name not in kept:
                kept[name] = record.time_ns == start_ns
                if not kept[name]:
                    yield _left_out(record.time_ns, _CAME)
            if kept[name]:
                yield _without_marks(record, case)
        elif case == "delete" and kept.get(record.delete.object.name) is not None:
            if record.delete.object.kind != "Node":
                yield record
            elif kept[record.delete.object.name]:
                yield _left_out(record.time_ns, _DELETED)
        else:
            yield record


def _without_marks(record: trace_pb2.Record, case: str) -> trace_pb2.Record:
    node: node_pb2.Node = getattr(record, case).node
    keys = {taint.key for taint in node.spec.taints}
    if keys.isdisjoint(OF_AUTOSCALER):
        return record
    changed = trace_pb2.Record()
    changed.CopyFrom(record)
    spec = getattr(changed, case).node.spec
    dropped = set(OF_AUTOSCALER)
    if _TO_BE_DELETED in keys:
        spec.unschedulable = False
        dropped.add(UNSCHEDULABLE)
    taints = [taint for taint in spec.taints if taint.key not in dropped]
    del spec.taints[:]
    spec.taints.extend(taints)
    return changed


def _left_out(at_ns: int, message: str) -> trace_pb2.Record:
    note = trace_pb2.Record(time_ns=at_ns)
    note.issue.kind, note.issue.message = LEFT_OUT, message
    return note
