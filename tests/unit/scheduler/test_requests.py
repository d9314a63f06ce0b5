"""What a pod asks of a node, as the scheduler counts it."""

from __future__ import annotations

import pytest

from services.framework.snapshot.pod_load import (
    DEFAULT_CPU_MILLI,
    DEFAULT_MEMORY_BYTES,
    PodRequests,
)
from services.kube.requests import is_scalar
from tests.builders import make_pod


def test_a_missing_request_has_a_default_in_the_scores_and_zero_has_not() -> None:
    """100m and 200Mi a container, where nothing is said."""
    missing = PodRequests.of(make_pod().container().obj().spec)
    zero = PodRequests.of(make_pod().req(cpu="0", memory="0").obj().spec)
    assert missing.amounts == {}
    assert missing.non_zero_cpu_milli == DEFAULT_CPU_MILLI
    assert missing.non_zero_memory_bytes == DEFAULT_MEMORY_BYTES
    assert zero.scored == {"cpu": 0, "memory": 0}


def test_pod_level_requests_replace_the_sum_but_not_in_the_pending_pods_score() -> None:
    """What runs is bound by the pod's own figure; LeastAllocated does not read it."""
    requests = PodRequests.of(make_pod().req(cpu="1").pod_req(cpu="4").obj().spec)
    assert requests.amounts["cpu"] == 4000
    assert requests.non_zero_cpu_milli == 4000
    assert requests.scored["cpu"] == 1000


def test_a_resource_that_no_scheduler_counts_is_left_out() -> None:
    """Such as a name without a domain."""
    assert PodRequests.of(make_pod().req({"bogus": 3}).obj().spec).amounts == {}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("nvidia.com/gpu", True),
        ("hugepages-2Mi", True),
        ("attachable-volumes-csi", True),
        ("kubernetes.io/batch", True),
        ("requests.nvidia.com/gpu", False),
        ("cpu", False),
        ("bogus", False),
    ],
)
def test_scalar_resources_are_recognised_by_name(name: str, expected: bool) -> None:
    """Extended resources, huge pages and volumes are."""
    assert is_scalar(name) is expected
