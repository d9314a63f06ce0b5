"""The report's page: one HTML file with style, script, chart library and data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from importlib import resources
from pathlib import Path, PurePath
from string import Template

import orjson

from replay.errors import unwritable
from replay.report.devices import devices
from replay.report.displaced import evictions, loops, oom_kills, preemptions
from replay.report.load import latencies, pending, utilisation, waiting
from replay.report.node_groups import node_groups
from replay.report.nodes import fragmentation, node_timeline, reasons
from replay.report.notes import notes
from replay.report.section import Cell, ReportSection, ReportTables, open_source
from replay.report.workloads import waits, workloads
from replay.results import durations
from replay.results.run.directory import RunDirectory
from replay.results.run.files import REPORT
from replay.results.run.manifest import Manifest, RunFile
from replay.results.summary.figures import FIGURES
from replay.results.tables.query import RunTables
from services.folder import write_file
from services.terminal import one_line

_COUNTED = (
    "pods",
    "bound",
    "preempted",
    "evicted",
    "oom_killed",
    "pending",
    "refused",
    "refusals",
    "unavailable",
    "rejected",
    "invalid_placements",
    "invalid_preemptions",
    "failed_attempts",
)
_NODES = "SELECT count(*) FROM nodes"
_PREEMPTORS = "SELECT count(DISTINCT by_uid) FROM preemptions"
SECTIONS = (
    workloads,
    utilisation,
    pending,
    waiting,
    waits,
    node_groups,
    devices,
    reasons,
    preemptions,
    node_timeline,
    evictions,
    loops,
    oom_kills,
    fragmentation,
    latencies,
)


def page(head: ReportHead, sections: Iterable[ReportSection]) -> str:
    """Return the page; the sections' data is JSON, escaped so that no text can end its script."""
    sections = list(sections)
    charts = {
        section.key: {"title": section.title, "charts": section.charts}
        for section in sections
        if section.charts
    }
    return Template(_asset("page.html")).substitute(
        kind=escape(head.kind),
        title=_text(head.title),
        facts="".join(
            f"<div><dt>{escape(name)}</dt><dd>{_text(text)}</dd></div>" for name, text in head.facts
        ),
        described=" · ".join(f"{escape(name)} {_text(text)}" for name, text in head.described),
        contents="".join(
            f'<li><a href="#{section.key}">{escape(section.title)}</a></li>' for section in sections
        ),
        figures="".join(map(_section, sections)),
        style=_asset("page.css"),
        data=_inlined(charts),
        library=_asset("echarts", "echarts.min.js"),
        program=_asset("page.js"),
    )


@cache
def _asset(*names: str) -> str:
    return resources.files("replay.report").joinpath("assets", *names).read_text("utf-8")


def _inlined(mapping: Mapping[str, object]) -> str:
    """Return JSON for a script element, with "<" escaped so that no text can end the element."""
    return orjson.dumps(mapping).decode().replace("<", "\\u003c")


def _section(section: ReportSection) -> str:
    kinds = [name for name in ("wide", "tabular") if getattr(section, name)]
    kind = f' class="{" ".join(kinds)}"' if kinds else ""
    if section.charts:
        inside = _drawn(section)
    elif section.tabular and section.rows:
        inside = _search(section) + _table(section)
    else:
        inside = f'<p class="empty">{escape(section.empty)}</p>'
    return (
        f'<section id="{section.key}"{kind}><h2>{escape(section.title)}</h2>'
        f"<p>{escape(section.note)}</p>{inside}</section>\n"
    )


def _drawn(section: ReportSection) -> str:
    return (
        f"{_choice(section)}"
        f'<div class="chart" data-figure="{section.key}" style="height:{section.height}px"></div>'
        f"{_table(section)}"
    )


def _choice(section: ReportSection) -> str:
    if list(section.charts) == [""]:
        return ""
    options = "".join(f"<option>{_text(chart)}</option>" for chart in section.charts)
    label = escape(section.choice)
    return f'<label>{label} <select data-choice="{section.key}">{options}</select></label>'


def _search(section: ReportSection) -> str:
    if not section.search:
        return ""
    field = f'<input type="search" data-search="{section.key}" autocomplete="off">'
    return f"<label>{escape(section.search)} {field}</label>"


def _table(section: ReportSection) -> str:
    head = "".join(
        f'<th scope="col"{_alignment(row[number] for row in section.rows)}>{escape(column)}</th>'
        for number, column in enumerate(section.columns)
    )
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in section.rows)
    left_out = f"<p>Not in the table: {_text(section.left_out)}.</p>" if section.left_out else ""
    table = (
        f'{left_out}<div class="scroll" tabindex="0"><table>'
        f"<caption>{escape(section.title)}</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{body}</tbody></table></div>"
    )
    return table if section.tabular else f"<details><summary>Table</summary>{table}</details>"


