"""The scheduler's end of its queue's stream: one session, one batch in flight."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import grpc

from reprieve.queue.v1alpha1 import queue_pb2, queue_service_pb2, queue_service_pb2_grpc
from reprieve.session.v1alpha1 import session_pb2
from services.rpc.client import PLAIN, ClientTls, aio_channel
from services.rpc.errors import FieldError, UnavailableError

DEADLINE_S = 30.0


class QueueLink:
    """A channel to the queue that serves all sessions of one scheduler."""

    def __init__(self, address: str, tls: ClientTls = PLAIN) -> None:
        self.address = address
        self._channel = aio_channel(address, tls)
        self.stub = queue_service_pb2_grpc.SchedulingQueueServiceStub(self._channel)

    async def open(self, config: queue_pb2.QueueConfig) -> QueueSession:
        """Open a session. Raises FieldError where the queue refuses the configuration."""
        request = queue_service_pb2.OpenRequest(config=config)
        try:
            opened = await self.stub.Open(request, timeout=DEADLINE_S, wait_for_ready=True)
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.INVALID_ARGUMENT:
                raise FieldError("config.queue", error.details() or "refused") from error
            raise self.unavailable(error) from error
        return QueueSession(self, opened)

    def unavailable(self, error: grpc.aio.AioRpcError) -> UnavailableError:
        """Return what a failed call means to the scheduler's own caller."""
        return UnavailableError(
            f"the scheduling queue at {self.address} answers "
            f"{error.code().name}: {error.details() or 'nothing more'}"
        )

    async def close(self) -> None:
        """Close the channel."""
        await self._channel.close()


class QueueSession:
    """One queue session over one stream; answers come in the order of batches.

    `traceparent` is the context of the span that the next batches belong to.
    """

    def __init__(self, link: QueueLink, opened: queue_service_pb2.OpenResponse) -> None:
        self._link = link
        self.config = opened.config
        self._stamp = session_pb2.Stamp(session=opened.session, epoch=opened.epoch)
        self.traceparent = ""
        self._sequence = 0
        self._unread = 0
        self._stream = link.stub.Stream()

    async def exchange(
        self, operations: Sequence[queue_pb2.Operation], heads: int
    ) -> queue_service_pb2.StreamResponse:
        """Send a batch and return its answer. Raises UnavailableError."""
        await self.post(operations, heads)
        while self._unread > 1:
            await self._read()
        return await self._read()

    async def post(self, operations: Sequence[queue_pb2.Operation], heads: int = 0) -> None:
        """Send a batch whose answer nobody needs; a refusal shows at the next exchange."""
        self._sequence += 1
        request = queue_service_pb2.StreamRequest(operations=operations, heads=heads)
        request.stamp.CopyFrom(self._stamp)
        request.stamp.sequence = self._sequence
        request.stamp.traceparent = self.traceparent
        try:
            await self._stream.write(request)
        except grpc.aio.AioRpcError as error:
            raise self._link.unavailable(error) from error
        self._unread += 1

    async def _read(self) -> queue_service_pb2.StreamResponse:
        try:
            answer = await asyncio.wait_for(self._stream.read(), DEADLINE_S)
        except grpc.aio.AioRpcError as error:
            raise self._link.unavailable(error) from error
        except TimeoutError as error:
            raise UnavailableError(
                f"the scheduling queue at {self._link.address} did not answer in {DEADLINE_S} s"
            ) from error
        if not isinstance(answer, queue_service_pb2.StreamResponse):
            raise UnavailableError(await self._why_ended())
        self._unread -= 1
        return answer

    async def dump(self) -> queue_pb2.QueueState:
        """Return the queue's whole state."""
        request = queue_service_pb2.DumpRequest(stamp=self._stamp)
        answer = await self._link.stub.Dump(request, timeout=DEADLINE_S)
        return answer.state

    async def close(self) -> None:
        """End the stream and forget the session."""
        await self._stream.done_writing()
        request = queue_service_pb2.CloseSessionRequest(session=self._stamp.session)
        await self._link.stub.CloseSession(request, timeout=DEADLINE_S)

    async def _why_ended(self) -> str:
        code, details = await self._stream.code(), await self._stream.details()
        return (
            f"the scheduling queue at {self._link.address} ended the stream with "
            f"{code.name}: {details or 'nothing more'}"
        )
