"""A run compared with what another scheduler decides: whose rule the first difference is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reprieve.scheduler.v1beta1 import scheduler_pb2
from tests.e2e.commands import reprieve
from tests.e2e.test_small_schedulers import Decide, Small, served

NODES = """
apiVersion: v1
kind: Node
metadata: {name: two}
status: {allocatable: {cpu: "2", memory: 8Gi, pods: "10"}}
---
apiVersion: v1
kind: Node
metadata: {name: four}
status: {allocatable: {cpu: "4", memory: 8Gi, pods: "10"}}
"""
POD = """
---
apiVersion: v1
kind: Pod
metadata: {name: comes, namespace: default}
spec: {containers: [{name: c, resources: {requests: {cpu: "%d"}}}]}
"""

REFUSED = "By A's rules plugin NodeResourcesFit refuses node two, which B chose: Insufficient cpu."

pytestmark = pytest.mark.e2e


def to_two(outcome: scheduler_pb2.Outcome) -> None:
    """Bind every pod to `two`, whatever it requests."""
    outcome.bind.node_name = "two"


def to_none(outcome: scheduler_pb2.Outcome) -> None:
    """Find no node for any pod."""
    outcome.unschedulable.message = "no luck"


@pytest.mark.parametrize(
    ("cpu", "decide", "reasons"),
    [
        (3, to_two, [REFUSED]),
        (1, to_two, ["By A's rules both nodes fit, and they score four", "Plugin NodeResources"]),
        (1, to_none, ["By A's rules 2 nodes fit, also four, and B found none: no luck."]),
        (8, to_two, [REFUSED]),
    ],
)
def test_the_plugin_that_refuses_or_scores_the_other_schedulers_node_is_named(
    tmp_path: Path, cpu: int, decide: Decide, reasons: list[str]
) -> None:
    """B repeats the command of A with another scheduler, and nothing else."""
    (tmp_path / "cluster.yaml").write_text(NODES + POD % cpu, encoding="utf-8")
    options = ("--spans", "off", "--in-process", "--no-eviction", "--until", "1m")
    reprieve(tmp_path, "replay", "cluster.yaml", "--run", "ours", "-q", "-o", "json", *options)
    with served(Small(decide)) as (_, address, *_rest):  # type: ignore[abstract] # as in its tests
        arguments = ("compare", "ours", "--scheduler", address, "--run", "x", "-o", "json")
        compared = json.loads(reprieve(tmp_path, *arguments).stdout)
    flipped_by = compared["divergence"]["flipped_by"]
    assert len(flipped_by) >= len(reasons)
    assert all(
        line.startswith(reason) for reason, line in zip(reasons, flipped_by, strict=False)
    ), flipped_by
    assert compared["policy_differences"] == [
        f"schedulers reprieve 0.1.0 and a scheduler without a name at {address}"
    ]
    assert compared["a"] == "ours"
    invalid = compared["figures"]["invalid_placements"]
    assert (invalid["a"], invalid["b"]) == (0, reasons == [REFUSED])
    assert not any("moved" in group["counts"] for group in compared["groups"])


def test_a_run_that_is_not_from_here_is_not_repeated(tmp_path: Path) -> None:
    """Its command names what would be read and connected to; it is shown with the trace."""
    (tmp_path / "cluster.yaml").write_text(NODES + POD % 1, encoding="utf-8")
    options = ("--run", "ours", "-q", "--spans", "off", "--in-process", "--seed", "3")
    reprieve(tmp_path, "replay", "cluster.yaml", *options, "--assert", "bound == 1")
    manifest = json.loads((tmp_path / "ours" / "manifest.json").read_bytes())
    manifest["signature"] = "00"
    del manifest["sha256"]
    (tmp_path / "ours" / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    arguments = ("compare", "ours", "--scheduler", "127.0.0.1:1", "--run", "x")
    refused = reprieve(tmp_path, *arguments, code=2).stderr
    assert "ours was not made here by you" in refused
    shown = "reprieve compare cluster.yaml --spans off --in-process --seed 3 --b"
    assert f"{shown} '--scheduler 127.0.0.1:1'" in refused
    assert not (tmp_path / "x").exists()
