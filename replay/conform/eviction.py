"""Scripts of the kubelet's eviction manager through a running EvictionService."""

from __future__ import annotations

from functools import partial

import grpc

from replay.conform.eviction_scripts import (
    ScriptedNode,
    config_message,
    pod_message,
    script_differences,
)
from replay.conform.vectors import Json
from reprieve.eviction.v1beta1 import eviction_pb2 as ev
from reprieve.eviction.v1beta1 import eviction_service_pb2 as pb
from reprieve.eviction.v1beta1.eviction_service_pb2_grpc import EvictionServiceStub
from reprieve.session.v1beta1 import session_pb2

DEADLINE_S = 20
RANKED_MAX = 10
"""How much of a ranking an answer shows."""


class EvictionSession:
    """One session of unary calls, its stamps counted."""

    def __init__(self, channel: grpc.Channel, config: ev.EvictionConfig | None = None) -> None:
        self.stub = EvictionServiceStub(channel)
        request = pb.CreateSessionRequest(config=config)
        self.opened = self.stub.CreateSession(request, timeout=DEADLINE_S)
        self.session, self.sequence = self.opened.session, 0

    def read(self) -> session_pb2.Stamp:
        """Return the stamp of a read."""
        return session_pb2.Stamp(session=self.session)

    def stamp(self) -> session_pb2.Stamp:
        """Return the next request's stamp."""
        self.sequence += 1
        return session_pb2.Stamp(session=self.session, sequence=self.sequence)

    def apply(self, operation: pb.Operation) -> pb.OperationResult:
        """Do an operation that has a result, as a batch of its own."""
        request = pb.ApplyRequest(stamp=self.stamp(), operations=[operation])
        answer = self.stub.Apply(request, timeout=DEADLINE_S)
        if answer.sequence != self.sequence:
            raise ValueError(f"an answer to {answer.sequence}, not to {self.sequence}")
        if answer.applied != 1 or len(answer.results) != 1:
            raise ValueError(f"{len(answer.results)} results, {answer.applied} applied, of one")
        result: pb.OperationResult = answer.results[0]
        return result

    def admit(self, node_name: str, plain: Json) -> Json:
        """Ask for a scripted pod and return what the vectors record of the answer."""
        pod = pod_message(plain)
        admit = pb.Admit(node_name=node_name, pod=pod)
        said = self.apply(pb.Operation(admit=admit)).admission
        return {
            "pod": pod.metadata.uid,
            "admit": said.admit,
            "reason": said.reason,
            "message": said.message,
        }

    def take(self, node: ScriptedNode, plain: Json) -> Json:
        """Play one step of a script."""
        result = self.apply(pb.Operation(step=node.step(plain)))
        if result.HasField("need_reclaim"):
            resume = node.resume(plain, result.need_reclaim)
            result = self.apply(pb.Operation(resume=resume))
        admitted = [self.admit(node.name, each) for each in plain.get("admit") or []]
        return {**node.seen(result.step, plain), "admit": admitted}

    def close(self) -> None:
        """Forget the session."""
        request = session_pb2.DeleteSessionRequest(session=self.session)
        self.stub.DeleteSession(request, timeout=DEADLINE_S)


def eviction_difference(channel: grpc.Channel, rules: str, script: Json) -> str:
    """Return how a service differs from a recorded script, "" where it does not."""
    refusal = str(script.get("config_error", ""))
    try:
        session = EvictionSession(channel, config_message(script["config"], rules))
    except grpc.RpcError as error:
        said = str(error.details()) if isinstance(error, grpc.Call) else str(error)
        return "" if refusal and said.endswith(refusal) else f"the configuration is refused: {said}"
    try:
        if refusal:
            return f"the configuration is accepted, expected: {refusal}"
        seen = sorted(each.text for each in session.opened.thresholds)
        if seen != sorted(script["thresholds"]):
            return f"thresholds {seen}, expected {sorted(script['thresholds'])}"
        take = partial(session.take, ScriptedNode("node"))
        return next(script_differences(script, take, ranked_max=RANKED_MAX), "")
    finally:
        session.close()
