"""The recorder: all is written, counted and handed on."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from time import monotonic, sleep

import pytest

from replay.errors import OutputError, RunError
from replay.results.recorder import RecorderPosition, RunRecorder
from replay.results.run.directory import RunDirectory
from replay.results.run.manifest import described
from replay.results.summary.eviction_loops import EvictionLoops
from replay.results.summary.figures import LOCAL_STORAGE
from replay.results.summary.tally import Tally
from replay.state_codec import dump, load
from reprieve.scheduler.v1beta1 import scheduler_pb2
from reprieve.session.v1beta1 import session_pb2
from services.kube.time import SECOND_NS
from services.telemetry.file_sink import FileSpanSink
from services.telemetry.resource import resource
from services.telemetry.span import Sampling
from tests.kept_spans import KeptSpans
from tests.unit.results import messages

_SHORTAGE = "0/1 nodes are available: 1 Insufficient cpu."


def _outcomes(*outcomes: scheduler_pb2.Outcome) -> scheduler_pb2.RoundOutcomes:
    phase = session_pb2.Phase(name="queueExchange", wall_duration_ns=50_000, pods=len(outcomes))
    return scheduler_pb2.RoundOutcomes(outcomes=outcomes, queue_exchanges=1, phases=[phase])


def _play(recorder: RunRecorder) -> None:
    """Bind a pod, fail another, preempt and evict two more."""
    first = messages.round_of(
        messages.added(messages.pod_message("a", priority=10)),
        messages.added(messages.pod_message("b")),
        messages.added(messages.pod_message("low", node_name="n", phase="Running", priority=-1)),
        messages.added(messages.pod_message("fat", node_name="n", phase="Running")),
    )
    recorder.round_sent(first)
    recorder.outcomes(first, _outcomes(messages.bound("a", "n"), messages.unschedulable("b", "-")))
    recorder.decided(messages.scheduled("a", "n", waited_s=2))
    recorder.failed([messages.failed_attempt("b", _SHORTAGE)])
    recorder.decided(messages.nominated("b", "n", "low"))
    recorder.decided(messages.preempted("low", "b"))
    recorder.decided(messages.evicted("fat", ""))
    second = messages.round_of(messages.deleted("low", 5), at_s=5)
    recorder.round_sent(second)
    recorder.outcomes(second, _outcomes())


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    """Return an empty run."""
    return RunDirectory.create(tmp_path / "run")


def test_what_was_decided_is_counted(run: RunDirectory) -> None:
    """By decision, by preemptor and by signal."""
    recorder = RunRecorder(run)
    _play(recorder)
    recorder.close()
    tally = recorder.tally
    assert tally.decisions["scheduled"] == 1
    assert tally.preempted_by == {("default/b", 0): 1}
    assert tally.preempted_priorities == {(0, -1): 1}
    assert tally.evicted == {LOCAL_STORAGE: 1}
    assert (tally.pods, tally.rounds, tally.instants, tally.cycles) == (4, 2, 2, 2)


def test_a_waiting_pod_is_counted_with_its_last_reasons(run: RunDirectory) -> None:
    """A pod that was bound waits no more."""
    recorder = RunRecorder(run)
    _play(recorder)
    recorder.close()
    waiting = recorder.tally.waiting
    assert list(waiting) == ["uid-b"]
    assert waiting["uid-b"].message == _SHORTAGE
    assert waiting["uid-b"].reasons == ("Insufficient cpu",)


def test_attempts_that_share_an_outcome_are_counted_each(run: RunDirectory) -> None:
    """Latencies, reasons and spans; a step that one of them went through counts once."""
    spans = KeptSpans()
    recorder = RunRecorder(run, spans=spans, sampling=Sampling(1.0))
    round_ = messages.round_of(*(messages.added(messages.pod_message(name)) for name in "abc"))
    recorder.round_sent(round_)
    recorder.outcomes(round_, _outcomes(messages.refused("a", "b", "c", message=_SHORTAGE)))
    recorder.close()
    tally = recorder.tally
    assert (tally.cycles, tally.failed_reasons) == (3, {"Insufficient cpu": 3})
    assert [pod.reasons for pod in tally.waiting.values()] == [("Insufficient cpu",)] * 3
    steps = run.latencies()["steps"]
    assert [steps[name]["count"] for name in ("schedulingCycle", "RunFilterPlugins")] == [3, 1]
    assert steps["schedulingCycle"]["sum_ns"] == 1 + 2 + 3
    assert steps["runRound"]["pods"] == 3
    cycles = [span for span in spans.spans if span.name == "schedulingCycle"]
    *own, shared = cycles
    assert (shared.attributes["reprieve.pods"], shared.end_ns - shared.start_ns) == (3, 6)
    walls = [span.attributes["reprieve.wall_ns.schedulingCycle"] for span in own]
    assert walls == [1, 2, 3]
    assert ["reprieve.wall_ns.RunFilterPlugins" in span.attributes for span in own] == [
        True,
        False,
        False,
    ]
    assert all(span.attributes["reprieve.message"] == _SHORTAGE for span in own)
    assert sum(span.name == "queue.wait" for span in spans.spans) == 3


def test_a_binding_that_was_refused_binds_nothing(run: RunDirectory) -> None:
    """The pod continues waiting."""
    recorder = RunRecorder(run)
    recorder.round_sent(messages.round_of(messages.added(messages.pod_message("a"))))
    entry = messages.scheduled("a", "n")
    entry.refused = 'nodes "n" not found'
    recorder.decided(entry)
    recorder.close()
    assert recorder.tally.refused == {"scheduled": 1}
    assert list(recorder.tally.waiting) == ["uid-a"]


def test_waiting_time_is_counted_by_priority(run: RunDirectory) -> None:
    """In virtual time, from the first entry into the queue."""
    recorder = RunRecorder(run)
    _play(recorder)
    recorder.close()
    assert recorder.tally.waited_ns[10].max_ns == 2 * SECOND_NS


def test_a_round_in_several_messages_is_one_round(run: RunDirectory) -> None:
    """All but the last bring events only."""
    recorder = RunRecorder(run)
    part = messages.round_of(messages.added(messages.pod_message("a")))
    part.events_only = True
    recorder.round_sent(part)
    recorder.round_sent(messages.round_of(messages.added(messages.pod_message("b"))))
    recorder.close()
    assert (recorder.tally.rounds, recorder.tally.instants, recorder.tally.pods) == (1, 1, 2)


def test_everything_is_in_the_run_directory_at_the_end(run: RunDirectory) -> None:
    """Decisions, rounds, latencies and spans, each as told."""
    sink = FileSpanSink(run.growing("spans.jsonl"), resource("0.1.0"))
    recorder = RunRecorder(run, spans=sink, sampling=Sampling(1.0), seed=3)
    _play(recorder)
    delivery = recorder.close()
    assert len(list(run.decisions())) == 5
    assert [round_.time_ns for round_ in run.rounds()] == [
        messages.START_NS,
        messages.START_NS + 5 * SECOND_NS,
    ]
    steps = run.latencies()["steps"]
    assert steps["queueExchange"]["count"] == 2
    assert steps["schedulingCycle"]["max_ns"] == 60_000
    assert steps["runRound"]["pods"] == 2
    spans = [
        span for line in run.spans() for span in line["resourceSpans"][0]["scopeSpans"][0]["spans"]
    ]
    assert (delivery.ended, delivery.lost) == (len(spans), 0)
    assert {"Pod", "queue.wait", "runRound", "queueExchange", "replay", "eviction"} <= {
        span["name"] for span in spans
    }


def test_a_run_that_breaks_off_leaves_whole_files(run: RunDirectory) -> None:
    """What was recorded until then can be read."""
    sink = FileSpanSink(run.growing("spans.jsonl"), resource("0.1.0"))

    def break_off() -> None:
        with RunRecorder(run, spans=sink) as recorder:
            _play(recorder)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        break_off()
    assert len(list(run.rounds())) == 2
    assert len(list(run.decisions())) == 5


def _recorder(
    run: RunDirectory, *, wall_clock: bool, position: RecorderPosition | None = None
) -> RunRecorder:
    sink = FileSpanSink(
        run.growing("spans.jsonl"), resource("0.1.0"), position.spans if position else None
    )
    return RunRecorder(run, spans=sink, wall_clock=wall_clock, position=position)


def _play_on(recorder: RunRecorder) -> None:
    """Continue after `_play`: bind the pod that waits, with an extender's answer."""
    third = messages.round_of(messages.added(messages.pod_message("c", priority=10)), at_s=9)
    recorder.round_sent(third)
    bound = messages.bound("b", "n")
    bound.extender_answers.add(extender="e")
    recorder.outcomes(third, _outcomes(bound, messages.bound("c", "n")))
    recorder.decided(messages.scheduled("b", "n", 9, waited_s=9))
    recorder.decided(messages.evicted("b", "memory.available", 9))


