"""The example plugins for GPU sharing: devices, and fragmentation against a plain twin."""

from __future__ import annotations

import csv
import importlib
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from tests.e2e.commands import command, environment
from tests.e2e.replays import ROOT, SHARED

EXAMPLE = ROOT / "examples" / "plugins" / "gpu_sharing"
OPENB = SHARED / "traces" / "openb"
MILLI = "alibabacloud.com/gpu-milli"
NODES = "sn,cpu_milli,memory_mib,gpu,model\nn0,32000,65536,2,T4\n"
PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n" + "".join(
    f"{name},1000,1024,1,{milli},\n" for name, milli in (("a", 400), ("b", 400), ("whole", 1000))
)
TASKS = [
    *((f"common-{number}", 1000, 1, 500) for number in range(4)),
    *((f"cpu-{number}", 4000, 0, 0) for number in range(2)),
    ("two", 1000, 2, 1000),
    ("rare", 2000, 1, 700),
]
PLUGINS = ("sharing:GpuSharing", "best_fit:GpuBestFit", "gradient:GpuFragmentation")

Kind = tuple[int, int, int, float]


@pytest.fixture
def gradient(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the example's module of fragmentation gradient descent."""
    monkeypatch.syspath_prepend(str(EXAMPLE))
    return importlib.import_module("reprieve_gpu_sharing.gradient")


@pytest.mark.e2e
@pytest.mark.parametrize(("select", "bound"), [("best", 3), ("worst", 2), ("fragmentation", 3)])
def test_a_whole_gpu_is_left_where_shares_are_packed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, select: str, bound: int
) -> None:
    """Two shares of 0.4 take one device, or one each, and then a whole one is wanted."""
    monkeypatch.syspath_prepend(str(EXAMPLE))
    configure = importlib.import_module("reprieve_gpu_sharing.configure")
    kinds = [{"cpuMilli": 1000, "gpus": 1, "gpuMilli": 1000, "share": 1}]
    document = configure.configuration("fgd" if select == "fragmentation" else "random", kinds)
    profile = document["profiles"][0]
    sharing = next(config for config in profile["pluginConfig"] if config["name"] == "GpuSharing")
    sharing["args"]["select"] = select
    for name, text in (("nodes.csv", NODES), ("pods.csv", PODS), ("s.yaml", yaml.dump(document))):
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert _bound(tmp_path) == bound


