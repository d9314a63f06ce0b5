"""A recording as a trace, in two passes over its changes.

The first pass finds how each pod lived and what the recorded controllers made (survey.py); the
second one writes the records. Memory is bounded by the number of objects, not by changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from replay.errors import TraceError
from replay.importers.recording.history import History, Output, Step
from replay.importers.recording.readings import ObjectReading, PodReading
from replay.importers.recording.survey import ObjectFacts, Survey, pod_life, survey
from replay.importers.records import SECOND_NS, ImportOptions, Issues, Moment
from replay.kube.changes import Change, ChangeType, disruption, kind, node_name, part, rfc3339, uid
from reprieve.trace.v1beta1.trace_pb2 import ControllerPod, Header, Record

Changes = Callable[[Issues], Iterable[Change]]
FOLLOWED = "followed"
"""The kind of the issue that counts what stands as recorded."""
_WORDS = {"bound": "bindings", "preempted": "preemptions", "evicted": "evictions by kubelets"}


def interpret(
    changes: Callable[[Issues], Iterable[Change]], header: Header, options: ImportOptions
) -> Iterator[Record]:
    """Yield the trace of a recording, whose changes are asked for twice (followed, three times).

    Raises TraceError where it is to be followed until a moment that is not in it.
    """
    noted = Issues()
    facts = survey(changes(noted))
    if options.follow_until is not None:
        moment = moment_ns(options.follow_until, header.source, facts.start_ns, facts.end_ns)
        changes = followed(changes, moment)
        noted = Issues()
        facts = survey(changes(noted))
    issues = Issues()
    output = Output(issues)
    header.start_ns, header.window_end_ns = facts.start_ns, facts.end_ns
    header.kubernetes_version, header.times_recorded = facts.kubernetes_version, True
    header.options.update(options.as_text())
    yield output.numbering.header(header)
    yield from output.numbering.issues(each for each in noted if each.kind == FOLLOWED)
    yield from _expected(facts, output)
    history = History(issues)
    pods = PodReading(
        facts=facts,
        output=output,
        scheduler_names=options.scheduler_names,
        live=history.live,
    )
    objects = ObjectReading(facts=facts, output=output)
    for change in changes(issues):
        for step in history.follow(change):
            reading: PodReading | ObjectReading = pods if kind(step.new) == "Pod" else objects
            yield from reading.read(_no_earlier(step, facts.start_ns))
    yield from output.numbering.issues(each for each in issues if each.kind != FOLLOWED)


def _no_earlier(step: Step, start_ns: int) -> Step:
    """Let what was there before stand at the recording's beginning."""
    was_there = step.initial and step.old is None
    return replace(step, at_ns=start_ns) if was_there or step.at_ns < start_ns else step


def _expected(facts: Survey, output: Output) -> Iterator[Record]:
    """Yield what controllers are going to make, in the order in which they made it."""
    for each in facts.objects.values():
        if each.is_observed:
            record = _controller_pod(each, facts)
            yield output.numbering.record(facts.start_ns, controller_pod=record)


def _controller_pod(made: ObjectFacts, facts: Survey) -> ControllerPod:
    life = pod_life(made, facts.end_ns) if made.kind == "Pod" else None
    owner = facts.owner_of(made)
    return ControllerPod(owner=owner, ordinal=made.ordinal, life=life, name=made.name)


def moment_ns(moment: Moment, where: str, start_ns: int, end_ns: int) -> int:
    """Return a moment of a recording, ns since 1970. Raises TraceError for one that is not in it.

    `start_ns` and `end_ns` are the recording's own.
    """
    since_ns = moment.since_start_ns
    at_ns = start_ns + since_ns if since_ns is not None else moment.at_ns
    if at_ns > end_ns:
        span = f"after {(end_ns - start_ns) / SECOND_NS:,.1f}s, at {rfc3339(end_ns)}"
        problem = f"--follow-until {moment}: the recording ends {span}"
        raise TraceError(where, f"{problem}; give a moment before that")
    if at_ns < start_ns:
        problem = f"--follow-until {moment}: the recording begins only at {rfc3339(start_ns)}"
        raise TraceError(where, f"{problem}; give a moment after that")
    return at_ns


def followed(changes: Changes, until_ns: int) -> Changes:
    """Return the changes of a recording that begins at `until_ns`, to be asked for as often.

    All that was recorded up to then, decisions too, is part of the state in which the trace begins,
    as a watch's first list would show it; what was recorded after it stays as it is. A replay of
    such a trace begins as a kube-scheduler does that was started at that moment.

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
    if node_name(new) and not node_name(old):
        yield "bound"
    if disruption(new) == "PreemptionByScheduler" != disruption(old):
        yield "preempted"
    if part(new, "status").get("reason") == "Evicted" != part(old, "status").get("reason"):
        yield "evicted"