def _spans(run: RunDirectory) -> list[str]:
    """Return names, identities and times in simulated time of the spans, in order."""
    spans = [
        span for line in run.spans() for span in line["resourceSpans"][0]["scopeSpans"][0]["spans"]
    ]
    return [f"{span['name']} {span['spanId']} {len(span.get('links', ()))}" for span in spans]


def test_what_happened_is_recorded_once_the_next_message_has_left(run: RunDirectory) -> None:
    """A round that was sent ahead is no message: its window's rounds are recorded together."""
    recorder = RunRecorder(run)
    rounds = [messages.round_of(messages.added(messages.pod_message(name))) for name in "abc"]
    counts = []
    for round_, goes_on in zip(rounds, (True, False, False), strict=True):
        recorder.round_sent(round_)
        counts.append((recorder.tally.pods, recorder.tally.cycles))
        outcomes = _outcomes(messages.bound("a", "n"))
        outcomes.window_continues = goes_on
        recorder.outcomes(round_, outcomes)
    assert counts == [(1, 0), (1, 0), (3, 2)]
    recorder.close()
    assert (recorder.tally.pods, recorder.tally.cycles) == (3, 3)
    assert recorder.tally.latencies()["runRound"]["count"] == 2


def test_a_late_record_has_the_wall_time_of_its_event(run: RunDirectory) -> None:
    """A message's latency ends with its answer, however late that is recorded."""
    recorder = RunRecorder(run)
    round_ = messages.round_of(messages.added(messages.pod_message("a")))
    recorder.round_sent(round_)
    recorder.outcomes(round_, _outcomes())
    sleep(0.2)
    recorder.close()
    assert 0 < recorder.tally.latencies()["runRound"]["sum_ns"] < 0.2 * SECOND_NS


