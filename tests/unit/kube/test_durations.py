"""Durations in Go's notation."""

from __future__ import annotations

import pytest

from services.kube.time import SECOND_NS, DurationError, format_duration, parse_duration_ns


@pytest.mark.parametrize(
    ("text", "expected_ns"),
    [
        ("0", 0),
        ("10s", 10 * SECOND_NS),
        ("1m30s", 90 * SECOND_NS),
        ("1h2m3.5s", 3723 * SECOND_NS + SECOND_NS // 2),
        (".5ms", 500_000),
        ("1.s", SECOND_NS),
        ("3\u00b5s", 3_000),
        ("-10s", -10 * SECOND_NS),
        ("+1ns", 1),
    ],
)
def test_a_duration_is_read_as_go_reads_it(text: str, expected_ns: int) -> None:
    """Units add up, fractions count, a sign comes first."""
    assert parse_duration_ns(text) == expected_ns


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", 'time: invalid duration ""'),
        ("-", 'time: invalid duration "-"'),
        ("s", 'time: invalid duration "s"'),
        (".s", 'time: invalid duration ".s"'),
        ("10", 'time: missing unit in duration "10"'),
        ("10y", 'time: unknown unit "y" in duration "10y"'),
        ("1.2.3s", 'time: missing unit in duration "1.2.3s"'),
        ("9999999h", 'time: invalid duration "9999999h"'),
    ],
)
def test_what_is_not_a_duration_is_refused_in_gos_words(text: str, message: str) -> None:
    """The kubelet prints these texts when it refuses to start."""
    with pytest.raises(DurationError) as refused:
        parse_duration_ns(text)
    assert str(refused.value) == message


@pytest.mark.parametrize(
    "text", ["0s", "7ns", "1.5ms", "2\u00b5s", "10s", "1m0s", "1m30s", "1h2m3.5s", "1h0m0.001s"]
)
def test_a_duration_is_printed_in_the_form_that_was_parsed(text: str) -> None:
    """Go's own form is a fixed point of reading and printing."""
    assert format_duration(parse_duration_ns(text)) == text
