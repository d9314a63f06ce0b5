"""Whose pods a configuration file's profiles schedule."""

from __future__ import annotations

import pytest

from replay.cli.scheduler_names import profile_names


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
    """A file that says nothing, or that the scheduler will refuse, names the default."""
    assert profile_names(text) == names
