"""A live node on real control groups: memory is filled, the kernel notifies, the right group goes.

The groups are made here and hold nothing but this test's own processes. Version 1 only: its memory
controller can be written where tests run; version 2 is tested on recorded files.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pytest

from tests.e2e.commands import command, environment

pytestmark = pytest.mark.e2e
V1 = Path("/sys/fs/cgroup/memory")
LIMIT_MIB, THRESHOLD_MIB = 400, 100
INTERVAL_S = 30.0
MIB = 1 << 20
CONFIG = f"""\
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
evictionHard: {{memory.available: {THRESHOLD_MIB}Mi}}
enforceNodeAllocatable: [pods]
"""
POD = """\
import os, sys, time
open(sys.argv[1] + "/cgroup.procs", "w").write(str(os.getpid()))
kept = [bytearray(os.urandom(1) * (1 << 20)) for _ in range(int(sys.argv[2]))]
print("ready", flush=True)
for line in sys.stdin:
    kept += [bytearray(os.urandom(1) * (1 << 20)) for _ in range(int(line))]
    print("filled", flush=True)
time.sleep(600)
"""


@pytest.fixture
def root() -> Iterator[Path]:
    """Make a group with a limit and two groups below it, and remove them afterwards."""
    path = V1 / f"reprieve-test-{os.getpid()}"
    try:
        for folder in (path, path / "steady", path / "hungry"):
            folder.mkdir()
        (path / "memory.limit_in_bytes").write_text(str(LIMIT_MIB * MIB))
    except OSError as error:
        pytest.skip(f"no memory control group of version 1 can be made here: {error}")
    yield path
    for group in (path / "steady", path / "hungry", path):
        for pid in (group / "cgroup.procs").read_text().split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline:
            try:
                group.rmdir()
            except OSError:
                time.sleep(0.05)
            else:
                break


def pod(group: Path, mib: int) -> subprocess.Popen[str]:
    """Start a process in a group that holds so much memory, and more for each line it reads."""
    started = subprocess.Popen(
        [sys.executable, "-c", POD, str(group), str(mib)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert started.stdout is not None
    assert started.stdout.readline() == "ready\n"
    return started


def requests(path: Path) -> Path:
    """Write what the pods request: the hungry one least of what it will use."""
    items = [
        {
            "metadata": {"uid": name, "name": name, "namespace": "default"},
            "spec": {"containers": [{"name": "c", "resources": {"requests": {"memory": "100Mi"}}}]},
        }
        for name in ("steady", "hungry")
    ]
    path.write_text(json.dumps({"kind": "List", "items": items}))
    return path


def watching(tmp_path: Path, root: Path, *more: str) -> subprocess.Popen[str]:
    """Start the watch with steps so far apart that only the kernel can wake it in time."""
    (tmp_path / "kubelet.yaml").write_text(CONFIG)
    arguments = [
        "node",
        "watch",
        "--cgroup-root",
        str(root),
        "--kubelet-config",
        str(tmp_path / "kubelet.yaml"),
        "--pods",
        str(requests(tmp_path / "pods.json")),
        "--interval",
        str(INTERVAL_S),
        "-o",
        "json",
    ]
    return subprocess.Popen(
        command(*arguments, *more),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )


def next_step(output: IO[str] | None) -> dict[str, Any]:
    """Return the next step of the watch."""
    assert output is not None
    line = output.readline()
    assert line, "the watch has ended"
    step: dict[str, Any] = json.loads(line)
    return step


def test_the_kernel_notifies_before_the_poll_and_the_right_group_is_killed(
    tmp_path: Path, root: Path
) -> None:
    """The pod that uses more than it requests is ended; the other one and this test live on."""
    steady, hungry = pod(root / "steady", 60), pod(root / "hungry", 60)
    with watching(tmp_path, root, "--act") as watch:
        calm = next_step(watch.stdout)
        assert (calm["woken"], calm["pods"], calm["evictions"]) == ("interval", 2, [])
        time.sleep(0.5)
        began = time.monotonic()
        assert hungry.stdin is not None
        hungry.stdin.write("200\n")
        hungry.stdin.flush()
        pressed = next_step(watch.stdout)
        while not pressed["evictions"]:
            pressed = next_step(watch.stdout)
        taken_s = time.monotonic() - began
        after = next_step(watch.stdout)
        watch.terminate()
    assert pressed["woken"] == "notification"
    assert taken_s < INTERVAL_S / 2
    (evicted,) = pressed["evictions"]
    assert (evicted["name"], evicted["ended"]) == ("hungry", True)
    assert evicted["signal"] == "allocatableMemory.available"
    assert pressed["conditions"] == ["MemoryPressure"]
    assert "The node was low on resource: memory." in evicted["message"]
    assert hungry.wait(5) == -signal.SIGTERM
    assert steady.poll() is None
    assert (after["woken"], after["pods"], after["evictions"]) == ("cleanup", 1, [])
    steady.kill()
    steady.wait()


def test_without_act_it_only_reports_which_pod_it_would_evict(tmp_path: Path, root: Path) -> None:
    """Nothing is killed."""
    hungry = pod(root / "hungry", 330)
    with watching(tmp_path, root, "--steps", "1") as watch:
        step = next_step(watch.stdout)
    assert [(eviction["name"], eviction["ended"]) for eviction in step["evictions"]] == [
        ("hungry", None)
    ]
    assert hungry.poll() is None
    hungry.kill()
    hungry.wait()
