"""All verdicts about a pod, in this process, against what upstream's kube-scheduler said.

Configurations, volume objects and the default profile alike: refusals, scores, texts, order and
weights of plugins, and all of preemption. Kernels are plain Python: compiled ones decide the same
scenarios in tests.e2e.test_scheduling_vectors. The vectors lie in the folder `shared` beside the
repository.
"""

from __future__ import annotations

import pytest

from replay.conform.vectors.scheduling import NOW_NS, Json, differences, round_of
from reprieve.kube.v1beta1.pod_pb2 import Pod
from reprieve.scheduler.v1beta1 import scheduler_pb2
from reprieve.scheduler.v1beta1.scheduler_service_pb2 import EvaluatePodRequest
from services.rpc.kube.json_codec import parse
from services.scheduler.core.queueing.mirror import QUEUE_TRAITS
from services.scheduler.evaluation import evaluate_pod
from services.scheduler.intake import Intake
from tests.scheduling_vectors import scheduler_of, vectors

FILES = {
    "scheduling.jsonl.gz": ("v1.34", 600),
    "scheduling-extra.jsonl.gz": ("v1.34", 300),
    "scheduling-v1.36.jsonl.gz": ("v1.36", 960),
    "scheduling-devices-v1.34.jsonl.gz": ("v1.34", 258),
    "scheduling-devices-v1.36.jsonl.gz": ("v1.36", 396),
}
"""The version and the number of the scenarios of each file."""


def evaluated(scenario: Json, rules: str) -> scheduler_pb2.Evaluation:
    """Return every verdict about the scenario's pod, which the cluster does not hold."""
    scheduler = scheduler_of(scenario, rules, rules)
    round_ = round_of(scenario)
    intake = Intake(scheduler, queue=QUEUE_TRAITS[rules])
    intake.take_round(intake.read_round(round_, 0))
    request = EvaluatePodRequest(new_pod=parse(Pod, scenario["pending"]))
    return evaluate_pod(scheduler, request, NOW_NS)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize(
    "tier", ["plain", pytest.param("compiled", marks=pytest.mark.long)], indirect=True
)
@pytest.mark.usefixtures("tier")
def test_every_field_of_every_scenario_is_upstreams(name: str) -> None:
    """Nothing that the vectors hold differs, in any scenario of the file."""
    rules, count_min = FILES[name]
    count, wrong = 0, []
    for scenario, expected in vectors(name):
        count += 1
        wrong += differences(scenario, expected, evaluated(scenario, rules))
    assert count >= count_min
    assert not wrong, f"{len(wrong)} differences in {count} scenarios:\n" + "\n".join(wrong[:20])
