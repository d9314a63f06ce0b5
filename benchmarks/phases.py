"""Where the CPU time of a pod goes, by phase, and what the same work costs bare.

    python -m benchmarks.phases ROW [--repeat N]

The row is replayed in one process, whose stack is sampled by CPU time: a sample counts for the
phase of the innermost function that belongs to one, so that codecs and values count for their
callers. Transport is not in it; `benchmarks.exchange` measures that.

The bare costs are those of the run's own data: the rounds that the scheduler received, encoded
and decoded once by protobuf, the lines of its logs formatted once by orjson, and a mapping for each
pod.
"""

from __future__ import annotations

import argparse
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import orjson

from benchmarks.rows import Row, chosen
from replay.results.run.files import DECISIONS, HISTORY, SPANS
from replay.results.run.history import read_rounds
from replay.runner import run_replay
from replay.settings import ReplaySettings
from replay.trace.reader import read
from replay.trace.writer import write
from reprieve.scheduler.v1beta1.scheduler_pb2 import Round
from services.telemetry.span import Sampling

EVERY_S = 0.001
ROOT = Path(__file__).parent.parent
PHASES = {
    "replay/trace/": "replay: the trace",
    "replay/world/ahead/": "replay: rounds sent ahead",
    "replay/world/loop/rounds.py": "replay: messages",
    "replay/backends/": "replay: messages",
    "services/rpc/local.py": "replay: messages",
    "replay/world/response_checks.py": "replay: checks of outcomes",
    "replay/world/kubelet/": "replay: kubelets",
    "replay/world/controllers/": "replay: controllers",
    "replay/world/api/": "replay: API server",
    "replay/world/": "replay: loop and timeline",
    "replay/results/spans/": "replay: spans",
    "replay/results/summary/": "replay: figures",
    "replay/results/workloads/": "replay: figures",
    "replay/results/durations.py": "replay: figures",
    "replay/results/run/checkpoints.py": "replay: checkpoints",
    "replay/state_codec.py": "replay: checkpoints",
    "replay/recovery.py": "replay: checkpoints",
    "replay/results/": "replay: decision log",
    "replay/": "replay: the rest",
    "services/scheduler/cluster_events.py": "scheduler: messages",
    "services/scheduler/servicer.py": "scheduler: messages",
    "services/scheduler/outcomes.py": "scheduler: messages",
    "services/scheduler/session.py": "scheduler: messages",
    "services/scheduler/ahead/": "scheduler: rounds and heads ahead",
    "services/scheduler/core/cycle/": "scheduler: decisions",
    "services/framework/snapshot/": "scheduler: cluster state",
    "services/framework/": "scheduler: decisions",
    "services/scheduler/step_encoder.py": "scheduler: its queue",
    "services/scheduler/queue_client.py": "scheduler: its queue",
    "services/scheduler/queue_stream.py": "scheduler: its queue",
    "services/scheduler/batch.py": "scheduler: its queue",
    "services/scheduler/": "scheduler: cluster state",
    "services/queue/": "queue",
    "services/eviction/": "eviction",
    "services/autoscaler/": "autoscaler",
}
"""The phase of a function, by the first of these that its file's name begins with."""
OTHER = "other"


class Bare(NamedTuple):
    """Something that costs at least so much, in seconds for the whole row."""

    what: str
    seconds: float


class Sampler:
    """Counts samples of the CPU time by phase."""

    def __init__(self) -> None:
        self.samples: Counter[str] = Counter()
        self._phases: dict[str, str] = {}

    @contextmanager
    def running(self) -> Iterator[None]:
        """Sample this process while the body runs."""
        former = signal.signal(signal.SIGPROF, self._sample)
        signal.setitimer(signal.ITIMER_PROF, EVERY_S, EVERY_S)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.signal(signal.SIGPROF, former)

    def _sample(self, _number: int, frame: FrameType | None) -> None:
        while frame is not None:
            if phase := self._phase(frame.f_code.co_filename):
                self.samples[phase] += 1
                return
            frame = frame.f_back
        self.samples[OTHER] += 1

    def _phase(self, file: str) -> str:
        phase = self._phases.get(file)
        if phase is None:
            name = file.removeprefix(f"{ROOT}/")
            found = (phase for begin, phase in PHASES.items() if name.startswith(begin))
            phase = self._phases[file] = next(found, "")
        return phase


