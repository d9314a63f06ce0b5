"""Times as RFC 3339 writes them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.kube.time import SECOND_NS
from services.rpc.kube import rfc3339

NEW_YEAR_NS = 1_767_225_600 * SECOND_NS


@pytest.mark.parametrize(
    ("text", "after_ns"),
    [
        ("2026-01-01T00:00:00Z", 0),
        ("2026-01-01T00:00:00.5Z", SECOND_NS // 2),
        ("2026-01-01T00:00:00.0000000019Z", 1),
        ("2026-01-01T02:30:00+02:30", 0),
        ("2025-12-31T23:59:59.999999999Z", -1),
    ],
)
def test_a_time_is_read_to_the_nanosecond(text: str, after_ns: int) -> None:
    """Digits below a ns are dropped, offsets are applied."""
    assert rfc3339.parse_ns(text) == NEW_YEAR_NS + after_ns


@pytest.mark.parametrize(
    "text",
    [
        *("", "2026-01-01", "2026-01-01 00:00:00Z", "2026-01-01T00:00:00", "2026-01-01t00:00:00z"),
        *("2026-13-01T00:00:00Z", "2026-01-01T00:00:00.Z", "٢٠٢٦-01-01T00:00:00Z"),
        *("0000-01-01T00:00:00Z", "0001-01-01T00:00:00+23:59"),
    ],
)
def test_other_texts_are_not_times(text: str) -> None:
    """Such as dates, times without an offset, and years that do not exist in this form."""
    assert rfc3339.parse_ns(text) is None


@pytest.mark.parametrize(
    ("digits", "text"),
    [
        (0, "2026-01-01T00:00:01Z"),
        (3, "2026-01-01T00:00:01.050Z"),
        (6, "2026-01-01T00:00:01.050009Z"),
        (9, "2026-01-01T00:00:01.050009900Z"),
        (None, "2026-01-01T00:00:01.0500099Z"),
    ],
)
def test_a_time_is_printed_with_the_requested_digits(digits: int | None, text: str) -> None:
    """Further ones are cut off, not rounded."""
    assert rfc3339.text(NEW_YEAR_NS + 1_050_009_900, digits) == text


@given(at_ns=st.integers(-(2**62), 2**62), digits=st.sampled_from((None, 9)))
def test_what_is_written_in_full_is_read_back(at_ns: int, digits: int | None) -> None:
    """Also before 1970."""
    assert rfc3339.parse_ns(rfc3339.text(at_ns, digits)) == at_ns
