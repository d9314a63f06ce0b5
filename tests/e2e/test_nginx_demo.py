"""The nginx scenario of the documents, replayed and looked at as its authors looked at it."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

import pytest

from replay.backends.processes import EmbeddedServices
from replay.results.kubectl.get import GetQuery, get
from tests.e2e.replays import DEMOS, run, trace

SEEN = {
    "nginx-5754944d6c-9mnxa": [
        ("Running", "test-worker", "<none>"),
        ("Terminating", "test-worker", "<none>"),
    ],
    "nginx-a": [
        ("Pending", "<none>", "<none>"),
        ("Pending", "<none>", "test-worker"),
        ("Pending", "test-worker", "test-worker"),
        ("ContainerCreating", "test-worker", "<none>"),
        ("Running", "test-worker", "<none>"),
    ],
    "nginx-5754944d6c-7xk2p": [("Pending", "<none>", "<none>")],
}
"""STATUS, NODE and NOMINATED NODE of `kubectl get pod -o wide -w` in the documents, equal
neighbours taken as one; the last pod is the ReplicaSet's replacement, which they leave out."""


@pytest.mark.e2e
@pytest.mark.parametrize("rules", ["v1.34", "v1.16"])
def test_kubectl_would_have_shown_what_the_documents_show(
    services: EmbeddedServices, tmp_path: Path, rules: str
) -> None:
    """High priority nginx-a takes the node of an nginx pod, under both versions' rules."""
    finished = run(
        services, trace([DEMOS / "nginx-preemption.jsonl"]), tmp_path / "run", rules=rules
    )
    printed: list[str] = []
    get(finished.run, GetQuery(resource="pods", output="wide", watch=True), printed.append)
    header, *rows = "".join(printed).splitlines()
    columns = header.replace("NOMINATED NODE", "NOMINATED_NODE").split()
    places = [columns.index(name) for name in ("STATUS", "NODE", "NOMINATED_NODE")]
    seen: dict[str, list[tuple[str, ...]]] = {}
    for row in rows:
        cells = row.split()
        seen.setdefault(cells[0], []).append(tuple(cells[place] for place in places))
    assert {name: [key for key, _ in groupby(states)] for name, states in seen.items()} == SEEN
