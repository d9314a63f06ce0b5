"""A request that completes even if its callers disconnect.

It proceeds in steps. A step begins in the call that needs it; where it has to wait, it goes on in a
task of its own, so that a call that is cancelled leaves nothing half done. Any number of calls may
follow the same request: each receives all answers, and any of them takes the next step.
"""

from __future__ import annotations

import asyncio
import types
from collections.abc import AsyncIterator, Callable, Coroutine, Generator
from typing import Any, Generic, TypeVar

Answer = TypeVar("Answer")


class UnderWay(Generic[Answer]):
    """A request in progress; `answers` are those so far.

    `steps` makes an iterator over its steps, which adds to `answers`.
    """

    def __init__(
        self, request: Any, steps: Callable[[UnderWay[Answer]], AsyncIterator[None]]
    ) -> None:
        self.request = request
        self.answers: list[Answer] = []
        self.is_done = False
        self._steps = steps(self)
        self._error: Exception | None = None
        self._task: asyncio.Task[None] | None = None
        self._waiting: set[asyncio.Future[None]] = set()

    async def follow(self) -> AsyncIterator[Answer]:
        """Yield all answers, from the first one. Raises what the request is refused with."""
        sent = 0
        while True:
            while sent < len(self.answers):
                sent += 1
                yield self.answers[sent - 1]
            if self.is_done:
                break
            await self.step()
        if self._error is not None:
            raise self._error

    async def step(self) -> None:
        """Take the next step, or wait for the end of the one that is being taken.

        Raises what `interrupt` receives meanwhile; the step goes on all the same.
        """
        if self._task is None:
            coroutine = self._take()
            try:
                waits_for = coroutine.send(None)
            except StopIteration:
                return
            self._task = asyncio.get_running_loop().create_task(_rest(coroutine, waits_for))
            self._task.add_done_callback(self._has_ended)
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.add(waiter)
        try:
            await waiter
        finally:
            self._waiting.discard(waiter)

    async def finish(self) -> None:
        """Take all steps that are left. Raises as `step` does."""
        while not self.is_done:
            await self.step()

    def interrupt(self, error: Exception) -> None:
        """Make all calls that wait for a step raise `error`."""
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_exception(error)

    async def cancel(self) -> None:
        """Give the request up."""
        task = self._task
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def _take(self) -> None:
        try:
            await anext(self._steps)
        except StopAsyncIteration:
            self.is_done = True
        except Exception as error:
            self._error, self.is_done = error, True

    def _has_ended(self, task: asyncio.Task[None]) -> None:
        self._task = None
        self.is_done = self.is_done or task.cancelled()
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_result(None)


async def _rest(coroutine: Coroutine[Any, Any, None], waits_for: Any) -> None:
    await _continued(coroutine, waits_for)


@types.coroutine
def _continued(coroutine: Coroutine[Any, Any, None], waits_for: Any) -> Generator[Any, Any, None]:
    """Go on with a coroutine that waits for `waits_for` already."""
    try:
        yield waits_for
    except BaseException as error:  # the task's cancellation is the coroutine's
        try:
            waits_for = coroutine.throw(error)
        except StopIteration:
            return
        yield waits_for
    yield from coroutine
