"""Recording later: in order, all of it, and with the times at which it happened."""

from __future__ import annotations

from pathlib import Path

from replay.results.deferral import Deferral
from replay.results.recorder import Recorder
from replay.results.run_directory import DECISIONS, HISTORY, SPANS, RunDirectory
from reprieve.scheduler.v1alpha1 import scheduler_pb2
from services.telemetry.file_sink import FileSpanSink
from services.telemetry.resource import resource
from services.telemetry.sampling import Sampling
from tests.unit.results import messages


def play(taker: Recorder | Deferral) -> None:
    """Tell of two rounds, the first of which binds a pod that has gone by the second."""
    first = messages.round_of(messages.added(messages.pod_message("a")))
    taker.round_told(first)
    taker.outcomes(first, scheduler_pb2.RoundOutcomes(outcomes=[messages.bound("a", "n")]))
    taker.decided(messages.scheduled("a", "n"))
    second = messages.round_of(messages.deleted("a", 5), at_s=5)
    taker.round_told(second)
    taker.outcomes(second, scheduler_pb2.RoundOutcomes())


def pod_spans(path: Path) -> list[str]:
    """Return the names of all spans in order."""
    text = (path / SPANS).read_text(encoding="utf-8")
    return [part.partition('"')[0] for part in text.split('"name":"')[1:]]


def recorder_in(path: Path) -> Recorder:
    """Return a recorder whose run and spans are at `path`."""
    run = RunDirectory.create(path)
    sink = FileSpanSink(path / SPANS, resource("test"))
    return Recorder(run, spans=sink, sampling=Sampling(1.0))


def test_a_run_recorded_later_is_the_same(tmp_path: Path) -> None:
    """Byte by byte, but for the wall clock."""
    at_once, later = recorder_in(tmp_path / "at-once"), recorder_in(tmp_path / "later")
    play(at_once)
    deferral = Deferral(later)
    play(deferral)
    deferral.catch_up()
    at_once.close()
    later.close()
    for name in (DECISIONS, HISTORY):
        assert (tmp_path / "later" / name).read_bytes() == (
            tmp_path / "at-once" / name
        ).read_bytes()
    assert pod_spans(tmp_path / "later") == pod_spans(tmp_path / "at-once")
    assert (later.tally.decisions, later.tally.pods) == (at_once.tally.decisions, 1)


def test_a_round_is_recorded_once_the_next_one_is_told(tmp_path: Path) -> None:
    """Not before, and what comes after the last one once the recorder catches up."""
    recorder = recorder_in(tmp_path / "run")
    deferral = Deferral(recorder)
    round_ = messages.round_of(messages.added(messages.pod_message("a")))
    deferral.round_told(round_)
    deferral.outcomes(round_, scheduler_pb2.RoundOutcomes(outcomes=[messages.bound("a", "n")]))
    deferral.decided(messages.scheduled("a", "n"))
    assert recorder.tally.cycles == 0
    deferral.round_told(messages.round_of(at_s=1))
    assert (recorder.tally.cycles, recorder.tally.decisions["scheduled"]) == (1, 1)
    deferral.decided(messages.scheduled("b", "n"))
    deferral.catch_up()
    assert recorder.tally.decisions["scheduled"] == 2
    recorder.close()


def test_a_round_took_from_its_telling_to_its_answer(tmp_path: Path) -> None:
    """Whatever has been recorded in between, and however late."""
    recorder = recorder_in(tmp_path / "run")
    round_ = messages.round_of(messages.added(messages.pod_message("a")))
    recorder.round_told(round_, 1_000)
    recorder.outcomes(round_, scheduler_pb2.RoundOutcomes(), 1_500)
    assert recorder.tally.steps["runRound"].wall.max_ns == 500
    recorder.close()
