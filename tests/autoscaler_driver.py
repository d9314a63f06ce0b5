"""Plays scripts of the autoscaler's scans with its core, without a service around it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, TypeVar

from replay.conform.autoscaler.cluster import BEGIN, GONE, Change, Json, name_of
from replay.conform.autoscaler.loop import Carry
from reprieve.kube.v1beta1 import node_pb2
from reprieve.kube.v1beta1.object_pb2 import KubernetesObject
from services.autoscaler.codec.objects import cluster_node, object_from_message
from services.autoscaler.core.autoscaler import Autoscaler, Gone
from services.autoscaler.core.calls import (
    Call,
    Calls,
    DecreaseTargetSize,
    DeleteNodes,
    Done,
    Evict,
    IncreaseSize,
    MarkNode,
    Outcome,
    Refused,
)
from services.autoscaler.core.expander.options import ExpanderContext, PodPrice
from services.autoscaler.core.groups import Instance, InstanceState, NodeGroup
from services.autoscaler.core.options import GroupOptions, Options, from_flags
from services.autoscaler.core.reports import ScaleUpReport, ScanReport
from services.kube.time import MILLISECOND_NS, SECOND_NS
from services.kube.workloads import WORKLOAD_KINDS
from services.rpc.kube import json_codec
from services.rpc.kube.spec import PodSpecInterner

GPU_LABEL = "example.com/gpu-type"
_T = TypeVar("_T")
_BEGIN_NS = int(BEGIN.timestamp()) * SECOND_NS
_FIELDS = {
    "Pod": "pod",
    "Node": "node",
    "PodDisruptionBudget": "pod_disruption_budget",
    **{kind: field for field, kind in WORKLOAD_KINDS.items()},
}


def time_ns(at_ms: int) -> int:
    """Return a script's time as one since the epoch."""
    return _BEGIN_NS + at_ms * MILLISECOND_NS


def time_ms(at_ns: int) -> int:
    """Return a time since the epoch as a script's."""
    return (at_ns - _BEGIN_NS) // MILLISECOND_NS


class CoreAutoscaler:
    """A ScriptedAutoscaler that is the core."""

    def __init__(self, config: Json) -> None:
        options = from_flags(config.get("flags") or {})
        options = replace(options, scan_interval_ns=config["scan_interval_ms"] * MILLISECOND_NS)
        price = config.get("pod_price") or {}
        context = ExpanderContext(
            gpu_label=GPU_LABEL,
            pod_price=PodPrice(core=price.get("core", 0.0), gib=price.get("gib", 0.0)),
            priorities=config.get("priority_expander"),
        )
        self.core = Autoscaler(options, lambda names: names[0], context)
        self._groups = {plain["name"]: plain for plain in config["groups"]}
        self._interner = PodSpecInterner()
        self._options = options

    def apply(self, changes: Iterable[Change]) -> None:
        """Decode the changes as a service would."""
        for change in changes:
            if change.kind == "NodeGroup" and change.plain is not None:
                self.core.apply(self._group(change.plain))
            elif change.plain is None:
                self.core.apply(Gone(kind=change.kind, key=change.key))
            else:
                body = {_FIELDS[change.kind]: change.plain}
                message = json_codec.parse(KubernetesObject, _camel(body))
                made = object_from_message(message, self._interner)
                assert made is not None, change.kind
                self.core.apply(made)

    def start(self) -> None:
        """Start at the script's time 0."""
        self.core.start(time_ns(0))

    def next_due_ms(self) -> int | None:
        """Return when the background work is due."""
        due_ns = self.core.next_due_ns()
        return None if due_ns is None else time_ms(due_ns)

    def act(self, at_ms: int, carry: Carry) -> None:
        """Do the background work."""
        self._carried_out(self.core.act(time_ns(at_ms)), carry)

    def scan(self, at_ms: int, carry: Carry) -> Json:
        """Scan, and return the report in the vectors' form."""
        return report_json(self._carried_out(self.core.scan(time_ns(at_ms)), carry))

    def _carried_out(self, step: Calls[_T], carry: Carry) -> _T:
        outcome: Outcome | None = None
        try:
            while True:
                call = next(step) if outcome is None else step.send(outcome)
                refusal = carry(call_json(call))
                outcome = Refused(message=refusal, gone=refusal == GONE) if refusal else Done()
        except StopIteration as end:
            result: _T = end.value
            return result

    def _group(self, state: Json) -> NodeGroup:
        plain = self._groups[state["name"]]
        template = json_codec.parse(node_pb2.Node, plain["template"])
        return NodeGroup(
            name=state["name"],
            min_size=state["min"],
            max_size=state["max"],
            target=state["target"],
            template=cluster_node(template),
            instances=tuple(
                Instance(
                    provider_id=instance["provider_id"],
                    state=InstanceState(instance["state"]),
                    error_class=instance["error_class"],
                    error_code=instance["error_code"],
                )
                for instance in state["instances"]
            ),
            price=plain.get("price"),
            options=group_options(plain.get("options") or {}, self._options),
        )


