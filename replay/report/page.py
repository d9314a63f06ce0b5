"""The report's page: one HTML file with its style, its program, the chart library and the data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from html import escape
from importlib import resources
from string import Template

import orjson

from replay.report.figure import Cell, Figure
from replay.report.overview import Overview


def page(overview: Overview, figures: Iterable[Figure]) -> str:
    """Return the whole page; what figures hold stands in it as JSON that no markup can leave."""
    figures = list(figures)
    charts = {
        each.key: {"title": each.title, "charts": each.charts} for each in figures if each.charts
    }
    return Template(_asset("page.html")).substitute(
        title=escape(overview.title),
        facts="".join(_fact(name, text) for name, text in overview.facts),
        described=" · ".join(f"{escape(name)} {escape(text)}" for name, text in overview.described),
        contents="".join(_content(each) for each in figures),
        figures="".join(map(_figure, figures)),
        style=_asset("page.css"),
        data=_inlined(charts),
        library=_asset("echarts", "echarts.min.js"),
        program=_asset("page.js"),
    )


@cache
def _asset(*names: str) -> str:
    return resources.files("replay.report").joinpath("assets", *names).read_text("utf-8")


def _inlined(mapping: Mapping[str, object]) -> str:
    """Return JSON for a script element: no "<" could end that."""
    return orjson.dumps(mapping).decode().replace("<", "\\u003c")


def _fact(name: str, text: str) -> str:
    return f"<div><dt>{escape(name)}</dt><dd>{escape(text)}</dd></div>"


def _content(figure: Figure) -> str:
    return f'<li><a href="#{figure.key}">{escape(figure.title)}</a></li>'


def _figure(figure: Figure) -> str:
    kind = ' class="wide"' if figure.wide else ""
    inside = _drawn(figure) if figure.charts else f'<p class="empty">{escape(figure.empty)}</p>'
    return (
        f'<section id="{figure.key}"{kind}><h2>{escape(figure.title)}</h2>'
        f"<p>{escape(figure.note)}</p>{inside}</section>\n"
    )


def _drawn(figure: Figure) -> str:
    return (
        f"{_choice(figure)}"
        f'<div class="chart" data-figure="{figure.key}" style="height:{figure.height}px"></div>'
        f"{_table(figure)}"
    )


def _choice(figure: Figure) -> str:
    if list(figure.charts) == [""]:
        return ""
    options = "".join(f"<option>{escape(each)}</option>" for each in figure.charts)
    label = escape(figure.choice)
    return f'<label>{label} <select data-choice="{figure.key}">{options}</select></label>'


def _table(figure: Figure) -> str:
    head = "".join(f'<th scope="col">{escape(each)}</th>' for each in figure.columns)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in figure.rows)
    left_out = f"<p>Left out or thinned: {escape(figure.left_out)}.</p>" if figure.left_out else ""
    return (
        f'<details><summary>As a table</summary>{left_out}<div class="scroll" tabindex="0"><table>'
        f"<caption>{escape(figure.title)}</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{body}</tbody></table></div></details>"
    )


def _cell(cell: Cell) -> str:
    if isinstance(cell, int | float):
        text = f"{cell:,}" if isinstance(cell, int) else f"{cell:,.10g}"
        return f'<td class="number">{text}</td>'
    return f"<td>{escape(cell or '')}</td>"
