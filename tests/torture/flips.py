"""Flips bits in the files of runs; no command may take a damaged file for what it was.

    python -m tests.torture.flips --count 300 --seed 1

Two runs of a generated workload are made: one with its end, tables and report, and one that broke
off after several checkpoints. A random bit of a random file of either is flipped, for each flip in
a new copy of the folder:

- of the run that broke off, `resume` must name the file and refuse, or end with the decisions and
  the history of the undisturbed run, and its files must be those of its end;
- of the finished run, `verify` must name a file, and every answer (`get`, `query`, `export`,
  `report`, `explain`) must be a refusal or that of the undamaged run.
"""

from __future__ import annotations

import contextlib
import io
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from unittest import mock

import click

from replay.backends.processes import prepare
from replay.errors import ReplayError
from replay.explain.explain import explain
from replay.explain.target import ExplainQuery
from replay.generate.workload import GenerateOptions, generate
from replay.report.page import write_report
from replay.results.kubectl.get import GetQuery, get
from replay.results.run.directory import RunDirectory
from replay.results.run.files import DECISIONS
from replay.results.run.verification import FAULTS, verify
from replay.results.schema import TABLES
from replay.results.spans.chrome_trace import trace_events
from replay.results.tables.query import RunTables
from replay.runner import run_replay
from replay.settings import ReplaySettings
from services.kube.time import SECOND_NS
from services.telemetry.span import Sampling
from tests.torture.crashes import workload


class _BrokenOffError(Exception):
    """Ends a replay in its middle."""


class Damaged:
    """A finished run and one that broke off, and what becomes of them after a flip."""

    def __init__(self, folder: Path, options: GenerateOptions) -> None:
        """Make both runs in `folder`."""
        self._folder = folder
        self._options = options
        self.finished, self.broken_off = folder / "finished", folder / "broken-off"
        # Explain's checkpoints are among the files, too.
        with (
            mock.patch("replay.recovery.SHARE", 0),
            mock.patch("replay.recovery.KEPT_SHARE", 1_000_000),
        ):
            self._replayed(self.finished)
            with contextlib.suppress(_BrokenOffError):
                self._replayed(self.broken_off, until_ns=40 * SECOND_NS)
        assert all(list(path.glob("checkpoint-*")) for path in (self.finished, self.broken_off))
        run = RunDirectory.open(self.finished)
        write_report(run)
        self._pod = next(iter(run.decisions())).observed.object.uid
        self._answers = {name: ask(run) for name, ask in self._questions().items()}
        self._log = (self.finished / DECISIONS).read_bytes()
        self._history = list(run.rounds())

    def flipped(self, of: Path, chance: Random) -> tuple[str, Path]:
        """Return the name of a file with a flipped bit, and the copy of the folder that has it."""
        copy = Path(tempfile.mkdtemp(dir=self._folder)) / of.name
        shutil.copytree(of, copy)
        path = chance.choice(sorted(path for path in copy.iterdir() if path.stat().st_size))
        content = bytearray(path.read_bytes())
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        path.write_bytes(content)
        return path.name, copy

    def after_resuming(self, path: Path) -> str:
        """Return what became of the run that broke off; beginning with "BAD" for silent damage."""
        notices: list[str] = []
        try:
            RunDirectory.open(path).state()
            self._replayed(path, resumes=True, notice=notices.append)
        except ReplayError:
            return "refused"
        run = RunDirectory.open(path)
        faults = [issue.path for issue in verify(run) if issue.verdict in FAULTS]
        if faults:
            return f"BAD: the resumed run has faults: {faults}"
        if (path / DECISIONS).read_bytes() != self._log or list(run.rounds()) != self._history:
            return "BAD: other decisions"
        return "replayed from its beginning" if any(notices) else "resumed"

    def after_reading(self, name: str, path: Path) -> str:
        """Return what became of the finished run; beginning with "BAD" for silent damage."""
        try:
            run = RunDirectory.open(path)
            faults = [issue.path for issue in verify(run) if issue.verdict in FAULTS]
        except ReplayError:
            faults = ["manifest.json"]
        if not faults and not self._is_equal(name, path):
            return "BAD: verify names no file"
        refused = 0
        for question, ask in self._questions().items():
            try:
                answer = ask(RunDirectory.open(path))
            except ReplayError:
                refused += 1
                continue
            if answer != self._answers[question]:
                return f"BAD: another answer of {question}"
        return "named, some answers refused" if refused else "named, all answers right"

    def _is_equal(self, name: str, path: Path) -> bool:
        """Return whether a flip changed nothing that is read, such as a space in the manifest."""
        if name != "manifest.json":
            return False
        mine, theirs = RunDirectory.open(path), RunDirectory.open(self.finished)
        return mine.manifest() == theirs.manifest()

    def _questions(self) -> dict[str, Callable[[RunDirectory], object]]:
        questions: dict[str, Callable[[RunDirectory], object]] = {
            "get": lambda run: _got(run, "pods", "wide"),
            "get -o json": lambda run: _got(run, "pods", "json"),
            "get events": lambda run: _got(run, "events", "table"),
            "summary": lambda run: run.summary(),
            "export": _exported,
            "report": lambda run: write_report(run).read_bytes(),
            "explain": self._explained,
        }
        for table in TABLES:
            questions[f"query {table}"] = lambda run, name=table: _rows(run, name)  # type: ignore[misc]
        return questions

    def _explained(self, run: RunDirectory) -> object:
        explanation = explain(run, ExplainQuery(pod=self._pod)).to_mapping()
        return {name: value for name, value in explanation.items() if name != "run"}

    def _replayed(
        self,
        path: Path,
        *,
        until_ns: int = 0,
        resumes: bool = False,
        notice: Callable[[str], None] = lambda _: None,
    ) -> None:
        def progress(now_ns: int, *_: object) -> None:
            if until_ns and now_ns > until_ns:
                raise _BrokenOffError

        settings = ReplaySettings(
            version="test",
            run_path=path,
            sampling=Sampling(0.3),
            in_process=True,
            checkpoint_every_ns=20_000_000,
            resumes=resumes,
        )
        run_replay(settings, lambda: generate(self._options), progress, notice)


