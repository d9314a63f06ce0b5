"""Run the benchmark's rows of two commits by turns, and print how they compare.

    python -m benchmarks.compare BASE [--rows NAME,...] [--repeat N] [--quick] [--million]
                                      [--in-process] [--spans CHOICE]

BASE is a commit, which is checked out into a temporary worktree and gets stubs of its own; the
other side is this folder as it stands. Both use this Python's packages. Each row is run N times on
either side (A B A B), each side by its own code: a row that BASE does not know is left out.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median

from benchmarks.rows import ROOT, chosen

MEASURES = ("SchedulingThroughput", "WallTime", "CPUPerPod", "QueueExchangesPerPod", "PeakMemory")
_WARM_UP = "from services.scheduler.core.session.warm_up import warm_up; warm_up()"
Figures = Mapping[str, float]


def main() -> None:
    """Read the command line, run both sides by turns, print ratios."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("base", help="a commit, a branch or a tag")
    parser.add_argument("--rows", default="", help="as in benchmarks.bench")
    parser.add_argument("--repeat", type=int, default=5, help="runs of each side (default: 5)")
    parser.add_argument("--quick", action="store_true", help="all rows small")
    parser.add_argument("--million", action="store_true", help="the long rows, too")
    parser.add_argument("--in-process", action="store_true", help="services without sockets")
    parser.add_argument("--spans", default="", help="as in benchmarks.bench")
    options = parser.parse_args()
    flags = [f"--{name}" for name in ("quick", "million") if getattr(options, name)]
    flags += ["--in-process"] if options.in_process else []
    flags += ["--spans", options.spans] if options.spans else []
    try:
        wanted = [row.name for row in chosen(options.rows)]
    except ValueError as error:
        parser.error(str(error))
    with tempfile.TemporaryDirectory() as folder, worktree(options.base, Path(folder)) as base:
        sides = (base, ROOT)
        known, own = (known_rows(side, flags, named=options.rows) for side in sides)
        print(f"{'ROW':<36}{'MEASURE':<22}{'BASE':>10}{'NOW':>10}   NOW / BASE")
        for row in [name for name in wanted if name in own]:
            if row not in known:
                print(f"{row:<36}left out: {options.base} does not have it")
                continue
            runs = [[figures(side, row, flags) for side in sides] for _ in range(options.repeat)]
            show(row, runs)


@contextlib.contextmanager
def worktree(commit: str, folder: Path) -> Iterator[Path]:
    """Check a commit out into `folder`, with stubs, and take the worktree away afterwards."""
    base = folder / "base"
    git = ["git", "-C", str(ROOT), "worktree"]
    subprocess.run([*git, "add", "--quiet", "--detach", str(base), commit], check=True)
    try:
        if (shared := ROOT.parent / "shared").is_dir():
            (folder / "shared").symlink_to(shared)
        # Building a wheel generates the stubs.
        pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(folder)]
        subprocess.run([*pip, str(base)], check=True)
        subprocess.run([sys.executable, "-c", _WARM_UP], cwd=base, env=_env(base), check=True)
        yield base
    finally:
        subprocess.run([*git, "remove", "--force", str(base)], check=True)


def known_rows(side: Path, flags: Sequence[str], *, named: str) -> set[str]:
    """Return the rows that a side can run; none where it has no such benchmark."""
    if not (side / "benchmarks" / "bench.py").is_file():
        return set()
    names = ["--million"] if named else []
    return set(_bench(side, [*flags, *names, "--list"]).splitlines())


def figures(side: Path, row: str, flags: Sequence[str]) -> Figures:
    """Run a row once and return its figures by metric."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bench.json"
        _bench(side, [*flags, "--rows", row, "--json", str(path)])
        items = json.loads(path.read_text(encoding="utf-8"))["dataItems"]
    return {
        item["labels"]["Metric"]: item["data"]["Median"]
        for item in items
        if "Process" not in item["labels"]
    }


def show(row: str, runs: Sequence[Sequence[Figures]]) -> None:
    """Print the medians of both sides, and the median, least and largest ratio of a pair."""
    for measure in MEASURES:
        base, now = ([pair[side][measure] for pair in runs] for side in (0, 1))
        ratios = [new / old for old, new in zip(base, now, strict=True) if old]
        if ratios:
            spread = f"{median(ratios):>8.2f}   {min(ratios):.2f} to {max(ratios):.2f}"
            print(
                f"{row:<36}{measure:<22}{median(base):>10,.1f}{median(now):>10,.1f}{spread}",
                flush=True,
            )


def _bench(side: Path, arguments: Sequence[str]) -> str:
    command = [sys.executable, "-m", "benchmarks.bench", *arguments]
    done = subprocess.run(
        command, cwd=side, env=_env(side), capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{side}: {' '.join(command)}: {done.stderr}")
    return done.stdout


def _env(side: Path) -> dict[str, str]:
    """Let a side's own code stand before what is installed."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(side), str(side / "gen")])}


if __name__ == "__main__":
    main()
