"""What options accept, and how they refuse."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from replay.cli.parameters import TRACE_FILE, echo_data
from replay.cli.traces import TraceArguments, trace_options
from replay.importers.option_types import QOS_PRIORITY
from replay.trace.writer import SUFFIXES

_OPENB = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase\n"


@pytest.mark.parametrize(("text", "value"), [("LS=7", ("LS", 7)), ("BE=-1", ("BE", -1))])
def test_a_qos_has_a_priority(text: str, value: tuple[str, int]) -> None:
    """Negative ones too."""
    assert QOS_PRIORITY.convert(text, None, None) == value


@pytest.mark.parametrize("text", ["LS", "=1", "LS=high", "LS=1000000001", "LS=1.5", "LS="])
def test_a_broken_priority_is_refused(text: str) -> None:
    """Nothing is guessed."""
    with pytest.raises(click.BadParameter):
        QOS_PRIORITY.convert(text, None, None)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_trace_is_written_under_its_endings(tmp_path: Path, suffix: str) -> None:
    """All suffixes that the writer supports."""
    assert TRACE_FILE.convert(tmp_path / f"x{suffix}", None, None) == tmp_path / f"x{suffix}"


@pytest.mark.parametrize("name", ["x.json", "x", "."])
def test_another_ending_is_refused(tmp_path: Path, name: str) -> None:
    """A folder as well."""
    with pytest.raises(click.BadParameter):
        TRACE_FILE.convert(tmp_path / name, None, None)


def test_a_given_priority_replaces_one_qos_and_leaves_the_rest(tmp_path: Path) -> None:
    """The defaults of the others stay."""
    pods = tmp_path / "pods.csv"
    pods.write_text(_OPENB + "a,1,1,0,0,,LS,Running\nb,1,1,0,0,,Burstable,Running\n")
    given: list[TraceArguments] = []
    command = click.command(trace_options(lambda *, trace: given.append(trace)))
    command.main([str(pods), "--qos-priority", "LS=5"], standalone_mode=False)
    (trace,) = given
    classes = {
        record.create.priority_class.metadata.name: record.create.priority_class.value
        for record in trace.records()
        if record.create.HasField("priority_class")
    }
    assert classes == {"ls": 5, "burstable": 100}


def test_data_for_programs_is_yaml_that_kubectl_reads_as_the_same(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A name such as `y` is a boolean to kubectl where it has no quotes."""
    echo_data({"name": "y", "number": 12}, "yaml")
    assert capsys.readouterr().out == "name: 'y'\nnumber: 12\n"
