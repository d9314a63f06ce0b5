"""Input beyond a bound is refused with its place, the bound and the option that raises it."""

from __future__ import annotations

import gzip
import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml
import zstandard
from click.testing import CliRunner

from replay import bounds
from replay.bounds import Bounds
from replay.cli.commands.traces import validate_command
from replay.errors import TraceError
from replay.importers.registry import open_trace
from replay.kube.documents import read_documents
from replay.overrides.assignment import parse_assignment
from replay.overrides.errors import OverrideError
from replay.overrides.files.configuration import scheduler_text
from services.config.strict import document
from services.typed import DataError

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
        "\n".join(" " * depth + "a:" for depth in range(2_000)),
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


_TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c"}]}}
_JOB = {"parallelism": 2_000_000_000, "template": _TEMPLATE}


def _greedy(kind: str) -> dict[str, Any]:
    """Return an object that requests two billion pods."""
    spec = {
        "Job": _JOB,
        "CronJob": {"schedule": "* * * * *", "jobTemplate": {"spec": _JOB}},
        "ReplicationController": {"replicas": 2_000_000_000, "template": _TEMPLATE},
    }.get(kind) or {
        "replicas": 2_000_000_000,
        "selector": {"matchLabels": {"a": "b"}},
        "template": _TEMPLATE,
    }
    version = {"Job": "batch/v1", "CronJob": "batch/v1", "ReplicationController": "v1"}
    own = {"name": "web", "namespace": "d", "creationTimestamp": "2026-01-01T00:00:00Z"}
    return {"apiVersion": version.get(kind, "apps/v1"), "kind": kind, "metadata": own, "spec": spec}


def _watch(raw: Any) -> str:
    return json.dumps({"type": "ADDED", "object": raw})


def _kwok(raw: Any) -> str:
    patch = {
        "kind": "ResourcePatch",
        "method": "create",
        "durationNanosecond": 5,
        "resource": {"resource": f"{raw['kind'].lower()}s"},
        "template": raw,
        "target": {"name": "web", "namespace": "d"},
    }
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}
    return yaml.safe_dump_all([node, patch])


def _audit(raw: Any) -> str:
    entry = {
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "stage": "ResponseComplete",
        "verb": "create",
        "responseStatus": {"code": 200},
        "responseObject": raw,
        "objectRef": {"resource": f"{raw['kind'].lower()}s"},
    }
    return json.dumps(entry)


@pytest.mark.parametrize("kind", ["Deployment", "Job", "CronJob", "ReplicationController"])
@pytest.mark.parametrize("written", [json.dumps, _watch, _kwok, _audit])
def test_a_recorded_object_that_asks_for_too_many_pods_is_refused(
    tmp_path: Path, kind: str, written: Callable[[Any], str]
) -> None:
    """In every format, and in a template of Jobs, too."""
    (tmp_path / "a").write_text(written(_greedy(kind)) + "\n")
    with pytest.raises(TraceError, match=r"d/web: .* is 2,000,000,000; the bound is 1,000,000"):
        list(open_trace([tmp_path / "a"]))


_PERF = """\
- name: T
  workloadTemplate:
  - {opcode: createNodes, count: 1}
  - %s
  - {opcode: sleep, duration: 10000h}
  workloads:
  - {name: w, params: {many: 2000000000}}
"""


@pytest.mark.parametrize(
    ("operation", "what"),
    [
        ("{opcode: createPods, count: 2000000000}", "createPods: the count"),
        ("{opcode: createPods, countParam: $many}", "createPods: the count"),
        ("{opcode: createNodes, count: 2000000000}", "createNodes: the count"),
        ("{opcode: createNamespaces, count: 2000000000}", "createNamespaces: the count"),
        (
            "{opcode: createPodSets, count: 50000, createPodsOp: {count: 40000}}",
            "createPodSets: the number of pods",
        ),
    ],
)
def test_an_operation_that_makes_too_many_objects_is_refused(
    tmp_path: Path, operation: str, what: str
) -> None:
    """Before it makes the first."""
    (tmp_path / "a.yaml").write_text(_PERF % operation)
    with pytest.raises(TraceError) as refused:
        list(open_trace([tmp_path / "a.yaml"]))
    text = f"{what} is 2,000,000,000; the bound is 1,000,000, and --max-pods-per-object raises it"
    assert str(refused.value).endswith(text)


def test_a_churn_that_makes_too_many_objects_is_refused(tmp_path: Path) -> None:
    """However long the workload sleeps."""
    bounds.set_bounds(Bounds(pods_per_object=1000))
    (tmp_path / "pod.yaml").write_text(json.dumps({"apiVersion": "v1", "kind": "Pod", "spec": {}}))
    operation = "{opcode: churn, mode: create, intervalMilliseconds: 1, templatePaths: [pod.yaml]}"
    (tmp_path / "a.yaml").write_text(_PERF % operation)
    with pytest.raises(TraceError, match=r"churn: the number of objects is 1,001; the bound is"):
        list(open_trace([tmp_path / "a.yaml"]))


