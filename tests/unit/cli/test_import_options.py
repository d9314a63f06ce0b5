"""Tests of the options of single formats, as a user writes them."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from click.testing import CliRunner

from replay.cli import traces
from replay.cli.commands.traces import validate_command
from replay.importers.records import ImportOptions
from replay.importers.registry import IMPORTERS
from reprieve.trace.v1beta1.trace_pb2 import Record

_CONFIG = """\
- name: Basic
  workloadTemplate:
  - {opcode: createNodes, countParam: $nodes}
  - {opcode: createPods, count: 2}
  - {opcode: createPods, count: 1}
  workloads:
  - {name: small, params: {nodes: 2}}
"""
_PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli\np,1,2,0,0\n"


def _run(path: Path, text: str, *options: str) -> tuple[int, str]:
    file = path / "trace.txt"
    file.write_text(text)
    result = CliRunner().invoke(validate_command, [str(file), *options])
    return result.exit_code, result.output


def test_every_format_can_be_named() -> None:
    """In the registry's order. The copy of the names loads no importer."""
    assert tuple(IMPORTERS) == traces.FORMATS


def test_parameters_of_a_workload_are_given_one_by_one(tmp_path: Path) -> None:
    """Read as YAML would read them."""
    options = ("--workload", "Basic/small", "--param", "nodes=7", "--wait", "1m")
    code, output = _run(tmp_path, _CONFIG, *options)
    assert code == 0
    assert "7 node" in output
    assert "time      1m" in output


def test_made_nodes_have_the_requested_size(tmp_path: Path) -> None:
    """For a trace that has none; without them the report says how to get some."""
    code, output = _run(tmp_path, _PODS, "--made-nodes", "3", "--node-size", "cpu=8,x.y/gpu=2")
    assert code == 0
    assert "3 node" in output
    assert "hint" not in output
    code, output = _run(tmp_path, _PODS)
    assert code == 0
    assert "hint      --made-nodes" in output


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--param", "nodes"), "'nodes' is not a parameter; write initNodes=5000"),
        (("--param", "nodes=[1]"), "'nodes=[1]' is not a parameter"),
        (("--node-size", "cpu=much"), "'cpu=much' is not RESOURCE=QUANTITY; write"),
        (("--node-size", "cpu=-1"), "'cpu=-1' is not RESOURCE=QUANTITY"),
        (("--node-size", "CPU=1"), "'CPU' is not the name of a resource"),
        (("--unit-memory", "0"), "'0' is not a size; write 256Gi"),
        (("--unit-cpu", "0"), "0 is not in the range"),
        (("--allocatable", "0"), "0 is not in the range"),
        (("--nodes-from", "none.yaml"), "does not exist"),
    ],
)
def test_a_malformed_value_of_an_option_is_refused(
    tmp_path: Path, options: tuple[str, ...], problem: str
) -> None:
    """With an example of what does."""
    code, output = _run(tmp_path, _PODS, *options)
    assert code == 2
    assert problem in " ".join(output.split())


def test_the_header_has_the_chosen_options(tmp_path: Path) -> None:
    """So a converted trace records how it was made."""
    trace = traces.TraceArguments(
        paths=(tmp_path / "pods.csv",), options=ImportOptions(made_nodes=2, machine="16")
    )
    (tmp_path / "pods.csv").write_text(_PODS)
    records: list[Record] = list(trace.records())
    assert dict(records[0].header.options) == {"made_nodes": "2", "machine": "16"}


def test_a_report_for_programs_has_no_hint(tmp_path: Path) -> None:
    """JSON is JSON."""
    code, output = _run(tmp_path, _PODS, "-o", "json")
    assert code == 0
    assert orjson.loads(output)["objects"] == {"pod": 1}
