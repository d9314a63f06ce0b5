"""The tour's recording: the trace is made of it, and its decisions are those of the page."""

from __future__ import annotations

from pathlib import Path

from replay.backends.processes import EmbeddedServices
from replay.record.frames import Folder
from replay.record.making import trace_of
from tests.e2e.replays import ROOT, bindings, run
from tests.e2e.test_cli import reprieve

SHOP = ROOT / "examples" / "recordings" / "shop"


def test_the_tours_run_preempts_the_reports_that_the_page_names(
    services: EmbeddedServices, tmp_path: Path
) -> None:
    """The checkout's pods take the room of the youngest reports."""
    finished = run(services, trace_of(Folder(SHOP)), tmp_path / "run")
    bound = bindings(finished)
    assert bound["checkout-1"].victims == ("report-9",)
    assert bound["checkout-2"].victims == ("report-6",)


def test_the_tours_decisions_agree_with_the_recorded_ones(tmp_path: Path) -> None:
    """All six, as the page shows."""
    done = reprieve(tmp_path, "replay", str(SHOP), "--compare-recorded", "-q")
    assert "6 decisions: 6 agree, 0 explained, 0 differ, 0 not judged" in done.stdout
