"""Plays the autoscaler's scripts against a running AutoscalerService.

A script's objects become messages, calls are carried out in the scripted cluster, and the reports
are brought into the vectors' form: lists that have no order of their own are sorted, shares are
rounded.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import grpc
from google.protobuf.message import Message

from replay.conform.autoscaler.cluster import BEGIN, GONE, Json, ScriptedChange, name_of
from replay.conform.autoscaler.loop import Carry, difference
from reprieve.autoscaler.v1beta1 import autoscaler_pb2 as pb
from reprieve.autoscaler.v1beta1 import autoscaler_service_pb2 as service_pb
from reprieve.autoscaler.v1beta1.autoscaler_service_pb2_grpc import AutoscalerServiceStub
from reprieve.kube.v1beta1 import node_pb2
from reprieve.kube.v1beta1.object_pb2 import KubernetesObject
from reprieve.session.v1beta1 import session_pb2
from services.kube.time import MILLISECOND_NS, SECOND_NS, format_duration
from services.kube.workloads import WORKLOAD_KINDS
from services.rpc.kube import json_codec

DEADLINE_S = 20
GPU_LABEL = "example.com/gpu-type"
_BEGIN_NS = int(BEGIN.timestamp()) * SECOND_NS
_FIELDS = {
    "Pod": "pod",
    "Node": "node",
    "PodDisruptionBudget": "pod_disruption_budget",
    **{kind: field for field, kind in WORKLOAD_KINDS.items()},
}
_STATES = {"Running": pb.INSTANCE_STATE_RUNNING, "Creating": pb.INSTANCE_STATE_CREATING}
_DURATION = "-ms"


class SessionAutoscaler:
    """A ScriptedAutoscaler that is a session of a service."""

    def __init__(self, channel: grpc.Channel, config: Json) -> None:
        self._stub = AutoscalerServiceStub(channel)
        self._groups = {plain["name"]: plain for plain in config["groups"]}
        self._changes: list[service_pb.Change] = []
        self._answer = service_pb.ApplyResponse()
        request = service_pb.CreateSessionRequest(config=config_message(config))
        self._enter(self._stub.CreateSession(request, timeout=DEADLINE_S))

    def apply(self, changes: Iterable[ScriptedChange]) -> None:
        """Keep changes for the next request."""
        self._changes.extend(map(self._change, changes))

    def start(self) -> None:
        """Start at the script's time 0."""
        self._take(service_pb.Step(time_ns=_BEGIN_NS, start=service_pb.Start()))

    def next_due_ms(self) -> int | None:
        """Return when the background work is due."""
        answer = self._answer
        if not answer.HasField("next_due_time_ns"):
            return None
        return (answer.next_due_time_ns - _BEGIN_NS) // MILLISECOND_NS

    def act(self, at_ms: int, carry: Carry) -> None:
        """Do the background work."""
        step = service_pb.Step(time_ns=time_ns(at_ms), background_work=service_pb.BackgroundWork())
        self._carry_out(step, carry)

    def scan(self, at_ms: int, carry: Carry) -> Json:
        """Scan, and return the report."""
        step = service_pb.Step(time_ns=time_ns(at_ms), scan=service_pb.Scan())
        self._carry_out(step, carry)
        report = self._answer.report
        while self._answer.more:
            self._take(service_pb.Step(time_ns=step.time_ns, next_part=service_pb.NextPart()))
            report.MergeFrom(self._answer.report)
        return report_json(report)

    def move(self) -> None:
        """Go on in another session, which is restored from a checkpoint of this one."""
        stamp = session_pb2.Stamp(session_id=self._session)
        request = session_pb2.CheckpointSessionRequest(stamp=stamp)
        chunks = list(self._stub.CheckpointSession(request, timeout=DEADLINE_S))
        self.close()
        self._enter(self._stub.RestoreSession(iter(chunks), timeout=DEADLINE_S))

    def close(self) -> None:
        """Delete the session."""
        request = session_pb2.DeleteSessionRequest(session_id=self._session)
        self._stub.DeleteSession(request, timeout=DEADLINE_S)

    def _enter(self, opened: service_pb.Session) -> None:
        self._session, self._sequence = opened.session_id, 0

    def _carry_out(self, step: service_pb.Step, carry: Carry) -> None:
        self._take(step)
        while self._answer.HasField("call"):
            refusal = carry(call_json(self._answer.call))
            outcome = service_pb.Outcome(
                refused=bool(refusal), message=refusal, gone=refusal == GONE
            )
            self._take(service_pb.Step(time_ns=step.time_ns, outcome=outcome))

    def _take(self, step: service_pb.Step) -> None:
        self._sequence += 1
        stamp = session_pb2.Stamp(session_id=self._session, sequence=self._sequence)
        request = service_pb.ApplyRequest(stamp=stamp, changes=self._changes, step=step)
        self._changes = []
        self._answer = self._stub.Apply(request, timeout=DEADLINE_S)
        if self._answer.sequence != self._sequence:
            raise ValueError(f"the answer is to {self._answer.sequence}, not to {self._sequence}")

    def _change(self, change: ScriptedChange) -> service_pb.Change:
        if change.kind == "NodeGroup":
            assert change.plain is not None, "a script removes no group"  # noqa: S101 - an invariant
            return service_pb.Change(node_group=self._group(change.plain))
        if change.plain is None:
            namespace, _, name = change.key.rpartition("/")
            removed = service_pb.RemovedObject(
                object_kind=change.kind, namespace=namespace, name=name
            )
            return service_pb.Change(removed_object=removed)
        made = KubernetesObject()
        part: Message = getattr(made, _FIELDS[change.kind])
        part.CopyFrom(json_codec.parse(type(part), change.plain))
        return service_pb.Change(object=made)

    def _group(self, state: Json) -> pb.NodeGroup:
        plain = self._groups[state["name"]]
        return pb.NodeGroup(
            name=state["name"],
            min_size=state["min"],
            max_size=state["max"],
            target_size=state["target"],
            template=json_codec.parse(node_pb2.Node, plain["template"]),
            instances=[
                pb.Instance(
                    provider_id=instance["provider_id"],
                    state=_STATES[instance["state"]],
                    error_class=instance["error_class"],
                    error_code=instance["error_code"],
                )
                for instance in state["instances"]
            ],
            price=plain.get("price"),
            options=dict(map(_option, (plain.get("options") or {}).items())),
        )


