"""The contract of a scheduler, and what its sessions are checked with.

The checks are in modules by the rules of docs/write-a-scheduler.md: of several suitable nodes, or
sets of victims, a scheduler may take any.
"""

from __future__ import annotations

from replay.conform.contract.checks import Checks, ConformanceLevel, ServiceContract
from replay.conform.contract.scheduler import fit, pods, preemption, reads, reasons, rounds
from replay.conform.contract.scheduler.small_cluster import (
    BIND,
    check_answer,
    gone,
    node,
    pod,
    round_at,
    updated,
)
from replay.conform.contract.sessions import session_checks
from reprieve.scheduler.v1beta1 import scheduler_pb2, scheduler_service_pb2_grpc
from reprieve.scheduler.v1beta1 import scheduler_service_pb2 as pb
from reprieve.scheduler.v1beta1.scheduler_pb2 import Event

CHECKS = Checks(
    check
    for checks in (
        session_checks(stream_level=5),
        *(part.CHECKS for part in (pods, fit, rounds, reasons, preemption, reads)),
    )
    for check in checks
)


def _story() -> list[pb.RunRoundRequest]:
    rounds = [
        round_at(1, node("n", 2), pod("a", 2), pod("b", 2)),
        round_at(2, node("m", 4), pod("c", 3)),
        round_at(40, gone("a"), pod("d", 1, 9)),
        round_at(600, updated(node("n", 8))),
    ]
    return [pb.RunRoundRequest(round=round_) for round_ in rounds]


def _malformed() -> dict[str, pb.RunRoundRequest]:
    nameless = pod("x", 1)
    nameless.add.pod.metadata.uid = ""
    answer = scheduler_pb2.Answer(refused=BIND)
    return {
        "round": pb.RunRoundRequest(),
        "round.events[1]": pb.RunRoundRequest(round=round_at(0, node("x", 64), Event())),
        "round.events[2]": pb.RunRoundRequest(
            round=round_at(0, node("x", 64), pod("y", 1), nameless)
        ),
        "round.answers[0].pop": pb.RunRoundRequest(
            round=round_at(0, node("x", 64), answers=[answer])
        ),
    }


LEVELS = (
    ConformanceLevel("places pods", "`replay`, `get`, `query`, `report` and `export`"),
    ConformanceLevel("gives reasons", "`replay` and what reads its runs, with reasons in them"),
    ConformanceLevel("preempts", "`replay` and what reads its runs, with preemption"),
    ConformanceLevel(
        "checkpoints and reads", "`replay`, `explain`, `compare` and `replay --compare-recorded`"
    ),
    ConformanceLevel("windows and the stream", "every command, with the fewest messages"),
)
SCHEDULER = ServiceContract(
    service="scheduler",
    stub=scheduler_service_pb2_grpc.SchedulerServiceStub,
    create=pb.CreateSessionRequest,
    method="RunRound",
    state=pb.GetStateResponse,
    look=check_answer,
    story=_story,
    backwards=lambda: _story()[1::-1],
    malformed=_malformed,
    levels=LEVELS,
    checks=CHECKS,
)
