"""`reprieve compare`: which of runs, traces and options go together."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from click.testing import CliRunner

from replay.cli.commands.compare import _print_figures, command
from replay.cli.console import TerminalConsole
from replay.results.run.files import MANIFEST
from replay.whatif.comparison import FigureChange


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


def test_the_name_of_a_figure_stays_in_one_line_of_80_columns() -> None:
    """Even if wide values leave little room, because users copy the name to --assert."""
    changes = (
        FigureChange(name="waited_so_far_mean", a=1234567890.25, b=98765432109.5),
        FigureChange(name="invalid_preemptions", a=3.0, b=12345678901.0),
    )
    out = io.StringIO()
    _print_figures(changes, TerminalConsole(file=out, width=80), wide=True)
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[1].startswith("waited_so_far_mean, s ")
    assert lines[2].startswith("invalid_preemptions ")
