"""The contract of an autoscaler, and what its sessions are checked with.

The checks are in modules by the rules of docs/write-an-autoscaler.md. Up to level 4 a pod has one
group that suits it, or any of several will do; level 5 has Cluster Autoscaler's own choices.
"""

from __future__ import annotations

from replay.conform.contract.autoscaler import (
    choices,
    failures,
    reads,
    reasons,
    scale_down,
    scale_up,
)
from replay.conform.contract.autoscaler.responses import check_answer
from replay.conform.contract.autoscaler.small_cloud import (
    CREATING,
    change,
    create,
    group,
    node,
    outcome,
    pod,
    removed,
    replica_set,
    scan,
    start,
    work,
)
from replay.conform.contract.checks import Checks, ConformanceLevel, ServiceContract
from replay.conform.contract.sessions import session_checks
from reprieve.autoscaler.v1beta1 import autoscaler_service_pb2 as pb
from reprieve.autoscaler.v1beta1 import autoscaler_service_pb2_grpc

CHECKS = Checks(
    check
    for checks in (
        session_checks(stream_level=5),
        *(part.CHECKS for part in (scale_up, reasons, failures, scale_down, reads, choices)),
    )
    for check in checks
)


def _request(step: pb.Step, *things: object) -> pb.ApplyRequest:
    return pb.ApplyRequest(changes=map(change, things), step=step)


def _story() -> list[pb.ApplyRequest]:
    """Return a scan without, and one with a call, whose node comes and takes the pod."""
    cluster = (replica_set(), group(running=1), node("g-0"), pod("a", 3, "g-0"))
    grown, full = group(running=1), group(running=2)
    grown.target_size = 2
    grown.instances.add(provider_id="g-1", state=CREATING)
    return [
        _request(start(10), *cluster),
        _request(scan(20)),
        _request(scan(30), pod("b", 3)),
        _request(outcome(30), grown),
        _request(work(130)),
        _request(scan(140), full, node("g-1"), pod("b", 3, "g-1")),
    ]


def _backwards() -> list[pb.ApplyRequest]:
    return [*_story()[:2], _request(scan(15))]


def _malformed() -> dict[str, pb.ApplyRequest]:
    nameless, unnamed = group(), removed("Pod", "a")
    nameless.name = ""
    unnamed.removed_object.name = ""
    changes = {
        "changes[1]": pb.Change(),
        "changes[1].node_group.name": change(nameless),
        "changes[1].node_group.instances[0].state": change(_without_state()),
        "changes[1].removed_node_group": pb.Change(removed_node_group=""),
        "changes[1].removed_object.name": unnamed,
    }
    requests = {
        field: pb.ApplyRequest(changes=[change(group("x")), bad], step=start(10))
        for field, bad in changes.items()
    }
    return {**requests, "step": pb.ApplyRequest(changes=[change(group("x"))], step=pb.Step())}


def _without_state() -> object:
    made = group(running=1)
    made.instances[0].ClearField("state")
    return made


LEVELS = (
    ConformanceLevel("scales up", "`replay --autoscaler`, while no node is to go"),
    ConformanceLevel(
        "gives reasons", "`replay --autoscaler`, while no node is to go, with reasons"
    ),
    ConformanceLevel("scales down", "`replay --autoscaler`"),
    ConformanceLevel("checkpoints and reads", "`replay --autoscaler`, and runs that are resumed"),
    ConformanceLevel("choices, flags and long reports", "every command, of clusters of any size"),
)
AUTOSCALER = ServiceContract(
    service="autoscaler",
    stub=autoscaler_service_pb2_grpc.AutoscalerServiceStub,
    create=create,
    method="Apply",
    state=pb.GetStateResponse,
    look=check_answer,
    story=_story,
    backwards=_backwards,
    is_between=lambda answer: not (answer.HasField("call") or answer.more),
    malformed=_malformed,
    levels=LEVELS,
    checks=CHECKS,
)