def test_a_row_that_makes_too_many_pods_is_refused(tmp_path: Path) -> None:
    """Alibaba's batch tasks have a number of instances."""
    (tmp_path / "a.csv").write_text("5,9,1,2,2000000000,Terminated,50,0.1\n")
    with pytest.raises(TraceError, match=r"line 1: instances is 2,000,000,000; the bound is"):
        list(open_trace([tmp_path / "a.csv"]))


def test_a_database_whose_table_computes_without_end_is_refused(tmp_path: Path) -> None:
    """A view is a program."""
    path = tmp_path / "packing.sqlite"
    with closing(sqlite3.connect(path)) as database:
        database.execute(
            "CREATE TABLE vmType (id, vmTypeId, machineId, core, memory, hdd, ssd, nic)"
        )
        database.execute("INSERT INTO vmType VALUES (1, 3, 16, 0.1, 0.2, 0, 0.1, NULL)")
        database.execute(
            "CREATE VIEW vm AS "
            "WITH RECURSIVE a(vmId) AS (SELECT 1 UNION ALL SELECT vmId + 1 FROM a) "
            "SELECT vmId, 2 tenantId, 3 vmTypeId, 0 priority, 0.1 starttime, 0.2 endtime FROM a"
        )
        database.commit()
    with pytest.raises(TraceError, match="has no plain table vm"):
        next(open_trace([path]))


@pytest.mark.parametrize("lines", ["kind: Pod\n# " + "x" * 9000, "# " + "x" * 9000 + "\nkind: Pod"])
def test_detecting_a_format_refuses_a_long_line(tmp_path: Path, lines: str) -> None:
    """Kwok's recordings are recognised by a line that may come late."""
    bounds.set_bounds(Bounds(line_bytes=4096))
    (tmp_path / "a.yaml").write_text(f"apiVersion: v1\n{lines}\n")
    with pytest.raises(TraceError, match="the line is too long"):
        list(open_trace([tmp_path / "a.yaml"]))


@pytest.mark.parametrize("text", ["!!timestamp x", "!!bool x", "!!int x", "!!float x", "9" * 5000])
def test_a_scalar_of_a_wrong_type_is_invalid_yaml(text: str) -> None:
    """PyYAML has an AttributeError, a KeyError and a ValueError for these."""
    with pytest.raises(yaml.YAMLError, match="a value is not of its type"):
        bounds.yaml_value(text, "a")


_SIMKUBE_HEAD = b"\x84\xa7version\x02\xa6events\x91"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"\xc6\x00\x10\x00\x00" + b"x" * (1 << 20), "the object is too large; the bound is 4,096"),
        (b"\x91" * 5000, "it is nested too deeply; the bound is 500, and --max-depth raises it"),
    ],
)
def test_messagepack_has_the_same_bounds(tmp_path: Path, content: bytes, problem: str) -> None:
    """Its reader has limits of its own, which are set to them."""
    bounds.set_bounds(Bounds(object_bytes=4096))
    (tmp_path / "a").write_bytes(_SIMKUBE_HEAD + content)
    with pytest.raises(TraceError, match=problem):
        list(open_trace([tmp_path / "a"], format="simkube"))


_DEEP = "[" * 30_000


@pytest.mark.parametrize("key", ["priorityClass.batch.value", "podMaxBackoffSeconds"])
def test_an_override_that_is_nested_too_deeply_is_refused(key: str) -> None:
    """Its value is YAML."""
    with pytest.raises(OverrideError, match=r"it is nested too deeply; the bound is 500, and"):
        parse_assignment(f"{key}={_DEEP}").plain_value  # noqa: B018 - a property


def test_an_override_of_a_deep_file_is_refused() -> None:
    """Before the file is changed."""
    override = parse_assignment("podMaxBackoffSeconds=5")
    with pytest.raises(OverrideError, match=r"the file: it is nested too deeply; the bound is 500"):
        scheduler_text(f"a: {_DEEP}", [override], samples=False)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (f"a: {_DEEP}", "is nested more than 100 levels deep"),
        ("a: " + "[" * 150 + "]" * 150, "is nested more than 100 levels deep"),
        (
            "\n".join(
                ["a0: &a0 [1, 1]"]
                + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
            ),
            "has more than 100,000 values, aliases counted each time",
        ),
        ("a: !!timestamp x", "is neither YAML nor JSON"),
        ("a: !!bool x", "is neither YAML nor JSON"),
    ],
)
def test_a_configuration_beyond_its_bounds_is_refused(text: str, problem: str) -> None:
    """A service receives it from its callers."""
    with pytest.raises(DataError, match=problem):
        document(text)


def test_an_environment_variable_sets_a_bound(tmp_path: Path) -> None:
    """As other options have them."""
    (tmp_path / "a.json").write_text(
        '{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}'
    )
    result = CliRunner().invoke(
        validate_command, [str(tmp_path / "a.json")], env={"REPRIEVE_MAX_LINE_BYTES": "9"}
    )
    assert result.exception is not None
    assert "the bound is 9, and --max-line-bytes raises it" in str(result.exception)


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
