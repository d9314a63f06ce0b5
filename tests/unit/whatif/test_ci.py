"""Results of checks for CI: JUnit XML that any reader takes, Markdown that shows what it quotes."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from replay.whatif.ci import CheckResult, checks_markdown, code, junit_xml, markdown_table, plain

HELD = CheckResult(name="bound >= 1", place="b", found="2 pods")
FAILED = CheckResult(
    name="pending{name=<a&b>} == 0", place="b", found="1 pod", failure="failed: \x1b]0;\x00 it is"
)
BROKEN = CheckResult(name="bound >= 1", place="c", error="no room")


def test_each_check_is_a_test_case() -> None:
    """With the sentence of one that failed, and the error of a run without figures."""
    root = ET.fromstring(junit_xml("reprieve sweep", [HELD, FAILED, BROKEN]))  # noqa: S314 - made here
    assert [root.get(name) for name in ("tests", "failures", "errors")] == ["3", "1", "1"]
    cases = list(root.iter("testcase"))
    assert [(case.get("classname"), len(case)) for case in cases] == [("b", 0), ("b", 1), ("c", 1)]
    assert cases[1].get("name") == "pending{name=<a&b>} == 0"
    failure = cases[1].find("failure")
    assert failure is not None
    assert failure.text == failure.get("message") == "failed: \ufffd]0;\ufffd it is"


def test_failed_checks_come_first() -> None:
    """With their runs, where there are several."""
    lines = checks_markdown([HELD, FAILED, BROKEN]).splitlines()
    assert lines[0] == "**2 of 3 checks failed**"
    assert lines[4].startswith("| **failed** | <code>pending{name=&#60;a&#38;b&#62;} ==")
    assert lines[5].endswith("| <code>c</code> | no room |")
    assert lines[6].startswith("| holds |")
    assert checks_markdown([HELD]).startswith("**All checks hold**")
    assert checks_markdown([]) == ""


def test_markdown_escapes_marks_of_names() -> None:
    """No markup, table cell, link, mention or second line."""
    wild = "a|b\n<img src=x> [x](http://y) @team #12 `c` **d** &amp; www.x"
    shown = plain(wild)
    assert not set("|<>[]*`\n") & set(shown)
    assert "http&#58;" in shown
    assert "&#64;&#8203;team &#35;&#8203;12" in shown
    assert "&#38;amp;" in shown
    assert "www&#46;x" in shown
    assert len(plain("x" * 1000)) == 200
    assert code("a_b") == "<code>a&#95;b</code>"


def test_a_table_has_a_line_for_each_row() -> None:
    """Numbers stand on the right."""
    assert markdown_table(("A", "B"), [("x", "1")], numbers=1).splitlines() == [
        "| A | B |",
        "| --- | ---: |",
        "| x | 1 |",
    ]
