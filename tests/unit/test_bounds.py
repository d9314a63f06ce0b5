"""What exceeds a bound is refused with its place, the bound and the option that raises it."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path

import pytest
import zstandard

from replay import bounds
from replay.bounds import Bounds
from replay.errors import TraceError
from replay.importers.registry import open_trace
from replay.kube.documents import read_documents

NODE = '{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}\n'


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    yield
    bounds.set_bounds(Bounds())


def refusal(path: Path, content: str | bytes, **values: int) -> str:
    """Return why a file of that content is refused within these bounds."""
    bounds.set_bounds(Bounds(**values))
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(TraceError) as refused:
        list(read_documents(path))
    return str(refused.value)


@pytest.mark.parametrize(
    "content",
    [
        "[" * 30_000 + "]" * 30_000,
        "a: " + "[" * 30_000 + "]" * 30_000,
        "a: " + '{"b": ' * 30_000 + "1" + "}" * 30_000,
        "\n".join(" " * each + "a:" for each in range(2_000)),
        "a:\n  " + "- " * 30_000 + "x",
        "metadata:\n  labels: " + "[" * 30_000,
        '{"a":' * 100_000 + "1" + "}" * 100_000,
        '{"a":\n' * 100_000 + "1" + "}" * 100_000,
        '{"a":' * 700 + "1" + "}" * 700,
    ],
    ids=["list", "flow", "map", "block", "compact", "cut", "json", "json-lines", "orjson"],
)
def test_deep_nesting_is_refused(tmp_path: Path, content: str) -> None:
    """Neither libyaml's recursion nor Python's is reached."""
    text = refusal(tmp_path / "deep.yaml", content)
    assert text.startswith(f"{tmp_path / 'deep.yaml'}, line 1")
    assert text.endswith("it is nested too deeply; the bound is 500, and --max-depth raises it")


def test_aliases_that_expand_to_a_billion_are_refused(tmp_path: Path) -> None:
    """Ten levels of ten aliases each are a small file."""
    levels = [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    text = refusal(tmp_path / "a.yaml", "\n".join(["a0: &a0 [lol, lol]", *levels]))
    assert "its aliases expand too much; the bound is 1,000, and --max-expansion" in text


def test_aliases_that_expand_little_are_read(tmp_path: Path) -> None:
    """As in manifests that name a value twice."""
    (tmp_path / "a.yaml").write_text("a: &x {b: 1}\nc: [*x, *x]\n")
    [(_, value)] = read_documents(tmp_path / "a.yaml")
    assert value == {"a": {"b": 1}, "c": [{"b": 1}, {"b": 1}]}


@pytest.mark.parametrize("content", [f'"{"x" * 5000}"', f"# {'x' * 5000}\na: b\n"])
def test_a_long_line_is_refused(tmp_path: Path, content: str) -> None:
    """Before the rest of it is read."""
    text = refusal(tmp_path / "a.yaml", content, line_bytes=4096)
    assert "line 1: the line is too long; the bound is 4,096, and --max-line-bytes" in text


@pytest.mark.parametrize("content", ["[\n" + "1,\n" * 5000, "a:\n" + "- b\n" * 5000])
def test_a_large_object_is_refused(tmp_path: Path, content: str) -> None:
    """However short its lines are."""
    text = refusal(tmp_path / "a.yaml", content, object_bytes=4096)
    assert "line 1: the object is too large; the bound is 4,096, and --max-object-bytes" in text


@pytest.mark.parametrize("compress", [gzip.compress, zstandard.compress])
def test_content_that_expands_too_much_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compress: object
) -> None:
    """A small file of zeros, or of one line over and over."""
    monkeypatch.setattr(bounds, "_EXPANSION_FROM_BYTES", 1 << 20)
    text = refusal(tmp_path / "a", compress(NODE.encode() * 100_000), expansion=50)  # type: ignore[operator]
    assert "its compressed content expands too much; the bound is 50, and --max-exp" in text


@pytest.mark.parametrize("kind", ["Deployment", "ReplicaSet", "StatefulSet"])
def test_an_object_that_asks_for_too_many_pods_is_refused(tmp_path: Path, kind: str) -> None:
    """By its name."""
    (tmp_path / "a.yaml").write_text(
        f"apiVersion: apps/v1\nkind: {kind}\nmetadata: {{name: web, namespace: d}}\n"
        "spec:\n  replicas: 2000000000\n  selector: {matchLabels: {a: b}}\n"
        "  template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c}]}}\n"
    )
    with pytest.raises(TraceError) as refused:
        list(open_trace([tmp_path / "a.yaml"]))
    assert str(refused.value) == (
        f"{tmp_path / 'a.yaml'}, d/web: replicas is 2,000,000,000; the bound is 1,000,000, and "
        "--max-pods-per-object raises it"
    )
