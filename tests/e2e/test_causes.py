"""The cause that `compare` names follows from the first difference's own object."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.commands import reprieve
from tests.living_cluster import living_cluster, write_list

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("--fail worker-2,at=1m", "Only B has --fail worker-2,at=1m."),
        ("--fail worker-6", "Only B has --fail worker-6."),
        ("--drain worker-2", "Only B has --drain worker-2."),
        ("--set deployment.shop/web.replicas=5", "Deployment shop/web are 4 in A and 5 in B."),
        ("--drop-nodes worker-2", "B has no node worker-2."),
    ],
)
def test_the_cause_is_what_differs_of_the_object(tmp_path: Path, options: str, told: str) -> None:
    """The cluster has no usage, so usage is never the cause: worker-6 holds a terminating pod."""
    write_list(tmp_path / "list.yaml", living_cluster())
    tail = ("--run", "x", "--", "--until", "10m", "--spans", "off")
    done = reprieve(tmp_path, "compare", "list.yaml", "--b", options, *tail)
    assert told in done.stdout
    assert "usage differs" not in done.stdout


def test_the_runs_diverge_at_the_earlier_of_two_first_differences(tmp_path: Path) -> None:
    """B's node is Unknown after 1m50s; A retries a pod then that has waited for 5m30s."""
    write_list(tmp_path / "list.yaml", living_cluster())
    sides = ("--a", "--fail worker-2,at=5m", "--b", "--fail worker-2,at=1m")
    tail = ("--run", "x", "--", "--until", "10m", "--spans", "off")
    lines = reprieve(tmp_path, "compare", "list.yaml", *sides, *tail).stdout.splitlines()
    begin = next(index for index, line in enumerate(lines) if line.startswith("Runs diverge"))
    assert lines[begin].startswith("Runs diverge at 1m50s, after ")
    assert lines[begin + 1 : begin + 3] == [
        "  A found no node for shop/too-big at 5m30s",
        "  B set Ready of node worker-2 to Unknown",
    ]
