"""Steps for tests of eviction."""

from __future__ import annotations

from reprieve.eviction.v1beta1 import eviction_service_pb2 as pb
from services.kube.time import SECOND_NS

GI = 1 << 30
S = SECOND_NS
_NODES = 5
_PODS = 500
_STEPS = 4


def large_batch() -> list[pb.Operation]:
    """Return steps, several of each node, with results that no single answer holds.

    Each pod uses more local storage than it may, and is evicted in each of the steps.
    """
    names = [f"n{number}" for number in range(_NODES)]
    return [pb.Operation(step=_step(name, at)) for at in range(_STEPS) for name in names]


def _step(node_name: str, at_s: int) -> pb.Step:
    """Return a step of a node under memory pressure; after its first, pods go by UID."""
    step = pb.Step(node_name=node_name, time_ns=at_s * S)
    memory = step.observations.memory
    memory.available_bytes, memory.working_set_bytes, memory.time_ns = GI // 2, GI, at_s * S
    for number in range(_PODS):
        uid = f"{node_name}-{number:03}"
        step.observations.pods.add(ephemeral_used_bytes=2 * GI).pod.uid = uid
        if at_s:
            step.active_uids.append(uid)
            continue
        pod = step.pods.add()
        pod.metadata.uid = pod.metadata.name = uid
        pod.spec.containers.add(name="c").resources.limits["ephemeral-storage"] = "1Gi"
    return step