def autoscaler_difference(channel: grpc.Channel, _version: str, script: Json) -> str:
    """Return a service's first difference from a script's recorded scans, "" if none.

    Where upstream leaves an order to chance, the service may have another one than by name.
    """
    autoscaler = SessionAutoscaler(channel, script["config"])
    try:
        return difference(script, autoscaler, by_name=False)
    finally:
        autoscaler.close()


def config_message(config: Json) -> pb.AutoscalerConfig:
    """Return a script's configuration."""
    flags = config.get("flags") or {}
    interval_ns = config["scan_interval_ms"] * MILLISECOND_NS
    return pb.AutoscalerConfig(
        flags={"scan-interval": format_duration(interval_ns), **flags},
        gpu_label=GPU_LABEL,
        pod_price=pb.PodPrice(**config.get("pod_price") or {}),
        priorities=config.get("priority_expander"),
    )


def call_json(call: pb.Call) -> Json:
    """Return a call in the vectors' form."""
    case = call.WhichOneof("request")
    match case:
        case "increase_size":
            increase = call.increase_size
            return {"call": case, "group": increase.group, "delta": increase.delta}
        case "decrease_target_size":
            decrease = call.decrease_target_size
            return {"call": case, "group": decrease.group, "delta": -decrease.delta}
        case "delete_nodes":
            deletion = call.delete_nodes
            names = list(map(name_of, deletion.provider_ids))
            plain: Json = {"call": case, "group": deletion.group, "nodes": names}
            return {**plain, "force": True} if deletion.force else plain
        case "evict_pod":
            pod = call.evict_pod
            grace_s = pod.grace_period_duration_ns // SECOND_NS
            return {"call": "evict", "pod": f"{pod.namespace}/{pod.name}", "grace_s": grace_s}
        case "mark_node":
            mark = call.mark_node
            taint = {"key": mark.taint.key, "value": mark.taint.value, "effect": mark.taint.effect}
            return {"call": case, "node": mark.node_name, "taint": taint, "cordon": mark.cordon}
        case "unmark_node":
            unmark = call.unmark_node
            plain = {"call": case, "node": unmark.node_name, "taint_key": unmark.taint_key}
            return {**plain, "uncordon": unmark.uncordon}
        case _:
            raise ValueError("a call asks for nothing")


