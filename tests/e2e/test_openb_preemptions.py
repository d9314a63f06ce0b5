"""OpenB with its own times on too few nodes: preemptions, each of which explain puts into words."""

from __future__ import annotations

import csv

import pytest

from replay.backends.processes import EmbeddedServices
from replay.explain.explain import explain
from replay.explain.target import ExplainQuery
from replay.importers.records import ImportOptions
from replay.importers.registry import open_trace
from replay.overrides.overrides import Overrides
from replay.results.run.directory import RunDirectory
from tests.e2e.replays import SHARED, run

OPENB = SHARED / "traces" / "openb"
NODES = "openb_node_list_gpu_node.csv"
SHAPE = "node.kubernetes.io/instance-type!=96cpu-768gi-8xv100m32"
FIRST, COUNT = 3600, 100
"""In order of creation, these pods crowd one node most."""

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not OPENB.is_dir(), reason="no ../shared/traces beside the project"),
]


@pytest.fixture(scope="module")
def crowded(here: EmbeddedServices, tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """Replay 100 pods, as Jobs with the data set's times, on one of its V100M32 nodes."""
    folder = tmp_path_factory.mktemp("openb")
    with (OPENB / "openb_pod_list_default.csv").open(newline="") as file:
        reader = csv.DictReader(file)
        rows = sorted(reader, key=lambda row: int(row["creation_time"]))[FIRST : FIRST + COUNT]
        names = list(reader.fieldnames or ())
    with (folder / "pods.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        writer.writerows(rows)
    options = ImportOptions(openb_timed=True, openb_jobs=True)
    overrides = Overrides(drop_nodes=SHAPE, scale_nodes=("=1",))
    paths = [OPENB / NODES, folder / "pods.csv"]
    records = overrides.records(lambda: open_trace(paths, options=options), 0)
    return run(here, records, folder / "run").run


def nominations(crowded: RunDirectory) -> list[tuple[str, int, list[str]]]:
    """Return each preemption of the log: the pod's UID, its attempt, and its victims."""
    found, attempts = list[tuple[str, int, list[str]]](), dict[str, int]()
    for decision in crowded.decisions():
        observed = decision.observed
        uid = observed.object.uid
        if observed.HasField("failed_scheduling"):
            attempts[uid] = observed.failed_scheduling.attempts
        elif observed.HasField("nominated") and observed.nominated.victims:
            victims = [f"{victim.namespace}/{victim.name}" for victim in observed.nominated.victims]
            found.append((uid, attempts[uid], victims))
    return found


def test_too_few_nodes_make_preemptions_of_lower_qos(crowded: RunDirectory) -> None:
    """Dozens of them, and a preempted pod comes again under another name."""
    victims = {name for _, _, names in nominations(crowded) for name in names}
    assert len(victims) > 20
    jobs = {name.rpartition("-")[0] for name in victims}
    assert len(jobs) < len(victims)


def test_explain_gives_each_preemption_its_victims_and_its_reason(
    crowded: RunDirectory, here: EmbeddedServices
) -> None:
    """What it says is what the log has: every victim is lower and needed, the others stay."""
    address = here.addresses["scheduler"]
    made = nominations(crowded)
    for uid, attempt, victims in (made[0], made[len(made) // 2], made[-1]):
        explanation = explain(crowded, ExplainQuery(pod=uid, attempt=attempt), address=address)
        assert (explanation.decision, explanation.attempt) == ("nominated", attempt)
        assert explanation.preemption is not None
        picked = explanation.preemption.candidates[0]
        assert [victim.pod for victim in picked.victims] == victims
        assert all(victim.priority < 1000 for victim in picked.victims)
        assert not set(picked.reprieved) & set(victims)
        assert explanation.preemption.decided_by
