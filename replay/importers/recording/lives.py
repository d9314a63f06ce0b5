"""How a recorded pod lives in a replay, from what was seen of it."""

from __future__ import annotations

from replay.importers.recording.survey import ObjectFacts
from reprieve.trace.v1alpha1.trace_pb2 import PodLife


def pod_life(facts: ObjectFacts, end_ns: int) -> PodLife | None:
    """Return the life of a pod; None where nothing is known of it. `end_ns` ends the recording.

    Service time is from Running to the end. A pod that was asked to stop, was evicted or still ran
    at the end of the recording would have run longer: its service time is a lower bound.
    """
    life = PodLife()
    ran_ns = facts.running_ns
    if ran_ns is not None:
        stops = (facts.asked_ns, facts.ended_ns, facts.removed_ns, end_ns)
        stop_ns = min(ns for ns in stops if ns is not None)
        life.service_time_ns = max(0, stop_ns - ran_ns)
        asked = facts.asked_ns is not None and facts.asked_ns <= stop_ns
        ended_by_itself = facts.ended_ns == stop_ns and not asked
        life.censored = not ended_by_itself or facts.evicted
        life.fails = ended_by_itself and facts.failed and not facts.evicted
        if facts.bound_ns is not None and facts.bound_ns >= facts.created_ns:
            life.start_delay_ns = max(0, ran_ns - facts.bound_ns)
    if facts.asked_ns is not None and facts.bound_ns is not None:
        stopped_ns = facts.removed_ns if facts.ended_ns is None else facts.ended_ns
        if stopped_ns is not None and stopped_ns >= facts.asked_ns:
            life.shutdown_ns = stopped_ns - facts.asked_ns
    return life if life.ByteSize() else None
