"""A quota's usage equals the sum over its pods after any sequence of events."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from replay.world.api.admission.quotas import Quotas
from replay.world.api.admission.refusal import AdmissionError
from reprieve.kube.v1beta1.pod_pb2 import Pod
from tests.unit.world.admission.test_quotas import make_pod, make_quota

HARD = {"pods": "4", "requests.cpu": "6", "count/pods": "5"}
_STEPS = st.lists(
    st.tuples(st.sampled_from(["create", "end", "remove"]), st.integers(0, 7), st.integers(1, 4)),
    max_size=40,
)


@given(_STEPS, st.integers(0, 40))
def test_a_quota_is_never_exceeded_and_its_use_is_the_sum_over_its_pods(
    steps: list[tuple[str, int, int]], quota_at: int
) -> None:
    """Admission is compared with sums recomputed after each step; the quota may come later."""
    quotas, pods = Quotas(), dict[str, Pod]()
    for number, (step, name, cpu) in enumerate(steps):
        if number == quota_at:
            quotas.put(0, make_quota(HARD), pods.values())
        running = [pod for pod in pods.values() if not pod.status.phase]
        used = {
            "pods": len(running),
            "requests.cpu": sum(_cpu(pod) for pod in running),
            "count/pods": len(pods),
        }
        pod = pods.get(f"p{name}")
        if step == "create" and pod is None:
            pod = make_pod(f"p{name}", str(cpu))
            more = {"pods": 1, "requests.cpu": cpu, "count/pods": 1}
            fits = all(used[key] + more[key] <= int(HARD[key]) for key in HARD)
            try:
                quotas.check(0, pod)
            except AdmissionError:
                assert number >= quota_at
                assert not fits
                continue
            assert fits or number < quota_at
            pods[f"p{name}"] = pod
            quotas.charge(0, pod)
        elif step == "end" and pod is not None:
            pod.status.phase = "Failed"
            quotas.charge(0, pod)
        elif step == "remove" and pod is not None:
            del pods[f"p{name}"]
            quotas.release(pod)


def _cpu(pod: Pod) -> int:
    return int(pod.spec.containers[0].resources.requests["cpu"])
