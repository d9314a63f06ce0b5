"""The decision log: one Decision a line, as proto3 JSON with its keys in the order of the fields.

Equal decisions give equal bytes, so cmp can compare two runs. The functions below `CYCLE` read the
attempts in a scheduler's outcomes: an outcome holds one attempt or several refused attempts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

import orjson

from replay.errors import RunError
from replay.results.run.log_file import RunLog, whole_lines
from replay.world.journal import AttemptFailure, FailedAttempt
from reprieve.kube.v1beta1 import meta_pb2
from reprieve.scheduler.v1beta1 import scheduler_pb2
from reprieve.session.v1beta1 import session_pb2
from reprieve.trace.v1beta1 import trace_pb2
from services.growing_file import GrowingFile
from services.rpc.errors import FieldError
from services.rpc.kube import json_codec

_LINES_BUFFERED = 1024


class DecisionLog(RunLog):
    """Writes decisions to a file, many lines at a time."""

    def __init__(self, file: GrowingFile) -> None:
        super().__init__(file)
        self._lines = self._records.waiting

    def write(self, decision: trace_pb2.Decision) -> None:
        """Append a decision."""
        self._lines.append(line(decision))
        if len(self._lines) >= _LINES_BUFFERED:
            self.flush()

    def write_failed(self, attempts: Iterable[FailedAttempt]) -> None:
        """Append the decisions of attempts that bound nothing."""
        self._lines.extend([failed_line(attempt) for attempt in attempts])
        if len(self._lines) >= _LINES_BUFFERED:
            self.flush()

    def _encoded(self, records: Sequence[bytes]) -> bytes:
        return b"".join(records)


def line(decision: trace_pb2.Decision) -> bytes:
    """Return a decision as a line of protobuf JSON, with the newline.

    64-bit integers are strings; unset fields and fields with their default value are absent.
    """
    return orjson.dumps(json_codec.to_proto3_json(decision), option=orjson.OPT_APPEND_NEWLINE)


def failed_line(attempt: FailedAttempt) -> bytes:
    """Return the line of a failed attempt: the same bytes as `line`, but much faster."""
    at_ns, sequence, pod, (attempts, reason, message, requeue) = attempt
    texts = (pod.namespace, pod.name, pod.uid, message, reason)
    if not (at_ns and attempts and all(texts)):
        return line(attempt.decision())
    namespace, name, uid, words, why = map(_escaped, texts)
    moved = b"" if requeue is None else _requeue(requeue.SerializeToString())
    return _FAILED % (at_ns, sequence, namespace, name, uid, words, attempts, why, moved)


@lru_cache(maxsize=1 << 14)
def _escaped(text: str) -> bytes:
    """Return a text escaped for JSON, without the quotes."""
    return orjson.dumps(text)[1:-1]


@lru_cache(maxsize=1 << 10)
def _requeue(encoded: bytes) -> bytes:
    """Return a Requeue as the member of a line: one event moves many pods at once."""
    requeue = session_pb2.Requeue.FromString(encoded)
    return b',"requeue":' + orjson.dumps(json_codec.to_proto3_json(requeue))


def _failed_template() -> bytes:
    """Return the line of a failed attempt without default values, with placeholders."""
    pod = meta_pb2.ObjectReference(kind="Pod", namespace="a", name="b", uid="c")
    shown = line(FailedAttempt(1, 2, pod, AttemptFailure(3, "e", "d")).decision())
    shown = re.sub(rb'(?<=[:"])[1-3](?=[,"}])', b"%d", shown)
    shown = re.sub(rb'(?<=:")[a-e](?=")', b"%b", shown)
    return shown.replace(b"}}}", b"%b}}}")  # after the last field: requeue, or nothing


_FAILED = _failed_template()


def read_decisions(path: Path, *, is_whole: bool = True) -> Iterator[trace_pb2.Decision]:
    """Yield the decisions of a log in order. Raises RunError for a line that is not a decision.

    is_whole: whether the log was written to its end; otherwise a cut last line is left out.
    """
    for where, text in whole_lines(path, is_whole=is_whole):
        yield _parsed(text, where)


def read_entries(
    path: Path, uid: str, *, is_whole: bool = True
) -> Iterator[tuple[trace_pb2.Decision, int]]:
    """Yield a pod's decisions, each with the number of earlier attempts at the same moment.

    Raises RunError as read_decisions does. Lines that do not contain the UID are not parsed: a long
    run has millions of them.
    """
    named = orjson.dumps(uid)
    moment, before = b"", 0
    for where, text in whole_lines(path, is_whole=is_whole):
        # A line begins with the time; the sequence follows.
        now = text.partition(b'"sequence":')[0]
        if now != moment:
            moment, before = now, 0
        if named in text:
            decision = _parsed(text, where)
            if decision.observed.object.uid == uid:
                yield decision, before
        # No message can contain this: quotes in it are escaped.
        before += b'"attempts":' in text


def _parsed(text: bytes, where: str) -> trace_pb2.Decision:
    try:
        decision = json_codec.parse(trace_pb2.Decision, orjson.loads(text))
    except (orjson.JSONDecodeError, FieldError) as error:
        raise RunError(f"{where}: not a decision: {error}") from error
    if not decision.HasField("observed"):
        raise RunError(f"{where}: not a decision: it has no `observed`")
    return decision


CYCLE = "schedulingCycle"

Steps = Mapping[str, Sequence[int]]
"""Wall times by step, ns: an entry for each pod."""


def steps_of(outcomes: scheduler_pb2.RoundOutcomes) -> Steps:
    """Return the measured steps of all cycles in `outcomes`."""
    walls_ns: dict[str, list[int]] = {}
    for outcome in outcomes.outcomes:
        if outcome.HasField("refusals"):
            walls_ns.setdefault(CYCLE, []).extend(outcome.refusals.wall_duration_ns)
            for step in outcome.refusals.steps:
                walls_ns.setdefault(step.name, []).extend(step.wall_duration_ns)
        else:
            for phase in outcome.phases:
                walls_ns.setdefault(phase.name, []).append(phase.wall_duration_ns)
    return walls_ns


def one_by_one(outcomes: scheduler_pb2.RoundOutcomes) -> Iterator[scheduler_pb2.Outcome]:
    """Yield the outcome of each attempt; attempts from shared refusals have a UID, but no name."""
    for outcome in outcomes.outcomes:
        if outcome.HasField("refusals"):
            yield from _refusals(outcome.time_ns, outcome.refusals)
        else:
            yield outcome


def _refusals(at_ns: int, refusals: scheduler_pb2.Refusals) -> Iterator[scheduler_pb2.Outcome]:
    for number, uid in enumerate(refusals.uids):
        verdict = refusals.verdicts[refusals.verdict_indexes[number]]
        one = scheduler_pb2.Outcome(
            time_ns=at_ns,
            attempts=refusals.attempts[number],
            first_enqueued_time_ns=refusals.first_enqueued_time_ns[number],
            queued_time_ns=refusals.queued_time_ns[number],
            unschedulable=verdict,
        )
        if refusals.requeue_numbers and (requeued := refusals.requeue_numbers[number]):
            one.requeue.CopyFrom(refusals.requeues[requeued - 1])
        one.pop.uid = uid
        one.pop.cycle = refusals.first_cycle + number
        yield one


def pods_of(outcomes: scheduler_pb2.RoundOutcomes) -> int:
    """Return the number of attempts in `outcomes`."""
    pods = 0
    for outcome in outcomes.outcomes:  # A generator costs more than the sum, and this runs a round.
        pods += len(outcome.refusals.uids) if outcome.HasField("refusals") else 1
    return pods
