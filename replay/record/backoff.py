"""Computes the wait before a request is repeated: exponential backoff, and Retry-After.

Source: kubernetes v1.34 client-go tools/cache/reflector.go (NewReflectorWithOptions: 800 ms, 30 s,
factor 2, jitter 1, reset after 2 min), apimachinery pkg/util/wait/backoff.go
(exponentialBackoffManagerImpl), client-go rest/with_retry.go (checkWait) and rest/request.go
(retryAfterSeconds).
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

RETRY_AFTER_S_MAX = 300.0
"""The longest wait that a server may request."""
RETRIES_MAX = 10
"""Limit for the repetitions of a request on the server's Retry-After, as in client-go."""


@dataclass(slots=True, kw_only=True, eq=False)
class Backoff:
    """The waits between the attempts of one requester; not thread-safe.

    The n-th wait is `initial_s` * 2^n, at most `limit_s`, times a random factor from 1 to 2. After
    `reset_s` without a wait, n starts again at 0. `clock` returns seconds, `chance` a random number
    in [0, 1).

    Unlike upstream, the wait counts from the beginning of an attempt, not from its end. The limit
    on requests per second is the same, but a watch that lasted longer than the wait is resumed at
    once; the recorder needs that, because it records the arrival times of events.
    """

    initial_s: float = 0.8
    limit_s: float = 30.0
    reset_s: float = 120.0
    clock: Callable[[], float] = time.monotonic
    chance: Callable[[], float] = random.random
    _next_s: float = field(init=False)
    _began_s: float = field(init=False)
    _waited_s: float = field(init=False)

    def __post_init__(self) -> None:
        self._next_s = self.initial_s
        self._began_s = self._waited_s = self.clock()

    def begin(self) -> None:
        """Note the beginning of an attempt."""
        self._began_s = self.clock()

    def wait_s(self, retry_after_s: float = 0.0) -> float:
        """Return how long to wait from now on, at least `retry_after_s`; 0 to continue at once."""
        now_s = self.clock()
        if now_s - self._waited_s > self.reset_s:
            self._next_s = self.initial_s
        self._waited_s = now_s
        until_s = self._began_s + self._next_s * (1.0 + self.chance())
        self._next_s = min(2.0 * self._next_s, self.limit_s)
        return max(0.0, until_s - now_s, retry_after_s)


def retry_after_s(status: int, header: str | None, now_ns: int) -> float:
    """Return the wait of a response's Retry-After, s, at most RETRY_AFTER_S_MAX; 0 without one.

    `header` is the value of Retry-After: seconds or an HTTP date. It applies to the status 429 and
    all 5xx. (client-go accepts only seconds, and has no limit.)
    """
    if not header or (status != 429 and status < 500):
        return 0.0
    text = header.strip()
    if text.isdecimal() and text.isascii():
        return min(float(text[:10]), RETRY_AFTER_S_MAX)
    try:
        moment = parsedate_to_datetime(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        left_s = (moment - datetime.fromtimestamp(now_ns / 1e9, UTC)).total_seconds()
    except (ValueError, TypeError, OverflowError, IndexError):
        return 0.0
    return min(max(0.0, left_s), RETRY_AFTER_S_MAX)
