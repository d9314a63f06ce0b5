"""Compares the bindings, preemptions and evictions of a free run with the recorded ones.

A free run makes its own decisions, so its first difference may cause all later ones. The figures
show how well a trace and its models represent the recorded cluster, not whether a rule is right.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any

from reprieve.trace.v1beta1.trace_pb2 import Decision, Observed, Record

_OUTCOMES = frozenset({"scheduled", "preempted", "evicted"})


class BindingMatch(Enum):
    """How the free run bound the pod of a recorded binding.

    TIED: the run bound the pod to another node, chosen among several with equal scores, so perhaps
    only the tie-break differs. UNBOUND: the run did not bind the pod, or bound it fewer times.
    """

    SAME = "the recorded node"
    TIED = "another node of several equal ones"
    OTHER = "another node"
    UNBOUND = "not bound"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodOverlap:
    """Numbers of preempted (or evicted) pods: in both, only in the recording, only in the run."""

    both: int
    recorded_only: int
    run_only: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeRunAgreement:
    """The comparison of a free run with the recording; `run_only` counts unrecorded bindings."""

    bindings: Counter[BindingMatch]
    run_only: int
    preempted: PodOverlap
    evicted: PodOverlap

    def to_mapping(self) -> dict[str, Any]:
        """Return the figures as JSON data."""
        return {
            "bindings": {
                **{match.value: self.bindings[match] for match in BindingMatch},
                "in the run only": self.run_only,
            },
            "preempted": asdict(self.preempted),
            "evicted": asdict(self.evicted),
        }


@dataclass(slots=True)
class RecordedOutcomes:
    """The bindings, preemptions and evictions in a trace; memory use grows with the number of pods.

    Pods are identified by namespace and name, because a controller's pod gets another UID in a run.
    """

    nodes: dict[str, list[str]] = field(default_factory=dict)
    preempted: set[str] = field(default_factory=set)
    evicted: set[str] = field(default_factory=set)

    def seen(self, records: Iterable[Record]) -> Iterator[Record]:
        """Yield the records unchanged, and collect their observed outcomes."""
        for record in records:
            if record.HasField("observed"):
                self._note(record.observed)
            yield record

    def _note(self, observed: Observed) -> None:
        key = _key(observed)
        match observed.WhichOneof("observed"):
            case "scheduled":
                self.nodes.setdefault(key, []).append(observed.scheduled.node_name)
            case "preempted":
                self.preempted.add(key)
            case "evicted":
                self.evicted.add(key)

    def agreement(self, decisions: Iterable[Decision]) -> FreeRunAgreement:
        """Compare with a run's decisions: a pod's n-th binding with its n-th recorded binding."""
        bound, preempted, evicted = Counter[str](), set[str](), set[str]()
        bindings, run_only = Counter[BindingMatch](), 0
        for decision in decisions:
            observed = decision.observed
            key = _key(observed)
            match observed.WhichOneof("observed"):
                case "scheduled" if not decision.refused:
                    recorded = self.nodes.get(key, ())
                    if bound[key] < len(recorded):
                        bindings[_binding_match(observed, recorded[bound[key]])] += 1
                    else:
                        run_only += 1
                    bound[key] += 1
                case "preempted":
                    preempted.add(key)
                case "evicted":
                    evicted.add(key)
        bindings[BindingMatch.UNBOUND] = sum(map(len, self.nodes.values())) - bindings.total()
        return FreeRunAgreement(
            bindings=bindings,
            run_only=run_only,
            preempted=_overlap(self.preempted, preempted),
            evicted=_overlap(self.evicted, evicted),
        )


def has_outcomes(records: Iterable[Record]) -> bool:
    """Return whether a trace has an observed binding, preemption or eviction; stop at the first."""
    return any(
        record.HasField("observed") and record.observed.WhichOneof("observed") in _OUTCOMES
        for record in records
    )


def _key(observed: Observed) -> str:
    return f"{observed.object.namespace}/{observed.object.name}"


def _binding_match(observed: Observed, recorded: str) -> BindingMatch:
    if observed.scheduled.node_name == recorded:
        return BindingMatch.SAME
    return BindingMatch.TIED if observed.scheduled.tied_nodes > 1 else BindingMatch.OTHER


def _overlap(recorded: set[str], run: set[str]) -> PodOverlap:
    return PodOverlap(
        both=len(recorded & run), recorded_only=len(recorded - run), run_only=len(run - recorded)
    )