def _alignment(cells: Iterable[Cell]) -> str:
    """Return the alignment attribute of a column's heading: right if the cells are numbers."""
    first = next((cell for cell in cells if cell is not None), None)
    return ' class="number"' if isinstance(first, int | float) else ""


def _cell(cell: Cell) -> str:
    if isinstance(cell, int | float):
        text = f"{cell:,}" if isinstance(cell, int) else f"{cell:,.10g}"
        return f'<td class="number">{text}</td>'
    return f"<td>{_text(cell or '')}</td>"


def _text(text: str) -> str:
    """Return a text escaped for the page, in one line and without control characters."""
    return escape(one_line(text))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportHead:
    """The top of the page: kind, title, and `facts` and `described` as (name, text) pairs."""

    kind: str = "report of a replay"
    title: str
    facts: Sequence[tuple[str, str]]
    described: Sequence[tuple[str, str]]


def report_head(source: ReportTables, manifest: Manifest, name: str) -> ReportHead:
    """Return the top of the page; `name` is the name of the run."""
    counts = _counts(
        source,
        {
            **{name: FIGURES[name].sql for name in _COUNTED},
            "nodes": _NODES,
            "preemptors": _PREEMPTORS,
        },
    )
    traces = [PurePath(trace.path).name for trace in manifest.traces]
    shown = ", ".join(traces[:3]) + (f" and {len(traces) - 3} more" if len(traces) > 3 else "")
    preempted = f"{counts['preempted']:,}"
    if counts["preempted"]:
        preempted += f" by {counts['preemptors']:,}"
    facts = [
        ("pods", f"{counts['pods']:,}"),
        ("nodes", f"{counts['nodes']:,}"),
        ("bound", f"{counts['bound']:,}"),
        ("preempted", preempted),
        ("evicted", f"{counts['evicted']:,}"),
        ("pending at the end", f"{counts['pending']:,}"),
        ("refused", f"{counts['refused']:,}"),
        ("not ready at the end", f"{counts['unavailable']:,}"),
        ("failed attempts", f"{counts['failed_attempts']:,}"),
    ]
    if counts["refusals"]:
        facts.append(("refused decisions", f"{counts['refusals']:,} mistakes of the scheduler"))
    if counts["rejected"]:
        facts.append(("rejected by kubelets", f"{counts['rejected']:,}"))
    if counts["oom_killed"]:
        facts.insert(-2, ("OOM-killed", f"{counts['oom_killed']:,}"))
    facts += [
        (name.replace("_", " "), f"{counts[name]:,}")
        for name in ("invalid_placements", "invalid_preemptions")
        if counts[name]
    ]
    described = [
        ("Trace", shown or "unknown"),
        ("Simulated", durations.simulated(source.end_ns - source.start_ns)),
        ("Ended", _ended(manifest)),
        ("Rules", manifest.rules),
        ("Seed", str(manifest.seed)),
        ("Reprieve", manifest.version),
    ]
    if until := manifest.configuration.get("follow_until"):
        described.insert(1, ("Followed", f"the recording until {until}, then simulated"))
    return ReportHead(title=name, facts=facts, described=described)


def _ended(manifest: Manifest) -> str:
    """Return the part of a sentence that says when the run ended, by its manifest's ReplayEnd."""
    if not manifest.finished:
        return "early"
    if manifest.end == "finished":
        return "when nothing was left to do"
    return f"at {manifest.end.removesuffix(' is reached')}"


def _counts(source: ReportTables, queries: Mapping[str, str]) -> dict[str, int]:
    """Return the numbers that the queries find, as one query."""
    row = next(source.rows(f"SELECT {', '.join(f'({query})' for query in queries.values())}"))
    return dict(zip(queries, map(int, row), strict=True))


def write_report(run: RunDirectory, path: Path | None = None) -> Path:
    """Write a run's report and return its path; None: report.html in the run directory.

    Missing tables are built first. Raises RunError if the report cannot be written, and then leaves
    a former report as it was.
    """
    place = path or run.path / REPORT
    with RunTables(run) as tables:
        source = open_source(tables)
        head = report_head(source, run.manifest(), run.path.resolve().name)
        text = page(head, [notes(run), *(section(source) for section in SECTIONS)])
    if path is None and run.has_digests:
        run.note_made({REPORT: RunFile.of(text.encode())})
    return write_page(place, text)


def write_page(path: Path, text: str) -> Path:
    """Replace a page atomically and return its path. Raises RunError or OutputError."""
    try:
        write_file(path, text.encode())
    except OSError as error:
        raise unwritable(path, error) from error
    return path
