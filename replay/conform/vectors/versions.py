"""Upstream's version of a file of golden vectors: which rules its vectors are judged by.

A vector names it (`version`), or shows it in what only some versions record. The vectors of a file
are of one version, so that the first one that shows it decides; a file's name decides only where
none of its vectors does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from replay.conform.vectors.vectors import Json, UnreadableVector, VectorKind, read_lines

_DRA, _FEATURES = "DynamicResources", "NodeDeclaredFeatures"
_IN_NAME = re.compile(r"-(v\d+\.\d+)(?=[-.])")
_NEWEST: Mapping[VectorKind, str] = {
    VectorKind.SCHEDULING: "v1.36",
    VectorKind.QUEUE: "v1.34",
    VectorKind.EVICTION: "v1.32",
}
"""The version of files that do not show it; v1.36 for the other kinds."""


def version_of(path: Path, kind: VectorKind) -> str:
    """Return the version of a file's vectors, such as "v1.34". Raises VectorError."""
    for vector in read_lines(path):
        if not isinstance(vector, UnreadableVector) and (shown := _shown_by(vector, kind)):
            return shown
    match = _IN_NAME.search(path.name)
    return match[1] if match else _NEWEST.get(kind, "v1.36")


def _shown_by(vector: Json, kind: VectorKind) -> str:
    """Return the version that a vector names or shows, "" for one that could be of several."""
    named = vector.get("version")
    if isinstance(named, str) and named:
        return named
    read = _READ.get(kind)
    try:
        return read(vector) if read else ""
    except (AttributeError, LookupError, TypeError):  # broken vectors are reported when played
        return ""


def _of_scheduling(vector: Json) -> str:
    """Look for what v1.36 added: NodeDeclaredFeatures, and scores of DynamicResources."""
    scenario, expected = vector["scenario"], vector["expected"]
    refusing = {refusal["plugin"] for refusal in expected.get("filter", {}).values()}
    named = {*expected.get("skippedFilter", ()), *expected.get("filterOrder", ()), *refusing}
    scores = expected.get("scores", ())
    if _FEATURES in named or _DRA in scores:
        return "v1.36"
    return "v1.34" if scores and "schedulerConfiguration" not in scenario else ""


def _of_queue(vector: Json) -> str:
    """Look for the gates that v1.34 added, and for the map that v1.16 backs off by."""
    if "hints" in vector["config"]:
        return "v1.34"
    states = [step["state"] for step in vector["expected"]]
    if not states:
        return ""
    return "v1.16" if any("pod_backoff" in state for state in states) else "v1.20"


def _of_eviction(vector: Json) -> str:
    """Read the grace of immediate evictions, 1 s since v1.32; soft ones may have any."""
    if vector["config"].get("soft"):
        return ""
    graces = {
        kill.get("grace_period_override")
        for step in vector["expected"]
        for outcome in step["any_of"]
        for kill in outcome["kills"]
    }
    return "v1.32" if 1 in graces else "v1.27" if 0 in graces else ""


_READ: Mapping[VectorKind, Callable[[Json], str]] = {
    VectorKind.SCHEDULING: _of_scheduling,
    VectorKind.QUEUE: _of_queue,
    VectorKind.EVICTION: _of_eviction,
}
