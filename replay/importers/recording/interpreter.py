"""A recording as a trace, in two passes over its changes.

The first pass finds how each pod lived and what the recorded controllers made (survey.py); the
second one writes the records. Memory is bounded by the number of objects, not by changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from replay.importers.issues import Issues
from replay.importers.options import ImportOptions
from replay.importers.recording.change import Change, kind
from replay.importers.recording.follow import FOLLOWED, followed, moment_ns
from replay.importers.recording.history import History, Step
from replay.importers.recording.lives import pod_life
from replay.importers.recording.objects import ObjectReading
from replay.importers.recording.output import Output
from replay.importers.recording.pods import PodReading
from replay.importers.recording.survey import ObjectFacts, Survey, survey
from reprieve.kube.v1alpha1.object_ref_pb2 import ObjectRef
from reprieve.trace.v1alpha1.trace_pb2 import ControllerPod, Header, Record


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
    if step.initial and step.old is None:
        return replace(step, at_ns=start_ns)
    return step if step.at_ns >= start_ns else replace(step, at_ns=start_ns)


def _expected(facts: Survey, output: Output) -> Iterator[Record]:
    """Yield what controllers are going to make, in the order in which they made it."""
    for each in facts.objects.values():
        if each.is_observed:
            record = _controller_pod(each, facts)
            yield output.numbering.record(facts.start_ns, controller_pod=record)


def _controller_pod(made: ObjectFacts, facts: Survey) -> ControllerPod:
    kind_, namespace, name = facts.controllers[made.owner_uid]
    life = pod_life(made, facts.end_ns) if made.kind == "Pod" else None
    owner = ObjectRef(kind=kind_, namespace=namespace, name=name, uid=made.owner_uid)
    return ControllerPod(owner=owner, ordinal=made.ordinal, life=life, name=made.name)
