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
        self.opened = self.stub.Open(pb.OpenRequest(config=config), timeout=DEADLINE_S)
        self.session, self.epoch, self.sequence = self.opened.session, self.opened.epoch, 0

    def read(self) -> session_pb2.Stamp:
        """Return the stamp of a read."""
        return session_pb2.Stamp(session=self.session, epoch=self.epoch)

    def stamp(self) -> session_pb2.Stamp:
        """Return the next operation's stamp."""
        self.sequence += 1
        return session_pb2.Stamp(session=self.session, epoch=self.epoch, sequence=self.sequence)

    def synchronize(self, step: pb.Step) -> pb.StepAnswer:
        """Take a step."""
        request = pb.SynchronizeRequest(stamp=self.stamp(), step=step)
        return self.stub.Synchronize(request, timeout=DEADLINE_S).answer

    def resume(self, resume: pb.ResumeStep) -> pb.StepAnswer:
        """Go on with a step."""
        request = pb.ResumeRequest(stamp=self.stamp(), resume=resume)
        return self.stub.Resume(request, timeout=DEADLINE_S).answer

    def admit(self, node_name: str, plain: Json) -> Json:
        """Ask for a scripted pod and return what the vectors record of the answer."""
        pod = pod_message(plain)
        request = pb.AdmitRequest(stamp=self.read(), node_name=node_name, pod=pod)
        said = self.stub.Admit(request, timeout=DEADLINE_S)
        return {
            "pod": pod.metadata.uid,
            "admit": said.admit,
            "reason": said.reason,
            "message": said.message,
        }

    def take(self, node: ScriptedNode, plain: Json) -> Json:
        """Play one step of a script."""
        answer = self.synchronize(node.step(plain))
        if answer.HasField("need_reclaim"):
            answer = self.resume(node.resume(plain, answer.need_reclaim))
        admitted = [self.admit(node.name, each) for each in plain.get("admit") or []]
        return {**node.seen(answer.result, plain), "admit": admitted}

    def close(self) -> None:
        """Forget the session."""
        request = pb.CloseSessionRequest(session=self.session)
        self.stub.CloseSession(request, timeout=DEADLINE_S)


def eviction_difference(channel: grpc.Channel, mode: str, script: Json) -> str:
    """Return how a service differs from a recorded script, "" where it does not."""
    refusal = str(script.get("config_error", ""))
    try:
        session = EvictionSession(channel, config_message(script["config"], mode))
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
