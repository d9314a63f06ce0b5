"""Which nodes of a pool can go: a sweep names those that each of its points removes.

The cluster is examples/clusters/bakery.yaml: gpu-1 has two pods with a GPU each, gpu-2 has one and
gpu-3 none; every node of the pool has two GPUs. So gpu-3 can go, and without gpu-2, too, the three
pods need two GPUs more than the one that is left has by then: one pod waits.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from replay.cli.errors import FAILED, REFUSED
from tests.e2e.commands import reprieve
from tests.e2e.replays import ROOT

pytestmark = pytest.mark.e2e

BAKERY = str(ROOT / "examples" / "clusters" / "bakery.yaml")
OVER = ("--over", "scale-nodes=pool=gpu:-0..-2")
LEAST_USED = ("--", "--scale-order", "least-used")


def test_a_sweep_names_the_nodes_that_can_go(tmp_path: Path) -> None:
    """In one command, whose exit code is that of the check which fails at the last point."""
    checks = ("--assert", "pending == 0", "--summary", "summary.md")
    arguments = ("sweep", BAKERY, "-o", "out", *OVER, *checks, *LEAST_USED)
    done = reprieve(tmp_path, *arguments, code=FAILED, COLUMNS="100")
    lines = [line.rstrip() for line in done.stdout.splitlines()]
    rows = lines[lines.index("AT                        REMOVED NODES   CHECKS") + 1 :]
    assert rows[:3] == [
        "scale-nodes=pool=gpu:-0   -               hold",
        "scale-nodes=pool=gpu:-1   gpu-3           hold",
        "scale-nodes=pool=gpu:-2   gpu-3, gpu-2    pending == 0 fails: it is 1 pod",
    ]
    assert lines[-1] == "Can go while each check holds: gpu-3"
    assert "Can go while each check holds: gpu-3" in (tmp_path / "summary.md").read_text()


def test_each_node_by_itself(tmp_path: Path) -> None:
    """By name: gpu-1 is missed, the others are not; each alone is a largest set."""
    axis = ("--over", "drop-nodes=gpu-1,gpu-2,gpu-3")
    check = ("--assert", "pending{namespace=ml} == 0", "--assert", "bindings{namespace=ml} <= 1")
    arguments = ("sweep", BAKERY, "-o", "out", *axis, *check)
    done = reprieve(tmp_path, *arguments, code=FAILED, COLUMNS="100")
    assert done.stdout.splitlines()[-1] == "Can go while each check holds: gpu-2; or gpu-3"


@pytest.mark.parametrize(
    ("order", "removed"), [("least-used", "gpu-3"), ("youngest", "gpu-3"), ("name", "gpu-1")]
)
def test_the_order_decides_which_node_goes_and_the_manifest_names_it(
    order: str, removed: str, tmp_path: Path
) -> None:
    """The nodes were created in the order of their names."""
    options = ("--scale-nodes", "pool=gpu:-1", "--scale-order", order)
    reprieve(tmp_path, "replay", BAKERY, "--run", "run", "-q", "--no-report", *options)
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert manifest["configuration"]["overrides"]["removed_nodes"] == [removed]


def test_a_pool_that_is_misspelt_is_no_baseline(tmp_path: Path) -> None:
    """It would be a grid of equal replays otherwise."""
    arguments = ("sweep", BAKERY, "-o", "out", "--over", "scale-nodes=pool=gpus:-0,pool=gpus:-1")
    done = reprieve(tmp_path, *arguments, code=REFUSED)
    assert "the nodes have pool=general, pool=gpu" in done.stderr
