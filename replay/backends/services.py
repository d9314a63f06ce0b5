"""The services as a replay knows them: by their protos and their addresses."""

from __future__ import annotations

from collections.abc import Sequence

import grpc

from replay.backends.errors import BackendError
from replay.backends.stream import Exchange, describe
from reprieve.eviction.v1alpha1 import (
    eviction_pb2,
    eviction_service_pb2,
    eviction_service_pb2_grpc,
)
from reprieve.scheduler.v1alpha1 import (
    scheduler_pb2,
    scheduler_service_pb2,
    scheduler_service_pb2_grpc,
)
from reprieve.session.v1alpha1 import session_pb2
from services.rpc.client import CHANNEL_OPTIONS

OPEN_S = 30.0


class SchedulerService:
    """A session with a SchedulerService."""

    def __init__(self, address: str, config: scheduler_pb2.SchedulerConfig) -> None:
        self.address = address
        self._channel = grpc.insecure_channel(address, options=CHANNEL_OPTIONS)
        self._stub = scheduler_service_pb2_grpc.SchedulerServiceStub(self._channel)
        request = scheduler_service_pb2.OpenRequest(config=config)
        try:
            self.opened = self._stub.Open(request, timeout=OPEN_S)
        except grpc.RpcError as error:
            self._channel.close()
            raise BackendError(
                f"the scheduler at {address} opened no session: {describe(error)}"
            ) from error
        self._stamp = session_pb2.Stamp(session=self.opened.session, epoch=self.opened.epoch)
        self._exchange: Exchange[
            scheduler_service_pb2.StreamRequest, scheduler_service_pb2.StreamResponse
        ] = Exchange(self._stub.Stream, "scheduler", address)
        self._sequence = 0

    def tell(self, round_: scheduler_pb2.Round) -> None:
        """Tell a round, or go on with one."""
        self._sequence += 1
        request = scheduler_service_pb2.StreamRequest(stamp=self._stamp, round=round_)
        request.stamp.sequence = self._sequence
        self._exchange.send(request)

    def answer(self) -> scheduler_pb2.RoundOutcomes:
        """Return what was decided of the first round not answered yet. Raises BackendError."""
        return self._exchange.receive().outcomes

    def close(self) -> None:
        """Forget the session; a service that has gone is no fault here."""
        self._exchange.close()
        request = scheduler_service_pb2.CloseSessionRequest(session=self._stamp.session)
        try:
            self._stub.CloseSession(request, timeout=OPEN_S)
        except grpc.RpcError:
            return
        finally:
            self._channel.close()


class EvictionService:
    """A session with an EvictionService."""

    def __init__(self, address: str, config: eviction_pb2.EvictionConfig) -> None:
        self.address = address
        self._channel = grpc.insecure_channel(address, options=CHANNEL_OPTIONS)
        self._stub = eviction_service_pb2_grpc.EvictionServiceStub(self._channel)
        request = eviction_service_pb2.OpenRequest(config=config)
        try:
            self.opened = self._stub.Open(request, timeout=OPEN_S)
        except grpc.RpcError as error:
            self._channel.close()
            raise BackendError(
                f"the eviction service at {address} opened no session: {describe(error)}"
            ) from error
        self._stamp = session_pb2.Stamp(session=self.opened.session, epoch=self.opened.epoch)
        self._exchange: Exchange[
            eviction_service_pb2.StreamRequest, eviction_service_pb2.StreamResponse
        ] = Exchange(self._stub.Stream, "eviction service", address)
        self._sequence = 0

    def step(
        self, operations: Sequence[eviction_service_pb2.NodeOperation]
    ) -> Sequence[eviction_service_pb2.StepAnswer]:
        """Carry out a batch; one answer for each step, in order. Raises BackendError."""
        self._sequence += 1
        request = eviction_service_pb2.StreamRequest(stamp=self._stamp, operations=operations)
        request.stamp.sequence = self._sequence
        return self._exchange.exchange(request).answers

    def close(self) -> None:
        """Forget the session; a service that has gone is no fault here."""
        self._exchange.close()
        request = eviction_service_pb2.CloseSessionRequest(session=self._stamp.session)
        try:
            self._stub.CloseSession(request, timeout=OPEN_S)
        except grpc.RpcError:
            return
        finally:
            self._channel.close()
