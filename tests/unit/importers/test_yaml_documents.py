"""Tests of the fast YAML reader: it must read what a plain one reads."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from replay.kube.documents import YamlDocumentError, YamlDocuments

_KEYS = st.sampled_from(["apiVersion", "kind", "metadata", "spec", "a-b", "yes", "x.y/z"])
_SCALARS = st.one_of(
    st.sampled_from(["yes", "null", "1e3", "0x1f", "12", "a: b", "# x", "|", "---", "a\nb\n", ""]),
    st.text("ab-:#'\"{}[]&*!|>%@` \n0123", max_size=8),
    st.integers(),
    st.booleans(),
    st.none(),
)
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=3),
    max_leaves=8,
)
_LINES = st.sampled_from(
    [
        "a: b",
        "a: b-c",
        "a:",
        "  b: 1",
        "  b: |",
        "    text",
        "- x",
        "# note",
        "",
        "metadata:",
        "  name: n",
        "  name: 5",
        "    c: d",
        "metadata: {a: 1,",
        "  b: 2}",
        'a: "x',
        '  y"',
        "b: &m 1",
        "c: *m",
        "d: !!str 4",
        "? k",
        ": v",
        "<<: {q: 1}",
        "e: f # g",
        "  - h",
        "key: >-",
    ]
)


def _read(text: str) -> list[object]:
    return [value for _, value in YamlDocuments().read(text.splitlines(keepends=True))]


@settings(max_examples=150)
@given(st.lists(st.dictionaries(_KEYS, _VALUES, min_size=1, max_size=4), max_size=4))
def test_what_yaml_writes_is_read_as_yaml_reads_it(documents: list[dict[str, object]]) -> None:
    """Documents that a dumper writes."""
    text = yaml.safe_dump_all(documents)
    assert _read(text) == documents


@settings(max_examples=400)
@given(st.lists(_LINES, max_size=9), st.sampled_from(["\n", "\r\n"]))
def test_any_lines_are_read_or_refused_as_yaml_does(lines: list[str], end: str) -> None:
    """Lines that stand where they should not, cut quotes, anchors, comments."""
    text = end.join(lines) + end
    try:
        expected = [each for each in yaml.safe_load_all(text) if each is not None]
    except (yaml.YAMLError, ValueError):
        with pytest.raises(YamlDocumentError):
            _read(text)
        return
    assert [each for each in _read(text) if each is not None] == expected


def test_blocks_that_were_read_before_are_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two pods that differ in their name cost one reading of their spec."""
    calls = []
    load = yaml.load

    def counted(text: str, loader: type[yaml.CSafeLoader]) -> object:
        calls.append(text)
        return load(text, loader)

    monkeypatch.setattr("replay.kube.documents.yaml.load", counted)
    pod = "kind: Pod\nmetadata:\n  name: {}\nspec:\n  containers:\n  - cpu: 5\n"
    text = pod.format("a-1") + "---\n" + pod.format("b") + "---\n" + pod.format("c")
    names = [value["metadata"]["name"] for value in _read(text) if isinstance(value, dict)]
    assert names == ["a-1", "b", "c"]
    assert calls == ["spec:\n  containers:\n  - cpu: 5\n"]


def test_lines_are_counted_over_documents() -> None:
    """Of documents, and of what is wrong in one."""
    text = "# head\n---\na: 1\n---\n\n---\nb: 2\n...\n"
    found = list(YamlDocuments().read(text.splitlines(keepends=True)))
    assert found == [(2, {"a": 1}), (6, {"b": 2})]
    with pytest.raises(YamlDocumentError) as refusal:
        _read("a: 1\n---\nb: 1\nc: d: e\n")
    assert refusal.value.line == 4
