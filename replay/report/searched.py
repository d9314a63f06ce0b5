"""The page of a search: the answer, what was tried, and the two runs at the border compared."""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_letters

from replay.report.compared import compared_sections
from replay.report.page import ReportHead, page
from replay.report.section import Option, ReportSection, grid
from replay.results.summary.figures import FIGURES
from replay.search.answer import Answer, FoundBorder
from replay.search.knobs import Knob
from replay.search.runs import Tried
from replay.whatif.ci import figure_name
from replay.whatif.compared import Compared

_SERIES = {True: "holds", False: "fails"}
_COLOURS = {True: "#2e7d4f", False: "#c4432b"}


def searched_page(
    kind: str,
    answer: Answer,
    sentences: Sequence[str],
    figures: Sequence[str],
    border: tuple[FoundBorder, Compared] | None,
) -> str:
    """Return the page of an answer to a question of a kind, such as "seek".

    `sentences` are the answer, `figures` those that the table has beside the checks'. Raises
    RunError if a run at the border cannot be read.
    """
    facts = [
        ("tried", f"{len(answer.tried):,}"),
        ("of", f"{answer.size:,}"),
        ("hold", f"{sum(tried.holds for tried in answer.tried):,}"),
    ]
    described = [("", text) for text in sentences[1:]]
    if border is not None:
        found, _ = border
        described += [
            (f"A, holds at {answer.at(found.holds)}", str(found.runs[0])),
            (f"B, fails at {answer.at(found.fails)}", str(found.runs[1])),
        ]
    head = ReportHead(kind=kind, title=sentences[0], facts=facts, described=described)
    sections = [_tried(answer, figures)]
    sections += [] if border is None else compared_sections(border[1])
    return page(head, sections)


def _tried(answer: Answer, figures: Sequence[str]) -> ReportSection:
    checks = [result.assertion.text for result in answer.tried[0].checks]
    return ReportSection(
        key="tried",
        title="What was tried",
        note="A point for each value that was tried; nothing is claimed of values between them.",
        empty="Nothing was tried.",
        charts=_charts(answer, figures),
        tabular=len(answer.knobs) > 2,
        choice="Figure",
        columns=(
            *(knob.label for knob in answer.knobs),
            "Checks",
            *checks,
            *map(figure_name, figures),
        ),
        rows=[
            [
                *tried.shown,
                _SERIES[tried.holds],
                *(result.value for result in tried.checks),
                *(tried.figures.get(name) for name in figures),
            ]
            for tried in answer.tried
        ],
        wide=True,
        search="Search",
    )


def _charts(answer: Answer, figures: Sequence[str]) -> dict[str, Option]:
    """Return charts: of one knob each figure over it, of two a map, of more none."""
    charts: dict[str, Option] = {}
    if len(answer.knobs) == 2:
        pairs = [(tried, tried.point[1]) for tried in answer.tried]
        y_axis = _axis(answer.knobs[1]) | {"nameLocation": "end", "nameGap": 12}
        y_axis["nameTextStyle"] = {"align": "left"}
        charts["checks"] = _chart(answer.knobs[0], pairs, y_axis, answer.knobs[1])
    if len(answer.knobs) != 1:
        return charts
    for place, result in enumerate(answer.tried[0].checks):
        values = [(tried, tried.checks[place].value) for tried in answer.tried]
        axis = _figure_axis(result.assertion.figure)
        charts[result.assertion.text] = _chart(answer.knobs[0], values, axis)
    for name in figures:
        values = [(tried, tried.figures.get(name)) for tried in answer.tried]
        axis = _figure_axis(name.partition("{")[0])
        charts[figure_name(name)] = _chart(answer.knobs[0], values, axis)
    return charts


def _figure_axis(figure: str) -> Option:
    y_format = "@percent" if FIGURES[figure].unit == "%" else "@count"
    return {"type": "value", "scale": True, "axisLabel": {"formatter": y_format}}


def _axis(knob: Knob) -> Option:
    """Return the axis of a knob: of numbers true to scale, otherwise a place for each value."""
    if _numbers(knob) is None:
        return {"type": "category", "data": list(knob.shown), "name": knob.label}
    return {"type": "value", "scale": True, "name": knob.label, "nameLocation": "middle"} | {
        "nameGap": 28,
        "minInterval": 1 if all("." not in text for text in knob.shown) else 0,
    }


def _numbers(knob: Knob) -> list[float] | None:
    """Return the values of a knob as numbers, whose unit is left out; None without numbers."""
    if not knob.is_ordered:
        return None
    return [float(text.rstrip("%" + ascii_letters)) for text in knob.shown]


def _chart(
    knob: Knob,
    pairs: Sequence[tuple[Tried, float | None]],
    y_axis: Option,
    y_knob: Knob | None = None,
) -> Option:
    """Return a chart of points, in colours by outcome; with `y_knob` they are its positions."""
    x_numbers = _numbers(knob)
    y_numbers = None if y_knob is None else _numbers(y_knob)
    points: dict[bool, list[list[float]]] = {True: [], False: []}
    for tried, value in pairs:
        if value is not None:
            x = tried.point[0] if x_numbers is None else x_numbers[tried.point[0]]
            y = value if y_numbers is None else y_numbers[int(value)]
            points[tried.holds].append([x, y])
    return {
        "grid": grid(bottom=28),
        "legend": {"type": "scroll", "top": 0},
        "tooltip": {"trigger": "item"},
        "xAxis": _axis(knob),
        "yAxis": y_axis,
        "series": [_series(points[holds], holds=holds) for holds in (True, False)],
    }


def _series(points: Sequence[Sequence[float]], *, holds: bool) -> Option:
    return {
        "type": "scatter",
        "name": _SERIES[holds],
        "symbol": "circle" if holds else "diamond",
        "symbolSize": 11,
        "itemStyle": {"color": _COLOURS[holds]},
        "data": points,
    }
