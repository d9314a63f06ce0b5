"""What a replay keeps of pods that have gone: nothing that grows with their number."""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, ModuleType

from replay.results.recorder import RunRecorder
from replay.results.run.directory import RunDirectory
from replay.world.loop.replay import Limits, Replay
from replay.world.models import Models
from reprieve.scheduler.v1beta1 import scheduler_pb2
from reprieve.trace.v1beta1 import trace_pb2
from services.telemetry.span import Delivery, Sampling, SinkPosition, Span
from tests.unit.world.builders import (
    S,
    bind,
    create,
    create_pod,
    make_budget,
    make_node,
    make_pod,
    unschedulable,
)

FEW, MANY = 150, 400
KEPT_OF_MORE = 60
"""Objects that 250 more pods may leave behind: buckets of histograms and the like."""
_ELSEWHERE = (type, ModuleType, FunctionType, BuiltinFunctionType)


class Binding:
    """A scheduler that binds each pod to n; of the first, every tenth preempts the one before it.

    A summary names each preemptor, and so there are as many of them in either run.
    """

    takes_windows = False

    def __init__(self) -> None:
        self._told: deque[scheduler_pb2.Round] = deque()
        self._nominated: list[int] = []

    def send_round(self, round_: scheduler_pb2.Round, window: object = ()) -> None:  # noqa: ARG002
        """Take a round."""
        self._told.append(round_)

    def receive_outcomes(self) -> scheduler_pb2.RoundOutcomes:
        """Answer the first round that waits."""
        round_ = self._told.popleft()
        events = round_.events
        added = [int(event.add.pod.metadata.name) for event in events if event.add.HasField("pod")]
        fitting, self._nominated = (
            self._nominated,
            [outcome for outcome in added if _preempts(outcome)],
        )
        outcomes = [bind(f"uid-{number}", "n") for number in fitting]
        outcomes += [_decided(outcome) for outcome in added]
        for outcome in outcomes:
            outcome.time_ns = round_.time_ns
        return scheduler_pb2.RoundOutcomes(outcomes=outcomes)


class Forgetting:
    """Where spans go and are not kept."""

    def end(self, span: Span) -> None:
        """Forget a span."""

    def flush(self) -> None:
        """Do nothing."""

    def position(self, *, syncs: bool = True) -> SinkPosition:  # noqa: ARG002 - the protocol's
        """Return that no span waits."""
        return SinkPosition(0, 0)

    def close(self) -> Delivery:
        """Tell of nothing."""
        return Delivery()


def _decided(number: int) -> scheduler_pb2.Outcome:
    if _preempts(number):
        return unschedulable(f"uid-{number}", node="n", victims=[f"uid-{number - 1}"])
    return bind(f"uid-{number}", "n")


def _preempts(number: int) -> bool:
    return number < FEW and number % 10 == 9


def arriving(pods: int) -> Iterator[trace_pb2.Record]:
    """Yield a trace of pods that come every second and run for three, one node, one budget."""
    yield trace_pb2.Record(header=trace_pb2.Header())
    yield create(make_node())
    yield create(make_budget(max_unavailable=1))
    for number in range(pods):
        pod = make_pod(str(number), labels={"app": "web"})
        pod.metadata.namespace = "default"
        life = {"service_duration_ns": 3 * S, "shutdown_duration_ns": S}
        record = create_pod(pod, start_delay_duration_ns=S // 2, **life)
        record.time_ns = number * S
        yield record


def kept_after(pods: int, folder: Path, threshold: int) -> int:
    """Return how many objects a replay and its recorder hold after so many pods have come."""
    run = RunDirectory.create(folder)
    with RunRecorder(run, spans=Forgetting(), sampling=Sampling(1.0)) as recorder:
        replay = Replay(
            Binding(),
            None,
            models=Models(ended_pods_max=threshold),
            sink=recorder.decided,
            observer=recorder,
        )
        replay.run(arriving(pods), Limits(until_ns=pods * S))
        recorder.position()
        kept = reachable(replay, *vars(recorder).values())
        recorder.close()
    return kept


def reachable(*roots: object) -> int:
    """Count the objects that can be reached, but for code."""
    gc.collect()
    seen: dict[int, object] = {}
    waiting = list(roots)
    while waiting:
        obj = waiting.pop()
        if id(obj) not in seen and not isinstance(obj, _ELSEWHERE):
            seen[id(obj)] = obj
            waiting.extend(gc.get_referents(obj))
            if isinstance(obj, dict):  # a dict of texts names no keys among its referents
                waiting.extend(obj)
    return len(seen)


def test_a_replay_keeps_no_more_of_many_ended_pods_than_of_few(tmp_path: Path) -> None:
    """Neither the world nor the recorder, once ended pods are collected."""
    few = kept_after(FEW, tmp_path / "few", threshold=20)
    many = kept_after(MANY, tmp_path / "many", threshold=20)
    assert many - few < KEPT_OF_MORE


def test_ended_pods_stay_where_they_are_not_collected(tmp_path: Path) -> None:
    """As in a cluster without a threshold; so the test above can fail."""
    few = kept_after(FEW, tmp_path / "few", threshold=0)
    many = kept_after(MANY, tmp_path / "many", threshold=0)
    assert many - few > MANY - FEW
