"""The total requests of a pod."""

from __future__ import annotations

from services.kube.requests import pod_requests
from tests.builders import make_pod


def test_containers_add_up_and_overhead_comes_on_top() -> None:
    """Of every resource, for every caller."""
    pod = make_pod().req(cpu="1").req(cpu="500m", bogus="3").overhead(cpu="100m", x="1").obj()
    assert pod_requests(pod.spec) == {"cpu": 1600, "bogus": 3, "x": 1}


def test_an_init_container_counts_if_it_requests_more_than_the_later_containers() -> None:
    """The larger of the two phases."""
    spec = make_pod().req(cpu="1", memory="1Gi").init_req(cpu="3", memory="1Mi").obj().spec
    assert pod_requests(spec) == {"cpu": 3000, "memory": 1 << 30}


def test_a_sidecar_counts_beside_what_starts_after_it_and_not_before() -> None:
    """Order decides: 2 then (1 sidecar + 2) then 1 + 1 running."""
    early = make_pod().init_req(cpu="1", sidecar=True).init_req(cpu="2").req(cpu="1").obj().spec
    late = make_pod().init_req(cpu="2").init_req(cpu="1", sidecar=True).req(cpu="1").obj().spec
    assert pod_requests(early) == {"cpu": 3000}
    assert pod_requests(late) == {"cpu": 2000}


def test_requests_of_the_pod_as_a_whole_replace_the_sums_under_the_overhead() -> None:
    """Also where they are smaller; a resource that cannot have any is left as it is."""
    spec = make_pod().req(cpu="1").init_req(cpu="9").pod_req(cpu="2").overhead(cpu="1m").obj().spec
    assert pod_requests(spec) == {"cpu": 2001}
    assert pod_requests(spec, pod_level=False) == {"cpu": 9001}
    scarce = make_pod().req({"x.io/gpu": 1}).pod_req({"x.io/gpu": 2}).obj().spec
    assert pod_requests(scarce) == {"x.io/gpu": 1}


def test_a_default_stands_for_a_missing_request_of_each_container_and_not_for_zero() -> None:
    """Init containers too."""
    spec = make_pod().container().req(cpu="0").init_req(memory="1").obj().spec
    assert pod_requests(spec, {"cpu": 100}) == {"cpu": 100, "memory": 1}
