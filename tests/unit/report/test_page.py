"""The page is one self-contained file, whatever characters the run's names contain."""

from __future__ import annotations

import hashlib
import json
import re
from importlib import resources

import pytest

from replay.report.page import ReportHead, page, report_head
from replay.report.section import ReportSection
from replay.results.run.manifest import Manifest, ReplayedTrace
from replay.world.loop.replay import ReplayEnd
from tests.unit.report.tables import pod, source

_ECHARTS_SHA256 = "b66b25aeb4df84e33199dc21694014d336d222cbd9deb0e5a7c14bd6aa0d0fd0"
_WILD = "</script><script>alert(1)</script>"


def _page() -> str:
    figure = ReportSection(
        key="wild",
        title="A figure & more",
        note="It is < that.",
        empty="Nothing.",
        charts={_WILD: {"series": [{"name": _WILD}]}, "b": {"series": []}},
        choice="Node",
        columns=("Pod", "Number", "Share", "Node"),
        rows=[[_WILD, 1234, 0.5, None]],
        left_out="most",
    )
    nothing = ReportSection(key="none", title="None", note="", empty="No pod was evicted.")
    head = ReportHead(title=_WILD, facts=[("pods", "1")], described=[("Seed", "<0>")])
    return page(head, [figure, nothing])


def test_the_library_is_the_one_that_was_published() -> None:
    """echarts.min.js of the npm package echarts 6.1.0, byte by byte."""
    folder = resources.files("replay.report") / "assets" / "echarts"
    digest = hashlib.sha256((folder / "echarts.min.js").read_bytes()).hexdigest()
    assert digest == _ECHARTS_SHA256
    assert "Apache License" in (folder / "LICENSE").read_text("utf-8")


def test_names_are_shown_and_never_obeyed() -> None:
    """Neither in markup nor in the data's script."""
    text = _page()
    assert _WILD not in text
    assert text.count("</script>") == 3
    data = re.search(r'id="report">(.*?)</script>', text, re.DOTALL)
    assert data is not None
    assert json.loads(data[1])["wild"]["charts"][_WILD]["series"] == [{"name": _WILD}]


def test_the_page_names_no_other_file() -> None:
    """It has no source, link or style elsewhere, and forbids itself all of them."""
    head, _, rest = _page().partition('<script type="application/json"')
    assert "default-src 'none'" in head
    assert re.findall(r'(?:src|href)="(?!#|data:)', head + rest.rpartition("</script>")[2]) == []


def test_a_section_has_a_table_and_a_selection() -> None:
    """Digits are grouped; rows that are left out are noted; an empty section has its text."""
    text = _page()
    assert '<th scope="col">Pod</th><th scope="col" class="number">Number</th>' in text
    assert '<th scope="col" class="number">Share</th><th scope="col">Node</th>' in text
    assert '<td class="number">1,234</td><td class="number">0.5</td><td></td>' in text
    assert 'Node <select data-choice="wild">' in text
    assert "Not in the table: most." in text
    assert '<p class="empty">No pod was evicted.</p>' in text


def test_the_head_names_the_run_and_its_traces() -> None:
    """An aborted run says so."""
    traces = tuple(ReplayedTrace(path=f"/x/{name}", sha256="") for name in "abcd")
    manifest = Manifest(version="1.2", seed=7, rules="v1.34", traces=traces)
    rows = source(pods=[pod("a", scheduled_s=1), pod("b")], preemptions=[{"by_uid": "b"}])
    head = report_head(rows, manifest, "today")
    assert head.title == "today"
    assert dict(head.facts)["bound"] == "1"
    assert dict(head.facts)["preempted"] == "1 by 1"
    assert dict(head.facts)["pending at the end"] == "2"
    assert head.described[:3] == [
        ("Trace", "a, b, c and 1 more"),
        ("Simulated", "4m"),
        ("Ended", "early"),
    ]


@pytest.mark.parametrize(
    ("end", "shown"),
    [
        ("finished", "when nothing was left to do"),
        ("the end of the recorded window is reached", "at the end of the recorded window"),
        ("the time of --until is reached", "at the time of --until"),
    ],
)
def test_the_head_has_a_runs_end_as_a_sentence(end: str, shown: str) -> None:
    """After the word "Ended"; for every end that a replay has."""
    assert {end.value for end in ReplayEnd} >= {end}
    manifest = Manifest(version="1.2", seed=7, rules="v1.34", traces=(), finished=True, end=end)
    assert dict(report_head(source(), manifest, "today").described)["Ended"] == shown
