"""The head of the report: which run it is, and what it came to in a few figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath

from replay.report.source import Source
from replay.results import durations
from replay.results.manifest import Manifest

_COUNTS = """
SELECT (SELECT count(*) FROM pods), (SELECT count(*) FROM nodes),
    (SELECT count(*) FROM pods WHERE scheduled_ns IS NOT NULL),
    (SELECT count(*) FROM preemptions), (SELECT count(DISTINCT by_uid) FROM preemptions),
    (SELECT count(*) FROM evictions), (SELECT count(*) FROM pods WHERE ending = 'Pending'),
    (SELECT count(*) FROM attempts WHERE result <> 'Scheduled')
"""


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
