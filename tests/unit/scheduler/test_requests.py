"""What a pod asks of a node."""

from __future__ import annotations

import pytest

from services.scheduler.core.requests import (
    DEFAULT_CPU_MILLI,
    DEFAULT_MEMORY_BYTES,
    is_scalar,
    pod_requests,
)
from tests.builders import make_pod


def test_containers_add_up_and_overhead_comes_on_top() -> None:
    """Two containers and overhead."""
    spec = make_pod().req(cpu="1").req(cpu="500m").overhead(cpu="100m").obj().spec
    assert pod_requests(spec).amounts == {"cpu": 1600}


def test_an_init_container_counts_where_it_asks_for_more_than_all_that_run_later() -> None:
    """The larger of the two phases."""
    spec = make_pod().req(cpu="1", memory="1Gi").init_req(cpu="3", memory="1Mi").obj().spec
    assert pod_requests(spec).amounts == {"cpu": 3000, "memory": 1 << 30}


def test_a_sidecar_counts_beside_what_starts_after_it_and_not_before() -> None:
    """Order decides: 2 then (1 sidecar + 2) then 1 + 1 running."""
    early = make_pod().init_req(cpu="1", sidecar=True).init_req(cpu="2").req(cpu="1").obj().spec
    late = make_pod().init_req(cpu="2").init_req(cpu="1", sidecar=True).req(cpu="1").obj().spec
    assert pod_requests(early).amounts == {"cpu": 3000}
    assert pod_requests(late).amounts == {"cpu": 2000}


def test_a_missing_request_has_a_default_in_the_scores_and_zero_has_not() -> None:
    """100m and 200Mi a container, where nothing is said."""
    missing = pod_requests(make_pod().container().obj().spec)
    zero = pod_requests(make_pod().req(cpu="0", memory="0").obj().spec)
    assert missing.amounts == {}
    assert missing.non_zero_cpu_milli == DEFAULT_CPU_MILLI
    assert missing.non_zero_memory_bytes == DEFAULT_MEMORY_BYTES
    assert zero.scored == {"cpu": 0, "memory": 0}


def test_pod_level_requests_replace_the_sum_but_not_in_the_pending_pods_score() -> None:
    """What runs is bound by the pod's own figure; LeastAllocated does not read it."""
    requests = pod_requests(make_pod().req(cpu="1").pod_req(cpu="4").obj().spec)
    assert requests.amounts["cpu"] == 4000
    assert requests.non_zero_cpu_milli == 4000
    assert requests.scored["cpu"] == 1000


def test_a_resource_that_no_scheduler_counts_is_left_out() -> None:
    """Such as a name without a domain."""
    assert pod_requests(make_pod().req({"bogus": 3}).obj().spec).amounts == {}


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
def test_scalar_resources_are_told_by_their_name(name: str, expected: bool) -> None:
    """Extended resources, huge pages and volumes are."""
    assert is_scalar(name) is expected
