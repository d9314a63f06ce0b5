"""`reprieve compare`: which of runs, traces and options go together."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from replay.cli.commands.compare import command
from replay.results.run.files import MANIFEST


@pytest.mark.parametrize(
    "arguments",
    [
        ["one", "two", "--b", "--seed 1"],
        ["one", "two", "--scheduler", "127.0.0.1:1"],
        ["one", "two", "--a", "--seed 1"],
        ["one", "--a", "--seed 1"],
        ["trace", "two", "--b", "--seed 1"],
    ],
)
def test_a_run_is_not_read_as_a_trace_where_options_are_given(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Options of a replay need a trace, or one run whose command is repeated as B."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / MANIFEST).write_text("{}", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(command, arguments)
    assert result.exit_code == 2
    assert "is a run, which has its options already" in result.output
