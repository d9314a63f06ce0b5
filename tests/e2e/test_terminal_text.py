"""No control character of a trace reaches a terminal, whatever command prints it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.commands import REFUSED, Done, reprieve
from tests.e2e.replays import ROOT

EVIL = "\x1b]0;owned\x07\r\n\u202eInjected"
TRACES = ROOT / "examples" / "traces"
_TEXTS = frozenset(
    {"name", "namespace", "generateName", "source", "importer", "description", "image", "message"}
    | {"reason", "nodeName", "key", "value", "podIP", "kind"}
)
_KINDS = frozenset({"ReplicaSet", "Deployment", "Job"})


def _evil(value: Any, key: str = "") -> Any:
    """Return a record in which names, texts and labels hold control characters."""
    match value:
        case dict() if key == "priorityClass":
            return value  # its name must be a DNS subdomain
        case dict() if key in {"labels", "matchLabels", "annotations"}:
            return {f"{name}{EVIL}": f"{text}{EVIL}" for name, text in value.items()}
        case dict():
            return {name: _evil(item, name) for name, item in value.items()}
        case list():
            return [_evil(item, key) for item in value]
        case str() if key in _TEXTS and value not in _KINDS:
            return value + EVIL
        case _:
            return value


def _refused_pod(name: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "default", "uid": "evil-1"},
        "spec": {
            "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}],
            "nodeSelector": {"a": "b"},
        },
    }


def _trace(folder: Path, source: str, *, at_ns: int) -> Path:
    """Write a trace like `source`, with a tainted node and a pod that no node fits."""
    records = [json.loads(line) for line in (TRACES / source).read_text().splitlines()]
    tainted = {
        "metadata": {"name": "tainted"},
        "spec": {"taints": [{"key": "dedicated", "value": "x", "effect": "NoSchedule"}]},
        "status": {"allocatable": {"cpu": "8", "memory": "8Gi", "pods": "110"}},
    }
    first, rest = records[:2], records[2:]
    more = {"atNs": first[1]["atNs"], "create": {"node": tainted}}
    early = [line for line in rest if int(line["atNs"]) <= at_ns]
    late = rest[len(early) :]
    pod = {"atNs": str(at_ns), "podCreate": {"pod": _refused_pod("misfit")}}
    written = [*first, more, *early, pod, *late]
    path = folder / source
    lines = [_evil({**line, "sequence": str(n)}) for n, line in enumerate(written, 1)]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines), "utf-8")
    return path


def _assert_clean(done: Done) -> str:
    """Only newlines and colours are left, and none of the names' newlines."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout + done.stderr)
    control_characters = set(re.findall("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e]", text))
    assert not control_characters, text
    assert not re.search(r"^\s*(\\u202e)?Injected", text, re.MULTILINE), text
    return text


def _compact(text: str) -> str:
    return re.sub(r"\s", "", text)


_ESCAPED = "\\x1b]0;owned\\x07\\x0d\\x0a\\u202eInjected"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with two traces and three runs of them."""
    folder = tmp_path_factory.mktemp("evil")
    for source, run, *options in (
        ("nginx-preemption.jsonl", "a"),
        ("nginx-preemption.jsonl", "b", "--disable-preemption"),
        ("eviction-loop.jsonl", "c"),
    ):
        at_ns = 0 if run == "c" else 1_571_904_009_000_000_000
        trace = _trace(folder, source, at_ns=at_ns)
        done = reprieve(
            folder, "replay", str(trace), "--run", run, "--in-process", *options, COLUMNS="900"
        )
        assert _ESCAPED in _compact(_assert_clean(done))
    return folder


@pytest.mark.parametrize(
    "arguments",
    [
        "get pods a -o wide -A",
        "get pods c -A -w",
        "get nodes a -o wide",
        "get events a -A -o wide",
        "get events c -A",
        "get po,rs a -o name",
        "describe pods a",
        "describe nodes c --at 9m",
        "query a FROM:decisions",
        "query a FROM:pods",
        "query c FROM:evictions",
        "explain evil-1 a",
        "explain 6f7f8c9e-6c2b-4f0a-9a1d-0d2a5a1f0005 a --attempt 1",
        "compare a b -o wide",
        "compare a b",
        "validate nginx-preemption.jsonl",
        "validate eviction-loop.jsonl -o wide",
    ],
)
def test_no_command_prints_a_traces_control_characters(folder: Path, arguments: str) -> None:
    """Names, messages, labels, taints, sources and kinds; newlines within them are escaped too."""
    done = reprieve(
        folder, *(argument.replace(":", " ") for argument in arguments.split()), COLUMNS="900"
    )
    assert _ESCAPED in _compact(_assert_clean(done))


@pytest.mark.parametrize("output", ["json", "yaml"])
@pytest.mark.parametrize(
    "arguments",
    ["get pods a -A", "get nodes a", "query a FROM:pods", "compare a b", "explain evil-1 a"],
)
def test_output_for_programs_has_control_characters_as_its_own_escapes(
    folder: Path, arguments: str, output: str
) -> None:
    """A program reads the very names, and a terminal shows no line in reverse."""
    words = (argument.replace(":", " ") for argument in arguments.split())
    done = reprieve(folder, *words, "-o", output)
    _assert_clean(done)
    read = json.loads(done.stdout) if output == "json" else yaml.safe_load(done.stdout)
    assert json.dumps(EVIL)[1:-1] in json.dumps(read)


def test_names_of_files_are_escaped(folder: Path) -> None:
    """In the line that convert prints, and in click's own messages."""
    name = f"new{EVIL}.jsonl"
    done = reprieve(folder, "convert", "nginx-preemption.jsonl", "-o", name)
    assert _ESCAPED in _assert_clean(done)
    for arguments in (("validate", f"missing{EVIL}"), ("replay", f"--none{EVIL}")):
        _assert_clean(reprieve(folder, *arguments, code=REFUSED))


def test_refusals_of_a_trace_are_one_line(folder: Path) -> None:
    """With the name of the object that is at fault."""
    path = folder / "refused.jsonl"
    lines = (folder / "nginx-preemption.jsonl").read_text("utf-8").splitlines()
    record = json.loads(lines[2])
    record["create"]["node"]["status"][f"unknown{EVIL}"] = "x"
    path.write_text("\n".join([lines[0], json.dumps(record)]), "utf-8")
    for command in ("validate", "replay"):
        done = reprieve(folder, command, str(path), code=REFUSED)
        _assert_clean(done)
        assert done.stderr.strip().count("\n") == 0
