"""Sections of a command's help."""

from __future__ import annotations

import re

import click
from click.testing import CliRunner

from replay.cli.commands import replay
from replay.cli.sections import SectionedCommand, section


def _titles(command: click.Command) -> list[str]:
    text = CliRunner().invoke(command, ["--help"]).output
    return re.findall(r"^(\S.*):$", text, re.M)


def test_options_are_listed_below_the_titles_of_their_sections() -> None:
    """An inner section keeps its options; arguments are in the usage line alone."""

    @click.command(cls=SectionedCommand)
    @section("First", click.option("--one"), section("Inner", click.option("--two")))
    @section("Second", click.argument("path"), click.option("--three"))
    @click.option("--four")
    def command(**_: object) -> None:
        """Do something."""

    assert _titles(command) == ["First", "Inner", "Second", "Other options"]
    text = CliRunner().invoke(command, ["--help"]).output
    assert [option for option in re.findall(r"^  (--\w+)", text, re.M) if option != "--help"] == [
        "--one",
        "--two",
        "--three",
        "--four",
    ]


def test_every_option_of_a_replay_has_a_section() -> None:
    """Only --help has none."""
    titles = _titles(replay.command)
    assert titles[:2] == ["Run", "Checks"]
    text = CliRunner().invoke(replay.command, ["--help"]).output
    assert re.findall(r"^  .*(--[\w-]+)", text.rpartition("Other options:\n")[2], re.M) == [
        "--help"
    ]