def _bound(folder: Path) -> int:
    base = environment()
    path = os.pathsep.join([base["PYTHONPATH"], str(EXAMPLE)])
    named = " ".join(f"reprieve_gpu_sharing.{plugin}" for plugin in PLUGINS)
    arguments = ("--scheduler-config", "s.yaml", "--run", "run", "-q", "--spans", "off")
    quick = ("--in-process", "--no-report")
    done = subprocess.run(
        command("replay", "nodes.csv", "pods.csv", *arguments, *quick, "-o", "json"),
        cwd=folder,
        env=base | {"PYTHONPATH": path, "REPRIEVE_PLUGINS": named},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return int(json.loads(done.stdout)["decided"]["bound"])


@pytest.mark.e2e
def test_fgd_allocates_more_of_openbs_gpus_than_chance(tmp_path: Path) -> None:
    """On a twentieth of the nodes, by a sweep; docs/reproduce-fgd.md has the whole table."""
    lists = [OPENB / "openb_node_list_gpu_node.csv", OPENB / "openb_pod_list_default.csv"]
    if not lists[0].exists():
        pytest.skip("needs ../shared/traces/openb")
    base = environment()
    path = os.pathsep.join([base["PYTHONPATH"], str(EXAMPLE)])
    named = " ".join(f"reprieve_gpu_sharing.{plugin}" for plugin in PLUGINS)
    ours = base | {"PYTHONPATH": path, "REPRIEVE_PLUGINS": named}
    options = f"--scale-nodes 0.05 --arrivals {MILLI}=1.3 --disable-preemption --no-eviction"
    priorities = [f"--qos-priority={qos}=0" for qos in ("LS", "Burstable", "Guaranteed")]
    tail = [*options.split(), *priorities, "--spans", "off", "--until", "1s"]
    policies = "scheduler-config=p/random.yaml,p/fgd.yaml"
    for arguments in (
        [sys.executable, "-m", "reprieve_gpu_sharing.configure", "p", *map(str, lists)],
        command("sweep", *map(str, lists), "--over", policies, "-o", "out", "--", *tail),
    ):
        subprocess.run(arguments, cwd=tmp_path, env=ours, timeout=500, check=True)
    with (tmp_path / "out" / "cells.csv").open(encoding="utf-8") as file:
        random, fgd = (float(row[f"allocated{{resource={MILLI}}}"]) for row in csv.DictReader(file))
    assert random + 2 < fgd


def test_the_most_frequent_kinds_are_taken_until_they_make_up_the_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kind that reaches it counts, too; of equally frequent ones the larger comes first."""
    monkeypatch.syspath_prepend(str(EXAMPLE))
    configure = importlib.import_module("reprieve_gpu_sharing.configure")
    head, *_ = PODS.splitlines()
    rows = [f"{name},{cpu},1024,{gpus},{milli}," for name, cpu, gpus, milli in TASKS]
    (tmp_path / "nodes.csv").write_text(NODES, encoding="utf-8")
    (tmp_path / "pods.csv").write_text("\n".join([head, *rows, ""]), encoding="utf-8")
    trace = [str(tmp_path / name) for name in ("nodes.csv", "pods.csv")]
    seen = {}
    for share in ("1", "0.8", "0.75", "0.5"):
        configure.main(["--popularity", share, str(tmp_path / share), *trace])
        profile = yaml.safe_load((tmp_path / share / "fgd.yaml").read_text())["profiles"][0]
        args = {config["name"]: config["args"] for config in profile["pluginConfig"]}
        assert args["GpuSharing"]["workload"] == args["GpuFragmentation"]["workload"]
        kinds = args["GpuFragmentation"]["workload"]
        seen[share] = [(kind["cpuMilli"], kind["gpus"], kind["share"]) for kind in kinds]
    whole = [(1000, 1, 4), (4000, 0, 2), (2000, 1, 1), (1000, 2, 1)]
    assert seen == {"1": whole, "0.8": whole[:3], "0.75": whole[:2], "0.5": whole[:1]}


def plain_fragmentation(cpu: int, left: list[int], kinds: list[Kind]) -> float:
    """Return what the module's text says, task by task."""
    idle = sum(max(milli_left, 0) for milli_left in left)
    total = 0.0
    for cpu_milli, gpus, gpu_milli, share in kinds:
        fitting = sum(milli_left >= gpu_milli for milli_left in left)
        if gpus and fitting >= gpus and cpu >= cpu_milli:
            total += share * sum(milli_left for milli_left in left if 0 < milli_left < gpu_milli)
        else:
            total += share * idle
    return total


def test_the_scores_are_those_of_a_plain_twin(gradient: Any) -> None:
    """Parts of a GPU and whole ones, on nodes of any state."""
    drawn = np.random.default_rng(7)
    kinds: list[Kind] = [(4000, 1, 500, 0.4), (8000, 2, 1000, 0.3), (2000, 0, 0, 0.3)]
    columns = [np.array(column) for column in zip(*kinds, strict=True)]
    packed = (*columns, np.ones((3, 1), dtype=np.bool_))
    for _ in range(200):
        cpu = int(drawn.integers(1000, 16000))
        left = [*drawn.choice([0, 200, 500, 700, 1000], size=4).tolist(), -1, -1, -1, -1]
        milli = int(drawn.choice([200, 500]))
        fitting = [device for device, milli_left in enumerate(left) if milli_left >= milli]
        if not fitting:
            continue
        before = plain_fragmentation(cpu, left, kinds)
        wanted: dict[int, int] = {}
        for device in fitting:
            after = [
                milli_left - milli * (index == device) for index, milli_left in enumerate(left)
            ]
            descent = before - plain_fragmentation(cpu - 1000, after, kinds)
            wanted[device] = int(100 / (1 + math.exp(-descent / 1000)))
        best = max(wanted.values())
        scores, devices = gradient._score_rows(
            np.array([cpu]), np.array([left]), np.array([0]), (1000, 1, milli), packed
        )
        assert (int(scores[0]), wanted[int(devices[0])]) == (best, best)
