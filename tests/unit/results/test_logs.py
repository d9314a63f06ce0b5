"""The decision log and the history: read back as written, and equal runs have equal bytes."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from google.protobuf import json_format
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import given, settings
from hypothesis import strategies as st

from replay.errors import RunError
from replay.results.run import history
from replay.results.run.decision_log import (
    DecisionLog,
    failed_line,
    line,
    read_decisions,
    read_entries,
)
from replay.results.run.history import RoundLog, read_rounds
from replay.world.journal import AttemptFailure, FailedAttempt
from reprieve.scheduler.v1beta1 import scheduler_pb2
from reprieve.session.v1beta1 import session_pb2
from reprieve.trace.v1beta1 import trace_pb2
from tests.growing import growing
from tests.unit.results import messages

_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
_TIMES = st.integers(0, 2**62)
_REQUEUES = st.builds(
    session_pb2.Requeue, event=_TEXTS, time_ns=_TIMES, active_time_ns=st.none() | _TIMES
)
_OBSERVED = st.one_of(
    st.builds(
        trace_pb2.Observed,
        scheduled=st.builds(
            trace_pb2.Scheduled,
            node_name=_TEXTS,
            waited_duration_ns=_TIMES,
            score=st.none() | st.integers(-5, 5),
        ),
    ),
    st.builds(
        trace_pb2.Observed,
        nominated=st.builds(
            trace_pb2.Nominated,
            node_name=_TEXTS,
            victims=st.lists(st.builds(messages.object_ref, _TEXTS), max_size=3),
        ),
    ),
    st.builds(
        trace_pb2.Observed, failed_scheduling=st.builds(trace_pb2.FailedScheduling, message=_TEXTS)
    ),
    st.builds(trace_pb2.Observed, started=st.builds(trace_pb2.Started)),
)
_DECISIONS = st.builds(
    trace_pb2.Decision,
    time_ns=_TIMES,
    sequence=st.integers(0, 2**64 - 1),
    observed=_OBSERVED,
    refused=_TEXTS,
)
_ROUNDS = st.builds(
    scheduler_pb2.Round,
    time_ns=_TIMES,
    number=st.integers(0, 1000),
    events=st.lists(
        st.one_of(
            st.builds(messages.deleted, _TEXTS),
            st.builds(lambda name: messages.added(messages.pod_message(name)), _TEXTS),
        ),
        max_size=4,
    ),
)


@settings(max_examples=50)
@given(decisions=st.lists(_DECISIONS, max_size=5))
def test_decisions_are_read_back_as_written(
    tmp_path_factory: pytest.TempPathFactory, decisions: list[trace_pb2.Decision]
) -> None:
    """Nothing is lost between a decision and its line."""
    path = tmp_path_factory.mktemp("log") / "decisions.jsonl"
    log = DecisionLog(growing(path))
    for decision in decisions:
        log.write(decision)
    log.close()
    assert list(read_decisions(path)) == decisions


def test_a_line_has_its_keys_in_the_order_of_the_fields() -> None:
    """Equal decisions are equal bytes, whatever order they were filled in."""
    decision = trace_pb2.Decision(sequence=3, time_ns=5)
    decision.observed.scheduled.waited_duration_ns = 2**60
    decision.observed.scheduled.node_name = "n"
    decision.observed.object.uid = "u"
    assert line(decision) == (
        b'{"atNs":"5","sequence":"3","observed":{"object":{"uid":"u"},'
        b'"scheduled":{"nodeName":"n","waitedNs":"1152921504606846976"}}}\n'
    )


def _fill(message: Message, big: int) -> None:
    """Set every field but choices, at any depth; numbers of 64 bits to `big`, others to 5 or 0."""
    if isinstance(message, Timestamp):
        message.FromNanoseconds(1_500_000_000)
        return
    for field in message.DESCRIPTOR.fields:
        if len(getattr(field.containing_oneof, "fields", ())) > 1:
            continue
        value = getattr(message, field.name)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            _fill(value["k"], big)
        elif field.message_type is not None:
            _fill(value.add() if field.is_repeated else value, big)
        elif field.is_repeated:
            value.append('a "b"')
        elif field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
            setattr(message, field.name, 'a "b"')
        else:
            narrow = {FieldDescriptor.CPPTYPE_INT32: 5, FieldDescriptor.CPPTYPE_BOOL: True}
            setattr(message, field.name, narrow.get(field.cpp_type, big) if big else 0)


@pytest.mark.parametrize(
    "case", [field.name for field in trace_pb2.Observed.DESCRIPTOR.oneofs[0].fields]
)
def test_every_kind_of_entry_is_written_as_protobuf_writes_it(case: str, tmp_path: Path) -> None:
    """With every field set to a value, to its default where that shows, and with none set."""
    path = tmp_path / "decisions.jsonl"
    for big in (2**63 - 1, 0, None):
        decision = trace_pb2.Decision()
        entry = getattr(decision.observed, case)
        entry.SetInParent()
        if big is not None:
            _fill(decision, big)
            _fill(entry, big)
        text = line(decision)
        assert orjson.loads(text) == json_format.MessageToDict(decision)
        assert json_format.Parse(text, trace_pb2.Decision()) == decision
        path.write_bytes(text)
        assert list(read_decisions(path)) == [decision]


def test_a_line_that_is_not_a_decision_is_named(tmp_path: Path) -> None:
    """The error has the file and the line."""
    path = tmp_path / "decisions.jsonl"
    path.write_bytes(line(messages.started("a")) + orjson.dumps({"odd": 1}))
    with pytest.raises(RunError, match="line 2"):
        list(read_decisions(path))


def test_a_pods_entries_are_found_with_the_attempts_before_them(tmp_path: Path) -> None:
    """Counted within a moment; a pod that is only named, as a victim is, has no entry there."""
    path = tmp_path / "decisions.jsonl"
    log = DecisionLog(growing(path))
    for number, name in enumerate(("a", "b", "a", "b"), 1):
        entry = messages.scheduled(name, "n", 3)
        entry.sequence, entry.time_ns = number, number // 4
        entry.observed.scheduled.attempts = 1
        log.write(entry)
    named = trace_pb2.Decision(time_ns=1, sequence=5)
    named.observed.object.uid = "uid-c"
    named.observed.nominated.victims.add(uid="uid-a")
    log.write(named)
    log.close()
    entries = [(entry.sequence, before) for entry, before in read_entries(path, "uid-a")]
    assert entries == [(1, 0), (3, 2)]


@settings(max_examples=50)
@given(rounds=st.lists(_ROUNDS, max_size=6), frame_bytes=st.sampled_from([1, 100, 1 << 20]))
def test_a_history_is_read_back_as_written(
    tmp_path_factory: pytest.TempPathFactory, rounds: list[scheduler_pb2.Round], frame_bytes: int
) -> None:
    """Rounds are read completely and in order, however they are divided into frames."""
    path = tmp_path_factory.mktemp("history") / "history.rounds.zst"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(history, "FRAME_BYTES", frame_bytes)
        log = RoundLog(growing(path))
        for round_ in rounds:
            log.write(round_)
        log.close()
    assert list(read_rounds(path)) == rounds


def test_a_history_that_breaks_off_is_refused_after_its_last_whole_round(tmp_path: Path) -> None:
    """Rounds before the break are yielded; the break raises an error."""
    path = tmp_path / "history.rounds.zst"
    log = RoundLog(growing(path))
    for number in range(2):
        log.write(messages.round_of(messages.added(messages.pod_message("a")), number=number))
        log.flush()
    log.close()
    path.write_bytes(path.read_bytes()[:-5])
    rounds = read_rounds(path)
    assert next(rounds).number == 0
    with pytest.raises(RunError):
        list(rounds)


def test_logs_may_be_closed_twice(tmp_path: Path) -> None:
    """Whoever breaks off a run need not know whether it had ended."""
    for log in (DecisionLog(growing(tmp_path / "a")), RoundLog(growing(tmp_path / "b"))):
        log.close()
        log.close()


@given(
    st.builds(
        FailedAttempt,
        _TIMES,
        st.integers(1, 2**62),
        st.builds(messages.object_ref, _TEXTS),
        st.builds(AttemptFailure, st.integers(0, 2**31 - 1), _TEXTS, _TEXTS, st.none() | _REQUEUES),
    )
)
def test_the_fast_line_of_a_failed_attempt_equals_its_decisions_line(
    attempt: FailedAttempt,
) -> None:
    """With any characters in its texts, and with default values."""
    assert failed_line(attempt) == line(attempt.decision())
