"""The order in which bindings were decided, where a scheduler's own log tells it.

Bindings are written by goroutines of their own, so that resourceVersion does not give the order of
decisions. A file `decisions.jsonl` (or .gz, .zst) beside the recording does: a line for each
binding, in order, with `pod` ("NAMESPACE/NAME") and where known `feasible`, `top`, `tied_nodes`.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from replay.compare.recorded import Kind, RecordedDecision, Scored
from replay.importers.documents import json_values
from replay.trace.compression import open_plain

_STEM = "decisions.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedBinding:
    """A line of the log: the pod as NAMESPACE/NAME, its node, and what the log knows of it."""

    pod: str
    node: str
    scored: Scored


def decision_log(paths: Sequence[Path]) -> list[LoggedBinding] | None:
    """Return the log's bindings in order, None where no folder of `paths` has a log."""
    files = [file for path in paths if path.is_dir() for file in path.glob(f"{_STEM}*")]
    return _read(sorted(files)[0]) if files else None


def in_decided_order(
    decisions: Sequence[RecordedDecision], log: Sequence[LoggedBinding] | None
) -> list[RecordedDecision]:
    """Return the decisions in the order in which they were taken, each at its position.

    What is decided before another is decided before the other one is written: a binding's position
    is the smallest among it and those that the log has after it. What the log does not tell stands
    where it was written.
    """
    binds = sorted((each for each in decisions if each.kind is Kind.BIND), key=_written)
    rest = [each for each in decisions if each.kind is not Kind.BIND]
    ranked = [bind for bind in _ranked(binds, log or ()) if bind.scored is not None]
    known = {bind.written for bind in ranked}
    ranked.sort(key=lambda bind: bind.scored.rank if bind.scored else 0)
    earliest = max((bind.written for bind in binds), default=0)
    for place in range(len(ranked) - 1, -1, -1):
        earliest = min(earliest, ranked[place].position)
        ranked[place] = replace(ranked[place], position=earliest)
    loose = [bind for bind in binds if bind.written not in known]
    # The sort is stable: bindings at one position stay in the log's order.
    return sorted([*ranked, *loose, *rest], key=lambda each: each.position)


def _ranked(
    binds: Sequence[RecordedDecision], log: Sequence[LoggedBinding]
) -> list[RecordedDecision]:
    """Give each binding its line; pods of one name that came one after the other take turns."""
    lines: dict[tuple[str, str], deque[LoggedBinding]] = defaultdict(deque)
    for line in log:
        lines[line.pod, line.node].append(line)
    result: list[RecordedDecision] = []
    for bind in binds:
        own = lines[f"{bind.pod.namespace}/{bind.pod.name}", bind.node]
        result.append(replace(bind, scored=own.popleft().scored) if own else bind)
    return result


def _written(decision: RecordedDecision) -> int:
    return decision.written


def _read(path: Path) -> list[LoggedBinding]:
    result: list[LoggedBinding] = []
    with open_plain(path) as file:
        for _, line in json_values(file, str(path)):
            if isinstance(line, dict) and isinstance(line.get("pod"), str):
                scored = Scored(
                    rank=len(result),
                    feasible=int(line.get("feasible", -1)),
                    top=int(line.get("top", -1)),
                    tied_nodes=tuple(sorted(line.get("tied_nodes") or ())),
                )
                node = str(line.get("node") or "")
                result.append(LoggedBinding(pod=line["pod"], node=node, scored=scored))
    return result
