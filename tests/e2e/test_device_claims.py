"""Device claims in a scheduler's session with its queue: what waits for them, what is written."""

from __future__ import annotations

from typing import Any

import pytest

from replay.backends.processes import EmbeddedServices
from reprieve.kube.v1beta1 import object_pb2
from reprieve.queue.v1beta1 import queue_pb2
from reprieve.scheduler.v1beta1 import scheduler_pb2
from services.kube.time import SECOND_NS
from services.rpc.kube.json_codec import parse
from tests.e2e.test_scheduler_checkpoints import Talker

pytestmark = pytest.mark.e2e
DRIVER = "gpu.example.com"


@pytest.mark.parametrize("rules", ["v1.34", "v1.36"])
def test_a_pod_waits_for_its_claim_and_then_for_a_device(
    here: EmbeddedServices, rules: str
) -> None:
    """Held back without an attempt; bound, with what is to be written; refused, and tried again.

    Between all rounds the session goes on from a checkpoint.
    """
    queue = queue_pb2.QueueConfig(rules=rules)
    config = scheduler_pb2.SchedulerConfig(rules=rules, queue=queue)
    talker = Talker(here.addresses["scheduler"], config)
    world = World(talker)
    assert world.tell(1, *cluster(), waiting("p", "one"), waiting("q", "two")) == []
    (bound,) = world.tell(2, claim("one"))
    (written,) = bound.bind.claims.claims
    assert written.metadata.name == "one"
    assert written.metadata.finalizers == ["resource.kubernetes.io/delete-protection"]
    assert [user.uid for user in written.status.reserved_for] == ["uid-p"]
    assert [result.device for result in written.status.allocation.devices.results] == ["gpu-0"]
    stored = object_pb2.KubernetesObject(resource_claim=written)
    (refused,) = world.tell(3, stored, claim("two"))
    assert "cannot allocate all claims" in str(refused)
    free = object_pb2.KubernetesObject(resource_claim=written)
    free.resource_claim.ClearField("status")
    (bound,) = world.tell(60, free)
    assert [claim.metadata.name for claim in bound.bind.claims.claims] == ["two"]
    talker.close()


class World:
    """Sends rounds, and answers that all was done."""

    def __init__(self, talker: Talker) -> None:
        self._talker = talker
        self._answers: list[scheduler_pb2.Answer] = []

    def tell(
        self, second: int, *objects: object_pb2.KubernetesObject
    ) -> list[scheduler_pb2.Outcome]:
        """Return what the scheduler decides at that time, with new or changed objects."""
        at_ns = second * SECOND_NS
        round_ = scheduler_pb2.Round(time_ns=at_ns, answers=self._answers)
        for changed in objects:
            round_.events.add(time_ns=at_ns).add.CopyFrom(changed)
        outcomes = scheduler_pb2.RoundOutcomes.FromString(self._talker.tell(round_))
        self._answers = [
            scheduler_pb2.Answer(pop=outcome.pop)
            for outcome in outcomes.outcomes
            if not outcome.HasField("refusals")
        ]
        self._talker.restore(self._talker.saved())
        return list(outcomes.outcomes)


def cluster() -> list[object_pb2.KubernetesObject]:
    """Return a node with one GPU, and the class of that."""
    held = {"cpu": "4", "memory": "8Gi", "pods": "10"}
    spec = {
        "driver": DRIVER,
        "nodeName": "a",
        "pool": {"name": "a", "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "gpu-0"}],
    }
    selector = {"cel": {"expression": f'device.driver == "{DRIVER}"'}}
    return [
        made("node", "a", status={"allocatable": held}),
        made("device_class", "gpu", spec={"selectors": [selector]}),
        made("resource_slice", "a-gpus", spec=spec),
    ]


def claim(name: str) -> object_pb2.KubernetesObject:
    """Return a claim of one GPU."""
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
    requests = [{"name": "gpu", "exactly": exactly}]
    return made("resource_claim", name, "default", spec={"devices": {"requests": requests}})


def waiting(name: str, claim_name: str) -> object_pb2.KubernetesObject:
    """Return a pod with a claim."""
    container = {"name": "c", "resources": {"requests": {"cpu": "1"}}}
    claims = [{"name": "gpu", "resourceClaimName": claim_name}]
    spec = {"containers": [container], "resourceClaims": claims}
    return made("pod", name, "default", spec=spec)


def made(field: str, name: str, namespace: str = "", **rest: Any) -> object_pb2.KubernetesObject:
    """Return an object, by its field there."""
    carried = object_pb2.KubernetesObject()
    meta = {"name": name, "namespace": namespace, "uid": f"uid-{name}"}
    content = getattr(carried, field)
    content.CopyFrom(parse(type(content), {"metadata": meta, **rest}))
    return carried


def test_the_claims_of_others_wake_a_pod_only_when_devices_are_free(here: EmbeddedServices) -> None:
    """An allocation for another pod is none of its business: it is not tried again in vain."""
    config = scheduler_pb2.SchedulerConfig(rules="v1.36")
    talker = Talker(here.addresses["scheduler"], config)
    world = World(talker)
    world.tell(1, *cluster(), claim("one"), claim("two"))
    bound, refused = world.tell(2, waiting("p", "one"), waiting("q", "two"))
    assert refused.HasField("unschedulable") or refused.HasField("refusals")
    (written,) = bound.bind.claims.claims
    stored = object_pb2.KubernetesObject(resource_claim=written)
    assert world.tell(60, stored) == []
    stored.resource_claim.ClearField("status")
    (second,) = world.tell(120, stored)
    assert second.bind.claims.claims[0].metadata.name == "two"
    talker.close()


def test_a_node_without_an_extended_resource_that_a_class_serves_wakes_its_pods(
    here: EmbeddedServices,
) -> None:
    """Node `a` lacks CPU alone, so that NodeResourcesFit is all that `p` waits for.

    The devices of `b` are known before the node; without a class the resource is missing there.
    """
    config = scheduler_pb2.SchedulerConfig(rules="v1.36")
    talker = Talker(here.addresses["scheduler"], config)
    world = World(talker)
    node_a, gpu_class, slice_a = cluster()
    gpu_class.device_class.spec.extended_resource_name = "example.com/gpu"
    slice_b = object_pb2.KubernetesObject(resource_slice=slice_a.resource_slice)
    content = slice_b.resource_slice
    content.metadata.name = content.metadata.uid = "b-gpus"
    content.spec.node_name = content.spec.pool.name = "b"
    requests = {"cpu": "6", "example.com/gpu": "1"}
    spec = {"containers": [{"name": "c", "resources": {"requests": requests, "limits": requests}}]}
    pod = made("pod", "p", "default", spec=spec)
    (refused,) = world.tell(1, node_a, gpu_class, slice_a, slice_b, pod)
    assert "1 Insufficient cpu" in str(refused)
    small = made("node", "c", status={"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}})
    assert world.tell(60, small) == []
    large = made("node", "b", status={"allocatable": {"cpu": "8", "memory": "8Gi", "pods": "10"}})
    (bound,) = world.tell(120, large)
    assert bound.bind.node_name == "b"
    talker.close()
