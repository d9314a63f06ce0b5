"""The report's page: one HTML file with its style, its program, the chart library and the data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from importlib import resources
from pathlib import Path, PurePath
from string import Template

import orjson

from replay.errors import RunError
from replay.report.capacity import fragmentation, reasons
from replay.report.displaced import evictions, loops, preemptions
from replay.report.figure import Cell, Figure, Source, open_source
from replay.report.load import latencies, pending, utilisation, waiting
from replay.report.node_timeline import node_timeline
from replay.results import durations
from replay.results.run.directory import REPORT, RunDirectory
from replay.results.run.manifest import Manifest
from replay.results.tables.query import RunTables

_COUNTS = """
SELECT (SELECT count(*) FROM pods), (SELECT count(*) FROM nodes),
    (SELECT count(*) FROM pods WHERE scheduled_ns IS NOT NULL),
    (SELECT count(*) FROM preemptions), (SELECT count(DISTINCT by_uid) FROM preemptions),
    (SELECT count(*) FROM evictions), (SELECT count(*) FROM pods WHERE ending = 'Pending'),
    (SELECT count(*) FROM attempts WHERE result <> 'Scheduled')
"""
FIGURES = (
    utilisation,
    pending,
    waiting,
    reasons,
    preemptions,
    node_timeline,
    evictions,
    loops,
    fragmentation,
    latencies,
)


def page(overview: Overview, figures: Iterable[Figure]) -> str:
    """Return the whole page; what figures hold stands in it as JSON that no markup can leave."""
    figures = list(figures)
    charts = {
        each.key: {"title": each.title, "charts": each.charts} for each in figures if each.charts
    }
    return Template(_asset("page.html")).substitute(
        title=escape(overview.title),
        facts="".join(
            f"<div><dt>{escape(name)}</dt><dd>{escape(text)}</dd></div>"
            for name, text in overview.facts
        ),
        described=" · ".join(f"{escape(name)} {escape(text)}" for name, text in overview.described),
        contents="".join(
            f'<li><a href="#{each.key}">{escape(each.title)}</a></li>' for each in figures
        ),
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """What stands above the figures: `facts` and `described` as (name, text)."""

    title: str
    facts: Sequence[tuple[str, str]]
    described: Sequence[tuple[str, str]]


def overview(source: Source, manifest: Manifest, name: str) -> Overview:
    """Return the head of the report of a run of that `name`."""
    pods, nodes, bound, preempted, preemptors, evicted, pending, failed = next(source.rows(_COUNTS))
    traces = [PurePath(each.path).name for each in manifest.traces]
    shown = ", ".join(traces[:3]) + (f" and {len(traces) - 3} more" if len(traces) > 3 else "")
    by = f" by {preemptors:,}" if preempted else ""
    facts = [
        ("pods", f"{pods:,}"),
        ("nodes", f"{nodes:,}"),
        ("bound", f"{bound:,}"),
        ("preempted", f"{preempted:,}{by}"),
        ("evicted", f"{evicted:,}"),
        ("pending at the end", f"{pending:,}"),
        ("failed attempts", f"{failed:,}"),
    ]
    described = [
        ("Trace", shown or "not named"),
        ("Simulated", durations.simulated(source.end_ns - source.start_ns)),
        ("Ended", manifest.end if manifest.finished else "broke off before its end"),
        ("Rules", manifest.rules),
        ("Seed", str(manifest.seed)),
        ("Reprieve", manifest.version),
    ]
    if until := manifest.configuration.get("follow_until"):
        described.insert(1, ("Followed", f"as recorded until {until}, free from there on"))
    return Overview(title=name, facts=facts, described=described)


def write_report(run: RunDirectory, path: Path | None = None) -> Path:
    """Write a run's report and return where; None is report.html in its folder.

    The run's tables are made first where they are missing. Raises RunError; a report that cannot be
    written whole leaves a former one as it was.
    """
    path = path or run.path / REPORT
    with RunTables(run) as tables:
        source = open_source(tables)
        head = overview(source, run.manifest(), run.path.resolve().name)
        text = page(head, [each(source) for each in FIGURES])
    draft = path.with_name(f"{path.name}.draft")
    try:
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)
    except OSError as error:
        raise RunError(f"{path} cannot be written: {error.strerror or error}") from error
    return path
