"""The autoscaler's lists of what it has received."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from services.autoscaler.core.cluster import Cluster
from services.kube.pod import PodPhase
from tests.unit.autoscaler.builders import make_pod


@given(st.lists(st.tuples(st.sampled_from(("put", "end", "remove", "list")), st.integers(0, 4))))
def test_pods_are_listed_by_key_however_they_came_and_went(steps: list[tuple[str, int]]) -> None:
    """Each once, in its latest form, and none that has finished."""
    cluster = Cluster()
    expected = {}
    for step, number in [*steps, ("list", 0)]:
        pod = make_pod(f"p{number}")
        match step:
            case "put":
                cluster.put(pod)
                expected[pod.key] = pod
            case "end":
                cluster.put(replace(pod, pod=replace(pod.pod, phase=PodPhase.FAILED)))
                expected.pop(pod.key, None)
            case "remove":
                cluster.remove("Pod", pod.key)
                expected.pop(pod.key, None)
            case _:
                assert cluster.pods() == [pod for _, pod in sorted(expected.items())]
