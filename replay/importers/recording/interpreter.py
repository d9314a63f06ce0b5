"""A recording as a trace, in two passes over its changes.

The first pass finds the lives of pods and the objects that recorded controllers made (survey.py);
the second one makes the records. Memory is bounded by the number of objects, not of changes, and by
what `read_once` keeps: interpreting a recording can take longer than what a fork of a run replays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from replay.errors import TraceError
from replay.importers.read_once import read_once
from replay.importers.recording.history import ObjectHistory, RecordMaker, Transition
from replay.importers.recording.readers import ObjectReader, PodReader
from replay.importers.recording.survey import ObjectFacts, Survey, pod_life, survey
from replay.importers.records import Importer, ImportOptions, Issues, Moment, Recording, new_header
from replay.kube.changes import ChangeType, RecordedChange, disruption, kind, node_name, part, uid
from replay.world.kubelet.critical_pods import EVICTED_REASONS
from reprieve.kube.v1beta1.object_pb2 import KubernetesObject
from reprieve.trace.v1beta1.trace_pb2 import ControllerPod, Header, ImportIssue, Record
from services.kube.time import SECOND_NS
from services.rpc.kube import rfc3339

Changes = Callable[[Issues], Iterable[RecordedChange]]
FOLLOWED_ISSUE = "followed"
"""The kind of the issue that counts the recorded decisions before `follow_until`."""
INFERRED_CLASS = "no PriorityClass is recorded: inferred from the pods that name it"
_DECISION_NOUNS = {
    "bound": "bindings",
    "preempted": "preemptions",
    "evicted": "evictions by kubelets",
}


def recording_importer(
    name: str,
    description: str,
    sniff: Callable[[Path, bytes], bool],
    open_recording: Callable[[Sequence[Path]], Recording],
) -> Importer:
    """Return the importer of a format that holds recorded states."""

    def load(paths: Sequence[Path], options: ImportOptions) -> Iterator[Record]:
        recording = open_recording(paths)
        header = new_header(name, recording.paths, options)
        return interpret(recording.changes, header, options, recording.complete_until_ns)

    return Importer(
        name=name,
        description=description,
        sniff=sniff,
        load=read_once(load),
        open_recording=open_recording,
    )


def interpret(
    changes: Changes, header: Header, options: ImportOptions, complete_until_ns: int | None = None
) -> Iterator[Record]:
    """Yield the trace of a recording; `changes` is called twice, with `follow_until` three times.

    The window ends at `complete_until_ns`, ns since 1970; without it, with the last change. Changes
    may come after it, and a replay that ends with the window still has all issues before them.
    Raises TraceError if `options.follow_until` is not within the recording.
    """
    survey_issues = Issues()
    facts = survey(changes(survey_issues))
    if options.follow_until is not None:
        end_ns = facts.end_ns if complete_until_ns is None else complete_until_ns
        moment = moment_ns(options.follow_until, header.source, facts.start_ns, end_ns)
        changes = cut_at(changes, moment)
        survey_issues = Issues()
        facts = survey(changes(survey_issues))
    issues = Issues()
    output = RecordMaker(issues)
    window_end_ns = facts.end_ns if complete_until_ns is None else complete_until_ns
    header.start_time_ns, header.window_end_time_ns = (
        facts.start_ns,
        max(window_end_ns, facts.start_ns),
    )
    header.kubernetes_version, header.times_recorded = facts.kubernetes_version, True
    header.has_devices = facts.has_devices
    header.options.update(options.as_text())
    yield output.numbering.header(header)
    followed = (
        survey_issue for survey_issue in survey_issues if survey_issue.kind == FOLLOWED_ISSUE
    )
    yield from output.numbering.issues(followed)
    yield from _inferred_classes(facts, output)
    yield from _controller_pods(facts, output)
    history = ObjectHistory(issues)
    pods = PodReader(
        facts=facts, output=output, scheduler_names=options.scheduler_names, live=history.live
    )
    objects = ObjectReader(facts=facts, output=output)
    for change in changes(issues):
        if not change.initial and change.at_ns > header.window_end_time_ns:
            yield from output.numbering.issues(_but_followed(issues.taken()))
        for transition in history.follow(change):
            reader: PodReader | ObjectReader = pods if kind(transition.new) == "Pod" else objects
            yield from reader.read(_no_earlier(transition, facts.start_ns))
    yield from output.numbering.issues(_but_followed(issues.taken()))


def _but_followed(issues: Iterable[ImportIssue]) -> Iterator[ImportIssue]:
    return (issue for issue in issues if issue.kind != FOLLOWED_ISSUE)


def _no_earlier(transition: Transition, start_ns: int) -> Transition:
    """Move objects that existed before the recording to its start."""
    existed = transition.initial and transition.old is None
    return (
        replace(transition, at_ns=start_ns)
        if existed or transition.at_ns < start_ns
        else transition
    )


def _inferred_classes(facts: Survey, output: RecordMaker) -> Iterator[Record]:
    """Yield the PriorityClasses that pods were admitted with, where none is recorded."""
    for inferred_class in facts.inferred_classes():
        output.issues.add(
            "inferred", f"PriorityClass {inferred_class.metadata.name}", INFERRED_CLASS
        )
        created = KubernetesObject(priority_class=inferred_class)
        yield output.numbering.record(facts.start_ns, create=created)


def _controller_pods(facts: Survey, output: RecordMaker) -> Iterator[Record]:
    """Yield the lives of what controllers will make, in the recorded order."""
    for made in facts.objects.values():
        if made.is_observed:
            record = _controller_pod(made, facts)
            yield output.numbering.record(facts.start_ns, controller_pod=record)


def _controller_pod(made: ObjectFacts, facts: Survey) -> ControllerPod:
    life = pod_life(made, facts.end_ns) if made.kind == "Pod" else None
    owner = facts.owner_of(made)
    return ControllerPod(owner=owner, ordinal=made.ordinal, life=life, name=made.name)


def moment_ns(moment: Moment, where: str, start_ns: int, end_ns: int) -> int:
    """Return a moment in ns since 1970. Raises TraceError if it is not within the recording."""
    since_ns = moment.since_start_ns
    at_ns = start_ns + since_ns if since_ns is not None else moment.at_ns
    if at_ns > end_ns:
        span = f"after {(end_ns - start_ns) / SECOND_NS:,.1f}s, at {rfc3339.text(end_ns, 3)}"
        problem = f"--follow-until {moment}: the recording ends {span}"
        raise TraceError(where, f"{problem}; give a moment before that")
    if at_ns < start_ns:
        problem = (
            f"--follow-until {moment}: the recording begins only at {rfc3339.text(start_ns, 3)}"
        )
        raise TraceError(where, f"{problem}; give a moment after that")
    return at_ns


def cut_at(changes: Changes, until_ns: int) -> Changes:
    """Return the changes of a recording that begins at `until_ns`.

    The recorded state of that moment, decisions included, becomes the first list of a watch; later
    changes stay. A replay of such a trace begins as a kube-scheduler does that starts at that
    moment.

    Memory is bounded by the number of objects. The recorded decisions are counted as an issue.
    """
    return lambda issues: _Cut(issues, until_ns).changes(changes(issues))


class _Cut:
    def __init__(self, issues: Issues, until_ns: int) -> None:
        self._issues = issues
        self._until_ns = until_ns
        self._state: dict[str, RecordedChange] = {}
        self._decisions: Counter[str] = Counter()

    def changes(self, recorded: Iterable[RecordedChange]) -> Iterator[RecordedChange]:
        """Yield the objects of the moment in the order of their creation, then later changes."""
        history, rest = ObjectHistory(Issues()), iter(recorded)
        first: RecordedChange | None = None
        for change in rest:
            if not change.initial and change.at_ns > self._until_ns:
                first = change
                break
            for transition in history.follow(change):
                self._apply(transition)
        self._count_decisions()
        yield from self._state.values()
        if first is not None:
            yield first
            yield from rest

    def _apply(self, transition: Transition) -> None:
        self._decisions.update(_decisions(transition))
        if transition.deleted:
            self._state.pop(uid(transition.new), None)
            return
        self._state[uid(transition.new)] = RecordedChange(
            at_ns=self._until_ns,
            type=ChangeType.ADDED,
            raw=transition.new,
            initial=True,
            where=transition.where,
        )

    def _count_decisions(self) -> None:
        counts = ", ".join(
            f"{self._decisions[name]:,} {noun}" for name, noun in _DECISION_NOUNS.items()
        )
        message = (
            f"the recording is followed until {rfc3339.text(self._until_ns, 3)}: {counts} stand"
        )
        self._issues.add(FOLLOWED_ISSUE, "", f"{message} as recorded, and what comes after is free")


def _decisions(transition: Transition) -> Iterator[str]:
    """Yield the decisions of the recorded cluster that a transition of a pod shows."""
    if kind(transition.new) != "Pod" or transition.initial:
        return
    old, new = transition.old or {}, transition.new
    if node_name(new) and not node_name(old):
        yield "bound"
    if disruption(new) == "PreemptionByScheduler" != disruption(old):
        yield "preempted"
    reason = part(new, "status").get("reason")
    if reason in EVICTED_REASONS and reason != part(old, "status").get("reason"):
        yield "evicted"