def main(arguments: Sequence[str] | None = None) -> None:
    """Replay one row, and print its phases and what is bare."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("row", help="a row's name, or its beginning up to a slash")
    parser.add_argument("--repeat", type=int, default=3, help="replays that are sampled")
    parser.add_argument("--quick", action="store_true", help="the row small, as a smoke test")
    options = parser.parse_args(arguments)
    row = chosen(options.row)[0]
    sampler = Sampler()
    with tempfile.TemporaryDirectory() as folder:
        trace, run = Path(folder) / "trace.ktr", Path(folder) / "run"
        write(trace, row.records(options.quick))
        _replay(row, trace, run)  # what is loaded and compiled once
        cpu_s = pods = 0.0
        for number in range(options.repeat):
            began_s = time.process_time()
            with sampler.running():
                pods += _replay(row, trace, Path(folder) / f"run-{number}")
            cpu_s += time.process_time() - began_s
        _show(row.name, sampler.samples, cpu_s / pods)
        bare = list(_bare(trace, run))
    print(f"\n{'BARE, with the same data':<36}{'US A POD':>10}")
    for what, seconds in bare:
        print(f"{what:<36}{seconds * options.repeat / pods * 1e6:>10.1f}")


def _replay(row: Row, trace: Path, run: Path) -> int:
    """Replay a trace in this process, and return its number of pods."""
    settings = ReplaySettings(
        version="benchmark", run_path=run, in_process=True, sampling=Sampling.parse(row.spans)
    )
    return run_replay(settings, lambda: read(trace), _no_progress).summary.pods


def _no_progress(*_: object) -> None:
    pass


def _show(row: str, samples: Counter[str], pod_s: float) -> None:
    everything = sum(samples.values())
    print(f"{row}: {pod_s * 1e6:,.0f} us of CPU a pod in one process\n")
    print(f"{'PHASE':<36}{'US A POD':>10}{'SHARE':>8}")
    for phase in dict.fromkeys([*PHASES.values(), OTHER]):
        if samples[phase]:
            share = samples[phase] / everything
            print(f"{phase:<36}{share * pod_s * 1e6:>10.1f}{share:>8.1%}")


def _bare(trace: Path, run: Path) -> Iterator[Bare]:
    """Yield what protobuf, JSON and values cost where nothing else is done."""
    rounds = [*read_rounds(run / HISTORY)]
    encoded = [round_.SerializeToString() for round_ in rounds]
    yield Bare("rounds for the scheduler, encoded", _took_s(partial(_encode, rounds)))
    yield Bare("the same, decoded", _took_s(partial(_decode, encoded)))
    for what, name in (("lines of the decision log", DECISIONS), ("lines of spans", SPANS)):
        if (run / name).is_file():
            lines = [orjson.loads(line) for line in (run / name).open("rb")]
            yield Bare(f"{what}, formatted", _took_s(partial(_format, lines)))
    created = sum(record.HasField("pod_create") for record in read(trace))
    yield Bare("a mapping of 18 fields a pod", _took_s(partial(_fill, created)))


def _took_s(work: Callable[[], None]) -> float:
    """Return the CPU time of the fastest of three calls."""
    took: list[float] = []
    for _ in range(3):
        began_s = time.process_time()
        work()
        took.append(time.process_time() - began_s)
    return min(took)


def _encode(rounds: Sequence[Round]) -> None:
    for round_ in rounds:
        round_.SerializeToString()


def _decode(encoded: Sequence[bytes]) -> None:
    for message in encoded:
        Round.FromString(message)


def _format(lines: Sequence[object]) -> None:
    for line in lines:
        orjson.dumps(line)


def _fill(pods: int) -> None:
    names = [f"field_{number}" for number in range(18)]
    for _ in range(pods):
        dict.fromkeys(names, 0)


if __name__ == "__main__":
    main()
