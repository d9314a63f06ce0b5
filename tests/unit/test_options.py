"""Options of the command line that are declared as fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from replay.cli.sections import SectionedCommand
from replay.options import DURATION, TEXT_FILE, long_name, option, takes


@dataclass(frozen=True, slots=True, kw_only=True)
class Tea:
    """How a cup of tea is made."""

    steeps_ns: int = option("--steep", type=DURATION, default="3m", show_default=True)
    herbs: tuple[str, ...] = option("--herb", multiple=True, section="Leaves")
    is_sweet: bool = option("--sweet", is_flag=True)
    amounts: Mapping[str, int] = option(
        "--amount-of",
        multiple=True,
        callback=lambda _ctx, _param, names: {"water": 1, **dict.fromkeys(names, 1)},
    )
    recipe: str | None = option("--recipe", type=TEXT_FILE)
    note: str = ""


made: list[tuple[Tea, str]] = []


@click.command(cls=SectionedCommand)
@takes("tea", Tea)
@click.option("--cup", default="small")
def command(*, tea: Tea, cup: str) -> None:
    """Make tea."""
    made.append((tea, cup))


def _made(*arguments: str) -> tuple[Tea, str]:
    result = CliRunner().invoke(command, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return made.pop()


def test_a_command_receives_one_value_of_the_options_of_a_class() -> None:
    """Its own options stay arguments of their own."""
    tea, cup = _made(
        "--steep", "90s", "--herb", "mint", "--herb", "sage", "--sweet", "--cup", "big"
    )
    assert tea == Tea(steeps_ns=90 * 10**9, herbs=("mint", "sage"), is_sweet=True)
    assert cup == "big"


def test_a_command_line_without_options_has_the_defaults_of_the_class() -> None:
    """In whatever notation they are declared."""
    assert _made() == (Tea(), "small")
    assert Tea().steeps_ns == 180 * 10**9
    assert Tea().amounts == {"water": 1}
    assert Tea().amounts is not Tea().amounts


def test_a_file_is_its_text(tmp_path: Path) -> None:
    """A file that is not text is refused by its path."""
    path = tmp_path / "recipe"
    path.write_text("boil", encoding="utf-8")
    assert _made("--recipe", str(path))[0].recipe == "boil"
    path.write_bytes(b"\xff")
    result = CliRunner().invoke(command, ["--recipe", str(path)])
    assert (result.exit_code, "recipe: is not UTF-8" in result.output) == (2, True)


@pytest.mark.parametrize(("field", "name"), [("steeps_ns", "steep"), ("amounts", "amount_of")])
def test_an_option_has_a_long_name(field: str, name: str) -> None:
    """As a manifest has it."""
    assert long_name(Tea.__dataclass_fields__[field]) == name


def test_an_option_is_listed_in_the_section_that_it_declares() -> None:
    """Others are at the end."""
    text = CliRunner().invoke(command, ["--help"]).output
    assert text.index("Leaves:") < text.index("--herb") < text.index("Other options:")
    assert text.index("Other options:") < text.index("--steep")
