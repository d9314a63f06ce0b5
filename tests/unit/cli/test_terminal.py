"""Names and texts of a trace reach a terminal without control characters."""

from __future__ import annotations

import io
import logging
import sys

import pytest
from rich.table import Table
from rich.text import Text

from replay.cli.console import TerminalConsole
from services.terminal import LogFormatter, echo, escaped, one_line

EVIL = "a\x1b]0;owned\x07b\rc\u202ed\x9be"
SHOWN = "a\\x1b]0;owned\\x07b\\x0dc\\u202ed\\x9be"


def test_control_characters_are_shown_as_escapes() -> None:
    """C0, C1 and bidi controls; tabs, line ends and other languages stay."""
    assert escaped(EVIL) == SHOWN
    assert escaped("tab\tline\nübung 漢字") == "tab\tline\nübung 漢字"
    assert one_line("a\tb\nc") == "a\\x09b\\x0ac"


@pytest.mark.parametrize("err", [False, True])
def test_text_for_people_is_escaped(capsys: pytest.CaptureFixture[str], *, err: bool) -> None:
    """On both streams."""
    echo(EVIL, err=err)
    assert capsys.readouterr()[err] == f"{SHOWN}\n"


def test_a_services_log_is_escaped() -> None:
    """A message is one line; a traceback keeps its own lines."""
    try:
        raise ValueError(EVIL)
    except ValueError:
        problem = sys.exc_info()
    record = logging.LogRecord("reprieve", 40, "x.py", 1, f"{EVIL}\n%s", (EVIL,), problem)
    first, *rest = LogFormatter().format(record).split("\n")
    assert first == f"{SHOWN}\\x0a{SHOWN}"
    assert rest[-1] == f"ValueError: {SHOWN}"


def test_tables_and_styled_texts_are_escaped_and_rich_keeps_its_own_codes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Cells, titles, markup and Text; colours are rich's."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    out = io.StringIO()
    console = TerminalConsole(file=out, force_terminal=True, width=200, color_system="standard")
    table = Table(EVIL)
    table.add_row(f"[red]{EVIL}")
    table.add_row(Text(EVIL))
    console.print(table)
    console.print(EVIL, markup=False, highlight=False)
    printed = out.getvalue()
    assert printed.count(SHOWN) == 3
    assert printed.count("\\x1b]0;owned") == 4, "rich drops BEL and CR of a Text itself"
    assert "\x1b[31m" in printed
    assert not {"\x07", "\r", "\u202e", "\x9b"} & set(printed)
    assert "\x1b]" not in printed


def piped(monkeypatch: pytest.MonkeyPatch, **environment: str) -> str:
    """Return what a console writes into a pipe: a table with a long cell and a short last one."""
    for name in ("COLUMNS", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    out = io.StringIO()
    table = Table("NAME", "LAST", box=None)
    table.add_row("x" * 300, "a longer cell")
    table.add_row("y", "short")
    TerminalConsole(file=out).print(table)
    return out.getvalue()


def test_nothing_is_wrapped_or_cut_in_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name of 300 characters is one word of one line; no line ends with a space."""
    lines = piped(monkeypatch).splitlines()
    assert [len(line.split()) for line in lines] == [2, 4, 2]
    assert "x" * 300 in lines[1]
    assert lines == [line.rstrip() for line in lines]


def test_columns_asks_for_a_width_in_a_pipe_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """As documentation needs it."""
    assert max(map(len, piped(monkeypatch, COLUMNS="60").splitlines())) <= 60
