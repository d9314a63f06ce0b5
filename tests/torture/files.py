"""Damaged files of every format: an importer reads one or refuses it, and nothing else happens.

    python -m tests.torture.files --count 10000 --seed 1 --workers 2

A number makes a file: a sample (samples.py), damaged as data, as text and as compressed bytes
(mutate.py). A process of its own reads it to the end, as `reprieve validate` does, within lowered
bounds. It may be read, as a valid trace, or refused by a TraceError that names it. An error of any
other kind, a crash, 10 s of CPU time or too much memory are failures; each prints the command that
repeats it.
"""

from __future__ import annotations

import faulthandler
import multiprocessing
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from random import Random
from typing import Any

import click
import zstandard

from replay import bounds
from replay.bounds import Bounds
from replay.errors import TraceError, UnreadableError
from replay.importers.records import ImportOptions
from replay.importers.registry import open_trace
from replay.trace.files import delimited, end, frame
from replay.trace.reader import OrderCheck
from replay.trace.validate import validate
from reprieve.trace.v1beta1.trace_pb2 import Record
from tests.torture.mutate import damaged_bytes, damaged_value, damaged_wrapper, wrapped
from tests.torture.samples import Sample, samples

LIMIT_S = 10
"""CPU time for one file; 30 times as much wall time, for machines that do something else."""
MEMORY_MIB = 400
"""What reading one file may add to the process."""
BOUNDS = Bounds(
    depth=100, line_bytes=1 << 20, object_bytes=4 << 20, expansion=100, pods_per_object=2000
)
"""Lowered, so that what exceeds them is made and read in milliseconds."""
_EXPANSION_FROM_BYTES = 16 << 20
_RECORDS_MAX = 100_000
_MESSAGE_MAX = 6000
_BEGUN, _READ, _REFUSED = "begun", "read", "refused"


@dataclass(slots=True, kw_only=True)
class Found:
    """How many files of each sample were read or refused, and the failures, by number."""

    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    failures: dict[int, str] = field(default_factory=dict)

    def add(self, number: int, sample: str, outcome: str) -> None:
        """Count an outcome; any other than read and refused is a failure."""
        if outcome not in {_READ, _REFUSED}:
            self.failures[number] = f"{sample}: {outcome}"
            outcome = "failed"
        self.counts[sample, outcome] += 1


def damaged_file(sample: Sample, chance: Random) -> bytes:
    """Return the sample with one to three damages: of its data, its text and its compression."""
    value, data = sample.value, b""
    kinds = [
        chance.choice(("data", "data", "text", "packed"))
        for _ in range(chance.choice((1, 1, 2, 3)))
    ]
    for _ in range(kinds.count("data") if not isinstance(value, str) else 0):
        changed = damaged_value(value, chance)
        try:
            data = sample.written(changed)
        except Exception:
            kinds.append("text")
        else:
            value = changed
    data = data or sample.written(value)
    for _ in range(kinds.count("text")):
        data = damaged_bytes(data, chance)
    is_packed = chance.random() < 0.2 or "packed" in kinds
    if sample.is_ktr:
        at = chance.choice((0, 0, chance.randrange(len(data) + 1)))
        pack = chance.choice((frame, zstandard.compress, zstandard.compress))
        data = (pack(data[:at]) if at else b"") + pack(data[at:])
        data += end(len(sample.value)) if pack is frame else b""
    elif is_packed:
        data = wrapped(data, chance)
    return damaged_wrapper(data, chance) if "packed" in kinds else data


def attempt(number: int, all_samples: dict[str, Sample], folder: Path) -> tuple[str, str]:
    """Read the file of a number; return its sample's name and "read", "refused" or the failure."""
    chance = Random(number)  # noqa: S311 - a test's choices
    name = list(all_samples)[number % len(all_samples)]
    sample = all_samples[name]
    for beside, content in sample.beside.items():
        (folder / beside).write_bytes(content)
    (folder / "source").write_bytes(damaged_file(sample, chance))
    opened = folder / (sample.opened or "source")
    format_ = chance.choice((None, sample.importer, sample.importer))
    options = ImportOptions(openb_timed=sample.importer == "openb", made_nodes=number % 3)
    try:
        validate(_checked(open_trace([opened], format=format_, options=options)))
    except UnreadableError:
        return name, traceback.format_exc()
    except TraceError as error:
        return name, _refusal(str(error), folder)
    except Exception:
        return name, traceback.format_exc()
    return name, _READ


class InvalidTraceError(Exception):
    """Records that are not a valid trace."""


