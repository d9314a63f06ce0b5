"""Names and texts of a trace reach a terminal without control characters."""

from __future__ import annotations

import io
import json
import logging
import os
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.table import Table
from rich.text import Text

from replay.cli.commands.runs import query_command
from replay.cli.console import TerminalConsole
from replay.report.page import ReportHead, page
from replay.report.section import ReportSection, open_source
from replay.results.summary.table import plain_table
from replay.results.tables.query import RunTables
from services.terminal import LogFormatter, csv_text, echo, escaped, one_line
from tests.unit.results.small_run import small_run

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


def test_a_dumb_terminal_has_its_own_width(monkeypatch: pytest.MonkeyPatch) -> None:
    """As TERM=dumb has it, without control sequences."""
    monkeypatch.setenv("TERM", "dumb")
    for name in ("COLUMNS", "LINES"):
        monkeypatch.delenv(name, raising=False)
    size = os.terminal_size((60, 24))
    # pytest's own reporter calls it, too.
    monkeypatch.setattr("shutil.get_terminal_size", lambda *_, **__: size)
    stream = io.StringIO()
    console = TerminalConsole(file=stream, force_terminal=True)
    console.print("word " * 30)
    assert max(map(len, stream.getvalue().splitlines())) <= 60
    assert "\x1b" not in stream.getvalue()


def _table(console_width: int, *rows: tuple[str, ...]) -> list[str]:
    stream = io.StringIO()
    table = plain_table("OWNER", ("COUNT", "right"), "SIGNAL", "NODES")
    for row in rows:
        table.add_row(*row)
    TerminalConsole(file=stream, width=console_width).print(table)
    return stream.getvalue().splitlines()


def test_a_narrow_table_wraps_between_words_first() -> None:
    """The column with the most to give is the first to be narrower; numbers stay whole."""
    row = ("ReplicaSet default/cache", "1,000 %", "memory.available", "worker-2, worker-1")
    lines = _table(60, row)
    words = {word for line in lines for word in line.split()}
    assert {"default/cache", "memory.available", "worker-2,", "worker-1", "1,000"} <= words
    assert max(map(len, lines)) <= 60
    assert any("1,000 %" in line for line in lines)


def test_a_word_is_broken_anywhere_as_a_last_resort() -> None:
    """No line is wider than the terminal."""
    lines = _table(30, ("x" * 40, "1", "memory.available", "n"))
    assert max(map(len, lines)) <= 30
    assert "".join(line.split()[0] for line in lines if line.startswith("x")) == "x" * 40


def _sweep(console_width: int) -> list[str]:
    stream = io.StringIO()
    table = plain_table("priorityClass.batch.value", ("RUNS", "right"), ("waited_p99, s", "right"))
    table.add_row("pool=gpu:-1", "1", "12.5")
    TerminalConsole(file=stream, width=console_width).print(table)
    return [line.rstrip() for line in stream.getvalue().splitlines()]


def test_columns_stand_closer_before_a_word_is_broken() -> None:
    """46 characters suffice where gaps are of two spaces and a heading is wrapped."""
    assert _sweep(51) == [
        "priorityClass.batch.value   RUNS   waited_p99, s",
        "pool=gpu:-1                    1            12.5",
    ]
    assert _sweep(46) == [
        "                                 waited_p99,",
        "priorityClass.batch.value  RUNS            s",
        "pool=gpu:-1                   1         12.5",
    ]


def test_words_are_broken_after_punctuation_if_possible() -> None:
    """Of a heading, and of a cell."""
    assert _sweep(32) == [
        "priorityClass.      waited_p99,",
        "batch.value    RUNS           s",
        "pool=gpu:-1       1        12.5",
    ]


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("web-0", "web-0"),
        ("=1+1", "'=1+1"),
        ("+1", "'+1"),
        ("-1", "'-1"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("\uff1d1", "'\uff1d1"),
        ("\t=1", r"\x09=1"),
        ("a\nb\x1b[2J\u202e", r"a\x0ab\x1b[2J\u202e"),
    ],
)
def test_a_cell_of_csv_is_one_line_and_no_formula(text: str, cell: str) -> None:
    """A spreadsheet shows it, and computes nothing."""
    assert csv_text(text) == cell


def test_a_query_s_csv_has_no_control_characters_and_no_formulas(tmp_path: Path) -> None:
    """Numbers are numbers, also negative ones; JSON has the very bytes."""
    run = str(small_run(tmp_path / "run").path)
    sql = "SELECT '=1' AS \"=a\", chr(27) || chr(10) AS b, -1 AS c, ['='] AS d"
    done = CliRunner().invoke(query_command, [run, sql, "-o", "csv"])
    assert done.stdout.splitlines() == ["'=a,b,c,d", r"""'=1,\x1b\x0a,-1,"[""=""]" """.strip()]
    done = CliRunner().invoke(query_command, [run, sql, "-o", "json"])
    assert json.loads(done.stdout) == [{"=a": "=1", "b": "\x1b\n", "c": -1, "d": ["="]}]


def test_the_report_has_no_control_characters_of_a_run(tmp_path: Path) -> None:
    """Neither in cells nor in charts: a name with a newline is not a line of the file."""
    with RunTables(small_run(tmp_path / "run")) as tables:
        source = open_source(tables)
        (row,) = source.rows("SELECT chr(10) || 'ssh-rsa', [chr(27)], MAP {'a' || chr(13): 1}")
    assert row == (r"\x0assh-rsa", [r"\x1b"], {r"a\x0d": 1})
    section = ReportSection(
        key="k", title="t", note="", empty="", columns=("a",), rows=[["\nssh-rsa"]], tabular=True
    )
    head = ReportHead(title="\x1b\nssh-rsa", facts=[("a", "\nssh-rsa")], described=[])
    text = page(head, [section])
    assert "\nssh-rsa" not in text
    assert "\x1b" not in text
    assert text.count(r"\x0assh-rsa") >= 3
