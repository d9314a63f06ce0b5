"""Forks runs at random moments; each must be the run that is played from its beginning.

    python -m tests.torture.forks --count 50 --seed 1

Each attempt makes a replay of another kind (tests/torture/kill_traces.py), which keeps many
checkpoints, and then some forks of it: `--from RUN --at TIME` with what happens then, such as a
restart of the scheduler with other rules. Their twins have the same options with their times, and
begin at the beginning. tests/torture/same_run.py compares the two, and that something was shared is
counted. A failure prints the command that repeats it.
"""

from __future__ import annotations

import random
import shlex
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from unittest import mock

import click

from replay import recovery
from replay.durations import shown
from replay.results.run.directory import RunDirectory
from tests.e2e.commands import reprieve
from tests.torture.kill_traces import kind_of, kinds, replay_of
from tests.torture.same_run import recorded_differences

FORKS = 3
RESTARTS = 0.2
"""The share of other changes that come with a restart of the scheduler."""
_RELEASE = """
apiVersion: apps/v1
kind: Deployment
metadata: {{name: released, namespace: default}}
spec:
  replicas: {replicas}
  selector: {{matchLabels: {{app: released}}}}
  template:
    metadata: {{labels: {{app: released}}}}
    spec:
      containers: [{{name: c, image: i, resources: {{requests: {{cpu: 500m, memory: 64Mi}}}}}}]
"""


def attempt(seed: int, folder: Path, forks: int = FORKS) -> tuple[list[str], Counter[str]]:
    """Fork one run; return what differs from the twins.

    And how many forks there were, were compared (and not refused as their twins were), and shared
    something.
    """
    problems, counts = list[str](), Counter[str]()
    chance = random.Random(seed)  # noqa: S311 - a test's choices
    with replay_of(seed, folder) as arguments:
        base = [argument for argument in arguments if argument != "--no-in-process"]
        whole = ["--in-process", "--no-report", "-q"]
        options = [*whole, "--keep-checkpoints", "30"]
        with (
            mock.patch.object(recovery, "KEPT_SHARE", float("inf")),
            mock.patch.object(recovery, "LOOK_NS", 0),
        ):
            reprieve(folder, "replay", *base, *options, "--run", "a", code=None)
        run = RunDirectory.open(folder / "a")
        if not run.has_digests:
            return [f"replay {shlex.join(base)} has no end"], counts
        for number in range(forks):
            at, added, timed = change(run, chance, folder, number)
            counts["forks"] += 1
            fork, twin = folder / f"fork-{number}", folder / f"twin-{number}"
            forking = ["replay", "--from", "a", "--at", at, *added, *whole, "--run", fork.name]
            done = reprieve(folder, *forking, code=None)
            done_twin = reprieve(
                folder, "replay", *base, *timed, *whole, "--run", twin.name, code=None
            )
            if done.returncode != done_twin.returncode:
                problems.append(f"{shlex.join(forking)}: {done.stderr} is not {done_twin.stderr}")
                continue
            if done.returncode in {0, 3} and not RunDirectory.open(fork).has_digests:
                problems.append(f"{shlex.join(forking)} has no end: {done.stderr}")
            elif done.returncode in {0, 3}:
                differences = recorded_differences(fork, twin)
                problems += [f"{shlex.join(forking)}: {problem}" for problem in differences]
                counts["compared"] += 1
                counts["shared"] += RunDirectory.open(fork).manifest().shared is not None
    return problems, counts


def change(
    run: RunDirectory, chance: random.Random, folder: Path, number: int
) -> tuple[str, list[str], list[str]]:
    """Return a moment, options that begin then, and those of the twin."""
    times, nodes, classes = _times_and_names(run)
    start_ns, end_ns = times[0], times[-1]
    # Some are the moments of rounds, and one may be after the run's end.
    last_ns = end_ns + (end_ns - start_ns) // 50
    at_ns = chance.choice((chance.choice(times), chance.randint(start_ns, last_ns)))
    at = shown(max(1, at_ns - start_ns))
    node = chance.choice(nodes)
    release = folder / f"release-{number}.yaml"
    release.write_text(_RELEASE.format(replicas=chance.randint(1, 40)), encoding="utf-8")
    scheduler = chance.choice(
        (["--rules", "v1.16"], ["--rules", "v1.34"], ["--seed", "9"], ["--disable-preemption"])
    )
    texts = chance.choice(
        (
            [],
            [],
            [("--fail", node)],
            [("--fail", f"{node},for={chance.choice((30, 400))}s")],
            [("--drain", f"{node},uncordon-after=20s")],
            [("--apply", str(release))],
            [("--apply", str(release)), ("--drain", node)],
            [("--drop-nodes", node)],
            [("--scale-nodes", chance.choice(("+1", "+3", "0.7")))],
            *(
                [[("--set", f"priorityClass.{chance.choice(classes)}.value=500")]]
                if classes
                else []
            ),
        )
    )
    added = [text for option in texts for text in option]
    timed = [text for name, value in texts for text in (name, f"{value},at={at}")]
    if not texts or chance.random() < RESTARTS:
        added += scheduler
        timed += ["--restart-scheduler", shlex.join([at, *scheduler])]
    return at, added, timed


def _times_and_names(run: RunDirectory) -> tuple[Sequence[int], Sequence[str], Sequence[str]]:
    """Return the times of the rounds, the nodes, and the classes of pods that are not system's."""
    times, nodes, classes = list[int](), dict[str, None](), dict[str, None]()
    for round_ in run.rounds():
        times.append(round_.time_ns)
        for event in round_.events:
            if event.HasField("add") and event.add.HasField("node"):
                nodes[event.add.node.metadata.name] = None
            name = event.add.pod.spec.priority_class_name
            if name and not name.startswith("system-"):
                classes[name] = None
    return times, list(nodes), list(classes)


def attempts(seeds: Sequence[int]) -> Iterator[tuple[int, list[str], Counter[str]]]:
    """Yield each seed with its problems and counts."""
    for seed in seeds:
        folder = Path(tempfile.mkdtemp())
        try:
            yield seed, *attempt(seed, folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@click.command()
@click.option("--count", default=50, show_default=True, help="Number of runs that are forked.")
@click.option("--seed", default=1, show_default=True, help="The number of the first one.")
@click.option("--kind", type=click.Choice(kinds()), help="One kind of replays only.")
def main(count: int, seed: int, kind: str | None) -> None:
    """Fork runs and compare; fail where a fork is not its twin."""
    began_s, counts, failed = time.monotonic(), Counter[str](), 0
    seeds = [number for number in range(seed, seed + count) if kind in {None, kind_of(number)}]
    for attempt, problems, of_attempt in attempts(seeds):
        counts.update(of_attempt)
        click.echo(f"{attempt} {kind_of(attempt)}: {_text(of_attempt)}, {len(problems)} problems")
        for problem in problems:
            click.echo(problem)
        if problems:
            failed += 1
            click.echo(f"repeat it: python -m tests.torture.forks --count 1 --seed {attempt}")
    took_s = time.monotonic() - began_s
    click.echo(f"{_text(counts)}; {took_s:.0f} s")
    sys.exit(1 if failed else 0)


def _text(counts: Counter[str]) -> str:
    return (
        f"{counts['forks']} forks, {counts['compared']} compared, "
        f"{counts['shared']} shared something"
    )


if __name__ == "__main__":
    main()
