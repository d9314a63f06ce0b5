"""The scheduler that judges: told the recorded state, asked about one pending pod at a time.

It decides nothing by itself: its rounds are events only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import grpc

from replay.backends.errors import BackendError, ConfigurationError
from replay.backends.stream import describe
from replay.compare.state import Cluster
from reprieve.kube.v1alpha1.object_ref_pb2 import ObjectRef
from reprieve.scheduler.v1alpha1 import scheduler_pb2, scheduler_service_pb2_grpc
from reprieve.scheduler.v1alpha1 import scheduler_service_pb2 as scheduler_rpc
from reprieve.session.v1alpha1 import session_pb2
from services.kube.pod import DEFAULT_SCHEDULER
from services.rpc.client import PLAIN, ClientTls, channel

DEADLINE_S = 60.0
_Answer = TypeVar("_Answer")


class JudgingScheduler:
    """A session with a SchedulerService, told what was recorded. Every call raises BackendError."""

    def __init__(
        self, address: str, config: scheduler_pb2.SchedulerConfig, tls: ClientTls = PLAIN
    ) -> None:
        """Open the session. Raises ConfigurationError where the configuration is refused."""
        self._address = address
        self._config = config
        self._channel = channel(address, tls)
        self._stub = scheduler_service_pb2_grpc.SchedulerServiceStub(self._channel)
        try:
            self.opened = self._stub.Open(
                scheduler_rpc.OpenRequest(config=config), timeout=DEADLINE_S
            )
        except grpc.RpcError as error:
            self._channel.close()
            refused = isinstance(error, grpc.Call) and error.code() in (
                grpc.StatusCode.INVALID_ARGUMENT,
                grpc.StatusCode.UNIMPLEMENTED,
            )
            text = f"the scheduler at {address} opened no session: {describe(error)}"
            raise (ConfigurationError if refused else BackendError)(text) from error
        self._sequence = 0

    @property
    def names(self) -> frozenset[str]:
        """Return the scheduler names whose pods it schedules."""
        return frozenset(self.opened.scheduler_names or (DEFAULT_SCHEDULER,))

    def tell(self, at_ns: int, events: Sequence[scheduler_pb2.Event]) -> None:
        """Tell what happened until `at_ns`."""
        self._sequence += 1
        round_ = scheduler_pb2.Round(at_ns=at_ns, events=events, events_only=True)
        self._call(
            self._stub.RunRound,
            scheduler_rpc.RunRoundRequest(stamp=self._stamp(self._sequence), round=round_),
        )

    def judge(self, pod: ObjectRef, *, top_k: int = 1) -> scheduler_pb2.Evaluation:
        """Return the verdicts about a pending pod as things stand; `top_k` nodes, 0: all."""
        named = session_pb2.PodRef(uid=pod.uid, namespace=pod.namespace, name=pod.name)
        request = scheduler_rpc.EvaluatePendingRequest(stamp=self._stamp(0), pod=named, top_k=top_k)
        return self._call(self._stub.EvaluatePending, request).evaluation

    def judge_in(self, cluster: Cluster, at_ns: int) -> scheduler_pb2.Evaluation:
        """Return the verdicts about a pod in a cluster of its own, which leaves the session."""
        request = scheduler_rpc.EvaluateRequest(
            config=self._config,
            objects=cluster.objects,
            nominated=cluster.nominated,
            pod=cluster.pod,
            top_k=1,
            at_ns=at_ns,
        )
        return self._call(self._stub.Evaluate, request).evaluation

    def close(self) -> None:
        """Forget the session; a service that has gone is no fault here."""
        try:
            request = scheduler_rpc.CloseSessionRequest(session=self.opened.session)
            self._stub.CloseSession(request, timeout=DEADLINE_S)
        except grpc.RpcError:
            return
        finally:
            self._channel.close()

    def _stamp(self, sequence: int) -> session_pb2.Stamp:
        return session_pb2.Stamp(
            session=self.opened.session, epoch=self.opened.epoch, sequence=sequence
        )

    def _call(self, method: Callable[..., _Answer], request: object) -> _Answer:
        try:
            return method(request, timeout=DEADLINE_S)
        except grpc.RpcError as error:
            text = f"the scheduler at {self._address} answers {describe(error)}"
            raise BackendError(text) from error
