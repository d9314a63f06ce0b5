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
