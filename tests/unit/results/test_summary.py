"""The summary: its figures, and how people and programs get them."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from rich.console import Console

from replay.results.recorder import RunRecorder
from replay.results.run.directory import RunDirectory
from replay.results.summary.summary import NamedCount, Summary, summarize
from replay.results.summary.table import render
from replay.results.summary.tally import Tally
from reprieve.scheduler.v1beta1 import scheduler_pb2
from services.kube.time import SECOND_NS
from services.telemetry.span import Delivery
from tests.unit.results import messages

_MESSAGE = (
    "0/100 nodes are available: 3 Insufficient cpu, 97 node(s) didn't match Pod's node "
    "affinity/selector. preemption: 0/100 nodes are available: 100 Preemption is not helpful."
)
_NO_SPANS: dict[str, Any] = {"spans": Delivery(), "span_choice": "off"}


@pytest.fixture
def summary(tmp_path: Path) -> Summary:
    """Return a run of a bound pod, seven that do not fit, and one that was never tried."""
    recorder = RunRecorder(RunDirectory.create(tmp_path / "run"))
    names = [f"p{number}" for number in range(9)]
    recorder.round_sent(
        messages.round_of(*(messages.added(messages.pod_message(name)) for name in names))
    )
    recorder.decided(messages.scheduled("p0", "n", waited_s=90))
    round_ = messages.round_of()
    outcomes = scheduler_pb2.RoundOutcomes(
        outcomes=[messages.unschedulable(name, "-") for name in names[1:8]], queue_exchanges=3
    )
    outcomes.phases.add(name="queueExchange", wall_duration_ns=5, pods=7)
    outcomes.phases.add(name="queueExchange", wall_duration_ns=5)
    recorder.outcomes(round_, outcomes)
    for number, name in enumerate(names[1:8]):
        recorder.failed([messages.failed_attempt(name, _MESSAGE if number else "no nodes")])
        recorder.decided(messages.preempted(f"v{number}", name))
    recorder.decided(messages.evicted("e", "memory.available"))
    recorder.measured("synchronize", 0, 1_500_000, 1)
    recorder.close()
    return summarize(
        recorder.tally,
        run="runs/a[b]-1",
        end="finished",
        wall_ns=2_000_000_000,
        notes={("refused", "pod default/x exists already"): 4},
        warnings=["profile x is not served"],
        spans=Delivery(ended=9, delivered=9, target="runs/a[b]-1/spans.jsonl"),
        span_choice="1%",
    )


def _printed(summary: Summary, output: str, width: int = 80) -> str:
    file = io.StringIO()
    render(summary, output, Console(file=file, width=width))
    return file.getvalue()


def test_pods_without_a_node_are_counted_by_their_last_message(summary: Summary) -> None:
    """Most frequent first; a pod that was never tried has none."""
    assert summary.unbound.messages == (
        NamedCount(name=_MESSAGE, count=6),
        NamedCount(name="no nodes", count=1),
    )
    assert (summary.unbound.pods, summary.unbound.untried) == (8, 1)


def test_reasons_are_counted_by_attempt_and_by_pods_at_the_end(summary: Summary) -> None:
    """A pod that was bound at last had reasons too."""
    assert summary.decided.failed_reasons == (NamedCount(name="Insufficient cpu", count=7),)
    assert summary.unbound.reasons == (NamedCount(name="Insufficient cpu", count=7),)


def test_a_mistake_of_the_scheduler_is_shown_with_how_to_list_it(summary: Summary) -> None:
    """And not for a refusal that is no mistake."""
    raced = replace(summary.decided, refused=2)
    assert "not carried out" in _printed(replace(summary, decided=raced), "table")
    mistaken = replace(raced, refusals=(NamedCount(name="assigned pod", count=1),))
    lines = " ".join(_printed(replace(summary, decided=mistaken), "table").split())
    assert "1 assigned pod; see reprieve query runs/a[b]-1 'FROM decisions" in lines


def test_a_batch_is_an_exchange_that_brought_pods(summary: Summary) -> None:
    """Exchanges that only tell the queue something do not count."""
    assert (summary.batches, summary.batch_size_mean) == (1, 7.0)


def test_victims_are_counted_by_both_priorities(summary: Summary) -> None:
    """Preemptions are counted by the priorities of preemptor and victim."""
    (pair,) = summary.decided.displacements
    assert (pair.priority, pair.victim_priority, pair.victims) == (0, 0, 7)


def test_waiting_time_is_shown_beside_the_pods_that_still_wait(summary: Summary) -> None:
    """Both for one priority."""
    (wait,) = summary.waits
    assert (wait.waited.max_ns, wait.still_waiting) == (90 * SECOND_NS, 8)


def test_a_pod_with_a_scheduling_gate_does_not_wait_yet() -> None:
    """It is never tried and has no node; without its gate it waits."""
    gated = messages.pod_message("p")
    gated.spec.scheduling_gates.add(name="example.com/gate")
    tally = Tally()
    tally.pod_added(gated)
    summary = summarize(tally, run="r", end="finished", wall_ns=1, notes={}, **_NO_SPANS)
    assert (summary.waits, summary.unbound.untried) == ((), 1)
    tally.pod_updated(messages.pod_message("p"))
    (wait,) = summarize(tally, run="r", end="finished", wall_ns=1, notes={}, **_NO_SPANS).waits
    assert wait.still_waiting == 1


@pytest.mark.parametrize("output", ["table", "wide"])
def test_a_table_fits_eighty_columns_and_a_pipe(summary: Summary, output: str) -> None:
    """No line is longer, none holds a colour or a box."""
    text = _printed(summary, output)
    assert max(map(len, text.splitlines())) <= 80
    assert text.isascii()
    assert text.isprintable() or "\x1b" not in text


def test_the_table_shows_the_main_figures(summary: Summary) -> None:
    """Decisions, reasons of failed attempts, notes and the share of spans; wide: step latencies."""
    text = " ".join(_printed(summary, "table").split())
    for part in (
        "runs/a[b]-1: finished",
        "bound 1",
        "preempted 7 by 7 pods",
        "evicted 1 1 memory.available",
        "unschedulable at the end 7",
        "never tried 1",
        "97 node(s) didn't match",
        "4 refused pod default/x exists already",
        "configuration profile x is not served",
        "9 delivered to runs/a[b]-1/spans.jsonl (1% of the pods)",
    ):
        assert part in text
    assert "synchronize" not in text
    assert "synchronize 1 1.5 ms" in " ".join(_printed(summary, "wide").split())


def test_pods_that_kubelets_reject_are_counted_by_their_reasons(tmp_path: Path) -> None:
    """They have failed, too, for a reason that is not their own."""
    recorder = RunRecorder(RunDirectory.create(tmp_path / "run"))
    for name, reason in (("a", "OutOfcpu"), ("b", "NodePorts"), ("c", "OutOfcpu")):
        recorder.decided(messages.rejected(name, reason))
        recorder.decided(messages.finished(name, phase="Failed"))
    recorder.close()
    made = summarize(
        recorder.tally,
        run="r",
        end="finished",
        wall_ns=1,
        notes={},
        spans=Delivery(ended=0, delivered=0, target=""),
        span_choice="off",
    )
    text = _printed(made, "table")
    (row,) = (line for line in text.splitlines() if line.startswith("rejected by kubelets"))
    assert row.split() == ["rejected", "by", "kubelets", "3", "2", "OutOfcpu,", "1", "NodePorts"]


def test_a_run_in_which_no_eviction_could_be_decided_says_so(summary: Summary) -> None:
    """Where people look for what was evicted."""
    why = "no usage is recorded (--usage)"
    decided = replace(summary.decided, evicted=(), eviction_not_judged=why)
    shown = _printed(replace(summary, decided=decided), "table")
    assert "evicted                       0   not judged: no usage is recorded" in shown
    assert "not judged" not in _printed(summary, "table")


def test_long_lists_are_cut_and_say_so(summary: Summary) -> None:
    """The wide form shows them whole."""
    assert "and 2 more; -o wide shows them" in _printed(summary, "table")
    assert "more" not in _printed(summary, "wide")


def test_json_and_yaml_hold_the_same(summary: Summary) -> None:
    """Every figure, and those that follow from them."""
    mapping = orjson.loads(_printed(summary, "json"))
    assert yaml.safe_load(_printed(summary, "yaml")) == mapping
    assert mapping["decided"]["preempted"] == 7
    assert mapping["unbound"]["messages"][0]["name"] == _MESSAGE
    assert mapping["namespaces"] == ["default"]


def test_lost_spans_are_reported(summary: Summary, tmp_path: Path) -> None:
    """With what went wrong."""
    recorder = RunRecorder(RunDirectory.create(tmp_path / "lost"))
    recorder.close()
    lost = summarize(
        recorder.tally,
        run="r",
        end=summary.end,
        wall_ns=0,
        notes={},
        spans=Delivery(ended=5, delivered=2, target="c:4317", problem="c:4317 did not answer"),
        span_choice="all",
    )
    assert "Spans were lost: c:4317 did not answer" in _printed(lost, "table")


def test_an_unknown_form_is_refused(summary: Summary) -> None:
    """A mistake in a program is not passed over."""
    with pytest.raises(ValueError, match="formats are table"):
        _printed(summary, "xml")
