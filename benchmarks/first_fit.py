"""A first-fit scheduler as a service in a process of its own, for what a replay with one costs.

    python -m benchmarks.first_fit [--windows]

Each pod goes to the first node that has room for its requests; one that fits nowhere waits and is
tried again in each round. Nothing else of the contract is here that a replay does not need, so that
the replay's own CPU is nearly all that a row with it shows. The address is written to standard
output; once standard input ends, so are the CPU time and the peak memory of the rounds, as JSON.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

import grpc
import numpy as np
from google.protobuf import empty_pb2

from reprieve.kube.v1beta1 import node_pb2, pod_pb2
from reprieve.scheduler.v1beta1 import scheduler_pb2, scheduler_service_pb2_grpc
from reprieve.scheduler.v1beta1 import scheduler_service_pb2 as rpc
from reprieve.session.v1beta1 import session_pb2
from services.kube.pod import TERMINAL_PHASES
from services.kube.quantity import milli, value

Amounts = tuple[int, ...]


class FirstFit:
    """One session: nodes as rows of `free: int64[nodes, (cpu, memory, pods)]`, and pods by UID."""

    def __init__(self) -> None:
        self._nodes: dict[str, int] = {}
        self._names: list[str] = []
        self._free = np.zeros((0, 3), dtype=np.int64)
        self._requests: dict[str, Amounts] = {}
        self._rows: dict[str, int] = {}
        self._pending: dict[str, int] = {}
        self._cycle = 0

    def run(self, request: rpc.RunRoundRequest) -> list[scheduler_pb2.RoundOutcomes]:
        """Return the outcomes of a round and of those of its window that follow it."""
        ran = [self._round(request.round)]
        for foreseen in request.window:
            bound = [outcome.pop.uid for outcome in ran[-1].outcomes if outcome.HasField("bind")]
            confirmed = [event.patch.pod.uid for event in foreseen.confirmations]
            if self._pending or bound != confirmed[: len(bound)]:
                break
            ran[-1].window_continues = True
            self._take(foreseen.confirmations)
            ran.append(self._round(foreseen.round))
        return ran

    def _round(self, round_: scheduler_pb2.Round) -> scheduler_pb2.RoundOutcomes:
        self._take(round_.events)
        outcomes = scheduler_pb2.RoundOutcomes()
        if not round_.events_only:
            order = sorted(self._pending, key=lambda uid: -self._pending[uid])
            most = round_.max_pods or len(order)
            for uid in order[:most]:
                self._attempt(uid, outcomes.outcomes.add(time_ns=round_.time_ns, attempts=1))
            outcomes.more = len(order) > most
        waits = scheduler_pb2.MAY_WAIT_STATUS if self._pending else scheduler_pb2.MAY_WAIT_ALL
        outcomes.may_wait = waits
        return outcomes

    def _attempt(self, uid: str, outcome: scheduler_pb2.Outcome) -> None:
        self._cycle += 1
        outcome.pop.uid, outcome.pop.cycle = uid, self._cycle
        feasible = np.flatnonzero(np.all(self._free >= self._requests[uid], axis=1))
        if not len(feasible):
            outcome.unschedulable.message = f"0/{len(self._names)} nodes are available."
            return
        row = int(feasible[0])
        outcome.bind.node_name = self._names[row]
        outcome.bind.evaluated_nodes, outcome.bind.feasible_nodes = row + 1, 1
        del self._pending[uid]
        self._place(uid, row)

    def _take(self, events: Sequence[scheduler_pb2.Event]) -> None:
        for event in events:
            match event.WhichOneof("event"):
                case "add" if event.add.HasField("node"):
                    self._add_node(event.add.node)
                case "add" if event.add.HasField("pod"):
                    self._add_pod(event.add.pod)
                case "patch":
                    patch = event.patch
                    if patch.status.phase in TERMINAL_PHASES:
                        self._leave(patch.pod.uid)
                case "remove":
                    self._leave(event.remove.uid)
                    self._requests.pop(event.remove.uid, None)

    def _add_node(self, node: node_pb2.Node) -> None:
        allocatable = node.status.allocatable or node.status.capacity
        amounts = (*_of(allocatable), value(allocatable["pods"]))
        self._nodes[node.metadata.name] = len(self._names)
        self._names.append(node.metadata.name)
        self._free = np.vstack((self._free, np.array(amounts, dtype=np.int64)))

    def _add_pod(self, pod: pod_pb2.Pod) -> None:
        uid, spec = pod.metadata.uid, pod.spec
        asked = [_of(container.resources.requests) for container in spec.containers]
        self._requests[uid] = (*map(sum, zip(*asked, strict=True)), 1)
        if spec.node_name:
            self._place(uid, self._nodes[spec.node_name])
        else:
            self._pending[uid] = spec.priority

    def _place(self, uid: str, row: int) -> None:
        self._rows[uid] = row
        self._free[row] -= self._requests[uid]

    def _leave(self, uid: str) -> None:
        self._pending.pop(uid, None)
        row = self._rows.pop(uid, None)
        if row is not None:
            self._free[row] += self._requests[uid]


@lru_cache(maxsize=4096)
def _amounts(cpu: str, memory: str) -> Amounts:
    return milli(cpu), value(memory)


def _of(quantities: Mapping[str, str]) -> Amounts:
    return _amounts(quantities.get("cpu", "0"), quantities.get("memory", "0"))


class Service(scheduler_service_pb2_grpc.SchedulerServiceServicer):
    """Serves one session after the other; `windows`: rounds of later moments may come with one."""

    def __init__(self, *, windows: bool) -> None:
        self._windows = windows
        self._scheduler = FirstFit()
        self.began_s = 0.0

    def CreateSession(  # noqa: N802 - gRPC's name
        self, request: rpc.CreateSessionRequest, context: grpc.ServicerContext
    ) -> rpc.Session:
        """Begin with an empty cluster."""
        del context
        self._scheduler = FirstFit()
        self.began_s = time.process_time()
        return rpc.Session(session_id="first-fit", config=request.config, windows=self._windows)

    def DeleteSession(  # noqa: N802 - gRPC's name
        self, request: session_pb2.DeleteSessionRequest, context: grpc.ServicerContext
    ) -> empty_pb2.Empty:
        """Keep the session until the next one begins."""
        del request, context
        return empty_pb2.Empty()

    def StreamingRunRound(  # noqa: N802 - gRPC's name
        self, request_iterator: Iterator[rpc.RunRoundRequest], context: grpc.ServicerContext
    ) -> Iterator[rpc.RunRoundResponse]:
        """Answer each request in one message."""
        del context
        for request in request_iterator:
            outcomes = self._scheduler.run(request)
            yield rpc.RunRoundResponse(sequence=request.stamp.sequence, rounds=outcomes)


def main() -> None:
    """Serve until standard input ends."""
    parser = argparse.ArgumentParser(prog="benchmarks.first_fit", description=__doc__)
    parser.add_argument("--windows", action="store_true", help="take windows")
    service = Service(windows=parser.parse_args().windows)  # type: ignore[abstract] # gRPC refuses the others
    server = grpc.server(ThreadPoolExecutor(2))
    scheduler_service_pb2_grpc.add_SchedulerServiceServicer_to_server(service, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(f"127.0.0.1:{port}", flush=True)
    sys.stdin.read()
    cpu_s = time.process_time() - service.began_s
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"cpu_s": cpu_s, "peak_bytes": peak_bytes}), flush=True)
    server.stop(0).wait()


if __name__ == "__main__":
    main()
