"""Tests of the streaming JSON decoder."""

from __future__ import annotations

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replay.errors import TraceError
from replay.kube.documents import json_values

_VALUES = st.recursive(
    st.integers(-9, 9) | st.text('ab"\\{}[] \n', max_size=5) | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)


@given(
    st.lists(st.dictionaries(st.text(max_size=3), _VALUES), max_size=4),
    st.sampled_from([None, 0, 2, 4]),
    st.sampled_from(["\n", "\n\n", ""]),
)
def test_values_come_one_a_line_or_over_many_or_end_to_end(
    values: list[dict[str, object]], indent: int | None, between: str
) -> None:
    """As kubectl prints them, pretty or not."""
    text = between.join(json.dumps(value, indent=indent) for value in values)
    read = [value for _, value in json_values(io.BytesIO(text.encode()), "f")]
    assert read == values


def test_places_are_the_lines_at_which_values_begin() -> None:
    """For messages."""
    data = b'{"a": 1}\n{\n  "b": 2\n}\n\n{"c": 3}\n'
    assert [where for where, _ in json_values(io.BytesIO(data), "f")] == [
        "f, line 1",
        "f, line 2",
        "f, line 6",
    ]


@pytest.mark.parametrize("data", [b'{"a": 1}\n{"b": \n', b'{"a": 1}\nnonsense\n', b'\n{"a" 1}'])
def test_what_is_not_json_is_refused_with_its_line(data: bytes) -> None:
    """Cut and broken values."""
    with pytest.raises(TraceError, match="f, line 2"):
        list(json_values(io.BytesIO(data), "f"))


def test_values_end_to_end_are_read_in_linear_time() -> None:
    """A quarter of a million in one line."""
    file = io.BytesIO(b"{} " * 250_000)
    assert sum(1 for _ in json_values(file, "f")) == 250_000
