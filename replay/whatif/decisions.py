"""Decisions of two runs: how each reads in a sentence, and what two of them are compared by."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from operator import attrgetter

from reprieve.trace.v1beta1 import trace_pb2


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind of decision: its sentence about the object `key`, and what of it is compared.

    Both name the fields of its message, which is `seen` in the sentence.
    """

    sentence: str
    compared: tuple[str, ...] = ()


_KINDS = {
    "scheduled": _Kind("bound {key} to {seen.node_name}", ("node_name",)),
    "nominated": _Kind("nominated {key} for {seen.node_name}", ("node_name",)),
    "preempted": _Kind(
        "preempted {key} for {seen.by.namespace}/{seen.by.name}", ("node_name", "by.name")
    ),
    "evicted": _Kind("evicted {key} on {seen.node_name}", ("node_name", "signal")),
    "oom_killed": _Kind(
        "OOM-killed container {seen.container} of {key}", ("container", "limit_of")
    ),
    "failed_scheduling": _Kind("found no node for {key}"),
    "condition_changed": _Kind(
        "set {seen.type} of node {key} to {seen.status}", ("type", "status")
    ),
    "node_drain": _Kind("{step} node {key}", ("step",)),
    "created": _Kind("created {key}"),
    "finished": _Kind("finished {key}", ("phase",)),
    "removed": _Kind("removed {key} ({seen.cause})"),
    "invalid_placement": _Kind(
        "placed {key} on {seen.node_name}, where it does not fit ({seen.violations[0].cause})",
        ("node_name",),
    ),
    "invalid_preemption": _Kind(
        "preempted on {seen.node_name} for {key} against the rules ({seen.violations[0].cause})",
        ("node_name",),
    ),
    "rejected": _Kind(
        "rejected {key} on {seen.node_name} ({seen.reason})", ("node_name", "reason")
    ),
    "scaled_up": _Kind(
        "scaled {key} from {seen.from_size} to {seen.to_size} nodes", ("from_size", "to_size")
    ),
    "node_provisioned": _Kind("made node {key}", ("group", "message")),
    "node_removal": _Kind("{step} the removal of node {key}", ("step",)),
    "no_scale_up": _Kind("scaled no node group for {key}"),
    "refused": _Kind("refused to create {key}: {seen.message}"),
}


def sentence_of(decision: trace_pb2.Decision) -> str:
    """Return a decision as the end of a sentence, such as "bound default/web-0 to node-1"."""
    observed = decision.observed
    case = observed.WhichOneof("observed") or ""
    key = f"{observed.object.namespace}/{observed.object.name}".lstrip("/")
    seen, nominated = getattr(observed, case, None), observed.nominated
    step = str(getattr(seen, "step", "")).lower()
    text = _kind(case).sentence.format(key=key, seen=seen, step=step)
    if case == "nominated":
        victims = [f"{victim.namespace}/{victim.name}" for victim in nominated.victims]
        text = text if nominated.node_name else f"cleared the nomination of {key}"
        text += f", to preempt {', '.join(victims)}" if victims else ""
        text += ", where its binding waits" if nominated.expected else ""
    if case in ("node_drain", "node_provisioned", "node_removal") and (
        message := getattr(seen, "message", "")
    ):
        text += f" ({message})"
    return f"{text} (refused: {decision.refused})" if decision.refused else text


def identity(decision: trace_pb2.Decision, begin_ns: int) -> Hashable:
    """Return what two runs' decisions are compared by; `begin_ns` is the run's beginning."""
    observed = decision.observed
    case = observed.WhichOneof("observed") or ""
    detail = [attrgetter(name)(getattr(observed, case)) for name in _kind(case).compared]
    victims = [(victim.namespace, victim.name) for victim in observed.nominated.victims]
    named = (observed.object.kind, observed.object.namespace, observed.object.name)
    at_ns = decision.time_ns - begin_ns
    return (at_ns, case, named, *detail, *victims, bool(decision.refused))


def _kind(case: str) -> _Kind:
    return _KINDS.get(case) or _Kind(f"{case} {{key}}")
