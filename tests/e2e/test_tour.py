"""The tutorials: commands show what the pages show, and the recording is what the tour says."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from replay.backends.processes import EmbeddedServices
from replay.cli.errors import FAILED, REFUSED
from replay.record.frames import RecordingFolder
from replay.record.recorded_trace import trace_of
from tests.e2e.commands import reprieve
from tests.e2e.replays import ROOT, bindings, run

SHOP = ROOT / "examples" / "recordings" / "shop"
PAGES = {
    "../README.md": 1,
    "tour.md": 10,
    "your-manifests.md": 12,
    "what-if-in-ci.md": 8,
    "what-if.md": 5,
    "upgrade.md": 8,
    "determinism.md": 3,
    "get.md": 9,
    "autoscaler.md": 6,
    "search.md": 1,
    "answers.md": 4,
    "devices.md": 10,
}
"""Each page with a number of commands that it has at least."""
SHELL = ("sed ", "cmp ")
NEEDS_A_CLUSTER = "record -o"
MEASURED = re.compile(r"in [\d.]+ (us|ms|s)\b|\(\d+/s\)")


def steps(page: str) -> Iterator[tuple[str, list[str]]]:
    """Yield a page's commands of reprieve and of SHELL, and the lines that it shows of each."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    for block in re.findall(r"^```\n(.*?)^```", text, re.M | re.S):
        for part in re.split(r"^\$ ", block.replace("\\\n", ""), flags=re.M)[1:]:
            command, *shown = part.splitlines()
            if command.startswith(("reprieve ", *SHELL)) and NEEDS_A_CLUSTER not in command:
                yield command, shown


def said(lines: str) -> list[str]:
    """Return the lines of an output without what a wall clock measured."""
    return [MEASURED.sub("~", line.rstrip()) for line in lines.splitlines()]


@pytest.mark.parametrize("page", PAGES)
def test_a_tutorial_is_literally_true_from_an_empty_folder(page: str, tmp_path: Path) -> None:
    """Every command, in order; where the page shows "...", lines are left out."""
    taken = 0
    for command, shown in steps(page):
        taken += 1
        if command.startswith(SHELL):
            shell = ["/bin/sh", "-c", command]
            done = subprocess.run(shell, cwd=tmp_path, check=True, capture_output=True, text=True)
            assert done.stdout.splitlines() == shown, command
            continue
        error = next((line for line in shown if line.startswith("Error: ")), "")
        is_answer = error.startswith("Error: failed") or " not found in " in error
        code = (FAILED if is_answer else REFUSED) if error else 0
        done = reprieve(tmp_path, *shlex.split(command)[1:], code=code, reports=True, COLUMNS="80")
        output, errors = iter(said(done.stdout)), said(done.stderr)
        for line in said("\n".join(shown)):
            assert line == "..." or line in errors or line in output, f"{command}\n{line}"
    assert taken > PAGES[page]


def test_the_tours_run_preempts_the_reports_that_the_page_names(
    services: EmbeddedServices, tmp_path: Path
) -> None:
    """The checkout's pods take the room of the youngest reports."""
    finished = run(services, trace_of(RecordingFolder(SHOP)), tmp_path / "run")
    bound = bindings(finished)
    assert bound["checkout-1"].victims == ("report-9",)
    assert bound["checkout-2"].victims == ("report-6",)


def test_the_tours_decisions_agree_with_the_recorded_ones(tmp_path: Path) -> None:
    """All six, as the page shows."""
    done = reprieve(tmp_path, "replay", str(SHOP), "--compare-recorded")
    assert "6 decisions: 6 agree, 0 explained, 0 differ, 0 not judged" in done.stdout
