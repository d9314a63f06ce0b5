"""What one exchange costs: an empty request and its answer over a stream, wall time and CPU.

    python -m benchmarks.exchange [COUNT]

The queue service runs as a child process, as in any replay; the same exchange within one process
stands beside it. Machines are noisy: compare ratios within one run, not figures of two.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Iterator
from typing import Any

from replay.backends.processes import EmbeddedServices, prepare
from replay.backends.responses import checked
from replay.backends.stream import Exchange
from reprieve.queue.v1beta1 import queue_service_pb2 as rpc
from reprieve.queue.v1beta1.queue_service_pb2_grpc import QueueServiceStub
from reprieve.session.v1beta1 import session_pb2
from services.rpc.client import channel

BLOCKS = 5


def main() -> None:
    """Print the medians of a few blocks of each kind, taken in turn."""
    prepare()
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    with EmbeddedServices() as grpc, EmbeddedServices(in_process=True) as local:
        child = grpc.processes["queue"]
        taken: dict[str, list[tuple[float, float]]] = {"gRPC": [], "in process": []}
        for _ in range(BLOCKS):
            began = child.cpu_s()
            wall, cpu = exchanged(grpc.addresses["queue"], count)
            taken["gRPC"].append((wall, cpu + (child.cpu_s() - began) * 1e6 / count))
            taken["in process"].append(exchanged(local.addresses["queue"], count))
    print(f"{'exchange':<12}{'wall us':>9}{'CPU us':>9}")
    for name, figures in taken.items():
        wall, cpu = (statistics.median(column) for column in zip(*figures, strict=True))
        print(f"{name:<12}{wall:>9.0f}{cpu:>9.0f}")


def exchanged(address: str, count: int) -> tuple[float, float]:
    """Return wall time and this process's CPU time of an exchange, us."""
    opened = channel(address)
    stub: Any = QueueServiceStub(checked(opened, "queue"))
    session = stub.CreateSession(rpc.CreateSessionRequest())
    stamp = session_pb2.Stamp(session_id=session.session_id)
    stream: Exchange[rpc.ApplyRequest, rpc.ApplyResponse]
    stream = Exchange(stub.StreamingApply, "queue", address)
    for request in requests(stamp, 100):
        stream.exchange(request)
    wall, cpu = time.perf_counter(), time.process_time()
    for request in requests(stamp, count):
        stream.exchange(request)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    stream.close()
    opened.close()
    return wall * 1e6 / count, cpu * 1e6 / count


def requests(stamp: session_pb2.Stamp, count: int) -> Iterator[rpc.ApplyRequest]:
    """Yield numbered requests that ask for nothing."""
    for _ in range(count):
        stamp.sequence += 1
        yield rpc.ApplyRequest(stamp=stamp)


if __name__ == "__main__":
    main()
