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

from replay.conform.eviction import DEADLINE_S, EvictionSession
from reprieve.eviction.v1beta1 import eviction_pb2 as ev
from reprieve.eviction.v1beta1 import eviction_service_pb2 as pb
from reprieve.session.v1beta1 import session_pb2

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
        self._requests: SimpleQueue[pb.StreamRequest | None] = SimpleQueue()
        self._stream: Iterator[pb.StreamResponse] | None = None

    def configure(self, node_name: str, config: ev.EvictionConfig) -> pb.ConfigureResponse:
        """Give a node its thresholds."""
        request = pb.ConfigureRequest(stamp=self.stamp(), node_name=node_name, config=config)
        return self.stub.Configure(request, timeout=DEADLINE_S)

    def dump(self) -> list[ev.NodeState]:
        """Return the whole state."""
        return list(self.stub.Dump(pb.DumpRequest(stamp=self.read()), timeout=DEADLINE_S).nodes)

    def checkpoint(self) -> list[session_pb2.CheckpointChunk]:
        """Return the session's chunks."""
        request = pb.CheckpointRequest(stamp=self.read())
        return [each.chunk for each in self.stub.Checkpoint(request, timeout=DEADLINE_S)]

    def restore(self, chunks: list[session_pb2.CheckpointChunk]) -> None:
        """Put the session back to where the chunks were taken."""
        requests = iter([pb.RestoreRequest(chunk=each) for each in chunks])
        self.epoch = self.stub.Restore(requests, timeout=DEADLINE_S).epoch
        self.sequence = chunks[0].info.sequence

    def batch(self, operations: list[pb.NodeOperation]) -> list[pb.StepAnswer]:
        """Do the operations as the next batch of a stream that stays open."""
        if self._stream is None:
            self._requests = SimpleQueue()
            self._stream = self.stub.Stream(iter(self._requests.get, None), timeout=DEADLINE_S)
        self._requests.put(pb.StreamRequest(stamp=self.stamp(), operations=operations))
        try:
            response = next(self._stream)
        except grpc.RpcError:
            self._stream = None
            raise
        assert response.sequence == self.sequence
        assert [each.name for each in response.phases] == ["decode", "synchronize", "encode"]
        return list(response.answers)
