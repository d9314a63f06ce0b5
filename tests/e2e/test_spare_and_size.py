"""Which nodes can go, and the cheapest numbers of nodes, with answers reasoned by hand.

The living cluster (tests/living_cluster.py): six nodes with 4 CPUs. worker-6 is cordoned and has
only its agent (100m) and a pod that terminates. worker-4 has web (500m), report (1 CPU) and its
agent; worker-5 has api (1 CPU), two imports (500m each) and its agent; the others request 2,600m
each (worker-1: web, report, db, agent; worker-2 and worker-3: web, api, db, agent). So the least
used ones are worker-6, worker-4 and worker-5, in this order.

Without worker-6 nobody lacks anything. Without worker-4, too, web and report find room: 1,400m are
free on each of worker-1 to worker-3, 1,900m on worker-5. Without worker-5 web, api, the imports and
report, by priority, need 500m, 1 CPU, twice 500m and 1 CPU on three nodes with 1,400m each: what is
left after the first four is at most 900m on one node, and report, the last one, waits.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from replay.cli.errors import REFUSED
from replay.results.run.directory import RunDirectory
from replay.whatif.facts import read_facts
from tests.e2e.commands import reprieve
from tests.e2e.replays import ROOT
from tests.living_cluster import living_cluster, write_list

pytestmark = pytest.mark.e2e

BAKERY = str(ROOT / "examples" / "clusters" / "bakery.yaml")
POOLS = ("--pool", "pool=gpu:0..4", "--pool", "pool=general:0..6")
NEAR = ("--pool", "pool=gpu:1..3", "--pool", "pool=general:3..5")
PRICES = ("--price", "pool=gpu=2.5", "--price", "pool=general=0.4")


def answered(folder: Path, *arguments: str) -> dict[str, Any]:
    """Return the answer of a command as JSON."""
    done = reprieve(folder, *arguments, "-o", "json", "--no-explain")
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@pytest.fixture
def living(tmp_path: Path) -> Path:
    """Return a folder with the living cluster."""
    write_list(tmp_path / "living.yaml", living_cluster())
    return tmp_path


def test_the_nodes_of_the_living_cluster_that_can_go(living: Path) -> None:
    """By name, in their order; the two runs at the border prove it."""
    answer = answered(living, "spare", "living.yaml", "--run", "s")
    assert answer["spare"] == ["worker-6", "worker-4"]
    sentence = answer["answer"][0]
    assert sentence.startswith("2 nodes can go: worker-6, worker-4; with 3, shop/report-")
    assert sentence.endswith(" waits.")
    [border] = answer["borders"]
    runs = [RunDirectory.open(living / path) for path in border["runs"]]
    waiting = [
        {pod.workload or pod.name for pod in read_facts(run).pods.values() if pod.pending}
        for run in runs
    ]
    assert waiting == [{"too-big"}, {"too-big", "report"}]
    removed = [run.manifest().configuration["overrides"]["removed_nodes"] for run in runs]
    assert removed == [["worker-6", "worker-4"], ["worker-6", "worker-4", "worker-5"]]


def test_another_order_names_other_nodes(living: Path) -> None:
    """worker-1 first: web, report and db find 1,400m, 1,400m, 2,400m and 1,900m that are free.

    Without worker-2, too, four pods of 1 CPU (api, two of db, report) and two web of 500m need room
    on worker-3 to worker-5: four of 1 CPU leave 400m, 400m and 900m, and a second web has no room.
    """
    order = ("--order", "name", "--until", "pending.change <= 0")
    answer = answered(living, "spare", "living.yaml", *order)
    assert answer["spare"] == ["worker-1"]
    [border] = answer["borders"]
    assert border["adjacent"]


def test_a_pool_of_which_a_single_node_can_go(tmp_path: Path) -> None:
    """gpu-3 runs nothing; with gpu-2 gone, too, three pods share the two GPUs of gpu-1."""
    answer = answered(tmp_path, "spare", BAKERY, "--pool", "pool=gpu")
    assert answer["spare"] == ["gpu-3"]
    assert answer["answer"][0].startswith("1 node of pool=gpu can go: gpu-3; with 2, ml/forecast-")
    done = reprieve(tmp_path, "spare", BAKERY, "--pool", "pool=gpus", code=REFUSED)
    assert "the nodes have pool=general, pool=gpu" in done.stderr


def test_no_node_can_go_where_none_is_to_spare(tmp_path: Path) -> None:
    """Of pool general the 14 pods need four nodes (tests/e2e/test_seek.py)."""
    answer = answered(tmp_path, "spare", BAKERY, "--pool", "pool=general")
    assert answer["spare"] == []
    assert answer["answer"][0].startswith("No node of pool=general can go; with 1, back-office/")


@pytest.mark.parametrize(
    ("pools", "options"), [(POOLS, ()), (NEAR, ("--exhaustive",))], ids=["refined", "exhaustive"]
)
def test_the_cheapest_numbers_of_nodes(
    pools: tuple[str, ...], options: tuple[str, ...], tmp_path: Path
) -> None:
    """Three GPUs need two nodes, and pool general four; one fewer of either is shown to fail."""
    answer = answered(tmp_path, "size", BAKERY, *pools, *PRICES, *options)
    size = answer["size"]
    assert size["nodes"] == {"pool=gpu": 2, "pool=general": 4}
    assert (size["price"], size["price_now"]) == (pytest.approx(6.6), pytest.approx(9.1))
    among = "all" if options else "those that were tried"
    head, gpu, general, tried = answer["answer"]
    assert head.startswith(f"The cheapest of {among}: 2 nodes of pool=gpu, 4 nodes of pool=general")
    assert gpu.startswith("With one node of pool=gpu fewer ml/forecast-")
    assert general.startswith("With one node of pool=general fewer back-office/report-")
    # Of 35 numbers that without any node is known.
    if options:
        assert tried == "All 9 points were tried."
    else:
        assert tried == f"Tried {len(answer['tried'])} of 34 points."
        assert len(answer["tried"]) < 34


def test_a_price_of_no_pool_and_a_pool_that_is_none_are_refused(tmp_path: Path) -> None:
    """With what to write."""
    wrong = ("--price", "pool=gpus=2")
    done = reprieve(tmp_path, "size", BAKERY, *POOLS, *wrong, code=REFUSED)
    assert "no --pool is pool=gpus" in done.stderr
    done = reprieve(tmp_path, "size", BAKERY, "--pool", "pool=gpu:5..2", code=REFUSED)
    assert "write pool=gpu, or pool=gpu:1..8" in done.stderr
