"""The report, opened in a real browser: nothing is fetched, nothing fails, every chart has data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.e2e.browser import Browser, browser
from tests.e2e.commands import reprieve
from tests.e2e.replays import DEMOS, ROOT, SHARED

__all__ = ["browser"]

pytestmark = pytest.mark.e2e
CHARTS = {
    "utilisation",
    "pending",
    "waiting",
    "reasons",
    "preemptions",
    "timeline",
    "evictions",
    "loops",
    "fragmentation",
    "latencies",
}
SHOWN = {
    "nginx-preemption": CHARTS - {"evictions", "loops"},
    "eviction-loop": CHARTS - {"preemptions"},
    "recordings/c": CHARTS - {"evictions", "loops"},
}
SCREENS = [(1400, "light"), (1400, "dark"), (360, "light"), (360, "dark")]
_CONTRAST_MIN = 4.5
"""Of text, by WCAG 2.2, success criterion 1.4.3."""

_DRAWN = """
const coloured = (svg, wanted) => [...svg.querySelectorAll("path, rect, circle")].filter((each) =>
  [each.getAttribute("fill"), each.getAttribute("stroke")].some(wanted)).length;
const inks = (chart, each, index) => {
  const colour = chart.getVisual({ seriesIndex: index }, "color");
  return each.links ? (ink) => /^(#|rgb)/.test(ink) : (ink) => ink === colour;
};
return Object.fromEntries([...document.querySelectorAll(".chart")].map((holder) => {
  const chart = echarts.getInstanceByDom(holder);
  const svg = holder.querySelector("svg");
  const { series, legend } = chart.getOption();
  return [holder.dataset.figure, {
    label: holder.getAttribute("aria-label"),
    width: [holder.clientWidth, chart.getWidth()],
    series: series.map((each, index) => ({
      points: (each.links || each.data).length,
      shapes: coloured(svg, inks(chart, each, index)) - (legend && legend.length ? 1 : 0),
    })),
  }];
}));
"""


@pytest.fixture(scope="module", params=SHOWN)
def report(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the report that a replay of a bundled trace, or of a recording, leaves behind."""
    trace = DEMOS / f"{request.param}.jsonl"
    if request.param.startswith("recordings/"):
        trace = SHARED / "traces" / request.param
        if not trace.exists():
            pytest.skip(f"{trace} is not there")
    run = tmp_path_factory.mktemp("reports") / Path(request.param).name
    arguments = ("replay", str(trace), "--run", str(run), "--spans", "off", "-q")
    reprieve(ROOT, *arguments, reports=True)
    return run / "report.html"


def _opened(browser: Browser, report: Path, width: int = 1400, scheme: str = "light") -> Any:
    browser.look(width=width, scheme=scheme)
    browser.open(report)
    browser.settle()
    return browser.run(_DRAWN)


@pytest.mark.parametrize(("width", "scheme"), SCREENS)
def test_every_chart_is_drawn_with_data(
    browser: Browser, report: Path, width: int, scheme: str
) -> None:
    """In each series there are points, and shapes of its colour; each says what it is."""
    charts = _opened(browser, report, width, scheme)
    expected = {Path(name).name: shown for name, shown in SHOWN.items()}
    assert set(charts) == expected[report.parent.name]
    for name, chart in charts.items():
        assert chart["label"], name
        assert chart["series"], name
        for series in chart["series"]:
            assert series["points"] > 0, name
            assert series["shapes"] > 0, (name, chart)


def test_nothing_is_fetched_and_nothing_is_complained_of(browser: Browser, report: Path) -> None:
    """The page and what it embeds are all that is read."""
    _opened(browser, report)
    assert browser.requested() <= {"file", "data"}
    assert browser.console() == []


def test_another_node_can_be_chosen(browser: Browser, report: Path) -> None:
    """And another resource; each choice is drawn."""
    _opened(browser, report)
    for figure in ("timeline", "utilisation", "fragmentation"):
        choose = (
            "const select = document.querySelector(`select[data-choice=${arguments[0]}]`);"
            "select.selectedIndex = arguments[1]; select.dispatchEvent(new Event('change'));"
            "return [select.options.length,"
            " document.querySelector(`[data-figure=${arguments[0]}] svg`).outerHTML];"
        )
        count, first = browser.run(choose, figure, 0)
        if count > 1:
            assert browser.run(choose, figure, 1)[1] != first
    assert browser.console() == []


def test_a_narrow_screen_scrolls_one_way_only(browser: Browser, report: Path) -> None:
    """Also where the window is made narrow while the page is open."""
    _opened(browser, report)
    browser.look(width=360, scheme="light")
    browser.settle()
    browser.settle()
    width, *_ = browser.run("return [document.documentElement.scrollWidth, innerWidth]")
    assert width <= 360
    for name, chart in browser.run(_DRAWN).items():
        assert chart["width"][0] == chart["width"][1] < 360, name


def test_colours_follow_the_screen_and_stay_legible(browser: Browser, report: Path) -> None:
    """Text on cards and on the page, in light and in dark, also after a change."""
    _opened(browser, report)
    seen = []
    for scheme in ("light", "dark"):
        browser.look(width=1400, scheme=scheme)
        browser.settle()
        names = ["--text", "--muted", "--link", "--card", "--page"]
        colours = browser.run(
            "const css = getComputedStyle(document.documentElement);"
            "return arguments[0].map((name) => css.getPropertyValue(name).trim())",
            names,
        )
        text = [_luminance(colour) for colour in colours[:3]]
        for behind in map(_luminance, colours[3:]):
            assert min(_contrast(colour, behind) for colour in text) >= _CONTRAST_MIN
        drawn = browser.run("return document.querySelector('.chart svg').outerHTML")
        assert colours[0] in drawn
        seen.append(drawn)
    assert seen[0] != seen[1]


def test_each_chart_has_its_table(browser: Browser, report: Path) -> None:
    """Every table has as many cells in each row as it has columns, and at least one row."""
    charts = _opened(browser, report)
    tables = browser.run(
        "return [...document.querySelectorAll('table')].map((table) => [table.tHead.rows[0]"
        ".cells.length, ...[...table.tBodies[0].rows].map((row) => row.cells.length)])"
    )
    of_charts = browser.run(
        "return [...document.querySelectorAll('.chart')].map((chart) => "
        "chart.closest('section').querySelectorAll('table').length)"
    )
    assert of_charts == [1] * len(charts)
    for counts in tables:
        assert len(counts) > 1
        assert len(set(counts)) == 1


def _luminance(colour: str) -> float:
    """Return the relative luminance of "#rrggbb", by WCAG 2.2."""
    shares = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (
        share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _contrast(one: float, other: float) -> float:
    return (max(one, other) + 0.05) / (min(one, other) + 0.05)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return the pages of two runs compared, of a sweep and of a search."""
    folder = tmp_path_factory.mktemp("pages")
    trace, lower = str(DEMOS / "nginx-preemption.jsonl"), "priorityClass.high-priority.value"
    changed = ("--b", f"--set {lower}=0", "--run", "x", "--html", "compared.html", "-q")
    reprieve(folder, "compare", trace, *changed, "--", "--spans", "off")
    grid = ("--over", "scale-nodes=1.0,2.0", "--over", f"set:{lower}=0,1000000", "-o", "out")
    reprieve(folder, "sweep", trace, *grid, "--html", "sweep.html", "-q", "--", "--spans", "off")
    nodes = ("--vary", "scale-nodes==1..=4", "--until", "preempted == 0", "--no-explain")
    reprieve(folder, "seek", trace, *nodes, "--html", "seek.html", "-q", "--", "--spans", "off")
    return {name: folder / f"{name}.html" for name in ("compared", "sweep", "seek")}


@pytest.mark.parametrize(("width", "scheme"), [(1400, "light"), (400, "dark")])
@pytest.mark.parametrize(
    ("name", "charts"),
    [
        ("compared", {"nodes", "pending", "utilisation"}),
        ("sweep", {"over-0", "over-1"}),
        ("seek", {"tried", "nodes", "pending", "utilisation"}),
    ],
)
def test_pages_of_comparisons_open_without_a_network(
    browser: Browser, pages: dict[str, Path], name: str, charts: set[str], width: int, scheme: str
) -> None:
    """Every chart is drawn, nothing is fetched, and a narrow screen scrolls one way only."""
    drawn = _opened(browser, pages[name], width, scheme)
    assert set(drawn) == charts
    for chart in drawn.values():
        assert all(series["points"] and series["shapes"] for series in chart["series"]), chart
    assert browser.requested() <= {"file", "data"}
    assert browser.console() == []
    assert browser.run("return document.documentElement.scrollWidth") <= width
    wide = (
        "const right = (each) => each.getBoundingClientRect().right;"
        "return [...document.querySelectorAll('section select, section input')]"
        ".filter((each) => right(each) > right(each.closest('section'))).length"
    )
    assert browser.run(wide) == 0


def test_the_page_of_two_runs_has_what_was_changed_and_its_effects(
    browser: Browser, pages: dict[str, Path]
) -> None:
    """A search leaves the pods that match."""
    _opened(browser, pages["compared"])
    rows = (
        "return [...document.querySelectorAll(`#${arguments[0]} tbody tr`)]"
        ".filter((row) => !row.hidden).map((row) => row.innerText)"
    )
    assert browser.run(rows, "inputs") == ["overrides set\t\tpriorityClass.high-priority.value=0"]
    assert "The priority of default/nginx-a is 1,000,000 in A and 0 in B." in "".join(
        browser.run(rows, "divergence")
    )
    assert len(browser.run(rows, "pods")) == 3
    browser.run(
        "const field = document.querySelector('[data-search=pods]');"
        "field.value = 'NGINX-A'; field.dispatchEvent(new Event('input'));"
    )
    (left,) = browser.run(rows, "pods")
    assert left.startswith("got no node, still waiting longer (12s)\tdefault/nginx-a")
