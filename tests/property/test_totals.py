"""The totals of a class are the sums of its plugins' scores, whatever happened before."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from services.framework.runtime.framework import Framework
from services.framework.runtime.merged_columns import NO_NODE
from services.framework.snapshot.snapshot import Snapshot
from services.kube.node import Node
from tests.builders import make_node, make_pod

NODES = 8
PODS = (
    make_pod("plain").req(cpu="500m").obj(),
    make_pod("wishful").req(cpu="1").preferred(5).node_affinity_in("disk", "ssd").obj(),
    make_pod("torn")
    .preferred(3)
    .node_affinity_in("disk", "hdd")
    .preferred(4)
    .node_affinity_in("disk", "ssd", "hdd")
    .obj(),
)
rows = st.integers(0, NODES - 1)
steps = st.tuples(
    st.sampled_from(["nothing", "node", "pod"]), rows, st.integers(0, 3), st.integers(0, 2**NODES)
)


def node_of(row: int, taints: int) -> Node:
    """Return a node with so many taints that pods would rather not tolerate."""
    node = make_node(f"n{row}").capacity(cpu=8, memory="8Gi", pods=110)
    node = node.label("disk", ("ssd", "hdd", "tape")[row % 3])
    for key in range(taints):
        node = node.taint(f"k{key}", "v", "PreferNoSchedule")
    return node.obj()


@settings(max_examples=60)
@given(steps=st.lists(steps, min_size=2, max_size=12))
def test_totals_are_those_of_the_rows_that_fit(steps: list[tuple[str, int, int, int]]) -> None:
    """They do not depend on which rows fitted earlier, nor on what these were worth."""
    snapshot = Snapshot()
    framework = Framework(snapshot)
    for row in range(NODES):
        snapshot.set_node(node_of(row, row % 4))
    for number, (kind, row, taints, fitting) in enumerate(steps):
        if kind == "node":
            snapshot.set_node(node_of(row, taints))
        elif kind == "pod":
            other = make_pod(f"other-{number}").req(cpu="900m", memory="1Gi").obj()
            snapshot.assume(other, f"n{row}")
        refuser = np.full(snapshot.columns.capacity, NO_NODE, dtype=np.int8)
        fits = np.flatnonzero([fitting >> bit & 1 for bit in range(NODES)])
        refuser[fits] = 0
        for pod in PODS:
            totals = framework.verdicts.synced(pod).totals()
            assert not totals.synced_failure()
            summed = np.zeros(len(fits), dtype=np.int64)
            for _, weight, normalized in totals.by_plugin(fits):
                summed += weight * normalized.scores
            assert totals.normalized_totals(refuser)[fits].tolist() == summed.tolist()
