"""Whose pods a configuration file's profiles schedule."""

from __future__ import annotations

from pathlib import Path

import pytest

from replay.cli.traces import TraceArguments
from replay.settings import ReplaySettings
from tests.unit.importers.builders import kinds, line, make_pod


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", ("default-scheduler",)),
        ("profiles: []", ("default-scheduler",)),
        ("profiles: [{}, {schedulerName: batch}]", ("default-scheduler", "batch")),
        ("profiles: [{schedulerName: batch}]", ("batch",)),
        ("profiles: [{schedulerName: 1}, {schedulerName: 1}]", ("1",)),
        ("{", ("default-scheduler",)),
        ("- a list", ("default-scheduler",)),
    ],
)
def test_each_profile_has_a_name(text: str, names: tuple[str, ...]) -> None:
    """For a file without names, or an invalid one, the default is used."""
    assert ReplaySettings(kube_scheduler_configuration=text).scheduler_names == names


def test_a_recording_is_imported_for_the_schedulers_that_are_served(tmp_path: Path) -> None:
    """A pending pod of another scheduler is no input; of a profile's it is."""
    waiting = make_pod("p", 2, spec={"schedulerName": "batch"})
    file = tmp_path / "recording.jsonl"
    file.write_bytes(line(1, "ADDED", waiting) + b"\n")
    trace = TraceArguments(paths=(file,))
    assert "pod_create" not in kinds(trace.records())
    assert "pod_create" in kinds(trace.records(["default-scheduler", "batch"]))
