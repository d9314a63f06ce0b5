"""The stream of one session to the queue, opened again where it breaks.

Requests without a response are sent again over the new stream, with their numbers, so that each is
applied once. A caller waits some seconds for the queue and then receives an error; the
stream goes on trying, for the session can continue when the queue is back.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Any

import grpc
from grpc.aio import AioRpcError, Metadata

from reprieve.queue.v1beta1 import queue_service_pb2
from services.rpc.errors import RefusalError, SessionBrokenError, UnavailableError
from services.rpc.interceptors.statuses import reason_of
from services.rpc.responses import Unreadable
from services.rpc.timeouts import Timeouts

_PAUSE_S, _PAUSE_MAX_S = 0.05, 1.0
_LOST = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED, grpc.StatusCode.DEADLINE_EXCEEDED)
_RESET = ("RST_STREAM", "Stream removed", "GOAWAY")


class QueueStream:
    """Requests in order, and their responses.

    `open_call` makes a call of StreamingApply. `lasts` is set where it cannot break: the queue is
    in this process. `on_trouble`, if set, is called each time that the queue has not been reached
    for the timeout `unreachable`, and `read` goes on; without it `read` then raises
    UnavailableError. `responds` says whether the queue responds to other calls: one that does and
    leaves a request without a response would do so again, and the session ends.
    """

    def __init__(
        self,
        open_call: Callable[[], Any],
        address: str,
        timeouts: Timeouts,
        *,
        responds: Callable[[], Awaitable[bool]],
        lasts: bool,
    ) -> None:
        self._open_call = open_call
        self._responds = responds
        self._address = address
        self._timeouts = timeouts
        self._lasts = lasts
        self._call = open_call()
        self._unread: deque[queue_service_pb2.ApplyRequest] = deque()
        self._received = 0
        self._lost_s: float | None = None
        self._pause_s = _PAUSE_S
        self.on_trouble: Callable[[UnavailableError], None] | None = None

    @property
    def is_lost(self) -> bool:
        """Return whether the queue does not respond at present."""
        return self._lost_s is not None

    async def write(self, request: queue_service_pb2.ApplyRequest) -> None:
        """Send a request."""
        self._unread.append(request)
        if self._lasts:
            await self._call.write(request)
            return
        with contextlib.suppress(AioRpcError, asyncio.InvalidStateError, TimeoutError):
            await self._send(request)  # where that fails, `read` opens the stream again

    async def read(self) -> queue_service_pb2.ApplyResponse:
        """Return the response to the first request that has none yet.

        Raises a refusal where the session cannot continue, and UnavailableError if the queue
        does not respond; the request can then be read again.
        """
        if self._lasts:
            try:
                answer = await self._call.read()
            except AioRpcError as error:
                raise refusal_of(self._address, error) from error
            self._unread.popleft()
            return answer  # type: ignore[no-any-return] # the stub's streams are untyped
        while True:
            try:
                answer = taken(await self._in_time(self._call.read()))
                if isinstance(answer, queue_service_pb2.ApplyResponse):
                    break
                await self._open_again(await self._ending())
            except (AioRpcError, asyncio.InvalidStateError, TimeoutError) as error:
                await self._open_again(error)
        self._lost_s, self._pause_s = None, _PAUSE_S
        self._received = self._unread.popleft().stamp.sequence
        return answer

    async def done_writing(self) -> None:
        """Send no further request."""
        await self._call.done_writing()

    def cancel(self) -> None:
        """End the stream."""
        self._call.cancel()

    async def _send(self, request: queue_service_pb2.ApplyRequest) -> None:
        if len(self._unread) > 1:
            request.stamp.acknowledged = self._received
        await self._in_time(self._call.write(request))

    async def _in_time(self, operation: Awaitable[Any]) -> Any:
        """Return the result of an operation on the call; raises TimeoutError if it takes long.

        No asyncio.timeout: what waits here may continue in another task than it began in.
        """
        call, is_late, most_s = self._call, False, self._timeouts.queue

        def cut() -> None:
            nonlocal is_late
            is_late = True
            call.cancel()

        timer = asyncio.get_running_loop().call_later(most_s, cut)
        try:
            return await operation
        except (asyncio.CancelledError, AioRpcError):
            if is_late:
                raise TimeoutError(f"no response in {most_s:g} s (--timeout queue)") from None
            task = asyncio.current_task()
            if call.cancelled() and not (task and task.cancelling()):
                raise asyncio.InvalidStateError("the call was cancelled before") from None
            raise
        finally:
            timer.cancel()

    async def _ending(self) -> AioRpcError:
        """Return how the call has ended, as an error."""
        call = self._call
        code, details = await call.code(), await call.details()
        metadata = await call.trailing_metadata()
        return AioRpcError(code, Metadata(), metadata or Metadata(), details)

    async def _open_again(self, error: Exception) -> None:
        """Open the stream again, and send what has no response; try until that is done.

        Raises a refusal where the session cannot continue, as with a queue that responds to other
        calls only, and UnavailableError if the queue is not reached in time and `on_trouble` is not
        set.
        """
        if self._lost_s is None:
            self._lost_s = monotonic()
        while True:
            if isinstance(error, asyncio.InvalidStateError):  # the call had ended before
                error = await self._ending()
            refusal = refusal_of(self._address, error)
            if not isinstance(refusal, UnavailableError) or not _is_lost(error):
                raise refusal from error
            late = isinstance(error, TimeoutError)
            if late and await self._responds():
                raise RefusalError(f"{refusal}; it still answers other calls") from error
            if late or monotonic() - self._lost_s >= self._timeouts.unreachable:
                if self.on_trouble is None:
                    raise refusal from error
                self.on_trouble(refusal)
            await asyncio.sleep(self._pause_s)
            self._pause_s = min(2 * self._pause_s, _PAUSE_MAX_S)
            self._call.cancel()
            self._call = self._open_call()
            try:
                for request in self._unread:
                    await self._send(request)
            except (AioRpcError, asyncio.InvalidStateError, TimeoutError) as again:
                error = again
            else:
                return


def taken(response: Any) -> Any:
    """Return a response of the queue. Raises UnavailableError for one that cannot be read."""
    if type(response) is Unreadable:
        raise UnavailableError(response.problem)
    return response


def refusal_of(address: str, error: Exception) -> RefusalError:
    """Return the refusal to the scheduler's caller for a failure of the queue."""
    queue = f"the scheduling queue at {address}"
    if not isinstance(error, AioRpcError):
        return UnavailableError(f"{queue} does not respond: {error}")
    text = f"{queue} answers {error.code().name}: {error.details() or 'nothing more'}"
    if reason_of(error) in {"SESSION_EXPIRED", "SESSION_BROKEN", "PERMISSION_DENIED"}:
        return SessionBrokenError(f"{text}: create a new session")
    return UnavailableError(text)


def _is_lost(error: Exception) -> bool:
    """Return whether it was the connection that failed, or a queue that is about to end."""
    if not isinstance(error, AioRpcError):
        return True
    if reason_of(error) not in {"", "UNAVAILABLE"}:
        return False
    reset = any(sign in (error.details() or "") for sign in _RESET)
    return error.code() in _LOST or reset
