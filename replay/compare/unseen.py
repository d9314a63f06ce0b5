"""Changes that a scheduler need not have seen when it decided: which, and what to call them.

A scheduler hears of a pod's end by a watch that lags, but knows at once what it has decided itself.
So the end of a pod can be unseen where later bindings and nominations are known.

Source: kubernetes v1.34 pkg/scheduler/eventhandlers.go, addAllEventHandlers (handlers of one
informer, each with a queue of its own); pkg/scheduler/backend/cache/cache.go, AssumePod.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from replay.compare.recorded import Kind, RecordedDecision, RecordedEvent
from reprieve.kube.v1alpha1.pod_pb2 import Pod

LAG_NS = 1_000_000_000
"""How long before a decision a change can have been without being seen."""
_ENDS_MAX = 48
_TERMINAL = frozenset({"Succeeded", "Failed"})


def moment_ns(events: Sequence[RecordedEvent], decision: RecordedDecision) -> int:
    """Return when a decision can have been taken at the latest."""
    return min(decision.at_ns, events[decision.position].at_ns)


def unseen_ends(
    events: Sequence[RecordedEvent], decision: RecordedDecision
) -> Iterator[tuple[str, Sequence[int]]]:
    """Yield nodes, each with positions of pods' ends there that may all be unseen.

    The ends are those within the lag, the latest first: the last one, then the last two, and so on.
    A failure may follow from any node, a preemption's victims from their own.
    """
    if decision.kind not in {Kind.FAILURE, Kind.PREEMPTION}:
        return
    until_ns = moment_ns(events, decision)
    ends: dict[str, list[int]] = {}
    found = 0
    for place in range(decision.position - 1, -1, -1):
        event = events[place]
        if until_ns - event.at_ns > LAG_NS or found == _ENDS_MAX:
            return
        node = _ends_on(event)
        if node and (decision.kind is Kind.FAILURE or node == decision.node):
            found += 1
            ends.setdefault(node, []).append(place)
            yield node, tuple(ends[node])


def named(event: RecordedEvent, until_ns: int) -> str:
    """Return what happened to what, and how long before the decision."""
    reference = event.ref
    key = f"{reference.namespace}/{reference.name}".lstrip("/")
    before_ms = max(0, until_ns - event.at_ns) / 1e6
    version = f"resourceVersion {event.version}, " if event.version else ""
    return f"{_what(event)} of {reference.kind} {key} ({version}{before_ms:.0f} ms before)"


def _ends_on(event: RecordedEvent) -> str:
    """Return the node on which a change ends a pod, or begins to; "" where it does not."""
    if event.ref.kind != "Pod" or event.old is None:
        return ""
    old = event.old.pod
    return old.spec.node_name if _what(event) != _CHANGE and not _has_ended(old) else ""


_CHANGE = "the change"


def _what(event: RecordedEvent) -> str:
    if event.old is None:
        return "the coming"
    if event.new is None:
        return "the removal"
    if event.ref.kind == "Pod":
        old, new = event.old.pod, event.new.pod
        if _has_ended(new) and not _has_ended(old):
            return "the end"
        if _is_ending(new) and not _is_ending(old):
            return "the begun end"
    return _CHANGE


def _has_ended(pod: Pod) -> bool:
    return pod.status.phase in _TERMINAL


def _is_ending(pod: Pod) -> bool:
    return pod.metadata.HasField("deletion_timestamp")