def _checked(records: Iterator[Record]) -> Iterator[Record]:
    check = OrderCheck()
    for count, record in enumerate(records):
        if problem := check.problem(record):
            raise InvalidTraceError(f"record {count}: {problem}")
        if count > _RECORDS_MAX:
            raise InvalidTraceError(f"more than {_RECORDS_MAX:,} records of one small file")
        delimited(record)
        yield record


def _refusal(text: str, folder: Path) -> str:
    if str(folder) not in text:
        return f"the refusal names no file: {text[:_MESSAGE_MAX]}"
    if len(text) > _MESSAGE_MAX:
        return f"the refusal has {len(text):,} characters: {text[:500]}"
    return _REFUSED


def _work(numbers: Sequence[int], pipe: Connection) -> None:
    """Read the files of these numbers; send each number before and each outcome after."""
    faulthandler.enable()
    faulthandler.register(signal.SIGPROF, chain=True)
    bounds.set_bounds(BOUNDS)
    bounds._EXPANSION_FROM_BYTES = _EXPANSION_FROM_BYTES
    all_samples = samples()
    folder = Path(tempfile.mkdtemp(prefix="files-"))
    before = _peak_mib()
    limit = (before + 8 * MEMORY_MIB) << 20
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    try:
        for number in numbers:
            pipe.send((number, "", _BEGUN))
            signal.setitimer(signal.ITIMER_PROF, LIMIT_S)
            faulthandler.dump_traceback_later(30 * LIMIT_S, exit=True)
            name, outcome = attempt(number, all_samples, folder)
            faulthandler.cancel_dump_traceback_later()
            signal.setitimer(signal.ITIMER_PROF, 0)
            if (grown := _peak_mib() - before) > MEMORY_MIB:
                outcome = f"took {grown} MiB ({outcome})"
            pipe.send((number, name, outcome))
            if outcome not in {_READ, _REFUSED}:
                return
    finally:
        shutil.rmtree(folder)


def _peak_mib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


class _Reader:
    """A process that reads files, and is started again after a failure."""

    def __init__(self, numbers: Sequence[int], found: Found) -> None:
        self._rest = numbers
        self._found = found
        self._begun = -1
        self.pipe: Connection
        self._process: Any
        self._start()

    def receive(self) -> bool:
        """Take one message; return whether more will come."""
        try:
            number, sample, outcome = self.pipe.recv()
        except EOFError:
            return self._ended()
        if outcome == _BEGUN:
            self._begun = number
        else:
            self._found.add(number, sample, outcome)
            self._begun, self._rest = -1, self._rest[1:]
        return True

    def _ended(self) -> bool:
        self._process.join()
        if self._begun >= 0:
            names = list(samples())
            died = (
                f"the process ended with {self._process.exitcode} (see above), or after {LIMIT_S} s"
            )
            self._found.add(self._begun, names[self._begun % len(names)], died)
            self._begun, self._rest = -1, self._rest[1:]
        if self._rest:
            self._start()
        return bool(self._rest)

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, end = context.Pipe(duplex=False)
        self._process = context.Process(target=_work, args=(self._rest, end))
        self._process.start()
        end.close()


def torture(
    numbers: Sequence[int], workers: int = 1, show: Callable[[str], object] = print
) -> Found:
    """Read the files of these numbers in `workers` processes; return what was found."""
    found, began_s, shown = Found(), time.monotonic(), 0
    readers = [
        _Reader(numbers[start::workers], found) for start in range(min(workers, len(numbers)))
    ]
    while readers:
        ready = wait([result.pipe for result in readers])
        readers = [result for result in readers if result.pipe not in ready or result.receive()]
        if (total := found.counts.total()) >= shown + 1000:
            shown = total
            show(f"{total:,} files, {total / (time.monotonic() - began_s):.0f}/s")
    return found


@click.command()
@click.option("--count", default=10_000, show_default=True, help="Number of files.")
@click.option("--seed", default=1, show_default=True, help="The number of the first one.")
@click.option("--workers", default=1, show_default=True, help="Processes that read.")
def main(count: int, seed: int, workers: int) -> None:
    """Read damaged files of every format; fail where one is neither read nor refused."""
    began_s = time.monotonic()
    found = torture(range(seed, seed + count), workers, click.echo)
    for sample in sorted({sample for sample, _ in found.counts}):
        counts = [
            f"{found.counts[sample, result]:,} {result}" for result in (_READ, _REFUSED, "failed")
        ]
        click.echo(f"{sample}: {', '.join(counts)}")
    for number, failure in sorted(found.failures.items()):
        click.echo(
            f"\n{failure}\nrepeat it: python -m tests.torture.files --count 1 --seed {number}"
        )
    took_s = time.monotonic() - began_s
    click.echo(f"{count:,} files, {len(found.failures)} failures, {took_s:.0f} s")
    sys.exit(1 if found.failures else 0)


if __name__ == "__main__":
    main()
