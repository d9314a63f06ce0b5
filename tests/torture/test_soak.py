"""What the soak calls growth; the hour itself is in `make torture`."""

from __future__ import annotations

from tests.torture.soak import Sample, growth, left


def samples(resident: list[float], sessions: int = 3) -> dict[str, list[Sample]]:
    """Return the samples of a queue with that memory, MiB, and sessions more in the last one."""
    made = [Sample(resident=size, threads=10, files=14, sessions=3) for size in resident]
    made[-len(made) // 4 :] = [
        Sample(resident=size, threads=10, files=14, sessions=sessions)
        for size in resident[-len(made) // 4 :]
    ]
    return {"queue": made}


def test_memory_may_grow_in_the_first_quarter_only() -> None:
    """Up to 5 % and 8 MiB from the second quarter to the last."""
    assert not growth(samples([50, 60, 100, 100, 100, 100, 110, 112]))
    [problems] = growth(samples([50, 60, 100, 100, 105, 110, 115, 115]))
    assert problems == "queue: memory grew from 100.0 to 115.0 MiB"


def test_sessions_that_stay_are_growth() -> None:
    """So are threads and open files."""
    [problems] = growth(samples([100.0] * 8, sessions=4))
    assert problems == "queue: sessions grew from at most 3 to 4"
    last = samples([100.0], sessions=1)["queue"][0]
    assert left({"queue": last}) == ["queue: 1 sessions are left"]
