"""Reads and writes how far the watches of a recording are complete, and their gaps.

Its files have two kinds of lines that no API server sends. A bookmark with the annotation
COMPLETE_UNTIL says that the lines before it have all changes of the resource until that time, and
up to the bookmark's resourceVersion. A line of type GAP says since when, and from which
resourceVersion on, the watch was not complete; the lines between it and the next bookmark come
from a list, which shows what each object became and not when. Where such a line has REFUSED, the
resource is not recorded any further, and the other resources are; where it has ENDED, the recording
ended then, and what happened since is not known.

Both are needed: replays go by times, and comparisons by resourceVersions, which number all changes
of an API server's store. Files without these lines say nothing about their ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

import orjson

from replay import bounds
from replay.errors import TraceError
from replay.importers.records import Issues
from replay.kube.changes import meta, part, time_ns, version_number
from replay.trace.files import open_plain
from services.kube.time import SECOND_NS
from services.rpc.kube import rfc3339

LIST_END = "k8s.io/initial-events-end"
COMPLETE_UNTIL = "reprieve/complete-until"
"""The annotation of a bookmark: the time until which the file is complete, in RFC 3339."""
GAP = "RECORDER"
"""The type of a line that marks a gap."""
SINCE = "since"
"""The time, in RFC 3339, from which on a gap may lack changes."""
REFUSED = "refused"
ENDED = "ended"
GAP_ISSUE = "gap"
"""The kind of the issue of a resource with gaps."""
END_ISSUE = "missing-end"
"""The kind of the issue of a recording whose resources are not complete until the same time."""
_SHOWN_MAX = 3
_NAMED_MAX = 5
_EFFECT = (
    "a change in that time is recorded at its end, and an object that came and went in it is "
    "missing; a replay has them late or not at all, and --compare-recorded does not judge "
    "decisions in it"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """A time in which a resource was not watched, ns since 1970, and its resourceVersions.

    Changes with versions above `since_version` and up to `until_version` may be missing or late;
    None is a version that is not a number. `until_ns` None: until the end of the recording.
    """

    since_ns: int
    until_ns: int | None
    since_version: int | None
    until_version: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceCoverage:
    """The coverage of one file: all changes until `complete_until_ns`, except in its gaps.

    `version` is the resourceVersion up to which that is, None if it is not a number. `ended_ns`
    is when the recording ended without the end of this resource, 0 otherwise.
    `is_refused`: the last gap has no end, because the server refused the resource. `reason` is that
    of the last gap, or of the missing end.
    """

    title: str
    complete_until_ns: int
    version: int | None
    ended_ns: int
    gaps: tuple[Gap, ...]
    is_refused: bool
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingCoverage:
    """The coverage of a recording's files; files that do not state theirs are left out."""

    resources: tuple[ResourceCoverage, ...] = ()

    @property
    def complete_until_ns(self) -> int | None:
        """Return the time until which all resources are complete, ns; None if no file says so.

        A resource that the server refused does not count, for no later recording would have more.
        """
        recorded = [
            resource for resource in self.resources if not resource.is_refused
        ] or self.resources
        return min((resource.complete_until_ns for resource in recorded), default=None)

    @property
    def end_ns(self) -> int:
        """Return when the recording ended, or until when its most complete resource is complete."""
        return max(
            (max(resource.complete_until_ns, resource.ended_ns) for resource in self.resources),
            default=0,
        )

    @property
    def without_end(self) -> list[ResourceCoverage]:
        """Return the resources that are not complete until the end."""
        end_ns = self.end_ns
        return [
            resource
            for resource in self.resources
            if resource.complete_until_ns < end_ns and not resource.is_refused
        ]

    def gaps_by_version(self) -> list[tuple[int, float, str]]:
        """Return version ranges (excluded first, included last) and who lacks changes in them."""
        ranges = list[tuple[int, float, str]]()
        for resource in self.resources:
            for gap in resource.gaps:
                if gap.since_version is not None:
                    last = inf if gap.until_ns is None else gap.until_version
                    ranges.append((gap.since_version, last or 0, resource.title))
        for resource in self.without_end:
            if resource.version is not None:
                ranges.append((resource.version, inf, resource.title))
        return ranges

    def add_issues(self, issues: Issues) -> None:
        """Name the gaps of each resource, and the resources whose ends are missing."""
        for resource in self.resources:
            if resource.is_refused:
                until = rfc3339.text(resource.gaps[-1].since_ns, 3)
                message = f"{resource.title} are only recorded until {until}: {resource.reason}"
                issues.add(GAP_ISSUE, "recording", message)
            if closed := [gap for gap in resource.gaps if gap.until_ns is not None]:
                reason = "" if resource.is_refused else f", {resource.reason}"
                message = f"{resource.title} {_spans(closed)}{reason}: {_EFFECT}"
                issues.add(GAP_ISSUE, "recording", message, len(closed))
        until_ns, short = self.complete_until_ns, self.without_end
        if until_ns is None or not short:
            return
        missing = missing_since((resource.title, resource.complete_until_ns) for resource in short)
        reason = next((f" ({resource.reason})" for resource in short if resource.ended_ns), "")
        message = (
            f"{missing}{reason}; the window of the trace ends at {rfc3339.text(until_ns, 3)}, "
            f"{_seconds(self.end_ns - until_ns)} before the recording does"
        )
        issues.add(END_ISSUE, "recording", message)


