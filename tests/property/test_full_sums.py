"""The sum of the requests on a node is exact up to SUM_MAX; a larger sum counts as SUM_MAX."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.framework.columns.kernels import SUM_MAX
from services.framework.snapshot.snapshot import Snapshot
from services.kube.pod import Pod
from services.kube.quantity import AMOUNT_MAX
from tests.builders import make_node, make_pod

pytestmark = pytest.mark.usefixtures("tier")

memory = st.sampled_from((0, 1, 4096, AMOUNT_MAX // 3, AMOUNT_MAX, 2**62, 2**63 - 1))


@settings(max_examples=30)
@given(
    requests=st.lists(memory, min_size=1, max_size=6),
    steps=st.lists(st.tuples(st.integers(1, 150), st.booleans()), max_size=12),
)
def test_saturated_sums_decrease_again(requests: list[int], steps: list[tuple[int, bool]]) -> None:
    """Sixty-four of the largest pods are more than 62 bits hold."""
    snapshot = Snapshot()
    snapshot.set_node(make_node().capacity(memory="9E").obj())
    kinds = [make_pod().req(memory=request) for request in requests]
    held: list[tuple[Pod, int]] = []
    made = 0
    for count, comes in steps:
        for _ in range(count):
            if comes:
                number, made = made % len(kinds), made + 1
                pod = kinds[number].uid(f"u{made}").node("node").obj()
                held.append((pod, min(requests[number], AMOUNT_MAX)))
                snapshot.set_pod(pod)
            elif held:
                snapshot.remove_pod(held.pop(len(held) // 2)[0].uid)
        total = min(sum(amount for _, amount in held), SUM_MAX)
        row = snapshot.columns
        assert row.requested[0].tolist() == [0, total, 0]
        assert row.non_zero_requested[0, 1] == total
        assert row.pod_count[0] == len(held)
        assert row.allocatable[0, 1] == AMOUNT_MAX
