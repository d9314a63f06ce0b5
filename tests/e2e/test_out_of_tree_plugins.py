"""A scheduler process with out-of-tree plugins: by option, and by entry points."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.commands import reprieve, reprieve_process
from tests.e2e.replays import ROOT

EXAMPLE = ROOT / "examples" / "plugins"
NAMES = ("PodDensity", "OneOfEach")
REFUSAL = "0/2 nodes are available: 2 node(s) had a pod of app=web already."

pytestmark = pytest.mark.e2e


def replayed(
    folder: Path, path: Path, plugins: str = "", config: str = "scheduler.yaml"
) -> dict[str, str]:
    """Replay the example, its plugins in `path`; return each pod's node, or its message."""
    for name in ("cluster.yaml", config):
        shutil.copy(EXAMPLE / name, folder)
    paths = os.pathsep.join([str(ROOT), str(ROOT / "gen"), str(path)])
    arguments = ("cluster.yaml", "--scheduler-config", config, "--run", "run", "-q")
    reprieve_process(
        folder, "replay", *arguments, "--spans", "off", PYTHONPATH=paths, REPRIEVE_PLUGINS=plugins
    )
    items = json.loads(reprieve(folder, "get", "pods", "run", "-o", "json").stdout)["items"]
    return {
        item["metadata"]["name"]: item["spec"].get("nodeName")
        or item["status"]["conditions"][0]["message"]
        for item in items
    }


def check(pods: dict[str, str]) -> None:
    """Check that the example's plugins decided."""
    assert sorted([pods["web-1"], pods["web-2"]]) == ["a", "b"]
    assert pods["web-3"].startswith(REFUSAL)


def test_plugins_that_are_named_take_part_in_a_replay(tmp_path: Path) -> None:
    """By the option's variable, which reaches the replay's own scheduler."""
    named = " ".join(f"reprieve_example_plugins:{name}" for name in NAMES)
    check(replayed(tmp_path, EXAMPLE, named))


def test_the_documents_plugin_takes_part_in_a_replay(tmp_path: Path) -> None:
    """All pods go to the node whose tier has the highest score."""
    pods = replayed(tmp_path, EXAMPLE, "node_tier:NodeTier", "node_tier.yaml")
    assert set(pods.values()) == {"a"}


def test_plugins_of_an_installed_distribution_take_part_in_a_replay(tmp_path: Path) -> None:
    """By their entry points alone."""
    site = tmp_path / "site"
    info = site / "reprieve_example_plugins-0.1.0.dist-info"
    info.mkdir(parents=True)
    shutil.copy(EXAMPLE / "reprieve_example_plugins.py", site)
    metadata = "Metadata-Version: 2.1\nName: reprieve-example-plugins\nVersion: 0.1.0\n"
    (info / "METADATA").write_text(metadata, encoding="utf-8")
    points = "".join(f"{name} = reprieve_example_plugins:{name}\n" for name in NAMES)
    (info / "entry_points.txt").write_text(f"[reprieve.plugins]\n{points}", encoding="utf-8")
    check(replayed(tmp_path, site))


def test_a_plugin_that_cannot_be_loaded_ends_the_service_with_its_name(tmp_path: Path) -> None:
    """In a sentence, before it listens."""
    done = subprocess.run(
        [sys.executable, "-m", "services.scheduler", "--plugin", "nowhere:Nothing"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "gen")])},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert 'plugin "nowhere:Nothing": ModuleNotFoundError' in done.stderr
    assert "Traceback" not in done.stderr