def _got(run: RunDirectory, resource: str, output: str) -> list[str]:
    text = io.StringIO()
    get(run, GetQuery(resource=resource, output=output, show_namespace=True), text.write)
    return text.getvalue().splitlines()


def _rows(run: RunDirectory, table: str) -> list[tuple[object, ...]]:
    with RunTables(run) as tables:
        return list(tables.select(f"SELECT * FROM {table}").rows())  # noqa: S608 - of the schema


def _exported(run: RunDirectory) -> list[object]:
    with RunTables(run) as tables:
        return list(trace_events(tables))


def flips(damaged: Damaged, seeds: range) -> Iterator[tuple[int, str, str, str]]:
    """Yield seed, kind of the run, flipped file and outcome of two flips for each seed."""
    for seed in seeds:
        chance = Random(seed)  # noqa: S311 - a test's choices
        name, copy = damaged.flipped(damaged.broken_off, chance)
        yield seed, "broken off", name, _judged(lambda copy=copy: damaged.after_resuming(copy))  # type: ignore[misc]
        shutil.rmtree(copy.parent)
        name, copy = damaged.flipped(damaged.finished, chance)
        outcome = _judged(lambda name=name, copy=copy: damaged.after_reading(name, copy))  # type: ignore[misc]
        yield seed, "finished", name, outcome
        shutil.rmtree(copy.parent)


def _judged(ask: Callable[[], str]) -> str:
    try:
        return ask()
    except Exception as error:
        return f"BAD: {type(error).__name__}: {error}"


@click.command()
@click.option("--count", default=300, show_default=True, help="Flips in either run.")
@click.option("--seed", default=1, show_default=True, help="The seed of the first one.")
@click.option("--pods", default=60, show_default=True, help="Pods in each run.")
def main(count: int, seed: int, pods: int) -> None:
    """Flip bits in the files of a finished run and of one that broke off."""
    prepare()
    began_s = time.monotonic()
    outcomes = Counter[tuple[str, str]]()
    with tempfile.TemporaryDirectory(prefix="flips-") as folder:
        damaged = Damaged(Path(folder), workload(seed, pods))
        for number, kind, name, outcome in flips(damaged, range(seed, seed + count)):
            outcomes[kind, outcome.partition(":")[0]] += 1
            if outcome.startswith("BAD"):
                click.echo(f"{number}: {kind}: {name}: {outcome}")
    for (kind, outcome), number in sorted(outcomes.items()):
        click.echo(f"{kind}: {number} {outcome}")
    bad = sum(number for (_, outcome), number in outcomes.items() if outcome == "BAD")
    click.echo(f"{count} flips in each run, {bad} bad, {time.monotonic() - began_s:.0f} s")
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
