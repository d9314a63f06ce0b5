"""All verdicts about a pod, in this process, against what upstream's kube-scheduler v1.34.1 said.

Configurations, volume objects and the default profile alike: refusals, scores, texts, order and
weights of plugins, and all of preemption. The vectors lie in the folder `shared` beside the
repository.
"""

from __future__ import annotations

import pytest

from replay.conform.scheduling import NOW_NS, Json, differences, round_of
from reprieve.scheduler.v1beta1 import scheduler_pb2
from services.rpc.kube_codec import pod_from_message
from services.rpc.kube_spec import PodSpecInterner
from services.scheduler.evaluation import _encode
from services.scheduler.intake import Intake
from tests.scheduling_vectors import scheduler_of, vectors

pytestmark = pytest.mark.usefixtures("tier")

FILES = {"scheduling.jsonl.gz": 600, "scheduling-extra.jsonl.gz": 300}


def evaluated(scenario: Json) -> scheduler_pb2.Evaluation:
    """Return every verdict about the scenario's pod, which the cluster does not hold.

    So a pod with a spec.nodeName is judged, too, which a session takes for bound.
    """
    scheduler = scheduler_of(scenario, "v1.34")
    round_ = round_of(scenario)
    pending = pod_from_message(round_.events.pop().add.pod, PodSpecInterner())
    intake = Intake(scheduler, has_hints=True)
    intake.take(round_, intake.read(round_, 0))
    return _encode(scheduler.evaluate(pending, 1, NOW_NS), 0)


@pytest.mark.parametrize("name", FILES)
def test_every_field_of_every_scenario_is_upstreams(name: str) -> None:
    """Nothing that the vectors hold differs, in any scenario of the file."""
    count, wrong = 0, []
    for scenario, expected in vectors(name):
        count += 1
        wrong += differences(scenario, expected, evaluated(scenario))
    assert count >= FILES[name]
    assert not wrong, f"{len(wrong)} differences in {count} scenarios:\n" + "\n".join(wrong[:20])