def group_options(plain: Json, options: Options) -> GroupOptions:
    """Return a group's options; in a vector durations end in -ms."""
    made: dict[str, Any] = {}
    for name, value in plain.items():
        if name.endswith("-time-ms"):
            made[name.removesuffix("-time-ms").replace("-", "_") + "_ns"] = value * MILLISECOND_NS
        else:
            made[name.replace("-", "_")] = value
    return replace(options.group_defaults, **made)


def call_json(call: Call) -> Json:
    """Return a call in the vectors' form."""
    match call:
        case IncreaseSize():
            return {"call": "increase_size", "group": call.group, "delta": call.delta}
        case DecreaseTargetSize():
            return {"call": "decrease_target_size", "group": call.group, "delta": -call.delta}
        case DeleteNodes():
            names = [name_of(provider_id) for provider_id in call.provider_ids]
            plain: Json = {"call": "delete_nodes", "group": call.group, "nodes": names}
            return {**plain, "force": True} if call.force else plain
        case Evict():
            key = f"{call.namespace}/{call.name}"
            return {"call": "evict", "pod": key, "grace_s": call.grace_s}
        case MarkNode():
            taint = {
                "key": call.taint.key,
                "value": call.taint.value,
                "effect": call.taint.effect.value,
            }
            return {"call": "mark_node", "node": call.node, "taint": taint, "cordon": call.cordon}
    return {
        "call": "unmark_node",
        "node": call.node,
        "taint_key": call.taint_key,
        "uncordon": call.uncordon,
    }


def report_json(report: ScanReport) -> Json:
    """Return a report in the vectors' form, without what the cluster shows."""
    plain: Json = {
        "error": report.error,
        "stopped": report.stopped.value if report.stopped is not None else "",
        "pods_to_help": sorted(report.pods_to_help),
        "scale_down": report.scale_down.value,
        "deleting": [
            {"node": started.node, "evict": sorted(started.evict or ())}
            for started in sorted(report.deleting, key=lambda started: started.node)
        ],
        "delete_results": {name: result.value for name, result in report.delete_results.items()},
        "unneeded": {name: time_ms(since) for name, since in report.unneeded.items()},
        "unremovable": {
            name: {
                "reason": why_not.reason.value,
                "pod": why_not.pod,
                "why": why_not.why.value if why_not.why is not None else "",
            }
            for name, why_not in report.unremovable.items()
        },
        "utilization": {
            name: {
                "cpu": _rounded(measured.cpu),
                "memory": _rounded(measured.memory),
                **({"gpu": _rounded(measured.gpu)} if measured.gpu else {}),
                "resource": measured.resource,
                "utilization": _rounded(measured.share),
            }
            for name, measured in report.utilizations.items()
        },
        "upcoming": dict(report.upcoming),
        "backoff": dict(report.backoff),
        "unhealthy_groups": list(report.unhealthy_groups),
    }
    if report.scale_up is not None:
        plain["scale_up"] = _scale_up_json(report.scale_up)
    if report.min_size_scale_up is not None:
        plain["min_size_scale_up"] = _scale_up_json(report.min_size_scale_up)
    return plain


def _scale_up_json(report: ScaleUpReport) -> Json:
    return {
        "result": report.result.value,
        "groups": [
            {"group": increase.group, "from": increase.from_size, "to": increase.to_size}
            for increase in sorted(report.groups, key=lambda increase: increase.group)
        ],
        "triggered": sorted(report.triggered),
        "awaiting": sorted(report.awaiting),
        "remain": [
            {
                "pod": pod.pod,
                "rejected": list(pod.rejected),
                "skipped": {name: list(reasons) for name, reasons in pod.skipped.items()},
            }
            for pod in sorted(report.remain, key=lambda pod: pod.pod)
        ],
        "failed_groups": sorted(report.failed_groups),
    }


def _camel(body: Json) -> Json:
    """Return an object's field under its JSON name."""
    return {
        "".join(part.title() if number else part for number, part in enumerate(name.split("_"))): v
        for name, v in body.items()
    }


def _rounded(share: float) -> float:
    """Round to six places, halves up."""
    return math.floor(share * 1e6 + 0.5) / 1e6
