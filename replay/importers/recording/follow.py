"""A recording that is followed up to a moment: what stands then is where its trace begins.

All that was recorded up to the moment, decisions too, is part of the state that the trace begins
with, as a watch's first list would show it; what was recorded after it stays as it is. A replay
of such a trace begins as a kube-scheduler does that was started at that moment.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from replay.importers.issues import Issues
from replay.importers.options import SECOND_NS, Moment
from replay.importers.recording.change import (
    Change,
    ChangeType,
    Raw,
    condition,
    kind,
    part,
    rfc3339,
    uid,
)
from replay.importers.recording.history import History, Step
from replay.trace.errors import TraceError

Changes = Callable[[Issues], Iterable[Change]]
FOLLOWED = "followed"
"""The kind of the issue that counts what stands as recorded."""
_WORDS = {"bound": "bindings", "preempted": "preemptions", "evicted": "evictions by kubelets"}


def moment_ns(moment: Moment, where: str, start_ns: int, end_ns: int) -> int:
    """Return a moment of a recording, ns since 1970. Raises TraceError for one that is not in it.

    `start_ns` and `end_ns` are the recording's own.
    """
    since_ns = moment.since_start_ns
    at_ns = start_ns + since_ns if since_ns is not None else moment.at_ns
    if at_ns > end_ns:
        problem = f"--follow-until {moment}: the recording ends {_span(start_ns, end_ns)}"
        raise TraceError(where, f"{problem}; give a moment before that")
    if at_ns < start_ns:
        problem = f"--follow-until {moment}: the recording begins only at {rfc3339(start_ns)}"
        raise TraceError(where, f"{problem}; give a moment after that")
    return at_ns


def followed(changes: Changes, until_ns: int) -> Changes:
    """Return the changes of a recording that begins at `until_ns`, to be asked for as often.

    Memory is bounded by the number of objects. What stands as recorded is counted as an issue.
    """

    def cut(issues: Issues) -> Iterator[Change]:
        return _Following(issues, until_ns).changes(changes(issues))

    return cut


class _Following:
    def __init__(self, issues: Issues, until_ns: int) -> None:
        self._issues = issues
        self._until_ns = until_ns
        self._there: dict[str, Change] = {}
        self._decided: Counter[str] = Counter()

    def changes(self, recorded: Iterable[Change]) -> Iterator[Change]:
        """Yield what stands at the moment, in the order in which it came, and then the rest."""
        history, rest = History(Issues()), iter(recorded)
        first: Change | None = None
        for change in rest:
            if not change.initial and change.at_ns > self._until_ns:
                first = change
                break
            for step in history.follow(change):
                self._take(step)
        self._tell()
        yield from self._there.values()
        if first is not None:
            yield first
            yield from rest

    def _take(self, step: Step) -> None:
        self._decided.update(_decided(step))
        if step.deleted:
            self._there.pop(uid(step.new), None)
            return
        self._there[uid(step.new)] = Change(
            at_ns=self._until_ns,
            type=ChangeType.ADDED,
            raw=step.new,
            initial=True,
            where=step.where,
        )

    def _tell(self) -> None:
        counts = ", ".join(f"{self._decided[name]:,} {words}" for name, words in _WORDS.items())
        message = f"the recording is followed until {rfc3339(self._until_ns)}: {counts} stand"
        self._issues.add(FOLLOWED, "", f"{message} as recorded, and what comes after is free")


def _decided(step: Step) -> Iterator[str]:
    """Yield what a step of a pod shows that the recorded cluster had decided."""
    if kind(step.new) != "Pod" or step.initial:
        return
    old, new = step.old or {}, step.new
    if part(new, "spec").get("nodeName") and not part(old, "spec").get("nodeName"):
        yield "bound"
    if _is_victim(new) and not _is_victim(old):
        yield "preempted"
    if _is_evicted(new) and not _is_evicted(old):
        yield "evicted"


def _is_victim(raw: Raw) -> bool:
    target = condition(raw, "DisruptionTarget")
    return target.get("status") == "True" and target.get("reason") == "PreemptionByScheduler"


def _is_evicted(raw: Raw) -> bool:
    return part(raw, "status").get("reason") == "Evicted"


def _span(start_ns: int, end_ns: int) -> str:
    return f"after {(end_ns - start_ns) / SECOND_NS:,.1f}s, at {rfc3339(end_ns)}"
