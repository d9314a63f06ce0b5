"""Results of checks for CI: JUnit XML, and Markdown as GitHub renders it in summaries and comments.

Texts may come from a pull request: control characters and Markdown's marks are escaped, and names
stand in code elements, in which GitHub notifies nobody.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from replay.results.summary.figures import FIGURES
from replay.whatif.assertions import CheckedAssertion

_NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Source: Extensible Markup Language (XML) 1.0, production [2] Char."""
_MARKS = re.compile(r"[\\`*_\[\]<>&|~$@#]|:(?=\S)|(?<=www)\.")
_MENTIONS = "@#"
"""GitHub links what follows these marks also where they are escaped; a zero-width space ends it."""
_CELL_CHARS_MAX = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """One check of one run.

    place: the run, such as "A against B" or a point of a grid. found: "it is" and the figure, or
    why it has no value. failure: the sentence of a check that failed, "" if it holds. error: why
    the run has no figures to check, "" if it has.
    """

    name: str
    place: str
    found: str = ""
    failure: str = ""
    error: str = ""

    @classmethod
    def of(cls, checked: CheckedAssertion, place: str, point: str = "") -> CheckResult:
        """Return the result of a check that was made, at a point of a grid if there is one."""
        return cls(
            name=checked.assertion.text,
            place=place,
            found=checked.found,
            failure="" if checked.holds else checked.sentence_at(point),
        )

    @property
    def holds(self) -> bool:
        """Return whether the check was made and holds."""
        return not (self.failure or self.error)


def junit_xml(suite: str, results: Sequence[CheckResult]) -> bytes:
    """Return a test suite in which each check is a test case.

    Characters that XML 1.0 forbids are replaced by U+FFFD.
    """
    counts = {
        "tests": str(len(results)),
        "failures": str(sum(bool(result.failure) for result in results)),
        "errors": str(sum(bool(result.error) for result in results)),
    }
    root = ET.Element("testsuites", counts)
    parent = ET.SubElement(root, "testsuite", {"name": _xml(suite), **counts})
    for result in results:
        named = {"classname": _xml(result.place or suite), "name": _xml(result.name)}
        case = ET.SubElement(parent, "testcase", named)
        for tag, text in (("failure", result.failure), ("error", result.error)):
            if text:
                ET.SubElement(case, tag, {"message": _xml(text)}).text = _xml(text)
    ET.indent(root)
    return bytes(ET.tostring(root, encoding="utf-8", xml_declaration=True)) + b"\n"


def _xml(text: str) -> str:
    return _NOT_IN_XML.sub("\ufffd", text)


def checks_markdown(results: Iterable[CheckResult]) -> str:
    """Return the checks as a table, failed ones first; "" without checks."""
    ordered = sorted(results, key=lambda result: result.holds)
    if not ordered:
        return ""
    failed = sum(not result.holds for result in ordered)
    head = f"{failed:,} of {len(ordered):,} checks failed" if failed else "All checks hold"
    has_places = len({result.place for result in ordered}) > 1
    rows = [
        (
            "holds" if result.holds else "**failed**",
            code(result.name),
            *((code(result.place),) if has_places else ()),
            plain(result.error or result.found),
        )
        for result in ordered
    ]
    columns = ("", "Check", *(("Run",) if has_places else ()), "Result")
    return f"**{head}**\n\n{markdown_table(columns, rows)}"


def figures_markdown(figures: Mapping[str, float | None]) -> str:
    """Return the figures of a run as a table; their units are those of figure_name."""
    rows = [(plain(figure_name(name)), figure_text(value)) for name, value in figures.items()]
    return markdown_table(("Figure", "Value"), rows, numbers=1)


def figure_text(value: float | None) -> str:
    """Return a figure with five digits, "-" where it has no value."""
    return "-" if value is None else f"{value:,.5g}"


def figure_name(name: str) -> str:
    """Return a figure's name with its unit, where that is s, h or %; it may have a resource."""
    unit = FIGURES[name.partition("{")[0]].unit
    return f"{name}, {unit}" if unit in {"s", "h", "%"} else name


def markdown_table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: int = 0
) -> str:
    """Return a table; the last `numbers` columns are aligned to the right. Cells are Markdown."""
    rules = ["---"] * (len(columns) - numbers) + ["---:"] * numbers
    lines = [columns, rules, *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def plain(text: str) -> str:
    """Return Markdown that shows a text as it is, in one line of at most 200 characters."""
    line = " ".join(_xml(text).split())
    short = line if len(line) <= _CELL_CHARS_MAX else f"{line[: _CELL_CHARS_MAX - 3]}..."
    return _MARKS.sub(_escaped, short)


def _escaped(mark: re.Match[str]) -> str:
    return f"&#{ord(mark[0])};{'&#8203;' if mark[0] in _MENTIONS else ''}"


def code(text: str) -> str:
    """Return Markdown that shows a text as code."""
    return f"<code>{plain(text)}</code>"