def missing_since(resources: Iterable[tuple[str, int]]) -> str:
    """Return which resources may lack changes, with the times until which they are complete."""
    by_time: dict[str, list[str]] = {}
    for title, until_ns in sorted(resources, key=lambda resource: resource[1]):
        by_time.setdefault(rfc3339.text(until_ns, 3), []).append(title)
    shown = [f"{named(titles)} since {text}" for text, titles in by_time.items()]
    more = sum(map(len, list(by_time.values())[_SHOWN_MAX:]))
    rest = f"; {more:,} more resources since later" if more else ""
    return f"changes may be missing of {'; '.join(shown[:_SHOWN_MAX])}{rest}"


def named(titles: Sequence[str]) -> str:
    """Return the first titles, and how many more there are."""
    more = len(titles) - _NAMED_MAX
    return ", ".join(titles[:_NAMED_MAX]) + (f" and {more:,} more" if more > 0 else "")


def recording_coverage(paths: Sequence[Path]) -> RecordingCoverage:
    """Return what the files say about their ends and gaps."""
    coverages = [_file_coverage(path) for path in paths]
    return RecordingCoverage(
        resources=tuple(resource for resource in coverages if resource is not None)
    )


def _file_coverage(path: Path) -> ResourceCoverage | None:
    gaps, until_ns = list[Gap](), None
    open_gap: Gap | None = None
    version: int | None = None
    is_refused, reason, ended_ns = False, "", 0
    for arrival_ns, event in _marks(path):
        raw = event["object"]
        if event.get("type") == GAP:
            since_ns = time_ns(raw.get(SINCE))
            if since_ns is None:
                continue
            is_refused, reason = bool(raw.get(REFUSED)), str(raw.get("message") or "")
            if raw.get(ENDED):
                ended_ns = arrival_ns
                version = version_number(raw)
                continue
            open_gap = Gap(
                since_ns=since_ns,
                until_ns=None if is_refused else arrival_ns,
                since_version=version_number(raw),
                until_version=None,
            )
        elif (
            claimed_ns := time_ns(part(meta(raw), "annotations").get(COMPLETE_UNTIL))
        ) is not None:
            until_ns, version = claimed_ns, version_number(raw)
            if open_gap is not None:
                gaps.append(
                    Gap(
                        since_ns=open_gap.since_ns,
                        until_ns=open_gap.until_ns,
                        since_version=open_gap.since_version,
                        until_version=version,
                    )
                )
                open_gap = None
    if until_ns is None:
        return None
    if open_gap is not None and is_refused:
        gaps.append(open_gap)
    return ResourceCoverage(
        title=_title(path),
        complete_until_ns=until_ns,
        version=version,
        ended_ns=ended_ns,
        gaps=tuple(gaps),
        is_refused=is_refused,
        reason=reason,
    )


def _marks(path: Path) -> Iterator[tuple[int, Any]]:
    """Yield the lines of the recorder's own, with their times; nothing after damage.

    The reader of the changes reports the damage.
    """
    try:
        with open_plain(path) as file:
            for text in bounds.lines(file, str(path)):
                if b'"RECORDER"' not in text and COMPLETE_UNTIL.encode() not in text:
                    continue
                line = orjson.loads(text)
                event = line.get("event") if isinstance(line, dict) else None
                if isinstance(event, dict) and isinstance(event.get("object"), dict):
                    yield time_ns(line.get("arrival")) or 0, event
    except (TraceError, orjson.JSONDecodeError):
        return


def _title(path: Path) -> str:
    """Return the resource of a file, and its namespace: RESOURCE[.NAMESPACE].watch.jsonl.zst."""
    name, _, namespace = path.name.partition(".watch")[0].partition(".")
    return f"{name} of {namespace}" if namespace else name


def _spans(gaps: Sequence[Gap]) -> str:
    spans = [(gap.since_ns, gap.until_ns or 0) for gap in gaps]
    shown = [
        f"from {rfc3339.text(since, 3)} to {rfc3339.text(until, 3)}"
        for since, until in spans[:_SHOWN_MAX]
    ]
    more = len(spans) - len(shown)
    rest = f" and {more:,} times more" if more else ""
    seconds = _seconds(sum(until - since for since, until in spans))
    return f"were not watched all the time {', '.join(shown)}{rest} ({seconds})"


def _seconds(ns: int) -> str:
    return f"{ns / SECOND_NS:,.1f}s"
