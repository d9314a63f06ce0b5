"""The eviction service as a process, and sessions of it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue

import grpc

from replay.conform.vectors.eviction import DEADLINE_S, EvictionSession
from reprieve.eviction.v1beta1 import eviction_pb2 as ev
from reprieve.eviction.v1beta1 import eviction_service_pb2 as pb
from reprieve.session.v1beta1 import session_pb2
from services.rpc.parts import merged

ROOT = Path(__file__).resolve().parents[2]


@contextmanager
def running_eviction() -> Iterator[tuple[subprocess.Popen[bytes], grpc.Channel]]:
    """Start the service on a free port, and end it if the test has not."""
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "services.eviction", "--listen", "127.0.0.1:0", "--child"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'gen'}"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline().decode()
        assert line.startswith("reprieve eviction listening on "), line
        with process, grpc.insecure_channel(line.split()[-1]) as channel:
            yield process, channel
            process.terminate()
    finally:
        process.kill()


class Client(EvictionSession):
    """A session with all that the tests ask of it."""

    def __init__(self, channel: grpc.Channel, config: ev.EvictionConfig | None = None) -> None:
        super().__init__(channel, config)
        self._requests: SimpleQueue[pb.ApplyRequest | None] = SimpleQueue()
        self._stream: Iterator[pb.ApplyResponse] | None = None

    def step(self, step: pb.Step) -> pb.OperationResult:
        """Take a step."""
        return self.apply(pb.Operation(step=step))

    def configure(self, node_name: str, config: ev.EvictionConfig) -> pb.Configured:
        """Give a node its thresholds."""
        configure = pb.Configure(node_name=node_name, config=config)
        return self.apply(pb.Operation(configure=configure)).configured

    def state(self) -> list[ev.NodeState]:
        """Return the whole state."""
        request = session_pb2.GetStateRequest(stamp=self.read())
        parts = self.stub.GetState(request, timeout=DEADLINE_S)
        return list(merged(parts, pb.GetStateResponse()).nodes)

    def checkpoint(self) -> list[session_pb2.CheckpointChunk]:
        """Return the session's chunks."""
        request = session_pb2.CheckpointSessionRequest(stamp=self.read())
        return list(self.stub.CheckpointSession(request, timeout=DEADLINE_S))

    def restore(self, chunks: list[session_pb2.CheckpointChunk]) -> None:
        """Go on in a session that the chunks make; the one before stays where it is."""
        self.opened = self.stub.RestoreSession(iter(chunks), timeout=DEADLINE_S)
        self.session, self.sequence = self.opened.session_id, 0

    def batch(self, operations: list[pb.Operation]) -> list[pb.OperationResult]:
        """Do the operations as the next batches of a stream that stays open."""
        results: list[pb.OperationResult] = []
        while operations:
            answer = self._streamed(operations)
            results += answer.results
            operations = operations[answer.applied :]
        return results

    def _streamed(self, operations: list[pb.Operation]) -> pb.ApplyResponse:
        if self._stream is None:
            self._requests = SimpleQueue()
            requests = iter(self._requests.get, None)
            self._stream = self.stub.StreamingApply(requests, timeout=DEADLINE_S)
        self._requests.put(pb.ApplyRequest(stamp=self.stamp(), operations=operations))
        try:
            answer = next(self._stream)
        except grpc.RpcError:
            self._stream = None
            raise
        assert answer.sequence == self.sequence
        assert [phase.name for phase in answer.phases] == ["decode", "synchronize", "encode"]
        assert 0 < answer.applied <= len(operations)
        return answer
