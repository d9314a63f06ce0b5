"""The check of every answer of an autoscaler: as a replay checks it, and what that may leave open.

A replay refuses a call that names what is not there, which may have gone meanwhile; here it fails
the check, and so does a report that names what was never sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from replay.conform.contract.checks import CheckError
from replay.world.response_checks import check_autoscaler
from reprieve.autoscaler.v1beta1 import autoscaler_pb2 as pb
from reprieve.autoscaler.v1beta1 import autoscaler_service_pb2 as service_pb

_WITHOUT_CALLS = {"start", "next_part"}
_WITHIN = {"outcome", "next_part"}
"""Steps that go on with another one."""


@dataclass(slots=True)
class _Sent:
    """Names that a session has received, and the step that was begun last."""

    groups: set[str] = field(default_factory=set)
    instances: dict[str, str] = field(default_factory=dict)
    nodes: set[str] = field(default_factory=set)
    pods: set[str] = field(default_factory=set)
    step: service_pb.Step = field(default_factory=service_pb.Step)

    def take(self, request: service_pb.ApplyRequest) -> None:
        """Take in a request."""
        for change in request.changes:
            if change.HasField("node_group"):
                group = change.node_group
                self.groups.add(group.name)
                self.instances |= {it.provider_id: group.name for it in group.instances}
            elif change.object.HasField("node"):
                self.nodes.add(change.object.node.metadata.name)
            elif change.object.HasField("pod"):
                meta = change.object.pod.metadata
                self.pods.add(f"{meta.namespace}/{meta.name}")
        if request.HasField("step") and request.step.WhichOneof("kind") not in _WITHIN:
            self.step = request.step


def check_answer(
    request: service_pb.ApplyRequest,
    answer: service_pb.ApplyResponse,
    sent: Sequence[service_pb.ApplyRequest],
) -> None:
    """Check an answer to the last one of the requests in `sent`.

    Raises CheckError or ContractError.
    """
    received = _Sent()
    for earlier in sent:
        received.take(earlier)
    case, result = request.step.WhichOneof("kind"), answer.WhichOneof("result")
    if case is not None:
        check_autoscaler(answer, received.step)
    if (result and case is None) or (result == "call" and case in _WITHOUT_CALLS):
        raise CheckError(f"the result of {case or 'changes alone'} is a {result}")
    if answer.more and result != "report" and case is not None:
        raise CheckError("more is set, but the answer has no report")
    if result == "call":
        _check_call(answer.call, received)
    _check_due(request, answer, case)
    for what, name in _unknown(answer.report, received):
        raise CheckError(f"{what} is {name!r}, which was never sent")


def _check_due(
    request: service_pb.ApplyRequest, answer: service_pb.ApplyResponse, case: str | None
) -> None:
    """Check that background work is due after a step, or at its time if a scan has begun it."""
    if case is None or not answer.HasField("next_due_time_ns"):
        return
    due_ns, now_ns = answer.next_due_time_ns, request.step.time_ns
    if answer.HasField("call"):
        raise CheckError("next_due_time_ns is set while a call waits")
    if due_ns < now_ns or (case == "background_work" and due_ns == now_ns):
        raise CheckError(f"next_due_time_ns is {due_ns}, not after the step's {now_ns}")


def _check_call(call: pb.Call, received: _Sent) -> None:
    """Check that a call is about a group, node or pod that was sent."""
    case = str(call.WhichOneof("request"))
    request, path = getattr(call, case), f"call.{case}"
    if case in {"increase_size", "decrease_target_size"} and request.delta < 1:
        raise CheckError(f"{path}.delta is {request.delta}, expected at least 1")
    if case == "evict_pod":
        _known(f"{path}.name", f"{request.namespace}/{request.name}", received.pods)
    elif case in {"mark_node", "unmark_node"}:
        _known(f"{path}.node_name", request.node_name, received.nodes)
    else:
        _known(f"{path}.group", request.group, received.groups)
    for index, name in enumerate(getattr(request, "provider_ids", ())):
        if received.instances.get(name) != request.group:
            problem = f"which is not an instance of {request.group}"
            raise CheckError(f"{path}.provider_ids[{index}] is {name!r}, {problem}")


def _known(path: str, name: str, names: Iterable[str]) -> None:
    if name not in names:
        raise CheckError(f"{path} is {name!r}, which was never sent")


def _unknown(report: pb.ScanReport, received: _Sent) -> Iterator[tuple[str, str]]:
    """Yield what a report names and was never sent: the field, and the name."""
    named = {
        "report.scale_up.groups": [it.group for it in report.scale_up.groups],
        "report.upcoming": list(report.upcoming),
        "report.backoff": list(report.backoff),
    }
    for what, names in named.items():
        yield from ((what, name) for name in names if name not in received.groups)
    of_nodes = {
        "report.deletions": [it.node_name for it in report.deletions],
        "report.unneeded": [it.node_name for it in report.unneeded],
        "report.unremovable": [it.node_name for it in report.unremovable],
    }
    for what, names in of_nodes.items():
        yield from ((what, name) for name in names if name not in received.nodes)
    of_pods = {
        "report.pods_to_help": list(report.pods_to_help),
        "report.scale_up.triggered": list(report.scale_up.triggered),
        "report.scale_up.remaining": [it.pod for it in report.scale_up.remaining],
    }
    for what, names in of_pods.items():
        yield from ((what, name) for name in names if name not in received.pods)
