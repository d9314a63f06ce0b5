"""Tests of the fast YAML reader: it must read what a plain one reads."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.kubectl_list import kubectl_list
from replay.bounds import KubernetesYamlLoader, yaml_value
from replay.kube.documents import YamlDocumentError, YamlDocuments
from replay.kube.kinds import list_items
from services.kube.yaml_scalars import written

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
        "  name: 'n'",
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
        "- a: b",
        "  - a: 2026-01-31",
        "    b: 'q'",
        "    - c:",
        "      - d: []",
        "  # deeper",
        '  e: "x: y"',
        "  e: 'it''s'",
        "  e: é",
        "- - x",
        "-",
        "- |",
        "- {a: b}",
        "  on: 1",
        "  f: ~",
        "  f: -1e3",
        "  f: --x=y",
        "  f: a:b",
        "  f: a: b",
        '  "g": 1',
        "   odd: 1",
        "key: ",
        "\tx",
    ]
)
_KUBE = ["apiVersion: v1", "kind: Pod", "metadata:", "  name: 'n'", "spec: {}", "items: []"]
_ITEM = [f"{'- ' if not at else '  '}{text}" for at, text in enumerate(_KUBE[:4])]


def _read(text: str) -> list[object]:
    return [value for _, value in YamlDocuments().read(text.splitlines(keepends=True))]


@settings(max_examples=150)
@given(st.lists(st.dictionaries(_KEYS, _VALUES, min_size=1, max_size=4), max_size=4))
def test_what_yaml_writes_is_read_as_yaml_reads_it(documents: list[dict[str, object]]) -> None:
    """Documents that a dumper writes."""
    text = "---\n".join(map(written, documents))
    assert _read(text) == documents


@settings(max_examples=400)
@given(st.lists(_LINES, max_size=9), st.sampled_from(["\n", "\r\n"]))
def test_any_lines_are_read_or_refused_as_yaml_does(lines: list[str], end: str) -> None:
    """Lines that stand where they should not, cut quotes, anchors, comments."""
    text = end.join(lines) + end
    try:
        values = yaml.load_all(text, KubernetesYamlLoader)
        expected = [value for value in values if value is not None]
    except (yaml.YAMLError, ValueError):
        with pytest.raises(YamlDocumentError):
            _read(text)
        return
    assert [document for document in _read(text) if document is not None] == expected


@pytest.mark.parametrize("end", ["", " # noted"])
def test_a_time_without_quotes_is_a_string_as_for_kubectl(end: str) -> None:
    """Written by hand, as PyYAML would not read it; a comment sends the line to libyaml."""
    text = f"created: 2026-03-02T09:30:00Z{end}\nday: 2026-03-02{end}\n"
    assert _read(text) == [{"created": "2026-03-02T09:30:00Z", "day": "2026-03-02"}]


def _objects(value: object) -> list[object]:
    """Return the objects that a manifest importer takes from a document."""
    items = list_items(value) if isinstance(value, dict) else None
    return [value] if items is None else [*items]


@settings(max_examples=400)
@given(st.lists(st.tuples(st.integers(0, 40), _LINES), max_size=3), st.sampled_from("\n\r"))
def test_the_items_of_a_list_are_those_that_yaml_reads(
    changes: list[tuple[int, str]], end: str
) -> None:
    """A kubectl List with lines put in where they should not be: the same items, or refused."""
    lines = ["apiVersion: v1", "items:", *_ITEM, *_ITEM, *_ITEM, "kind: List", "metadata: {}"]
    for at, text in changes:
        lines.insert(at % len(lines), text)
    text = ("\r\n" if end == "\r" else "\n").join(lines)
    documents = YamlDocuments(lists=True)
    try:
        expected = yaml_value(text, "text")
    except (yaml.YAMLError, ValueError):
        with pytest.raises(YamlDocumentError):
            list(documents.read(text.splitlines(keepends=True)))
        return
    values = list[tuple[int, object]]()
    try:
        values.extend(documents.read(text.splitlines(keepends=True)))
    except YamlDocumentError as refusal:
        assert str(refusal) == "has items and is not a List"  # noqa: PT017 - else it is no refusal
        assert not str(expected["kind"]).endswith("List")
        return
    assert [item for _, value in values for item in _objects(value)] == _objects(expected)


def test_items_of_a_list_come_one_by_one_with_their_lines() -> None:
    """One by one, before the end of the List is read."""
    lines = ["apiVersion: v1", "items:", *_ITEM, *_ITEM, "kind: List", "metadata: {}"]
    values = YamlDocuments(lists=True).read(f"{line}\n" for line in lines)
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "n"}}
    assert list(values) == [(3, pod), (7, pod)]


def test_a_list_of_kubectls_is_read_as_libyaml_reads_it_and_hardly_by_libyaml(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """300 pods with block scalars, numbers, times in quotes: libyaml reads a few dozen texts."""
    text = "".join(kubectl_list(300))
    expected = yaml_value(text, "text")["items"]
    calls, load = [], yaml.load

    def counted(piece: str, loader: type[yaml.CSafeLoader]) -> object:
        calls.append(piece)
        return load(piece, loader)

    monkeypatch.setattr("replay.kube.documents.yaml.load", counted)
    lines = text.splitlines(keepends=True)
    values = list(YamlDocuments(lists=True).read(lines))
    assert [item for _, item in values] == expected
    assert all(lines[at - 1].startswith("- apiVersion") for at, _ in values)
    assert len(calls) < 100
    assert max(len(call.splitlines()) for call in calls) < 5


def test_a_list_with_an_alias_of_another_item_is_read_whole() -> None:
    """Its first items were yielded already, and are not yielded again."""
    first = [*_ITEM, "  spec: &s {x: 1}"]
    lines = ["apiVersion: v1", "items:", *_ITEM, *first, *_ITEM, "  spec: *s", "kind: List"]
    values = [value for _, value in YamlDocuments(lists=True).read(f"{line}\n" for line in lines)]
    assert values[0]["metadata"] == {"name": "n"}
    assert [document["spec"] for document in values[1]["items"]] == [{"x": 1}, {"x": 1}]


def test_what_is_wrong_in_a_long_list_has_its_line() -> None:
    """As libyaml counts it, in an item after others that were yielded."""
    lines = ["apiVersion: v1", "items:", *_ITEM * 50, "- kind: x: y", "kind: List"]
    with pytest.raises(YamlDocumentError) as refusal:
        list(YamlDocuments(lists=True).read(f"{line}\n" for line in lines))
    assert (refusal.value.line, refusal.value.column) == (203, 10)


def test_blocks_that_were_read_before_are_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three pods that differ in their name cost one reading of what libyaml has to read."""
    calls = []
    load = yaml.load

    def counted(text: str, loader: type[yaml.CSafeLoader]) -> object:
        calls.append(text)
        return load(text, loader)

    monkeypatch.setattr("replay.kube.documents.yaml.load", counted)
    pod = "kind: Pod\nmetadata:\n  name: {}\nspec:\n  containers:\n  - cpu: [5, x]\n"
    text = pod.format("a-1") + "---\n" + pod.format("b") + "---\n" + pod.format("c")
    names = [value["metadata"]["name"] for value in _read(text) if isinstance(value, dict)]
    assert names == ["a-1", "b", "c"]
    assert calls == ["    cpu: [5, x]\n"]


def test_lines_are_counted_over_documents() -> None:
    """Of documents, and of what is wrong in one."""
    text = "# head\n---\na: 1\n---\n\n---\nb: 2\n...\n"
    values = list(YamlDocuments().read(text.splitlines(keepends=True)))
    assert values == [(2, {"a": 1}), (6, {"b": 2})]
    with pytest.raises(YamlDocumentError) as refusal:
        _read("a: 1\n---\nb: 1\nc: d: e\n")
    assert refusal.value.line == 4
