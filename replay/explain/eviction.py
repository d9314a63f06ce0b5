"""Why a kubelet evicted a pod: the threshold, what was observed, and the pod's place among others.

The decision log's entry says all of it; nothing is decided again.
"""

from __future__ import annotations

from replay.explain.explanation import Eviction, RankedPod
from reprieve.trace.v1alpha1 import trace_pb2


def eviction_of(entry: trace_pb2.Decision, top: int) -> Eviction:
    """Return what an `evicted` entry of the log holds, with the first `top` of the ranking."""
    evicted = entry.observed.evicted
    return Eviction(
        at_ns=entry.at_ns,
        node=evicted.node_name,
        signal=evicted.signal,
        threshold=evicted.threshold,
        available=evicted.available if evicted.HasField("available") else None,
        capacity=evicted.capacity if evicted.HasField("capacity") else None,
        grace_period_s=evicted.grace_period_s if evicted.HasField("grace_period_s") else None,
        message=evicted.message,
        rank=evicted.rank,
        ranked_pods=evicted.ranked_pods,
        ranking=tuple(map(_ranked, evicted.ranking[:top])),
    )


def _ranked(place: trace_pb2.RankedPod) -> RankedPod:
    return RankedPod(
        pod=f"{place.pod.namespace}/{place.pod.name}",
        priority=place.priority,
        usage=place.usage if place.HasField("usage") else None,
        request=place.request,
        exceeds_request=place.exceeds_request,
    )
