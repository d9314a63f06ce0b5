"""Schedulers in JavaScript, Go and C++ take the place of ours in a replay."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from replay.backends.processes import ServiceProcess, Starter
from tests.e2e.commands import reprieve
from tests.e2e.replays import DEMOS
from tests.languages.programs import level_of, replay, serving

pytestmark = pytest.mark.languages
MOST_CROWDED = ("--arrivals", "cpu=1.3")
Serving = Callable[[], AbstractContextManager[str]]


@pytest.fixture(scope="module")
def node_scheduler(examples: Path) -> Iterator[str]:
    """Start first-fit-node and return its address."""
    with serving("node", str(examples / "schedulers" / "first-fit-node" / "scheduler.js")) as here:
        yield here


@pytest.fixture(scope="module")
def go(go_scheduler: Path) -> Iterator[str]:
    """Start first-fit-go and return its address."""
    with serving(str(go_scheduler)) as here:
        yield here


@pytest.fixture(scope="module")
def cpp(cpp_scheduler: Path) -> Iterator[str]:
    """Start first-fit-cpp and return its address."""
    with serving(str(cpp_scheduler)) as here:
        yield here


@pytest.fixture(scope="module")
def over_queue(examples: Path) -> Iterator[str]:
    """Start our queue and queue-node over it; return the scheduler's address."""
    starter = Starter()
    queue = ServiceProcess(starter, "queue")
    try:
        script = str(examples / "schedulers" / "queue-node" / "scheduler.js")
        with serving("node", script, "--queue", queue.wait_listening()) as here:
            yield here
    finally:
        queue.stop()
        starter.wait()


@pytest.fixture(scope="module", params=["node_scheduler", "go", "cpp", "over_queue"])
def scheduler(request: pytest.FixtureRequest) -> str:
    """Return the address of each of them."""
    address: str = request.getfixturevalue(request.param)
    return address


def test_a_scheduler_replays_the_small_trace(scheduler: str, tmp_path: Path) -> None:
    """It has no preemption, and so the pod of high priority waits."""
    summary = replay(tmp_path, DEMOS / "nginx-preemption.jsonl", "run", "--scheduler", scheduler)
    assert summary["decided"]["preempted"] == 0
    message = {"name": "0/1 nodes are available: 1 Insufficient cpu.", "count": 1}
    assert summary["unbound"]["messages"] == [message]


def test_a_scheduler_replays_openbs_look_alike(
    scheduler: str, crowded: Path, tmp_path: Path
) -> None:
    """All 7,064 pods find their nodes, though by another rule than ours."""
    summary = replay(tmp_path, crowded, "run", "--scheduler", scheduler)
    assert (summary["pods"], summary["decided"]["bound"]) == (7064, 7064)


def test_a_scheduler_replays_pods_that_come_and_go(
    scheduler: str, busy: Path, tmp_path: Path
) -> None:
    """Pods that wait are tried again when others have ended, and most get their turn."""
    decided = replay(tmp_path, busy, "run", "--scheduler", scheduler)["decided"]
    assert decided["bound"] > 300
    assert decided["failed_attempts"] > 1000
    assert decided["refused"] == 0


def test_a_scheduler_reaches_the_level_of_its_readme(scheduler: str, tmp_path: Path) -> None:
    """Places pods, gives reasons; none preempts."""
    assert level_of(tmp_path, "scheduler", scheduler) == 2


def test_all_languages_decide_the_same(
    node_scheduler: str, go: str, cpp: str, crowded: Path, tmp_path: Path
) -> None:
    """First fit has no ties: where too many pods come, the same ones are left."""
    for name, address in (("node", node_scheduler), ("go", go), ("cpp", cpp)):
        replay(tmp_path, crowded, name, "--scheduler", address, *MOST_CROWDED)
    for name in ("go", "cpp"):
        logs = [(tmp_path / run / "decisions.jsonl").read_bytes() for run in ("node", name)]
        assert logs[0] == logs[1]
    assert logs[0].count(b"\n") > 7064


def test_ours_and_theirs_are_compared(go: str, crowded: Path, tmp_path: Path) -> None:
    """`compare` says where they part, and what our rules say of both choices.

    It connects to no scheduler that a run names.
    """
    replay(tmp_path, crowded, "ours", *MOST_CROWDED)
    replay(tmp_path, crowded, "theirs", "--scheduler", go, *MOST_CROWDED)
    compared = reprieve(tmp_path, "compare", "ours", "theirs").stdout
    assert "Runs diverge at 0s, after 0 identical decisions:" in compared
    assert "By A's rules" in " ".join(compared.split())
