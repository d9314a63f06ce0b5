"""Recordings of a real control plane, replayed freely: the same nodes, the same victims."""

from __future__ import annotations

from pathlib import Path

import pytest

from replay.backends.processes import EmbeddedServices
from tests.e2e.replays import SHARED, Bound, bindings, run, trace

RECORDINGS = SHARED / "traces" / "recordings"
CHOICES = {
    "e1-top": Bound("e-e1-1", ("e1-b",)),
    "e2-top": Bound("e-e2-1", ("e2-1",)),
    "e3-top": Bound("e-e3-1", ("e3-1a", "e3-1b")),
    "e4-top": Bound("e-e4-0", ("e4-0a",)),
    "e5-top": Bound("e-e5-1", ("e5-1a",)),
    "e6-top": Bound("e-e6-0", ("e6-b", "e6-a")),
    "e7-top": Bound("e-e7-0", ("e7-b",)),
    "e8-top": Bound("e-e8-0", ("e8-a",)),
    "e9-top": Bound("e-e9-0", ("e9-b",)),
}
"""What the recorded kube-scheduler chose: driver.json's RESULT marks, and the pods preempted."""

REFUSAL = (
    "0/17 nodes are available: 1 node(s) had untolerated taint {dedicated: x}, 16 node(s) "
    "didn't match Pod's node affinity/selector. no new claims to deallocate, preemption: "
    "0/17 nodes are available: 17 Preemption is not helpful for scheduling."
)

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not RECORDINGS.is_dir(), reason="no ../shared/traces beside the project"),
]


def test_nginx_high_preempts_nginx_low_as_recorded(here: EmbeddedServices, tmp_path: Path) -> None:
    """Recording a: the one low pod goes, and its node takes the high one."""
    finished = run(here, trace([RECORDINGS / "a"]), tmp_path / "run")
    bound = bindings(finished)["nginx-high"]
    assert bound.node == "test-worker"
    assert len(bound.victims) == 1
    assert bound.victims[0].startswith("nginx-low-")


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_each_preemption_chooses_the_recorded_node_and_victims(
    here: EmbeddedServices, tmp_path: Path, seed: int
) -> None:
    """Recording e: e1 to e9 have one right answer each, whatever the seed."""
    finished = run(here, trace([RECORDINGS / "e"]), tmp_path / "run", seed=seed)
    found = bindings(finished)
    assert {name: found.get(name) for name in CHOICES} == CHOICES


def test_a_preemption_that_cannot_help_says_so(here: EmbeddedServices, tmp_path: Path) -> None:
    """Recording e, eb: every node is refused for good, in kube-scheduler's words."""
    finished = run(here, trace([RECORDINGS / "e"]), tmp_path / "run")
    texts = {
        decision.observed.failed_scheduling.message
        for decision in finished.run.decisions()
        if decision.observed.object.name == "eb-top"
    }
    assert texts == {REFUSAL}
