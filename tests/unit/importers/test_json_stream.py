"""Tests of the streaming JSON decoder."""

from __future__ import annotations

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replay import bounds
from replay.errors import TraceError
from replay.kube import documents
from replay.kube.documents import json_values
from replay.kube.kinds import list_items

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


@given(
    st.lists(st.dictionaries(st.text('ab"', max_size=3), _VALUES), max_size=4),
    st.sampled_from(["List", "PodList", "Pod"]),
    st.permutations(["kind", "metadata", "items"]),
    st.sampled_from([None, 0, 4]),
)
def test_items_of_a_large_list_are_those_that_the_whole_value_has(
    items: list[dict[str, object]], kind: str, order: list[str], indent: int | None
) -> None:
    """In any order of the List's fields.

    Another object stays whole, and so does a List with a field after its items that names items.
    """
    fields = {"kind": kind, "metadata": {"items": [{"not": "an item"}]}, "items": items}
    whole = {name: fields[name] for name in order}
    data = json.dumps(whole, indent=indent).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(documents, "_LARGE", 0)
        read = [value for _, value in json_values(io.BytesIO(data), "f", lists=True)]
    if kind == "Pod" or not items or order.index("items") < order.index("metadata"):
        assert read == [whole]
    else:
        assert read == list_items(whole)


@pytest.mark.parametrize(
    "text",
    [
        '{"kind": "List", "items": [{"a": 1}, 2]}',
        '{"kind": "List", "items": [{"a": 1}], "items": [{"b": 2}]}',
        '{"kind": "List", "items": [{"a": 1}], "items": []}',
        '{"kind": "List", "items": {"a": 1}}',
        '{"kind": "List"}',
        '[{"kind": "List", "items": []}]',
    ],
)
def test_unusual_large_values_are_read_as_a_whole(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Items that are no objects, fields that occur twice, and others."""
    monkeypatch.setattr(documents, "_LARGE", 0)
    read = [value for _, value in json_values(io.BytesIO(text.encode()), "f", lists=True)]
    assert read == [json.loads(text)]


@pytest.mark.parametrize(
    "text",
    [
        '{"kind": "List", "items": [{"a": 1},]}',
        '{"kind": "List", "items": [{"a": 1} {"b": 2}]}',
        '{"kind": "List", "items": [{"a": 1}]',
        '{"kind": "List", "items": [{"a": 1}], nonsense}',
    ],
)
def test_a_large_list_that_is_not_json_is_refused(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before any of its items is read."""
    monkeypatch.setattr(documents, "_LARGE", 0)
    with pytest.raises(TraceError, match="f, line 1"):
        next(json_values(io.BytesIO(text.encode()), "f", lists=True))


def test_an_item_that_only_the_scanner_accepts_is_refused_by_its_index(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """NaN is not JSON."""
    monkeypatch.setattr(documents, "_LARGE", 0)
    data = b'{"kind": "List", "items": [{"a": 1}, {"b": NaN}]}'
    with pytest.raises(TraceError, match=r"f, line 1, items\[1\]: is not JSON"):
        list(json_values(io.BytesIO(data), "f", lists=True))


def _levels(value: object) -> int:
    if isinstance(value, dict):
        return 1 + max(map(_levels, value.values()), default=0)
    return 1 + max(map(_levels, value), default=0) if isinstance(value, list) else 0


@given(_VALUES, st.sampled_from([None, 2]))
def test_levels_of_nesting_are_counted_without_brackets_in_strings(
    value: object, indent: int | None
) -> None:
    """With any escapes in them."""
    text, levels = json.dumps(value, indent=indent).encode(), _levels(value)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bounds, "_bounds", bounds.Bounds(depth=max(levels, 1)))
        bounds.check_json(text, "f")
        if levels > 1:
            patch.setattr(bounds, "_bounds", bounds.Bounds(depth=levels - 1))
            with pytest.raises(TraceError, match="nested too deeply"):
                bounds.check_json(text, "f")


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
