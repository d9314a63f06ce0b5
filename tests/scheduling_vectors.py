"""Golden scheduling scenarios."""

from __future__ import annotations

import json
from collections.abc import Iterator

from replay.conform.vectors.scheduling import Json
from replay.conform.vectors.vectors import RECORDED
from reprieve.queue.v1beta1 import queue_pb2
from reprieve.scheduler.v1beta1 import scheduler_pb2
from services.scheduler.configuration import options_of, read_configuration
from services.scheduler.core.session.scheduler import Scheduler
from tests.vectors import read_vectors


def whole_vectors(name: str) -> Iterator[Json]:
    """Yield the vectors of a file."""
    yield from read_vectors(RECORDED / name)


def vectors(name: str) -> Iterator[tuple[Json, Json]]:
    """Yield the scenarios of a file with what is expected, what upstream documents first."""
    for vector in whole_vectors(name):
        yield vector["scenario"], vector.get("expectedDocumented") or vector["expected"]


def scheduler_of(scenario: Json, queue_rules: str, rules: str = "v1.34") -> Scheduler:
    """Return a scheduler under the scenario's configuration, with an empty cluster."""
    config = scheduler_pb2.SchedulerConfig(rules=rules)
    if "schedulerConfiguration" in scenario:
        config.kube_scheduler_configuration = json.dumps(scenario["schedulerConfiguration"])
    return Scheduler(
        options_of(config, read_configuration(config), queue_pb2.QueueConfig(rules=queue_rules))
    )