def test_what_waits_to_be_recorded_is_bounded(run: RunDirectory) -> None:
    """Kubelets may be looked at for days while no message to the scheduler is due."""
    recorder = RunRecorder(run)
    for _ in range(5000):
        recorder.measured("step", 0, 1, 1)
    assert recorder.tally.latencies()["step"]["count"] == 4096
    recorder.close()
    assert recorder.tally.latencies()["step"]["count"] == 5000


def test_spans_in_wall_time_are_recorded_at_once(run: RunDirectory) -> None:
    """Their times are those at which they are recorded."""
    recorder = RunRecorder(run, spans=KeptSpans(), sampling=Sampling(1.0), wall_clock=True)
    recorder.decided(messages.scheduled("a", "n"))
    assert recorder.tally.decisions["scheduled"] == 1
    recorder.close()


def test_a_position_has_everything_that_happened_before(run: RunDirectory) -> None:
    """A run that is continued there does not do it again."""
    recorder = RunRecorder(run)
    _play(recorder)
    assert recorder.position().tally.decisions["scheduled"] == 1
    recorder.close()


def test_an_error_of_recording_comes_before_the_next_answer_and_loses_nothing_else(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files of the run that breaks off have the other records."""
    recorder = RunRecorder(run)
    full = OutputError("no space left")

    def fail(*_: object) -> None:
        monkeypatch.undo()
        raise full

    def play_on() -> None:
        with recorder:
            _play(recorder)
            recorder.decided(messages.scheduled("b", "n"))
            recorder.decided(messages.preempted("a", "b"))
            monkeypatch.setattr(Tally, "decided", fail)
            recorder.round_sent(messages.round_of(at_s=6))
            pytest.fail("the next answer would be read")

    with pytest.raises(OutputError) as raised:
        play_on()
    assert raised.value is full
    assert [entry.observed.WhichOneof("observed") for entry in run.decisions()] == [
        "scheduled",
        "failed_scheduling",
        "nominated",
        "preempted",
        "evicted",
        "scheduled",
        "preempted",
    ]


@pytest.mark.parametrize("wall_clock", [False, True])
@pytest.mark.parametrize("lost", [0, 1, 2])
def test_a_continued_run_writes_the_same_files_as_an_uninterrupted_one(
    tmp_path: Path, wall_clock: bool, lost: int
) -> None:
    """However much was written after the position before the run broke off."""
    whole = RunDirectory.create(tmp_path / "whole")
    recorder = _recorder(whole, wall_clock=wall_clock)
    _play(recorder)
    _play_on(recorder)
    recorder.close()

    run = RunDirectory.create(tmp_path / "run")
    broken = _recorder(run, wall_clock=wall_clock)
    _play(broken)
    saved, files = dump(RecorderPosition, broken.position()), run.recorded_files()
    for _ in range(lost):
        _play_on(broken)
    broken.__exit__(OSError, OSError(), None)

    position = load(RecorderPosition, saved)
    run.go_back(files)
    continued = _recorder(run, wall_clock=wall_clock, position=position)
    _play_on(continued)
    delivery = continued.close()
    for name in ("decisions.jsonl", "extenders.rounds.zst"):
        assert (run.path / name).read_bytes() == (whole.path / name).read_bytes()
    assert list(run.rounds()) == list(whole.rounds())
    assert _spans(run) == _spans(whole)
    assert (delivery.ended, delivery.lost) == (len(_spans(whole)), 0)
    assert continued.wall_ns > position.wall_ns
    assert _counted(continued.tally) == _counted(recorder.tally)


def _counted(tally: Tally) -> dict[str, object]:
    """Return everything that a tally counts but wall times."""
    waited = {priority: times.buckets() for priority, times in tally.waited_ns.items()}
    steps = {name: (step.pods, step.wall.count) for name, step in tally.steps.items()}
    return {
        **{field.name: getattr(tally, field.name) for field in fields(tally)},
        "steps": steps,
        "waited_ns": waited,
        "loops": dump(EvictionLoops, tally.loops),
        "workloads": tally.workloads.verdicts(tally.last_ns),
    }


@pytest.mark.parametrize("wall_clock", [False, True])
def test_runs_share_the_ids_of_traces_in_simulated_time_only(
    tmp_path: Path, *, wall_clock: bool
) -> None:
    """A collector would merge two runs on the wall clock; a run that is continued keeps its ids."""
    one, two = (RunDirectory.create(tmp_path / name) for name in ("one", "two"))
    first = _recorder(one, wall_clock=wall_clock)
    _play(first)
    position = load(RecorderPosition, dump(RecorderPosition, first.position()))
    files = one.recorded_files()
    first.__exit__(OSError, OSError(), None)
    second = _recorder(two, wall_clock=wall_clock)
    _play(second)
    second.close()
    one.go_back(files)
    continued = _recorder(one, wall_clock=wall_clock, position=position)
    assert continued.traceparent == first.traceparent
    _play_on(continued)
    continued.close()
    before, after = _traces(one), _traces(two)
    assert len(before) == 1 + len(after)  # the last pod came after the position
    assert len(before & after) == (0 if wall_clock else len(after))


def _traces(run: RunDirectory) -> set[str]:
    return {
        span["traceId"]
        for line in run.spans()
        for span in line["resourceSpans"][0]["scopeSpans"][0]["spans"]
    }


def test_a_position_is_on_the_disk_and_can_be_taken_again(run: RunDirectory) -> None:
    """Its sizes are those of the files, and a position without news is the same."""
    recorder = _recorder(run, wall_clock=False)
    _play(recorder)
    one, files = recorder.position(), run.recorded_files()
    two = recorder.position()
    assert run.recorded_files() == files
    assert files == {
        name: described(run.path / name)
        for name in ("decisions.jsonl", "history.rounds.zst", "spans.jsonl")
    }
    assert one.spans == two.spans
    assert len(list(run.decisions())) == 5


def test_a_changed_file_is_refused_and_nothing_is_modified(run: RunDirectory) -> None:
    """The error names the file; one that is shorter, with both sizes."""
    recorder = _recorder(run, wall_clock=False)
    _play(recorder)
    recorder.position()
    files = run.recorded_files()
    _play_on(recorder)
    recorder.close()
    path = run.path / "decisions.jsonl"
    content = path.read_bytes()
    path.write_bytes(bytes([content[0] ^ 1]) + content[1:])
    before = {path.name: path.read_bytes() for path in run.path.iterdir()}
    with pytest.raises(RunError, match=r"decisions\.jsonl has other bytes"):
        run.go_back(files)
    assert {path.name: path.read_bytes() for path in run.path.iterdir()} == before
    spans = (run.path / "spans.jsonl").read_bytes()
    path.write_bytes(content)
    (run.path / "spans.jsonl").unlink()
    with pytest.raises(RunError, match=r"spans\.jsonl cannot be read: No such file"):
        run.go_back(files)
    (run.path / "spans.jsonl").write_bytes(spans)
    path.write_bytes(b"{}\n")
    with pytest.raises(RunError, match=rf"has 3 bytes and had {files['decisions.jsonl'].size:,}"):
        run.go_back(files)


def test_records_are_flushed_within_a_second(run: RunDirectory) -> None:
    """Also while the run waits for a service."""
    with _recorder(run, wall_clock=False) as recorder:
        _play(recorder)
        deadline = monotonic() + 5
        while monotonic() < deadline and len(_spans(run)) < 10:
            sleep(0.02)
        taken_s = monotonic() - deadline + 5
        assert len(list(run.decisions())) == 5
        assert len(list(run.rounds())) == 2
        assert len(_spans(run)) >= 10
        assert taken_s < 1.5
        recorder.close()


def test_spans_of_rounds_are_kept_by_share_and_the_run_s_own_always(run: RunDirectory) -> None:
    """A share of 0 keeps no pods and no rounds."""
    sink = FileSpanSink(run.growing("spans.jsonl"), resource("0.1.0"))
    recorder = RunRecorder(run, spans=sink, sampling=Sampling(0.0))
    _play(recorder)
    assert recorder.close().ended == 1