def report_json(report: pb.ScanReport) -> Json:
    """Return a report in the vectors' form, without what the cluster shows."""
    plain: Json = {
        "error": report.error,
        "stopped": report.stopped,
        "pods_to_help": sorted(report.pods_to_help),
        "scale_down": report.scale_down,
        "deleting": [
            {"node": deletion.node_name, "evict": sorted(deletion.evicted_pods)}
            for deletion in sorted(report.deletions, key=lambda deletion: deletion.node_name)
        ],
        "delete_results": dict(report.delete_results),
        "unneeded": {
            node.node_name: (node.since_time_ns - _BEGIN_NS) // MILLISECOND_NS
            for node in report.unneeded
        },
        "unremovable": {
            node.node_name: {
                "reason": node.reason,
                "pod": node.blocking_pod,
                "why": node.blocking_reason,
            }
            for node in report.unremovable
        },
        "utilization": {
            node.node_name: {
                "cpu": _rounded(node.cpu_ratio),
                "memory": _rounded(node.memory_ratio),
                **({"gpu": _rounded(node.gpu_ratio)} if node.gpu_ratio else {}),
                "resource": node.resource,
                "utilization": _rounded(node.ratio),
            }
            for node in report.utilizations
        },
        "upcoming": dict(report.upcoming),
        "backoff": dict(report.backoff),
        "unhealthy_groups": list(report.unhealthy_groups),
    }
    for name in ("scale_up", "min_size_scale_up"):
        if report.HasField(name):
            plain[name] = _scale_up_json(getattr(report, name))
    return plain


def _scale_up_json(report: pb.ScaleUpReport) -> Json:
    return {
        "result": report.result,
        "groups": [
            {"group": increase.group, "from": increase.from_size, "to": increase.to_size}
            for increase in sorted(report.groups, key=lambda increase: increase.group)
        ],
        "triggered": sorted(report.triggered),
        "awaiting": sorted(report.awaiting),
        "remain": [
            {
                "pod": pod.pod,
                "rejected": list(pod.rejected_groups),
                "skipped": {group.group: list(group.reasons) for group in pod.skipped_groups},
            }
            for pod in sorted(report.remaining, key=lambda pod: pod.pod)
        ],
        "failed_groups": sorted(report.failed_groups),
    }


def time_ns(at_ms: int) -> int:
    """Return a script's time, ns since the Unix epoch."""
    return _BEGIN_NS + at_ms * MILLISECOND_NS


def _option(item: tuple[str, Any]) -> tuple[str, str]:
    """Return a group's option as a flag's text; in a vector durations are in milliseconds."""
    name, value = item
    if name.endswith(_DURATION):
        return name.removesuffix(_DURATION), f"{value}ms"
    return name, str(value).lower()


def _rounded(share: float) -> float:
    """Round to six places, halves up."""
    return math.floor(share * 1e6 + 0.5) / 1e6
