"""How long a repeated request waits."""

from __future__ import annotations

import pytest

from replay.record.backoff import RETRY_AFTER_S_MAX, Backoff, retry_after_s

NOW_NS = 1_767_225_600 * 10**9  # 2026-01-01T00:00:00Z


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        """Return the seconds."""
        return self.now_s


def waits(backoff: Backoff, clock: Clock, attempt_s: float, count: int) -> list[float]:
    """Return the waits of attempts that each take `attempt_s`."""
    seconds = []
    for _ in range(count):
        backoff.begin()
        clock.now_s += attempt_s
        seconds.append(backoff.wait_s())
        clock.now_s += seconds[-1]
    return seconds


def test_waits_double_up_to_the_limit_as_client_go_has_it() -> None:
    """800 ms, 1.6 s, ..., 30 s, where chance adds nothing."""
    clock = Clock()
    found = waits(Backoff(clock=clock, chance=lambda: 0.0), clock, 0.0, 8)
    assert found == pytest.approx([0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0])


def test_chance_adds_up_to_the_wait_itself() -> None:
    """Jitter 1.0: clients of a server that restarts do not send requests at the same moment."""
    clock = Clock()
    found = waits(Backoff(clock=clock, chance=lambda: 0.5), clock, 0.0, 2)
    assert found == pytest.approx([1.2, 2.4])


def test_an_attempt_that_took_longer_than_its_wait_is_repeated_at_once() -> None:
    """A watch that lived for long is resumed without a loss of time."""
    clock = Clock()
    assert waits(Backoff(clock=clock, chance=lambda: 0.0), clock, 0.5, 3) == pytest.approx(
        [0.3, 1.1, 2.7]
    )
    assert waits(Backoff(clock=clock), clock, 100.0, 3) == [0.0] * 3


def test_two_minutes_without_a_wait_reset_it() -> None:
    """As a watch that lived for that long does."""
    clock = Clock()
    backoff = Backoff(clock=clock, chance=lambda: 0.0)
    waits(backoff, clock, 0.0, 6)
    assert waits(backoff, clock, 121.0, 1) == [0.0]
    assert waits(backoff, clock, 0.0, 1) == pytest.approx([1.6])


def test_the_server_may_ask_for_a_longer_wait() -> None:
    """Never for a shorter one."""
    clock = Clock()
    backoff = Backoff(clock=clock, chance=lambda: 0.0)
    backoff.begin()
    assert backoff.wait_s(7.0) == 7.0
    backoff.begin()
    assert backoff.wait_s(1.0) == pytest.approx(1.6)


@pytest.mark.parametrize(
    ("status", "header", "seconds"),
    [
        (429, "7", 7.0),
        (503, " 7 ", 7.0),
        (500, "7", 7.0),
        (200, "7", 0.0),
        (404, "7", 0.0),
        (429, None, 0.0),
        (429, "", 0.0),
        (429, "-7", 0.0),
        (429, "7.5", 0.0),
        (429, "soon", 0.0),
        (429, "9" * 100_000, RETRY_AFTER_S_MAX),
        (429, "\N{SUPERSCRIPT TWO}", 0.0),
        (503, "Thu, 01 Jan 2026 00:00:09 GMT", 9.0),
        (503, "Thu, 01 Jan 2026 00:00:09 -0000", 9.0),
        (503, "Wed, 31 Dec 2025 00:00:00 GMT", 0.0),
        (503, "Fri, 31 Dec 9999 23:59:59 GMT", RETRY_AFTER_S_MAX),
        (503, "Fri, 99 Dec 99999 23:59:59 GMT", 0.0),
    ],
)
def test_retry_after_is_seconds_or_a_date_and_bounded(
    status: int, header: str | None, seconds: float
) -> None:
    """Of 429 and 5xx; anything else requests nothing."""
    assert retry_after_s(status, header, NOW_NS) == seconds
