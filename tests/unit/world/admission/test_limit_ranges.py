"""LimitRanges: defaults and bounds. The texts are upstream's."""

from __future__ import annotations

import pytest

from replay.world.api.admission.limit_ranges import LimitRanges
from replay.world.api.admission.refusal import AdmissionError
from reprieve.kube.v1beta1.admission_pb2 import LimitRange
from reprieve.kube.v1beta1.pod_pb2 import Pod
from services.rpc.kube import json_codec


def ranges(*items: dict[str, object]) -> LimitRanges:
    """Return the admission of namespace shop, which has one LimitRange."""
    made = LimitRanges()
    meta = {"name": "bounds", "namespace": "shop"}
    made.put(json_codec.parse(LimitRange, {"metadata": meta, "spec": {"limits": list(items)}}))
    return made


def pod_of(*resources: dict[str, object], namespace: str = "shop") -> Pod:
    """Return a pod with a container of each resources."""
    containers = [{"name": f"c{i}", "resources": amounts} for i, amounts in enumerate(resources)]
    meta = {"name": "p", "namespace": namespace}
    pod: Pod = json_codec.parse(Pod, {"metadata": meta, "spec": {"containers": containers}})
    return pod


def refusal(admission: LimitRanges, pod: Pod) -> str:
    """Return why the pod is refused, "" where it is admitted."""
    try:
        admission.fill_in(pod)
        admission.check(pod)
    except AdmissionError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("item", "limit", "request_"),
    [
        ({"default": {"cpu": "1"}, "defaultRequest": {"cpu": "200m"}}, "1", "200m"),
        ({"default": {"cpu": "1"}}, "1", "1"),
        ({"max": {"cpu": "2"}}, "2", "2"),
        ({"min": {"cpu": "100m"}}, None, "100m"),
    ],
)
def test_a_container_gets_defaults_for_missing_resources(
    item: dict[str, object], limit: str | None, request_: str
) -> None:
    """A default limit comes from max, a default request from the limit, then from min."""
    pod = pod_of({})
    assert refusal(ranges({"type": "Container", **item}), pod) == ""
    resources = pod.spec.containers[0].resources
    assert (resources.limits.get("cpu"), resources.requests.get("cpu")) == (limit, request_)


def test_existing_resources_and_other_namespaces_stay_unchanged() -> None:
    """Its own request of 50m."""
    admission = ranges({"type": "Container", "defaultRequest": {"cpu": "200m"}})
    own, other = pod_of({"requests": {"cpu": "50m"}}), pod_of({}, namespace="other")
    assert (refusal(admission, own), refusal(admission, other)) == ("", "")
    assert own.spec.containers[0].resources.requests["cpu"] == "50m"
    assert not other.spec.containers[0].resources.requests


@pytest.mark.parametrize(
    ("item", "pod", "text"),
    [
        (
            {"type": "Container", "min": {"cpu": "100m"}},
            pod_of({"requests": {"cpu": "50m"}}),
            "minimum cpu usage per Container is 100m, but request is 50m",
        ),
        (
            {"type": "Container", "max": {"memory": "1Gi"}},
            pod_of({"limits": {"memory": "2Gi"}, "requests": {"memory": "512Mi"}}),
            "maximum memory usage per Container is 1Gi, but limit is 2Gi",
        ),
        (
            {"type": "Pod", "max": {"memory": "1Gi"}},
            pod_of({"requests": {"memory": "2Gi"}}),
            "maximum memory usage per Pod is 1Gi.  No limit is specified",
        ),
        (
            {"type": "Pod", "max": {"cpu": "2"}},
            pod_of({"limits": {"cpu": "1500m"}}, {"limits": {"cpu": "1"}}),
            "maximum cpu usage per Pod is 2, but limit is 2500m",
        ),
        (
            {"type": "Container", "maxLimitRequestRatio": {"cpu": "2"}},
            pod_of({"limits": {"cpu": "3"}, "requests": {"cpu": "1"}}),
            "cpu max limit to request ratio per Container is 2, but provided ratio is 3.000000",
        ),
        (
            {"type": "Pod", "min": {"cpu": "1", "memory": "1Gi"}},
            pod_of({"requests": {"cpu": "500m"}}),
            (
                "[minimum cpu usage per Pod is 1, but request is 500m, "
                "minimum memory usage per Pod is 1Gi.  No request is specified]"
            ),
        ),
    ],
)
def test_a_pod_out_of_bounds_is_refused(item: dict[str, object], pod: Pod, text: str) -> None:
    """With all reasons of one LimitRange."""
    assert refusal(ranges(item), pod) == text


def test_at_a_bound_a_pod_is_admitted() -> None:
    """Upstream's bounds are inclusive."""
    admission = ranges({"type": "Container", "max": {"cpu": "2"}})
    assert refusal(admission, pod_of({"limits": {"cpu": "2000m"}, "requests": {"cpu": "2"}})) == ""
