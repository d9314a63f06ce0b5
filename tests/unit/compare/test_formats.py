"""The outcomes in a trace's format with which decisions can be compared."""

from __future__ import annotations

from pathlib import Path

import pytest

from replay.compare.run import RecordedContent, recorded_content
from replay.errors import TraceError
from replay.importers.registry import IMPORTERS

STATES = ("watch", "audit", "recorder", "kwok")
OUTCOMES = ("native", "google-2011", "google-2019", "alibaba-2017")
NOTHING = ("simkube", "scheduler-perf", "manifests", "openb", "dlrm", "spot-gpu", "azure-packing")


@pytest.mark.parametrize("name", STATES)
def test_a_recording_keeps_states(tmp_path: Path, name: str) -> None:
    """Each decision can be judged in the state in which it was taken."""
    file = tmp_path / "x.jsonl"
    file.write_text("{}\n")
    assert recorded_content([file], name) is RecordedContent.STATES


@pytest.mark.parametrize("name", OUTCOMES)
def test_other_traces_keep_the_outcomes_of_pods(tmp_path: Path, name: str) -> None:
    """A free run can be compared, a decision not be judged."""
    file = tmp_path / "x"
    file.write_text("x\n")
    assert recorded_content([file], name) is RecordedContent.OUTCOMES


@pytest.mark.parametrize("name", NOTHING)
def test_a_format_without_outcomes_is_refused_with_its_content(tmp_path: Path, name: str) -> None:
    """The refusal names the formats that have outcomes."""
    file = tmp_path / "x"
    file.write_text("x\n")
    with pytest.raises(TraceError, match=r"ha(s|ve) .*no scheduler's decisions.*watches"):
        recorded_content([file], name)


def test_every_format_has_a_kind_of_recorded_content() -> None:
    """A new importer is added to one of them."""
    assert set(IMPORTERS) == {*STATES, *OUTCOMES, *NOTHING}
